"""Regions of arrays in files: reading gives the slice."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from pipeline.errors import PipelineError, UsageError
from pipeline.storage import array_file
from pipeline.storage.array_file import ArrayFile, join, read_region
from pipeline.storage.pieces import Piece
from pipeline.storage.sources import open_source
from tests.cases.region import DTYPES, TINY, bounds_in, counting, part, same, shapes
from workflows.regions import Bounds, Spec


@st.composite
def arrays_and_regions(draw: st.DrawFn) -> tuple[NDArray[Any], Bounds, list[int]]:
    shape = draw(shapes)
    array = counting(shape, draw(st.sampled_from(DTYPES)))
    cuts = draw(st.lists(st.integers(0, shape[0]), max_size=3).map(sorted)) if shape else []
    return array, draw(bounds_in(shape)), cuts


def stored(folder: Path, *parts: NDArray[Any]) -> ArrayFile:
    paths = [str(folder / f"part-{number}.npy") for number in range(len(parts))]
    for path, rows in zip(paths, parts, strict=True):
        np.save(path, rows)
    return join(open_source(tuple(paths), samples=False))


@TINY
@given(case=arrays_and_regions(), fortran=st.booleans())
def test_region_is_the_slice(tmp_path: Path, case: tuple[NDArray[Any], Bounds, list[int]], fortran: bool) -> None:
    """From one file in either order, or from several."""
    array, region, cuts = case
    parts = [array.copy("F")] if fortran else np.split(array, cuts) if cuts else [array]
    got = stored(tmp_path, *parts)
    assert got.spec == Spec(array.shape, array.dtype)
    same(read_region(got, region), part(array, region))


def test_raw_files_follow_one_another(tmp_path: Path) -> None:
    array = counting((100,), ">i2")
    for number, rows in enumerate(np.split(array, [30, 31])):
        (tmp_path / f"{number}.raw").write_bytes(b"header" + rows.tobytes())
    got = join(open_source((str(tmp_path / "*.raw"),), "int16", "big", 6, samples=False))
    for region in [((0, 100),), ((29, 32),), ((30, 31),), ((31, 31),), ((50, 90),)]:
        same(read_region(got, region), part(array, region))


def runs(shape: tuple[int, ...], dtype: str, region: Bounds) -> tuple[int, list[int]]:
    """Run length in bytes, and offset of each run, of a region of an array in one file."""
    spec = Spec(shape, np.dtype(dtype))
    array = ArrayFile(spec, (Piece("", 0, spec.nbytes, None),))
    placed = [(first + start, at, nbytes) for _, first, runs in array.parts(region) for start, at, nbytes in runs]
    assert [at for _, at, _ in placed] == [number * array.run(region) for number in range(len(placed))]
    assert all(nbytes == array.run(region) for _, _, nbytes in placed)
    return array.run(region), [start for start, _, _ in placed]


@TINY
@given(shape=shapes, data=st.data())
def test_runs_are_where_the_elements_lie(shape: tuple[int, ...], data: st.DataObject) -> None:
    """In order they make up the region, in as few runs of equal length as possible."""
    region = data.draw(bounds_in(shape))
    places = part(np.arange(math.prod(shape)).reshape(shape), region).reshape(-1)
    length, starts = runs(shape, "V3", region)
    got = [start // 3 + place for start in starts for place in range(length // 3)]
    if places.size:
        assert got == places.tolist()
        gaps = int((np.diff(places) != 1).sum())
        assert gaps < len(starts) <= max(1, gaps + 1) * max(1, shape.count(1) + 1)
    else:
        assert length == 0 or not starts


@pytest.mark.parametrize(
    ("region", "length", "starts"),
    [
        (((0, 4), (0, 5), (0, 6)), 120, [0]),
        (((1, 3), (0, 5), (0, 6)), 60, [30]),
        (((1, 3), (2, 4), (0, 6)), 12, [42, 72]),
        (((1, 2), (2, 4), (0, 6)), 12, [42]),
        (((0, 2), (2, 4), (1, 3)), 2, [13, 19, 43, 49]),
    ],
)
def test_runs_are_long(region: Bounds, length: int, starts: list[int]) -> None:
    assert runs((4, 5, 6), "u1", region) == (length, starts)


def test_fortran_order_that_is_turned_wrongly_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By another way than it was turned."""
    array = stored(tmp_path, counting((5, 6), "<i4").copy("F"))
    right = array_file.transpose_cpu

    def wrong(block: NDArray[Any]) -> NDArray[Any]:
        got = right(block)
        got[1, 1] += 1
        return got

    monkeypatch.setattr(array_file, "transpose_cpu", wrong)
    with pytest.raises(PipelineError, match=r"expected to read int32 5×6 in Fortran order .* got other elements"):
        read_region(array, ((0, 5), (0, 6)))


def test_memory_is_the_callers(tmp_path: Path) -> None:
    """Data in the wanted byte order is read straight to its destination."""
    made: list[NDArray[Any]] = []

    def allocate(shape: Any, dtype: Any) -> NDArray[Any]:
        made.append(np.empty(shape, dtype))
        return made[-1]

    array = stored(tmp_path, counting((5, 6), "<i4"))
    assert read_region(array, ((1, 3), (0, 6)), allocate) is made[0]
    assert len(made) == 1


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ([(2, 3), (2, 4)], r"part-1.npy: expected an array that goes on with the rows of \S*part-0.npy, of shape "
                           r"\(2, 3\) in C order, got \(2, 4\); run them separately"),
        ([(2, 3), (6,)], r"got \(6,\)"),
        ([(), ()], r"of shape \(\) in C order, got \(\)"),
        ([(), (5,)], r"of shape \(\) in C order, got \(5,\)"),
        ([(5,), ()], r"of shape \(5,\) in C order, got \(\)"),
    ],
)  # fmt: skip
def test_files_that_do_not_go_on_are_refused(tmp_path: Path, parts: list[tuple[int, ...]], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        stored(tmp_path, *(counting(shape, "<i4") for shape in parts))


def test_fortran_order_is_for_one_file(tmp_path: Path) -> None:
    array = counting((4, 5), "<i4")
    for parts in ((array, array.copy("F")), (array.copy("F"), array)):
        with pytest.raises(UsageError, match=r"part-1.npy: expected an array that goes on .* in C order"):
            stored(tmp_path, *parts)


def changed(path: str) -> None:
    os.utime(path, ns=(0, 0))


def grown(path: str) -> None:
    with open(path, "ab") as file:
        file.write(b"x")


@pytest.mark.parametrize(
    ("change", "text"),
    [(changed, "was written to while it was read"), (grown, "grew while it was read"),
     (os.unlink, "expected the file that was planned, got 'No such file or directory'")],
)  # fmt: skip
def test_input_that_changed_is_an_error(tmp_path: Path, change: Any, text: str) -> None:
    array = stored(tmp_path, counting((4, 5), "<i4"))
    change(array.pieces[0].path)
    with pytest.raises(PipelineError, match=rf"^{re.escape(array.pieces[0].path)}: {text}"):
        read_region(array, ((1, 2), (1, 4)))
