"""Stores of 10,000 chunks, members larger than the memory that may be used, and array jobs on members."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pipeline
from pipeline.storage.formats.slabs import Grid
from pipeline.storage.sources import open_source
from tests.cases.format_case import package_of
from tests.cases.format_files import BIG, FLOATS

ROOT = Path(__file__).parents[4]
PEAK = """
import json, re, sys
import pipeline
result = pipeline.run("reduce", sys.argv[1], op="sum,argmax", device="cpu", verify="full")
print(json.dumps([int(result.values["sum"]), int(result.values["argmax"]),
                  int(re.search(r"VmHWM:\\s*(\\d+) kB", open("/proc/self/status").read())[1])]))
"""


def peak(item: str) -> list[int]:
    """Sum, position of the largest sample, and most memory of a process that finds them, in KiB."""
    done = subprocess.run([sys.executable, "-c", PEAK, item], text=True, capture_output=True, check=True, cwd=ROOT)
    values: list[int] = json.loads(done.stdout)
    return values


@pytest.mark.usefixtures("shared")
def test_zarr_of_10_000_chunks(tmp_path: Path) -> None:
    """As zarr itself would write them; one in ten is missing."""
    array = np.random.default_rng(0).integers(-99, 99, (1000, 1000)).astype("<i4")
    metadata = {"zarr_format": 2, "shape": [1000, 1000], "chunks": [10, 10], "dtype": "<i4", "compressor": None,
                "filters": None, "fill_value": 7, "order": "C"}  # fmt: skip
    (tmp_path / ".zarray").write_text(json.dumps(metadata))
    for row, column in np.ndindex(100, 100):
        inside = slice(10 * row, 10 * row + 10), slice(10 * column, 10 * column + 10)
        if (row + column) % 10:
            (tmp_path / f"{row}.{column}").write_bytes(array[inside].tobytes())
        else:
            array[inside] = 7
    array[500, 501] = 100 if (50 + 50) % 10 else 7
    result = pipeline.run("reduce", tmp_path, op="sum,argmax,argmin", device="cpu")
    assert result.values == {"sum": array.sum(), "argmax": array.argmax(), "argmin": array.argmin()}


@pytest.mark.parametrize("name", ["slices", "rows"])
def test_member_larger_than_memory(tmp_path: Path, name: str) -> None:
    """A deflated data set of 1 GiB, whose chunks cross a hundredth of it, takes a fraction of that."""
    h5py = package_of("h5py")
    shape, chunks = {"slices": ((16, 4096, 4096), (1, 512, 4096)), "rows": ((16384, 16384), (256, 2048))}[name]
    with h5py.File(tmp_path / "small.h5", "w") as file:
        file.create_dataset("a", (1000,), "i4", chunks=(100,), compression="gzip")[...] = 1
    with h5py.File(tmp_path / "large.h5", "w") as file:
        data = file.create_dataset("a", shape, "i4", chunks=chunks, compression="gzip", compression_opts=1, fillvalue=1)
        data[(-1,) * len(shape)] = 5
        data[(3,) * len(shape)] = 3
    base = peak(str(tmp_path / "small.h5"))
    total, place, most = peak(str(tmp_path / "large.h5"))
    assert base[:2] == [1000, 0]
    assert (total, place) == (2**28 + 4 + 2, 2**28 - 1)
    assert most - base[2] < 700 * 2**10  # two threads with a slab of 128 MiB, computing and checking


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 7), st.integers(1, 9)), min_size=1, max_size=4),
    st.integers(1, 2000), st.integers(1, 500),
)  # fmt: skip
def test_slabs_cover_an_array_in_c_order(axes: list[tuple[int, int]], most: int, least: int) -> None:
    shape, chunks = tuple(length for length, _ in axes), tuple(chunk for _, chunk in axes)
    grid = Grid(shape, chunks, np.dtype("i2"))
    numbers = np.arange(np.prod(shape)).reshape(shape)
    slabs = [numbers[tuple(slice(*bounds) for bounds in region)] for region in grid.slabs(most, least)]
    assert np.concatenate([slab.reshape(-1) for slab in slabs]).tolist() == numbers.reshape(-1).tolist()
    rows = 2 * np.prod(shape[1:])
    assert max(slab.size for slab in slabs) * 2 <= max(most, 2) or max(slab.size for slab in slabs) * 2 <= rows


def test_slabs_are_rows_of_chunks() -> None:
    """Chunks are decoded once where rows of them fit, whatever the axis."""
    i2 = np.dtype("i2")
    assert len(list(Grid((100, 100, 100), (1, 50, 10), i2).slabs(10**5, 1))) == 100
    crossed = [index for region in Grid((10, 64, 64), (1, 16, 16), i2).slabs(2**12, 1)
               for index in Grid((10, 64, 64), (1, 16, 16), i2).chunks_of(region)]  # fmt: skip
    assert len(crossed) == len(set(crossed)) == 160
    rows = Grid((100, 64), (10, 64), i2)  # a chunk is cut into four; no slab crosses two
    assert [len(list(rows.chunks_of(region))) for region in rows.slabs(3 * 128, 1)] == [1] * 40


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("format_", ["hdf5", "npz"])
def test_array_jobs_read_members(tmp_path: Path, format_: str) -> None:
    """Members that are byte runs are arrays: of two dimensions, of more, and in Fortran order."""
    a, b = FLOATS, np.asfortranarray(FLOATS.T)
    item = f"{tmp_path}/a.{format_}"
    if format_ == "npz":
        np.savez(item, a=a, b=b, big=BIG)
    else:
        h5py = package_of("h5py")
        with h5py.File(item, "w") as file:
            file["a"], file["b"], file["big"] = a, b, BIG

    def run(job: str, *names: str, **options: Any) -> Any:
        output = tmp_path / f"{job}.npy"
        pipeline.run(job, *(f"{item}::{name}" for name in names), output=output, device="cpu", **options)
        return np.load(output)

    np.testing.assert_array_equal(run("transpose", "a"), a.T)
    np.testing.assert_allclose(run("matmul", "a", "b"), a @ b, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(run("transpose", "big"), BIG.T)


@pytest.mark.usefixtures("shared")
def test_several_files_and_formats_count_as_one(tmp_path: Path) -> None:
    h5py = package_of("h5py")
    for number in range(3):
        with h5py.File(tmp_path / f"run-{number}.h5", "w") as file:
            file["x"] = np.full(10, number, "i4")
            file["y"] = np.zeros(3)
    np.save(tmp_path / "more.npy", np.full(5, 10, "i4"))
    items = f"{tmp_path}/run-*.h5::x", tmp_path / "more.npy"
    assert pipeline.run("reduce", *items, op="sum", device="cpu").values == {"sum": 10 + 20 + 50}
    assert open_source((f"{tmp_path}/run-*.h5::x",)).samples == 30
