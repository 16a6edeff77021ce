"""Slabs for a device: each is worth it, how small they are, and their samples."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pipeline.gpu import batches as of_slabs
from pipeline.gpu.batches import batches
from pipeline.gpu.blocks import device_blocks
from pipeline.gpu.decoding import Batch
from pipeline.storage.chunks import Chunk, Region, plan
from pipeline.storage.formats import slabs as formats
from pipeline.storage.sources import open_source
from pipeline.timeline import Timeline
from tests.cases.format_case import package_of
from tests.emulator.kvikio import install

BLOCK = 2**20


def enough(monkeypatch: pytest.MonkeyPatch, chunks: int, cores: int = 1) -> None:
    """The device gets batches of so many chunks for each core, or more."""
    monkeypatch.setattr(of_slabs, "LEAST_PER_CORE", dict.fromkeys(of_slabs.LEAST_PER_CORE, chunks))
    monkeypatch.setattr(of_slabs, "cores", partial(int, cores))


@pytest.fixture
def on_device(cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU, or the emulator; every slab is worth it."""
    enough(monkeypatch, 1)
    monkeypatch.setattr(of_slabs, "MEMORY", 2**20)  # buffers are small here, and chunks decode to far more
    if hasattr(cp.cuda, "Stream"):
        return
    install(cp, monkeypatch)
    package_of("numcodecs")
    pool = SimpleNamespace(total_bytes=lambda: 0, free_all_blocks=lambda: None)
    monkeypatch.setattr(cp, "get_default_memory_pool", lambda: pool)


def samples_of(
    item: str, start: int, samples: int, chunk_bytes: int = 2**30, spare: int = sys.maxsize
) -> tuple[Any, Timeline]:
    """So many samples, by blocks; and how they came there."""
    chunks, timeline, blocks = plan(open_source((item,)), chunk_bytes, "off", 0), Timeline(), []
    assert isinstance(chunks, tuple)
    for chunk in chunks:
        first, last = max(chunk.start, start), min(chunk.start + chunk.samples, start + samples)
        if first < last:
            part = chunk.part(Region(first - chunk.start, last - first))
            blocks += [block.get() for block in device_blocks(part, timeline, BLOCK, spare=spare)]
    return np.concatenate(blocks), timeline


def in_slabs(monkeypatch: pytest.MonkeyPatch, most: int, least: int = 1) -> None:
    """Slabs of so many bytes, as far as chunks allow."""
    monkeypatch.setattr(formats, "SLAB_BYTES", most)
    monkeypatch.setattr(formats.Grid.slabs, "__defaults__", (most, least))


def in_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Chunk, NDArray[Any], int]:
    """A chunk of samples in files of 100, each a batch; the samples; and bytes of a buffer that has room for one."""
    samples = np.random.default_rng(0).integers(0, 9999, 1000).astype("i2")
    made = package_of("zarr").create_array(
        str(folder / "a.zarr"), shape=1000, dtype="i2", chunks=100, zarr_format=2,
        compressors=package_of("numcodecs").Zstd(),
    )  # fmt: skip
    made[...] = samples
    in_slabs(monkeypatch, 1, 1)
    source = open_source((str(folder / "a.zarr"),))
    (chunk,) = plan(source, 2**30, "off", 0)
    nbytes = max(path.stat().st_size for path in (folder / "a.zarr").iterdir() if path.name.isdigit())
    parts = [*batches(chunk.pieces, source.dtype, nbytes)]
    assert [len(part.files) for part in parts if isinstance(part, Batch)] == [1] * 10
    return chunk, samples, nbytes
