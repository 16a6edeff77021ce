"""Chunks that are decompressed on the device: without a GPU by the emulator's nvCOMP, on one by nvCOMP itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline
from pipeline.errors import PipelineError
from pipeline.gpu import nvcomp, slabs, transfer
from pipeline.gpu.blocks import device_blocks
from pipeline.gpu.slabs import DECOMPRESSED, plan_of
from pipeline.storage.chunks import Region, plan
from pipeline.storage.formats import slabs as formats
from pipeline.storage.pieces import Piece
from pipeline.storage.sources import open_source
from pipeline.timeline import Timeline
from tests.cases.format_case import package_of
from tests.cases.format_files import CASES
from tests.emulator.kvikio import install
from tests.emulator.nvcomp import HostLibrary

pytestmark = pytest.mark.gpu

BLOCK = 2**20
ON_DEVICE = {
    "hdf5 in MATLAB's wrapping, deflate": "Deflate", "hdf5 deflate": "Deflate", "hdf5 one dimension": "Deflate",
    "hdf5 shuffle, deflate, fletcher32": "Deflate", "hdf5 missing chunks": "Deflate", "hdf5 lz4": "LZ4",
    "hdf5 zstd": "Zstd", "zarr 2": "Zstd", "zarr 2, Fortran": "Zstd", "zarr 2, zlib": "Deflate", "zarr 2, lz4": "LZ4",
    "zarr 2, shuffle": "Gzip", "zarr 3": "Zstd", "zarr 3, gzip": "Gzip", "zarr 3, transposed": "Zstd",
    "zarr 3, sharded": "Zstd",
}  # fmt: skip
CHUNKED = sorted(name for name in CASES if name.startswith(("hdf5", "zarr", "tiff")))


@pytest.fixture
def library(cp: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """nvCOMP, or what stands in for it; every slab is worth it."""
    monkeypatch.setattr(slabs, "LEAST_CHUNKS", 1)
    monkeypatch.setattr(slabs, "MEMORY", 2**20)  # blocks are small here, nvCOMP's workspace is not
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


def largest_file(folder: Path) -> Path:
    """A chunk."""
    return max((path for path in folder.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)


def samples_of(item: str, start: int, samples: int, chunk_bytes: int = 2**30) -> tuple[Any, Timeline]:
    chunks, timeline, blocks = plan(open_source((item,)), chunk_bytes, "off", 0), Timeline(), []
    assert isinstance(chunks, tuple)
    for chunk in chunks:
        first, last = max(chunk.start, start), min(chunk.start + chunk.samples, start + samples)
        if first < last:
            part = chunk.part(Region(first - chunk.start, last - first))
            blocks += [block.get() for block in device_blocks(part, timeline, BLOCK)]
    return np.concatenate(blocks), timeline


@pytest.mark.parametrize("name", CHUNKED)
def test_samples_are_those_of_the_formats_own_library(
    tmp_path: Path, library: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one slab and in several, which share chunks; all, and from a sample within."""
    written = CASES[name].written(tmp_path)
    for most, least in ((formats.SLAB_BYTES, formats.LEAST_BYTES), (3000, 1)):
        monkeypatch.setattr(formats, "SLAB_BYTES", most)
        monkeypatch.setattr(formats.Grid.slabs, "__defaults__", (most, least))
        for start, samples in ((0, written.array.size), (3, written.array.size - 9)):
            got, timeline = samples_of(written.item, start, samples, 10_000)
            np.testing.assert_array_equal(got, written.array.reshape(-1)[start : start + samples])
            assert got.dtype == written.array.dtype.newbyteorder("=")
            paths = {path for path in timeline.transfer_paths if path.endswith(DECOMPRESSED)}
            assert paths == ({f"{transfer.PINNED}, {DECOMPRESSED}"} if name in ON_DEVICE else set())
            assert timeline.nbytes["kernel"] == got.nbytes
    if library:
        assert {algorithm for algorithm, _ in library.called} == ({ON_DEVICE[name]} if name in ON_DEVICE else set())


def test_stored_bytes_cross_the_bus(tmp_path: Path, library: Any) -> None:
    written = CASES["hdf5 deflate"].written(tmp_path)
    source = open_source((written.item,))
    stored = sum(piece.block.stored.table[:, 2].sum() for piece in source.pieces())  # type: ignore[union-attr]
    _, timeline = samples_of(written.item, 0, written.array.size)
    chunks = sum(len(piece.block.stored.table) for piece in source.pieces())  # type: ignore[union-attr]
    assert stored < timeline.nbytes["read+copy"] <= stored + chunks * slabs.ALIGNMENT + slabs.ALIGNMENT


@pytest.mark.parametrize(("name", "reason"), [("zarr 2, lz4", "got LZ4|got .*expected"), ("zarr 3", "got Zstd|got")])
def test_damaged_chunk(tmp_path: Path, library: Any, name: str, reason: str) -> None:
    """The host says what is wrong with it."""
    if library is None and name != "zarr 2, lz4":
        pytest.skip("nvCOMP promises nothing of it")
    written = CASES[name].written(tmp_path)
    path = max(
        (path for path in (tmp_path / "a.zarr").rglob("*") if path.is_file()), key=lambda path: path.stat().st_size
    )
    data = bytearray(path.read_bytes())
    data[9:-9] = bytes(255 for _ in data[9:-9])
    path.write_bytes(data)
    with pytest.raises(PipelineError, match=rf"a\.zarr.*expected a block that can be decoded, {reason}"):
        samples_of(written.item, 0, written.array.size)


@pytest.mark.usefixtures("library")
def test_header_that_is_not_as_it_has_to_be(tmp_path: Path) -> None:
    """A size that disagrees: the host's decoder refuses it."""
    written = CASES["zarr 2, lz4"].written(tmp_path)
    path = next(path for path in (tmp_path / "a.zarr").iterdir() if path.name[0].isdigit())
    path.write_bytes(b"\xff\xff\xff\x7f" + path.read_bytes()[4:])
    with pytest.raises(PipelineError, match=r"a\.zarr.*expected a block that can be decoded"):
        samples_of(written.item, 0, written.array.size)


def test_host_decodes_what_nvcomp_does_not(tmp_path: Path, library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    written = CASES["zarr 3"].written(tmp_path)
    if library:
        library.refuses = True
    else:
        monkeypatch.setattr(nvcomp, "decompress", lambda *given: np.zeros(len(given[2]), bool))
    got, _ = samples_of(written.item, 0, written.array.size)
    np.testing.assert_array_equal(got, written.array.reshape(-1))


def test_what_is_not_decompressed_on_the_device(tmp_path: Path, library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    written = CASES["zarr 3"].written(tmp_path)
    source = open_source((written.item,))
    (piece,) = source.pieces()
    made = plan_of(piece, source.dtype, BLOCK)
    assert made is not None
    assert plan_of(piece, source.dtype, int(made.starts[-1])) is not None
    assert plan_of(piece, source.dtype, int(made.starts[-1]) - 1) is None  # the chunks do not fit into a buffer
    assert plan_of(Piece("a", 0, 8, None), source.dtype, BLOCK) is None
    with monkeypatch.context() as patch:
        patch.setattr(slabs, "LEAST_CHUNKS", len(made.present) + 1)
        assert plan_of(piece, source.dtype, BLOCK) is None
    with monkeypatch.context() as patch:
        patch.setattr(slabs, "MEMORY", 0)
        assert plan_of(piece, source.dtype, BLOCK) is None
    with monkeypatch.context() as patch:
        patch.setattr(slabs, "transfer_path", lambda: transfer.KVIKIO)
        assert plan_of(piece, source.dtype, BLOCK) is None
    monkeypatch.setattr(nvcomp, "library", lambda: None)
    assert plan_of(piece, source.dtype, BLOCK) is None
    got, timeline = samples_of(written.item, 0, written.array.size)
    np.testing.assert_array_equal(got, written.array.reshape(-1))
    assert not timeline.transfer_paths


def test_file_that_changed(tmp_path: Path, library: Any) -> None:
    written = CASES["zarr 3"].written(tmp_path)
    (chunk,) = plan(open_source((written.item,)), 2**30, "off", 0)
    path = max(
        (path for path in (tmp_path / "a.zarr").rglob("*") if path.is_file()), key=lambda path: path.stat().st_size
    )
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(PipelineError, match=r"a\.zarr/.*was written to while it was read|shrank"):
        for _ in device_blocks(chunk, Timeline(), BLOCK):
            pass


@pytest.mark.hardware
@pytest.mark.parametrize("name", sorted(ON_DEVICE))
def test_job(tmp_path: Path, library: Any, name: str) -> None:
    """Checked in full, by other libraries."""
    written = CASES[name].written(tmp_path)
    result = pipeline.run("reduce", written.item, op="count,min,max,argmax", verify="full", device="gpu")
    if written.array.dtype.kind != "f":
        assert result.values["max"] == written.array.max() and result.values["argmax"] == written.array.argmax()
    assert result.verification.checked == written.array.size
