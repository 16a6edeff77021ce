"""Every format agrees with its own library, sample for sample, through the whole path, in chunks of several sizes."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import pipeline
from pipeline.storage.blocks import read_blocks
from pipeline.storage.chunks import Chunk, plan
from pipeline.storage.describe import describe
from pipeline.storage.files import Files
from pipeline.storage.sources import open_source
from pipeline.timeline import Timeline
from tests.cases.format_case import Written, package_of
from tests.cases.format_files import CASES

ROOT = Path(__file__).parents[4]

# Formats whose samples are byte runs of files, so that they are read as fast as raw files.
BYTE_RUNS = {"npz stored", "hdf5 contiguous", "hdf5 contiguous, float", "hdf5 in MATLAB's wrapping", "arrow", "tiff",
             "tiff, big endian", "tiff, BigTIFF", "tiff, color", "tiff, float", "sigmf", "sigmf, float",
             "wav of 8 bits", "wav of 16 bits", "wav of 32 bits"}  # fmt: skip


@pytest.fixture(params=CASES)
def written(request: pytest.FixtureRequest, tmp_path: Path) -> Written:
    case = CASES[request.param]
    return case.written(tmp_path)


@pytest.mark.parametrize("chunk_bytes", [2000, 30_000, 2**24])
def test_samples_in_c_order(written: Written, chunk_bytes: int) -> None:
    source = open_source((written.item,))
    chunks = plan(source, chunk_bytes, "off", 0)
    assert isinstance(chunks, tuple)
    blocks = [block.copy() for chunk in chunks for block in read_blocks(chunk, Timeline())]
    assert {block.dtype for block in blocks} == {written.array.dtype} == {source.dtype}
    assert [block.tobytes() for block in blocks] != []
    assert b"".join(block.tobytes() for block in blocks) == written.array.tobytes()


def test_shape_and_description(written: Written, request: pytest.FixtureRequest) -> None:
    source = open_source((written.item,))
    name = request.node.callspec.params["written"]
    transposed = name == "npz stored, Fortran"  # as it is stored; array jobs turn it
    assert source.shape == (written.array.shape[::-1] if transposed else written.array.shape)
    assert source.nbytes == written.array.nbytes
    (called,) = source.names  # with the member, so that results and messages tell arrays of one file apart
    assert "::" not in written.item or called.replace("::/", "::") == written.item.replace("::/", "::")
    if name in BYTE_RUNS:
        assert isinstance(source, Files)
    (described,) = describe(written.item)
    (member,) = described.members
    assert (member.dtype, member.shape, member.problem) == (source.dtype, source.shape, "")
    json.dumps(described.to_json())
    source.check_unchanged()
    assert open_source((written.item,)).identity == source.identity


@pytest.mark.usefixtures("shared")
def test_jobs(written: Written) -> None:
    """Positions count in C order, whatever the chunks."""
    numbers = written.array.reshape(-1)
    finite = numbers[np.isfinite(numbers.astype("f8"))]
    edge = {"range": (float(finite.min()), float(finite.max()) + 1)}
    jobs = [("histogram", {"bins": 50} | edge), ("reduce", {"op": "min,max,argmin,argmax"})]
    for chunk_bytes in (3000, None):
        counted, reduced = pipeline.run(jobs, written.item, verify="full", chunk_bytes=chunk_bytes, device="cpu")
        expected = np.histogram(finite.astype("f8"), 50, edge["range"])[0]
        if numbers.dtype.kind != "f":
            np.testing.assert_array_equal(counted.counts, expected)
        assert counted.counts.sum() == len(finite)
        if len(finite) == len(numbers):
            assert reduced.values == {"min": numbers.min(), "max": numbers.max(), "argmin": numbers.argmin(),
                                      "argmax": numbers.argmax()}  # fmt: skip


@pytest.mark.usefixtures("shared")
def test_a_column_in_batches_is_one_row(tmp_path: Path) -> None:
    """Each record batch of an Arrow file was counted as a file."""
    batches = [pa.record_batch([np.arange(size) + size, np.ones(size)], ["x", "y"]) for size in (5, 2, 0, 9)]
    for name, some in (("a", batches), ("b", batches[:2])):
        with pa.OSFile(str(tmp_path / name), "wb") as file, pa.ipc.new_file(file, batches[0].schema) as writer:
            list(map(writer.write_batch, some))
    items = [f"{tmp_path}/{name}" for name in ("a::x", "a::y", "b::x")]
    result = pipeline.run("reduce", *items[::2], by="file", op="sum,count", device="cpu")
    assert [row.values for row in result.results] == [
        {"sum": sum(batch["x"].to_numpy().sum() for batch in some), "count": sum(map(len, some))}
        for some in (batches, batches[:2])
    ]
    assert open_source(items[::2]).names == tuple(result.names) == (items[0], items[2])
    assert open_source((items[1],)).names == (items[1],)


@pytest.mark.parametrize("name", ["hdf5 lz4", "zarr 3, sharded", "parquet", "wav of 24 bits", "arrow"])
def test_command(tmp_path: Path, name: str) -> None:
    """The command that `info` names, on a cluster of its own."""
    written = CASES[name].written(tmp_path)
    (described,) = describe(written.item)
    command = described.command(described.members[0])
    assert command is not None and command.startswith("python -m pipeline histogram ")
    words = [*command.replace("histogram", "reduce").replace(" --range auto", "").split()[1:], "--op", "sum,argmax",
             "--json", "--device", "cpu", "--verify", "full", "--chunk-size", "4000"]  # fmt: skip
    done = subprocess.run([sys.executable, *words], text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    values = json.loads(done.stdout)["result"]
    assert str(written.array.reshape(-1).argmax()) in json.dumps(values)


@pytest.mark.parametrize("name", ["hdf5 lz4", "hdf5 deflate", "zarr 3", "zarr 3, blosc", "zarr 2, lz4", "parquet",
                                  "arrow, lz4", "tiff, tiles, deflate", "npz deflated"])  # fmt: skip
def test_another_process_reads_in_threads(tmp_path: Path, name: str) -> None:
    """It has not opened the file, and its threads import what they need at once."""
    written = CASES[name].written(tmp_path)
    (tmp_path / "chunks").write_bytes(pickle.dumps(plan(open_source((written.item,)), 2**24, "off", 0)))
    code = """
import pickle, sys
from concurrent.futures import ThreadPoolExecutor
from pipeline.storage.blocks import read_blocks
from pipeline.timeline import Timeline
chunks = pickle.load(open(sys.argv[1], "rb"))
sys.setswitchinterval(1e-6)
def read(_):
    return b"".join(block.tobytes() for chunk in chunks for block in read_blocks(chunk, Timeline()))
with ThreadPoolExecutor(8) as pool:
    first, *others = pool.map(read, range(16))
assert set(others) == {first}
sys.stdout.buffer.write(first)
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "chunks")], capture_output=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout == written.array.tobytes()


def test_chunks_are_pickled_small(tmp_path: Path) -> None:
    """A slab carries its own chunks, not those of the whole array."""
    chunks = plan(open_source((CASES["zarr 3"].written(tmp_path).item,)), 2**24, "off", 0)
    assert isinstance(chunks, tuple)
    restored = pickle.loads(pickle.dumps(chunks))
    assert isinstance(restored[0], Chunk)
    assert len(pickle.dumps(chunks)) < 64 * 1000


@pytest.mark.parametrize("compression", ["uncompressed", "zstd"])
def test_arrow_column_behind_others(tmp_path: Path, compression: str) -> None:
    """Buffers are counted by type; behind nested columns only pyarrow can tell."""
    package_of("pyarrow")
    import pyarrow
    import pyarrow.feather

    numbers = np.arange(50, dtype="f8")
    others = {
        "bool": pyarrow.array([True, None] * 25), "null": pyarrow.nulls(50), "time": np.zeros(50, "M8[s]"),
        "text": ["a", None] * 25, "bytes": [b"a"] * 50, "large": pyarrow.array(["a"] * 50, pyarrow.large_string()),
        "dictionary": pyarrow.array(["a", "b"] * 25).dictionary_encode(), "one": numbers + 1,
    }  # fmt: skip
    for nested in ({}, {"list": [[1]] * 50}):
        path = str(tmp_path / "a.feather")
        pyarrow.feather.write_feather(pyarrow.table({**others, **nested, "x": numbers}), path, compression, chunksize=9)
        source = open_source((f"{path}::x",))
        assert isinstance(source, Files) == (compression == "uncompressed" and not nested)
        for chunk_bytes in (100, 2**20):
            chunks = plan(source, chunk_bytes, "off", 0)
            blocks = [block.copy() for chunk in chunks for block in read_blocks(chunk, Timeline())]
            np.testing.assert_array_equal(np.concatenate(blocks), numbers)
