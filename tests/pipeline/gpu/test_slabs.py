"""Slabs that are decompressed on the device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline
from pipeline.errors import PipelineError
from pipeline.gpu import slabs, transfer
from pipeline.gpu.batches import DECOMPRESSED
from pipeline.gpu.blocks import device_blocks
from pipeline.storage.blocks import decode_whole
from pipeline.storage.chunks import Region, plan
from pipeline.storage.formats import slabs as formats
from pipeline.storage.sources import open_source
from pipeline.timeline import Timeline
from tests.cases.device_slabs import BLOCK, in_slabs, on_device, samples_of
from tests.cases.format_case import package_of
from tests.cases.format_files import CASES

__all__ = ["on_device"]

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("on_device")]

ON_DEVICE = {
    "hdf5 zstd", "zarr 2", "zarr 2, Fortran", "zarr 3", "zarr 3, transposed", "zarr 3, sharded",
    "hdf5 in MATLAB's wrapping, deflate", "hdf5 deflate", "hdf5 one dimension", "hdf5 shuffle, deflate, fletcher32",
    "hdf5 missing chunks", "hdf5 lz4", "zarr 2, zlib", "zarr 2, lz4", "zarr 2, shuffle", "zarr 3, gzip",
}  # fmt: skip
CHUNKED = sorted(name for name in CASES if name.startswith(("hdf5", "zarr", "tiff")))


@pytest.mark.parametrize("name", CHUNKED)
def test_samples_are_those_of_the_formats_own_library(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one slab and in several, which share chunks; all, and from a sample within."""
    written = CASES[name].written(tmp_path)
    for most, least in ((formats.SLAB_BYTES, formats.LEAST_BYTES), (3000, 1)):
        in_slabs(monkeypatch, most, least)
        for start, samples in ((0, written.array.size), (3, written.array.size - 9)):
            got, timeline = samples_of(written.item, start, samples, 10_000)
            np.testing.assert_array_equal(got, written.array.reshape(-1)[start : start + samples])
            assert got.dtype == written.array.dtype.newbyteorder("=")
            paths = {path for path in timeline.transfer_paths if path.endswith(DECOMPRESSED)}
            assert paths == ({f"{transfer.PINNED}, {DECOMPRESSED}"} if name in ON_DEVICE else set())
            assert timeline.nbytes["kernel"] == got.nbytes


def test_stored_bytes_cross_the_bus(tmp_path: Path) -> None:
    written = CASES["hdf5 deflate"].written(tmp_path)
    source = open_source((written.item,))
    stored = sum(piece.block.stored.table[:, 2].sum() for piece in source.pieces())  # type: ignore[union-attr]
    _, timeline = samples_of(written.item, 0, written.array.size)
    assert timeline.nbytes["read+copy"] == stored


def _with_checksums(folder: Path, codec: str) -> tuple[str, Any, list[tuple[Path, int]]]:
    """A file whose chunks have checksums behind them, its samples, and where each of these checksums begins."""
    array = np.arange(4000, dtype="i4") % 99
    if codec == "zstd" or codec == "gzip":
        codecs, path = package_of("zarr.codecs"), folder / "a.zarr"
        inner = {"zstd": codecs.ZstdCodec, "gzip": codecs.GzipCodec}[codec]()
        made = package_of("zarr").create_array(
            str(path), shape=4000, dtype="i4", chunks=100, compressors=[inner, codecs.Crc32cCodec()]
        )
        made[...] = array
        chunks = sorted(one for one in path.rglob("*") if one.is_file() and one.name.isdigit())
        return str(path), array, [(one, one.stat().st_size - 4) for one in chunks]
    plugin = package_of("hdf5plugin")
    options = {"hdf5 gzip": {"compression": "gzip", "shuffle": True}, "hdf5 lz4": plugin.LZ4()}[codec]
    with package_of("h5py").File(folder / "a.h5", "w") as file:
        data = file.create_dataset("a", data=array, chunks=(100,), fletcher32=True, **options).id
        places = [data.get_chunk_info(number) for number in range(data.get_num_chunks())]
    return f"{folder}/a.h5::/a", array, [(folder / "a.h5", one.byte_offset + one.size - 4) for one in places]


@pytest.mark.parametrize("codec", ["zstd", "gzip", "hdf5 gzip", "hdf5 lz4"])
def test_checksums_behind_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: str) -> None:
    """They are compared, not decompressed; the host names a wrong one."""
    item, array, places = _with_checksums(tmp_path, codec)
    decoded = list[int]()

    def on_host(*given: Any) -> Any:
        decoded.append(1)
        return decode_whole(*given)

    monkeypatch.setattr(slabs, "decode_whole", on_host)
    got, timeline = samples_of(item, 0, 4000)
    np.testing.assert_array_equal(got, array)
    assert any(path.endswith(DECOMPRESSED) for path in timeline.transfer_paths)
    assert not decoded
    path, start = places[17]
    content = bytearray(path.read_bytes())
    content[start + 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(PipelineError, match="got a wrong checksum"):
        samples_of(item, 0, 4000)
    assert len(decoded) == 1


@pytest.mark.parametrize(
    ("name", "reason"),
    [("zarr 2, lz4", "got LZ4|got .*expected"), ("zarr 2, zlib", "got Error"), ("zarr 3", "got Zstd|got")],
)
def test_damaged_chunk(tmp_path: Path, name: str, reason: str) -> None:
    """The host says what is wrong with it."""
    written = CASES[name].written(tmp_path)
    path = max(
        (path for path in (tmp_path / "a.zarr").rglob("*") if path.is_file()), key=lambda path: path.stat().st_size
    )
    data = bytearray(path.read_bytes())
    data[9:-9] = bytes(255 for _ in data[9:-9])
    path.write_bytes(data)
    with pytest.raises(PipelineError, match=rf"a\.zarr.*expected a block that can be decoded, {reason}"):
        samples_of(written.item, 0, written.array.size)


@pytest.mark.parametrize("number", [1, None])
def test_header_that_is_not_as_it_has_to_be(tmp_path: Path, number: int | None) -> None:
    """A size that disagrees, of one chunk or all: the host's decoder refuses it."""
    written = CASES["zarr 2, lz4"].written(tmp_path)
    for path in [path for path in (tmp_path / "a.zarr").iterdir() if path.name[0].isdigit()][:number]:
        path.write_bytes(b"\xff\xff\xff\x7f" + path.read_bytes()[4:])
    with pytest.raises(PipelineError, match=r"a\.zarr.*expected a block that can be decoded"):
        samples_of(written.item, 0, written.array.size)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(
    ("shape", "chunks"),
    [((37, 23), (10, 23)), ((40, 23), (10, 23)), ((40, 24), (10, 8)), ((5, 7, 23), (1, 3, 23)), ((2103,), (100,))],
)
def test_chunks_that_are_runs_of_samples_and_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], chunks: tuple[int, ...], order: str
) -> None:
    """With what is beyond the edge stored at their end; of two files one after the other."""
    zarr = package_of("zarr")
    arrays = [np.random.default_rng(seed).integers(-99, 99, shape).astype("<i4") for seed in (1, 2)]
    for number, array in enumerate(arrays):
        path = tmp_path / f"{number}.zarr"
        made = zarr.create_array(
            str(path), shape=shape, dtype="i4", chunks=chunks, order=order, zarr_format=2,
            compressors=package_of("numcodecs").Zlib(1),
        )  # fmt: skip
        made[...] = array
    flat = np.concatenate([array.reshape(-1) for array in arrays])
    for most, least in ((1000, 1), (4000, 4000)):
        in_slabs(monkeypatch, most, least)
        (chunk,) = plan(open_source((str(tmp_path / "*.zarr"),)), 2**30, "off", 0)
        for start, samples in ((0, flat.size), (3, flat.size - 9)):
            part = chunk.part(Region(start, samples))
            timeline = Timeline()
            blocks = [block.get() for block in device_blocks(part, timeline, BLOCK)]
            np.testing.assert_array_equal(np.concatenate(blocks), flat[start : start + samples])
            assert len(blocks) == 1 and timeline.transfer_paths == {f"{transfer.PINNED}, {DECOMPRESSED}"}


def test_file_that_changed(tmp_path: Path) -> None:
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
def test_job(tmp_path: Path, name: str) -> None:
    """Checked in full, by other libraries."""
    written = CASES[name].written(tmp_path)
    result = pipeline.run("reduce", written.item, op="count,min,max,argmax", verify="full", device="gpu")
    if written.array.dtype.kind != "f":
        assert result.values["max"] == written.array.max() and result.values["argmax"] == written.array.argmax()
    assert result.verification.checked == written.array.size
