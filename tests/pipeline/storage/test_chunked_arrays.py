"""Jobs that write an array, of members in chunks: byte runs of a file, or decoded region by region."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed.protocol.pickle import dumps, loads
from hypothesis import given, settings
from hypothesis import strategies as st

import pipeline
from pipeline.errors import PipelineError, UsageError
from pipeline.storage.array_file import ArrayFile, FilledArray, join, read_region
from pipeline.storage.sources import open_source
from tests.cases.format_case import package_of
from tests.cases.format_files import CASES
from tests.cases.slices import numpy_s, texts

ARRAY = np.random.default_rng(3).integers(-999, 999, (53, 37)).astype(">i4")


def _hdf5(folder: Path, **how: Any) -> str:
    with package_of("h5py").File(folder / "a.h5", "w") as file:
        file.create_dataset("a", data=ARRAY, **how)
    return str(folder / "a.h5")


def _zarr(folder: Path, **how: Any) -> str:
    array = package_of("zarr").create_array(folder / "a.zarr", shape=ARRAY.shape, dtype="i4", **how)
    array[...] = ARRAY
    return str(folder / "a.zarr")


def _tiff(folder: Path, **how: Any) -> str:
    package_of("tifffile").imwrite(folder / "a.tif", ARRAY.astype("i4"), photometric="minisblack", **how)
    return str(folder / "a.tif")


RUNS: dict[str, Callable[[Path], str]] = {
    "hdf5": lambda folder: _hdf5(folder, chunks=(10, 37)), "hdf5, a row": lambda folder: _hdf5(folder, chunks=(1, 37)),
    "zarr": lambda folder: _zarr(folder, chunks=(10, 37), compressors=None),
    "zarr, shards": lambda folder: _zarr(folder, chunks=(1, 37), shards=(20, 37), compressors=None),
}  # fmt: skip
DECODED: dict[str, Callable[[Path], str]] = {
    "hdf5, deflate": lambda folder: _hdf5(folder, chunks=(7, 9), compression="gzip"),
    "hdf5, lzf": lambda folder: _hdf5(folder, chunks=(7, 9), compression="lzf"),
    "hdf5, tiles": lambda folder: _hdf5(folder, chunks=(7, 9)),
    "zarr": lambda folder: _zarr(folder, chunks=(7, 9)),
    "zarr, shards": lambda folder: _zarr(folder, chunks=(7, 9), shards=(21, 18)),
    "tiff": lambda folder: _tiff(folder, compression="deflate", tile=(16, 32)),
}  # fmt: skip


def _partly_written(folder: Path) -> tuple[str, str]:
    """Of the same array in byte runs, with missing chunks, which have the fill value: an HDF5 and a Zarr member."""
    with package_of("h5py").File(folder / "a.h5", "w") as file:
        data = file.create_dataset("a", ARRAY.shape, ARRAY.dtype, chunks=(10, 37), fillvalue=7)
        array = package_of("zarr").create_array(folder / "a.zarr", shape=ARRAY.shape, dtype="i4", chunks=(10, 37),
                                                compressors=None, fill_value=7)  # fmt: skip
        for first in (0, 30):
            data[first : first + 10] = array[first : first + 10] = ARRAY[first : first + 10]
    return str(folder / "a.h5"), str(folder / "a.zarr")


PARTLY_WRITTEN = np.full_like(ARRAY, 7)
PARTLY_WRITTEN[:10], PARTLY_WRITTEN[30:40] = ARRAY[:10], ARRAY[30:40]


@pytest.mark.usefixtures("shared")
def test_missing_chunks(tmp_path: Path) -> None:
    for item in _partly_written(tmp_path):
        pipeline.run("transpose", item, output=tmp_path / "t.npy", chunk_bytes=600)
        np.testing.assert_array_equal(np.load(tmp_path / "t.npy"), PARTLY_WRITTEN.T)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_region_of_a_slice(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("a")
    kinds = {name: (make, ARRAY) for name, make in (RUNS | DECODED).items()}
    kinds |= {f"missing {at}": (lambda folder, at=at: _partly_written(folder)[at], PARTLY_WRITTEN) for at in (0, 1)}
    make, array = kinds[data.draw(st.sampled_from(sorted(kinds)))]
    text = data.draw(texts(array.shape))
    view = numpy_s(array, text)
    read = loads(dumps(join(open_source((f"{make(folder)}[{text}]",), samples=False))))
    assert read.spec.shape == view.shape
    bounds = [data.draw(st.tuples(*[st.integers(0, length)] * 2).map(sorted)) for length in view.shape]
    region = tuple((start, stop) for start, stop in bounds)
    np.testing.assert_array_equal(read_region(read, region), view[tuple(slice(*one) for one in region)])


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize(
    ("kind", "name"), [*(("runs", name) for name in RUNS), *(("decoded", name) for name in DECODED)]
)
def test_transpose_and_stencil(tmp_path: Path, kind: str, name: str) -> None:
    item = (RUNS if kind == "runs" else DECODED)[name](tmp_path)
    assert type(join(open_source((item,), samples=False))) is (ArrayFile if kind == "runs" else FilledArray)
    pipeline.run("transpose", item, output=tmp_path / "t.npy", chunk_bytes=600)
    np.testing.assert_array_equal(np.load(tmp_path / "t.npy"), ARRAY.T)
    np.save(tmp_path / "a.npy", ARRAY)
    for path, output in ((item, "s.npy"), (tmp_path / "a.npy", "expected.npy")):
        pipeline.run("stencil", path, radius=2, output=tmp_path / output, chunk_bytes=600)
    assert (tmp_path / "s.npy").read_bytes() == (tmp_path / "expected.npy").read_bytes()


@pytest.mark.parametrize(
    ("kind", "name"), [*(("runs", name) for name in RUNS), *(("decoded", name) for name in DECODED)]
)
def test_any_region_after_pickling(tmp_path: Path, kind: str, name: str) -> None:
    """As a worker in another process gets it."""
    item = (RUNS if kind == "runs" else DECODED)[name](tmp_path)
    array = loads(dumps(join(open_source((item,), samples=False))))
    random = np.random.default_rng(5)
    for _ in range(40):
        region = tuple(tuple(sorted(random.integers(0, length + 1, 2).tolist())) for length in ARRAY.shape)
        np.testing.assert_array_equal(read_region(array, region), ARRAY[tuple(slice(*one) for one in region)])


@pytest.mark.usefixtures("shared")
def test_no_samples(tmp_path: Path) -> None:
    with package_of("h5py").File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("a", (0, 5), "f4", chunks=(3, 5), maxshape=(None, 5))
    pipeline.run("transpose", tmp_path / "a.h5", output=tmp_path / "t.npy")
    assert np.load(tmp_path / "t.npy").shape == (5, 0)


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("name", DECODED)
def test_damage_is_one_line_and_nothing_is_written(tmp_path: Path, name: str) -> None:
    path = Path(DECODED[name](tmp_path))
    file = max(
        (one for one in [path, *path.rglob("*")] if one.is_file() and one.suffix != ".json"),
        key=lambda one: one.stat().st_size,
    )
    source = open_source((str(path),), samples=False)
    os.truncate(file, 0)
    with pytest.raises(PipelineError) as caught:
        pipeline.run("transpose", path, output=tmp_path / "t.npy")
    assert "\n" not in str(caught.value) and not (tmp_path / "t.npy").exists()
    with pytest.raises(PipelineError):  # planned before
        read_region(join(source), tuple((0, length) for length in ARRAY.shape))


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("name", ["npz deflated", "wav of 24 bits", "edf"])
def test_what_is_decoded_from_its_beginning(tmp_path: Path, name: str) -> None:
    item = CASES[name].written(tmp_path).item
    with pytest.raises(UsageError, match="expected an array that is stored in one piece, in chunks or in memory"):
        pipeline.run("transpose", item, output=tmp_path / "out.npy")
    assert not (tmp_path / "out.npy").exists()


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("turned", [False, True])
def test_several_are_byte_runs(tmp_path: Path, turned: bool) -> None:
    """The message does not blame the first, which is byte runs, or could be read alone."""
    np.save(tmp_path / "a.npy", ARRAY.astype("i4"))
    items = [str(tmp_path / "a.npy"), _zarr(tmp_path, chunks=(7, 9))]
    (tmp_path / "list.txt").write_text("\n".join(reversed(items) if turned else items))
    with pytest.raises(UsageError, match="expected one array, or several that are byte runs, got 2, some of them dec"):
        pipeline.run("transpose", f"@{tmp_path}/list.txt", output=tmp_path / "out.npy")
