"""Slabs for a device: nvCOMP or what stands in for it, how small they are, and the samples that come out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pipeline.gpu import batches as of_slabs
from pipeline.gpu import nvcomp
from pipeline.gpu.blocks import device_blocks
from pipeline.storage.chunks import Region, plan
from pipeline.storage.formats import slabs as formats
from pipeline.storage.sources import open_source
from pipeline.timeline import Timeline
from tests.cases.format_case import package_of
from tests.emulator.kvikio import install
from tests.emulator.nvcomp import HostLibrary

BLOCK = 2**20


@pytest.fixture
def library(cp: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """nvCOMP, or what stands in for it; every slab is worth it."""
    monkeypatch.setattr(of_slabs, "LEAST_CHUNKS", 1)
    monkeypatch.setattr(of_slabs, "MEMORY", 2**20)  # blocks are small here, nvCOMP's workspace is not
    if hasattr(cp.cuda, "Stream"):
        if nvcomp.library() is None:
            pytest.skip("no nvCOMP")
        return None
    install(cp, monkeypatch)
    package_of("numcodecs")
    host = HostLibrary()
    monkeypatch.setattr(nvcomp, "library", lambda: host)
    monkeypatch.setattr(cp, "empty", cp.zeros)  # the library does not mark what it writes
    return host


def samples_of(item: str, start: int, samples: int, chunk_bytes: int = 2**30) -> tuple[Any, Timeline]:
    chunks, timeline, blocks = plan(open_source((item,)), chunk_bytes, "off", 0), Timeline(), []
    assert isinstance(chunks, tuple)
    for chunk in chunks:
        first, last = max(chunk.start, start), min(chunk.start + chunk.samples, start + samples)
        if first < last:
            part = chunk.part(Region(first - chunk.start, last - first))
            blocks += [block.get() for block in device_blocks(part, timeline, BLOCK)]
    return np.concatenate(blocks), timeline


def in_slabs(monkeypatch: pytest.MonkeyPatch, most: int, least: int = 1) -> None:
    """Slabs of so many bytes, as far as chunks allow."""
    monkeypatch.setattr(formats, "SLAB_BYTES", most)
    monkeypatch.setattr(formats.Grid.slabs, "__defaults__", (most, least))
