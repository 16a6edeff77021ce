"""bool counts as 0 and 1 in every format that has it; other dtypes without a meaning are refused by name."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline
from pipeline.errors import UsageError
from pipeline.storage.blocks import read_blocks
from pipeline.storage.chunks import plan
from pipeline.storage.describe import describe, problem_of
from pipeline.storage.sources import open_source
from pipeline.timeline import Timeline
from tests.cases.files import refused
from tests.cases.format_case import package_of

TRUTH = np.random.default_rng(8).random((40, 25)) < 0.3


def _npy(folder: Path, array: Any) -> str:
    np.save(folder / "a.npy", array)
    return str(folder / "a.npy")


def _npz(folder: Path, array: Any, save: Any = np.savez) -> str:
    save(folder / "a.npz", x=array)
    return str(folder / "a.npz")


def _hdf5(folder: Path, array: Any, **how: Any) -> str:
    with package_of("h5py").File(folder / "a.h5", "w") as file:
        file.create_dataset("x", data=array, **how)
    return str(folder / "a.h5")


def _zarr(folder: Path, array: Any, **how: Any) -> str:
    made = package_of("zarr").create_array(str(folder / "a.zarr"), shape=array.shape, dtype=array.dtype, **how)
    made[...] = array
    return str(folder / "a.zarr")


def _table(folder: Path, array: Any) -> Any:
    return package_of("pyarrow").table({"x": package_of("pyarrow").array(array.reshape(-1))})


def _parquet(folder: Path, array: Any) -> str:
    package_of("pyarrow.parquet").write_table(_table(folder, array), folder / "a.parquet", row_group_size=301)
    return str(folder / "a.parquet")


def _arrow(folder: Path, array: Any, compression: str) -> str:
    package_of("pyarrow.feather").write_feather(_table(folder, array), str(folder / "a.feather"), chunksize=301,
                                                compression=compression)  # fmt: skip
    return str(folder / "a.feather")


FORMATS: dict[str, Callable[..., str]] = {
    "npy": _npy, "npz": _npz, "npz deflated": lambda folder, array: _npz(folder, array, np.savez_compressed),
    "hdf5": _hdf5, "hdf5 chunks": lambda folder, array: _hdf5(folder, array, chunks=(7, 10)),
    "hdf5 deflate": lambda folder, array: _hdf5(folder, array, chunks=(7, 10), compression="gzip"),
    "hdf5 lzf": lambda folder, array: _hdf5(folder, array, chunks=(7, 10), compression="lzf"),
    "zarr 2": lambda folder, array: _zarr(folder, array, zarr_format=2, chunks=(7, 10)),
    "zarr 3": lambda folder, array: _zarr(folder, array, chunks=(7, 10)),
    "zarr as it is": lambda folder, array: _zarr(folder, array, chunks=(7, 25), compressors=None, fill_value=True),
    "parquet": _parquet, "arrow": lambda folder, array: _arrow(folder, array, "uncompressed"),
    "arrow, lz4": lambda folder, array: _arrow(folder, array, "lz4"),
}  # fmt: skip


def read(item: str) -> Any:
    chunks = plan(open_source((item,)), 500, "off", 0)
    return np.concatenate([block.copy() for chunk in chunks for block in read_blocks(chunk, Timeline())])


@pytest.mark.parametrize("name", FORMATS)
def test_bool_counts_as_0_and_1(tmp_path: Path, name: str) -> None:
    item = FORMATS[name](tmp_path, TRUTH)
    samples = read(item)
    assert samples.dtype == np.uint8
    np.testing.assert_array_equal(samples, TRUTH.reshape(-1))
    (described,) = describe(item)
    (member,) = described.members
    assert problem_of(member) == "" and described.command(member)
    assert open_source((item,), "uint8").samples == TRUTH.size


@pytest.mark.usefixtures("shared")
def test_bool_in_jobs(tmp_path: Path) -> None:
    """One that moves elements keeps the dtype; others say what they take."""
    item = _npy(tmp_path, TRUTH)
    assert pipeline.run("reduce", item, op="sum", device="cpu").values == {"sum": TRUTH.sum()}
    counts = pipeline.run("histogram", item, bins=2, range=(0, 2), device="cpu").counts
    assert counts.tolist() == [(~TRUTH).sum(), TRUTH.sum()]
    turned = pipeline.run("transpose", item, output=tmp_path / "t.npy", device="cpu").array
    assert turned.dtype == np.bool_
    np.testing.assert_array_equal(turned, TRUTH.T)
    with pytest.raises(UsageError, match="bool"):
        pipeline.run("stencil", item, radius=1, output=tmp_path / "s.npy")
    assert pipeline.run("reduce", TRUTH, op="sum").values == {"sum": TRUTH.sum()}


def test_bool_from_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pipeline.storage.protocol import Opening
    from pipeline.storage.stream import Stream, open_npy_stream

    with open(_npy(tmp_path, TRUTH), "rb") as file:
        source = open_npy_stream(Stream(file.fileno(), 10), Opening())
        (piece,) = source.pieces()
        samples = np.empty(TRUTH.size, np.uint8)
        piece.filler.fill(0, samples)
    np.testing.assert_array_equal(samples, TRUTH.reshape(-1))


TIMES = np.arange(20).astype("M8[ns]")


@pytest.mark.parametrize(
    ("name", "expected"),
    [("npy", "got datetime64[ns]; convert them to int64"), ("npz", "got datetime64[ns]; convert them to int64"),
     ("zarr 2", "got datetime64[ns]; convert them to int64"), ("zarr 3", "numpy.datetime64"),
     ("parquet", "got one of timestamp[ns]; cast it"), ("arrow", "got one of timestamp[ns]; cast it")],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
def test_times(tmp_path: Path, name: str, expected: str) -> None:
    writers = {**FORMATS, "zarr 2": lambda folder, array: _zarr(folder, array, zarr_format=2, chunks=(7,)),
               "zarr 3": lambda folder, array: _zarr(folder, array, chunks=(7,))}  # fmt: skip
    assert expected in refused(UsageError, writers[name](tmp_path, TIMES))


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_small_floats(tmp_path: Path, name: str) -> None:
    """HDF5 has types of their own for them, Zarr 3 names, others bytes."""
    h5py = package_of("h5py")
    array = np.ones((4, 5), getattr(package_of("ml_dtypes"), name))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        sign, most, size, bias = {"bfloat16": (15, 8, 7, 127), "float8_e4m3fn": (7, 4, 3, 7),
                                  "float8_e5m2": (7, 5, 2, 15)}[name]  # fmt: skip
        kind = h5py.h5t.IEEE_F32LE.copy()
        kind.set_fields(sign, size, most, 0, size)
        kind.set_size(array.itemsize)
        kind.set_ebias(bias)
        space = h5py.h5s.create_simple((4, 5))
        h5py.h5d.create(file.id, b"x", kind, space)
    assert "expected numbers that NumPy has a dtype for, got others; convert" in refused(UsageError, tmp_path / "a.h5")
    text = {"zarr_format": 3, "node_type": "array", "shape": [4], "data_type": name, "fill_value": 0, "codecs":
            [{"name": "bytes"}], "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
            "chunk_key_encoding": {"name": "default"}}  # fmt: skip
    (tmp_path / "b.zarr").mkdir()
    (tmp_path / "b.zarr" / "zarr.json").write_text(json.dumps(text))
    assert f"got data type '{name}'; convert it" in refused(UsageError, tmp_path / "b.zarr")
    np.savez(tmp_path / "a.npz", x=array)
    message = refused(UsageError, tmp_path / "a.npz")
    assert "convert them, bfloat16 and float8 to float32" in message or "unknown dtype" in message


def test_half_floats_of_parquet_are_samples(tmp_path: Path) -> None:
    values = np.arange(30, dtype="f2")
    np.testing.assert_array_equal(read(_parquet(tmp_path, values)), values)


def test_bool_raw_is_uint8(tmp_path: Path) -> None:
    TRUTH.tofile(tmp_path / "a.bin")
    assert "expected one of" in refused(UsageError, tmp_path / "a.bin", dtype="bool")
    file = io.BytesIO(TRUTH.tobytes())
    assert open_source((str(tmp_path / "a.bin"),), "uint8").samples == len(file.getvalue())
