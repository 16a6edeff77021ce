"""Arrays of 10,000 chunks, ten times as large as the memory that reading them may take, in processes of their own."""

from __future__ import annotations

import gzip
import json
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from tests.cases.format_case import package_of

ROOT = Path(__file__).parents[4]
TOTAL = 2**30  # bytes of samples
SIDE, COUNT = 164, 100  # of a chunk of int32, and chunks along an axis
CHUNK = np.arange(SIDE * SIDE, dtype="<i4").reshape(SIDE, SIDE) % 1000
BATCH = np.arange(TOTAL // 4 // COUNT**2, dtype="<i4") % 1000
PEAK = """
import json, os, re, sys
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])  # each thread holds blocks of its own
import pipeline
result = pipeline.run("reduce", sys.argv[1], op="sum,count,max", device="cpu", verify="full")
peak = int(re.search(r"VmHWM:\\s*(\\d+) kB", open("/proc/self/status").read())[1])
print(json.dumps([*map(int, result.values.values()), peak * 1024]))
"""


def run(item: str) -> list[int]:
    """Sum, count and maximum, and the most memory of the process that finds them.

    Not as `getrusage` has it, which begins with that of the process that started it.
    """
    done = subprocess.run([sys.executable, "-c", PEAK, item], text=True, capture_output=True, check=True, cwd=ROOT)
    values: list[int] = json.loads(done.stdout)
    return values


def _hdf5(folder: Path, count: int) -> str:
    h5py, stored = package_of("h5py"), zlib.compress(CHUNK.tobytes(), 1)
    length = count * SIDE
    with h5py.File(folder / "a.h5", "w") as file:
        data = file.create_dataset("a", (length, length), "<i4", chunks=CHUNK.shape, compression="gzip")
        for row, column in np.ndindex(count, count):
            data.id.write_direct_chunk((row * SIDE, column * SIDE), stored)
    return str(folder / "a.h5")


def _zarr(folder: Path, count: int) -> str:
    stored, length = gzip.compress(CHUNK.tobytes(), 1), count * SIDE
    metadata = {"zarr_format": 3, "node_type": "array", "shape": [length, length], "data_type": "int32",
                "fill_value": 0, "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": CHUNK.shape}},
                "chunk_key_encoding": {"name": "default"}, "codecs": [
                    {"name": "bytes", "configuration": {"endian": "little"}}, {"name": "gzip"}]}  # fmt: skip
    for row in range(count):
        (folder / "c" / str(row)).mkdir(parents=True)
        for column in range(count):
            (folder / "c" / str(row) / str(column)).write_bytes(stored)
    (folder / "zarr.json").write_text(json.dumps(metadata))
    return str(folder)


GZIP = MappingProxyType({"name": "gzip"})


def _zstd_shard(folder: Path, count: int) -> str:
    compress = package_of("numcodecs.zstd").compress
    return _shard(folder, count, {"name": "zstd", "configuration": {"level": 1}}, bytes(compress(CHUNK.tobytes(), 1)))


def _shard(folder: Path, count: int, codec: Any = GZIP, stored: bytes = b"") -> str:
    """All chunks in one file."""
    stored, length = stored or gzip.compress(CHUNK.tobytes(), 1), count * SIDE
    metadata = {"zarr_format": 3, "node_type": "array", "shape": [length, length], "data_type": "int32",
                "fill_value": 0, "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [length, length]}},
                "chunk_key_encoding": {"name": "default"}, "codecs": [{"name": "sharding_indexed", "configuration": {
                    "chunk_shape": CHUNK.shape, "index_codecs": [{"name": "bytes"}], "codecs": [
                        {"name": "bytes", "configuration": {"endian": "little"}}, dict(codec)]}}]}  # fmt: skip
    (folder / "c" / "0").mkdir(parents=True)
    starts = len(stored) * np.arange(count**2)
    index = np.stack([starts, np.full(count**2, len(stored))], axis=1).astype("<u8")
    (folder / "c" / "0" / "0").write_bytes(stored * count**2 + index.tobytes())
    (folder / "zarr.json").write_text(json.dumps(metadata))
    return str(folder)


def _parquet(folder: Path, count: int) -> str:
    pyarrow, parquet = package_of("pyarrow"), package_of("pyarrow.parquet")
    table = pyarrow.table({"x": BATCH})
    with parquet.ParquetWriter(folder / "a.parquet", table.schema) as writer:
        for _ in range(count**2):
            writer.write_table(table)
    return str(folder / "a.parquet")


def _arrow(folder: Path, count: int, compression: str | None) -> str:
    pyarrow, ipc = package_of("pyarrow"), package_of("pyarrow.ipc")
    batch = pyarrow.record_batch({"x": BATCH, "y": BATCH})
    options = ipc.IpcWriteOptions(compression=compression)
    with ipc.new_file(str(folder / "a.arrow"), batch.schema, options=options) as writer:
        for _ in range(count**2):
            writer.write(batch)
    return f"{folder}/a.arrow::y"


def _tiff(folder: Path, count: int) -> str:
    """Deflated strips, of which all have the bytes of the first."""
    package_of("tifffile")
    stored, strips = zlib.compress(CHUNK.tobytes(), 1), count**2
    tags = [(256, 4, 1, SIDE), (257, 4, 1, SIDE * strips), (258, 3, 1, 32), (259, 3, 1, 8), (262, 3, 1, 1),
            (273, 4, strips, 200), (277, 3, 1, 1), (278, 4, 1, SIDE), (279, 4, strips, 200 + 4 * strips),
            (339, 3, 1, 2)]  # fmt: skip
    begin = 200 + 8 * strips
    if strips == 1:
        tags = [(*tag[:3], {273: begin, 279: len(stored)}.get(tag[0], tag[3])) for tag in tags]
    entries = b"".join(struct.pack("<HHII", *tag) for tag in tags)
    head = struct.pack("<2sHIH", b"II", 42, 8, len(tags)) + entries + bytes(4)
    lists = np.array([begin, len(stored)], "<u4").repeat(strips).tobytes()
    (folder / "a.tif").write_bytes(head.ljust(200, b"\0") + lists + stored)
    return str(folder / "a.tif")


def _wav(folder: Path, count: int) -> str:
    """Of 24 bits; without bytes on the disk."""
    frames = len(BATCH) * count**2
    with (folder / "a.wav").open("wb") as file:
        form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, 48000, 144000, 3, 24)
        file.write(struct.pack("<4sI4s", b"RIFF", 36 + 3 * frames, b"WAVE") + form)
        file.write(struct.pack("<4sI", b"data", 3 * frames))
        file.truncate(44 + 3 * frames)
    return str(folder / "a.wav")


FORMATS: dict[str, Callable[[Path, int], str]] = {
    "hdf5": _hdf5, "zarr": _zarr, "zarr, one shard": _shard, "parquet": _parquet,
    "arrow": lambda folder, count: _arrow(folder, count, None),
    "arrow, lz4": lambda folder, count: _arrow(folder, count, "lz4"),
    "zarr, one shard, zstd": _zstd_shard, "tiff": _tiff, "wav": _wav,
}  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
def test_a_tenth_of_the_member(tmp_path: Path, name: str) -> None:
    """Beyond what a process takes for one chunk, its libraries and the compiled kernels included."""
    items = []
    for count in (1, COUNT):
        (tmp_path / str(count)).mkdir()
        items.append(FORMATS[name](tmp_path / str(count), count))
    (one, number, highest, base), (total, samples, most, peak) = map(run, items)
    assert (total, samples, most) == (10_000 * one, 10_000 * number, highest) and highest == 999 * (name != "wav")
    assert 4 * samples > 0.99 * TOTAL
    assert peak - base < 4 * samples // 10


@pytest.mark.parametrize("text", ["[:, 3]", "[::7]", "[:, ::5]", "[1000:200000]", "[:, 100:900]"])
def test_slices_of_a_large_file(tmp_path: Path, text: str) -> None:
    """In C and Fortran order; the file has no bytes on the disk."""
    peaks = []
    for order in "CF":
        path = tmp_path / f"{order}.npy"
        shape = (2**18, 2**10)
        with path.open("wb") as file:
            np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": order == "F", "shape": shape})
            file.truncate(file.tell() + TOTAL)
        view = eval(f"np.broadcast_to(np.float32(0), shape){text}")
        total, samples, most, peak = run(f"{path}{text}")
        assert (total, samples, most) == (0, view.size, 0)
        peaks.append(peak)
    np.save(tmp_path / "small.npy", np.zeros((30, 40), "f4"))
    base = run(f"{tmp_path}/small.npy[:, 3]")[-1]
    assert max(peaks) - base < TOTAL // 16


def test_slices_of_10_000_chunks(tmp_path: Path) -> None:
    item = _shard(tmp_path, COUNT)
    base = run(f"{item}[5, 3:9]")[-1]
    for text, wanted in {"[::2, ::3]": np.s_[::2, ::3], "[7000:7001]": np.s_[7000:7001, :]}.items():
        rows, columns = (np.arange(COUNT * SIDE)[one] % SIDE for one in wanted)
        view = CHUNK[rows][:, columns]
        total, samples, most, peak = run(f"{item}{text}")
        assert (total, samples, most) == (view.sum(), view.size, view.max())
        assert peak - base < TOTAL // 10
