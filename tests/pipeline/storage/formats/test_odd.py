"""Files that are right but odd, as their own libraries read them, and those that look like another kind."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import pipeline
from pipeline.errors import UsageError
from pipeline.storage.blocks import read_blocks
from pipeline.storage.chunks import plan
from pipeline.storage.formats import decode_many, slabs
from pipeline.storage.sources import open_source
from pipeline.timeline import Timeline
from tests.cases.files import refused
from tests.cases.format_case import package_of
from tests.cases.odd_chunks import ENCODINGS, odd_zarr
from tests.cases.slices import read

NUMBERS = np.random.default_rng(0).integers(-100, 100, (37, 41)).astype("i2")
STEPS = np.cumsum(NUMBERS, 0, dtype="i4")


def samples_of(item: str) -> NDArray[Any]:
    source = open_source((item,))
    blocks = (block.copy() for chunk in plan(source, 2**20, "off", 0) for block in read_blocks(chunk, Timeline()))
    return np.concatenate([np.empty(0, source.dtype), *blocks])


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("value", [5, 0])
def test_zarr_without_axes(tmp_path: Path, version: int, value: int) -> None:
    """Its only chunk is compressed, or missing where it has the fill value."""
    zarr = package_of("zarr")
    for name, how in {"a.zarr": {}, "b.zarr": {"compressors": None}}.items():
        array = zarr.create_array(str(tmp_path / name), shape=(), dtype="i4", zarr_format=version, **how)
        array[...] = np.array(value, "i4")
        assert samples_of(str(tmp_path / name)).tolist() == [value] == [array[()]]
        turned = pipeline.run("transpose", tmp_path / name, output=tmp_path / "t.npy").array
        assert (turned.shape, turned[()]) == ((), value)


ZARR: dict[str, dict[str, Any]] = {
    "chunk larger than the array": {"chunks": (100, 100)},
    "index of a shard at its start": {"chunks": (5, 7), "shards": {"shape": (20, 28), "index_location": "start"}},
    "chunks of rows, cut at the edge": {"chunks": (8, 41)},
    "version 2, as zarr writes it": {"chunks": (10, 10), "zarr_format": 2},
}


@pytest.mark.parametrize("name", ZARR)
def test_zarr(tmp_path: Path, name: str) -> None:
    zarr = package_of("zarr")
    array = zarr.create_array(str(tmp_path / "a.zarr"), shape=NUMBERS.shape, dtype="i2", **ZARR[name])
    array[...] = NUMBERS
    np.testing.assert_array_equal(samples_of(str(tmp_path / "a.zarr")), NUMBERS.reshape(-1))


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("shuffle", ["shuffle", "bitshuffle", "noshuffle"])
@pytest.mark.parametrize("codec", ["lz4", "lz4hc", "zstd", "zlib", "blosclz"])
def test_blosc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: str, shuffle: str, compiled: bool) -> None:
    """With all of its codecs; the same without a compiler."""
    zarr = package_of("zarr")
    blosc = zarr.codecs.BloscCodec(cname=codec, shuffle=shuffle)
    array = zarr.create_array(
        str(tmp_path / "a.zarr"), shape=STEPS.shape, dtype="i4", chunks=(6, 41), compressors=blosc
    )
    array[...] = STEPS
    if not compiled:
        monkeypatch.setattr(slabs, "many_of", lambda steps: None)
    np.testing.assert_array_equal(samples_of(str(tmp_path / "a.zarr")), STEPS.reshape(-1))


@pytest.mark.parametrize("chunks", [(6, 41), (6, 9), (1, 41), (37, 41), (5, 1)])
@pytest.mark.parametrize("codec", ["lz4", "zstd", "blosc"])
@pytest.mark.parametrize("shuffled", [False, True])
def test_many_chunks_of_a_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunks: tuple[int, ...], codec: str, shuffled: bool
) -> None:
    """Whole rows are decoded in place, others where they are taken from; each chunk is decoded by the compiled code."""
    zarr, numcodecs, failures = package_of("zarr"), package_of("numcodecs"), []
    made = {"lz4": numcodecs.LZ4(), "zstd": numcodecs.Zstd(), "blosc": numcodecs.Blosc()}[codec]
    filters = [numcodecs.Shuffle(4)] if shuffled else None
    array = zarr.create_array(str(tmp_path / "a.zarr"), shape=STEPS.shape, dtype="i4", chunks=chunks, zarr_format=2,
                              compressors=made, filters=filters)  # fmt: skip
    array[...] = STEPS
    real = decode_many.many_of

    def counted(steps: Any) -> Any:
        many = real(steps)

        def called(*given: Any) -> Any:
            failed = many(*given)
            failures.append(len(failed))
            return failed

        return called if many else None

    monkeypatch.setattr(slabs, "many_of", counted)
    np.testing.assert_array_equal(samples_of(str(tmp_path / "a.zarr")), STEPS.reshape(-1))
    single = np.prod(chunks) == STEPS.size
    assert failures == [] if single else failures and not any(failures)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("chunks", [(6, 41), (6, 9), (37, 41)])
@pytest.mark.parametrize("name", ENCODINGS)
def test_zarr_chunks_as_other_programs_encode_them(
    tmp_path: Path, name: str, chunks: tuple[int, ...], version: int
) -> None:
    """Whole and in slices, as zarr reads them."""
    item = odd_zarr(tmp_path, name, STEPS, chunks, version)
    np.testing.assert_array_equal(package_of("zarr").open_array(item, mode="r")[...], STEPS)
    np.testing.assert_array_equal(samples_of(item), STEPS.reshape(-1))
    np.testing.assert_array_equal(read(f"{item}[1::3, 2]"), STEPS[1::3, 2])


def test_zarr_of_nested_groups_with_consolidated_metadata(tmp_path: Path) -> None:
    zarr = package_of("zarr")
    for version in (2, 3):
        path = str(tmp_path / f"{version}.zarr")
        group = zarr.open_group(path, mode="w", zarr_format=version)
        group.create_array("x/y/deep", data=NUMBERS, chunks=(10, 10))
        group.create_array("top", data=STEPS)
        with warnings.catch_warnings(action="ignore"):  # of version 3 they are no standard yet
            zarr.consolidate_metadata(path)
        np.testing.assert_array_equal(samples_of(f"{path}::x/y/deep"), NUMBERS.reshape(-1))
        for outside in ("../2.zarr", f"{tmp_path}/2.zarr", "x/../../2.zarr"):
            assert "expected a member" in refused(UsageError, f"{path}::{outside}")


def _wide(pyarrow: Any) -> dict[str, Any]:
    return {
        "decimal": pyarrow.array([1, 2], pyarrow.decimal256(40, 2)), "day": pyarrow.array([1, 2], pyarrow.date64()),
        "fixed": pyarrow.array([b"ab", b"cd"], pyarrow.binary(2)), "flag": pyarrow.array([True, False]),
        "text": pyarrow.array(["a", "b"], pyarrow.large_string()), "nothing": pyarrow.nulls(2),
        "words": pyarrow.array(["p", "q"]).dictionary_encode(),
    }  # fmt: skip


def _nested(pyarrow: Any) -> dict[str, Any]:
    return {"pair": pyarrow.array([{"a": 1}, {"a": 2}]), "view": pyarrow.array(["a" * 20, "b"], pyarrow.string_view())}


@pytest.mark.parametrize("before", [_wide, _nested, lambda pyarrow: {}])
@pytest.mark.parametrize("dtype", ["i1", "u8", "f2", "f8"])
def test_arrow_column_behind_columns_of_all_types(
    tmp_path: Path, before: Callable[[Any], dict[str, Any]], dtype: str
) -> None:
    pyarrow = package_of("pyarrow")
    batch = pyarrow.record_batch({**before(pyarrow), "x": np.array([3, 4], dtype)})
    with pyarrow.ipc.new_file(str(tmp_path / "a.arrow"), batch.schema) as file:
        file.write(batch)
        file.write(batch.slice(1))
    got = samples_of(f"{tmp_path}/a.arrow::x")
    assert got.tolist() == [3, 4, 4] and got.dtype == dtype


def test_arrow_that_is_no_file(tmp_path: Path) -> None:
    pyarrow = package_of("pyarrow")
    batch = pyarrow.RecordBatch.from_arrays([pyarrow.array([1]), pyarrow.array([2])], names=["x", "x"])
    for name in ("a.arrow", "a.arrows"):
        with pyarrow.ipc.new_stream(str(tmp_path / name), batch.schema) as stream:
            stream.write(batch)
        assert "got a stream of record batches" in refused(UsageError, tmp_path / name)
    (tmp_path / "b.feather").write_bytes(b"FEA1" + bytes(100))
    assert "got Feather of version 1" in refused(UsageError, tmp_path / "b.feather")
    with pyarrow.ipc.new_file(str(tmp_path / "c.arrow"), batch.schema) as file:
        file.write(batch)
    assert "expected one member 'x', got 2; rename them" in refused(UsageError, f"{tmp_path}/c.arrow::x")


def test_uncompressed_arrow_needs_no_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pyarrow = package_of("pyarrow")
    batch = pyarrow.record_batch({"y": ["a"], "x": np.array([3], "f4")})
    with pyarrow.ipc.new_file(str(tmp_path / "a.arrow"), batch.schema) as file:
        file.write(batch)
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    assert open_source((f"{tmp_path}/a.arrow::x",)).samples == 1


@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize("userblock", [0, 1024])
def test_hdf5_of_all_indices(tmp_path: Path, libver: str, userblock: int) -> None:
    """Of chunks: one, none that is filtered, extensible along one axis or both; big endian; behind other bytes."""
    h5py = package_of("h5py")
    with h5py.File(tmp_path / "a.h5", "w", libver=libver, userblock_size=userblock) as file:
        file.create_dataset("one", data=NUMBERS, chunks=NUMBERS.shape)
        file.create_dataset("plain", data=NUMBERS, chunks=(5, 7))
        file.create_dataset("along", data=NUMBERS, chunks=(5, 41), maxshape=(None, 41), compression="gzip")
        file.create_dataset("both", data=NUMBERS, chunks=(5, 7), maxshape=(None, None), compression="lzf")
        file.create_dataset("beyond", data=NUMBERS, chunks=(100, 50), maxshape=(None, None), compression="gzip")
        file.create_dataset("big", data=NUMBERS.astype(">i2"), chunks=(5, 41), compression="gzip", shuffle=True)
        file.create_dataset("contiguous", data=NUMBERS)
        names = list(file)
    for name in names:
        np.testing.assert_array_equal(samples_of(f"{tmp_path}/a.h5::{name}"), NUMBERS.reshape(-1), name)


def test_small_batches_are_read_together(tmp_path: Path) -> None:
    """Each read begins with the footer, which is as long as the batches are many."""
    pyarrow = package_of("pyarrow")
    samples = np.arange(3000, dtype="i2")
    options = pyarrow.ipc.IpcWriteOptions(compression="lz4")
    with pyarrow.ipc.new_file(tmp_path / "a.arrow", pyarrow.schema({"x": pyarrow.int16()}), options=options) as file:
        for first, rows in [(0, 7), (7, 0), (7, 993), (1000, 2000)]:
            file.write(pyarrow.record_batch({"x": samples[first : first + rows]}))
    assert len(list(open_source((str(tmp_path / "a.arrow"),)).pieces())) == 1
    np.testing.assert_array_equal(read(str(tmp_path / "a.arrow")), samples)


@pytest.mark.parametrize("length", [60, 57])
def test_chunks_that_follow_one_another_are_one_byte_run(tmp_path: Path, length: int) -> None:
    h5py = package_of("h5py")
    samples = np.arange(length, dtype="i4")
    with h5py.File(tmp_path / "a.h5", "w", libver="latest") as file:
        file.create_dataset("a", data=samples, chunks=(10,))
    assert len(list(open_source((str(tmp_path / "a.h5"),)).pieces())) == 1
    np.testing.assert_array_equal(read(str(tmp_path / "a.h5")), samples)
    with h5py.File(tmp_path / "b.h5", "w") as file:  # in reverse order, and one of them never
        data = file.create_dataset("b", (length,), "i4", chunks=(10,), fillvalue=7)
        for first in (50, 40, 20, 10, 0):
            data[first : first + 10] = samples[first : first + 10]
        expected = data[...]
    np.testing.assert_array_equal(read(str(tmp_path / "b.h5")), expected)
