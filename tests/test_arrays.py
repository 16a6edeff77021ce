"""Regions of arrays in files, read and written: every shape, order, byte order and cut against NumPy's slices."""

from __future__ import annotations

import errno
import itertools
import math
import os
import re
import resource
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pipeline.arrays import ArrayFile, OutputFile, join, output_file, read_region
from pipeline.chunks import Piece
from pipeline.errors import PipelineError, UsageError
from pipeline.sources import open_source
from workflows.array_workflow import Bounds, Spec, all_of

DTYPES = ("uint8", ">i2", "<f4", ">f8", "<c16", ">c8", "bool", "S3", ">U2", "V5", "V16")
TINY = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

shapes = st.lists(st.integers(0, 6), max_size=4).map(tuple)


def counting(shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    """An array of which every two elements differ, as far as the dtype can tell."""
    numbers = np.arange(math.prod(shape)) + 1
    if np.dtype(dtype).kind == "V":
        data = np.zeros((numbers.size, np.dtype(dtype).itemsize), np.uint8)
        data[:, 0], data[:, -1] = numbers % 251, numbers // 251
        return data.reshape(-1).view(dtype).reshape(shape)
    return numbers.astype(dtype).reshape(shape)


@st.composite
def bounds_in(draw: st.DrawFn, shape: tuple[int, ...]) -> Bounds:
    ends = [draw(st.tuples(st.integers(0, length), st.integers(0, length))) for length in shape]
    return tuple((min(pair), max(pair)) for pair in ends)


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


def part(array: NDArray[Any], region: Bounds) -> NDArray[Any]:
    """By NumPy's slices; an array also where it has no axis."""
    return array[(*(slice(*ends) for ends in region), ...)]


def same(found: NDArray[Any], expected: NDArray[Any]) -> None:
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype.newbyteorder("=")
    assert found.flags.c_contiguous
    assert found.tobytes() == expected.astype(found.dtype).tobytes()


# --- reading ----------------------------------------------------------------------------------------------------------


@TINY
@given(case=arrays_and_regions(), fortran=st.booleans())
def test_region_is_the_slice(tmp_path: Path, case: tuple[NDArray[Any], Bounds, list[int]], fortran: bool) -> None:
    """From one file in either order, or from several."""
    array, region, cuts = case
    parts = [array.copy("F")] if fortran else np.split(array, cuts) if cuts else [array]
    found = stored(tmp_path, *parts)
    assert found.spec == Spec(array.shape, array.dtype)
    same(read_region(found, region), part(array, region))


def test_raw_files_follow_one_another(tmp_path: Path) -> None:
    array = counting((100,), ">i2")
    for number, rows in enumerate(np.split(array, [30, 31])):
        (tmp_path / f"{number}.raw").write_bytes(b"header" + rows.tobytes())
    found = join(open_source((str(tmp_path / "*.raw"),), "int16", "big", 6, samples=False))
    for region in [((0, 100),), ((29, 32),), ((30, 31),), ((31, 31),), ((50, 90),)]:
        same(read_region(found, region), part(array, region))


def runs(shape: tuple[int, ...], dtype: str, region: Bounds) -> tuple[int, list[int]]:
    """Bytes of a run, and where each begins, of a region of an array in one file."""
    spec = Spec(shape, np.dtype(dtype))
    array = ArrayFile(spec, (Piece("", 0, spec.nbytes, spec.nbytes, None),))
    found = [run for _, runs in array.parts(region) for run in runs]
    assert [at for _, at, _ in found] == [number * array.run(region) for number in range(len(found))]
    assert all(nbytes == array.run(region) for _, _, nbytes in found)
    return array.run(region), [start for start, _, _ in found]


@TINY
@given(shape=shapes, data=st.data())
def test_runs_are_where_the_elements_lie(shape: tuple[int, ...], data: st.DataObject) -> None:
    """One after another they are the region, and as few as can be of one length."""
    region = data.draw(bounds_in(shape))
    places = part(np.arange(math.prod(shape)).reshape(shape), region).reshape(-1)
    length, starts = runs(shape, "V3", region)
    found = [start // 3 + place for start in starts for place in range(length // 3)]
    if places.size:
        assert found == places.tolist()
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


def test_memory_is_the_callers(tmp_path: Path) -> None:
    """What has the order of bytes that is wanted is read to where it was asked for."""
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


# --- writing ----------------------------------------------------------------------------------------------------------


@st.composite
def cut_arrays(draw: st.DrawFn) -> tuple[NDArray[Any], list[Bounds]]:
    """An array and regions that cover it, in any order."""
    shape = draw(shapes)
    array = counting(shape, draw(st.sampled_from(DTYPES)))
    edges = [sorted({0, length, *draw(st.lists(st.integers(0, length), max_size=2))}) for length in shape]
    regions = list(itertools.product(*(list(itertools.pairwise(axis)) for axis in edges)))
    return array, draw(st.permutations(regions))


@TINY
@given(case=cut_arrays(), suffix=st.sampled_from(["npy", "raw"]))
def test_regions_make_the_array(tmp_path: Path, case: tuple[NDArray[Any], list[Bounds]], suffix: str) -> None:
    array, regions = case
    native = array.astype(array.dtype.newbyteorder("="))
    path = tmp_path / f"out.{suffix}"
    with output_file(str(path), Spec(array.shape, native.dtype)) as output:
        for region in regions:
            output.write(region, part(native, region))
            same(read_region(output.readable(), region), part(native, region))
        assert not path.exists()
    found = np.load(path) if suffix == "npy" else np.fromfile(path, native.dtype).reshape(array.shape)
    assert found.tobytes() == native.tobytes() and found.shape == array.shape
    assert found.dtype == array.dtype.newbyteorder("<")
    assert os.listdir(tmp_path) == [path.name]
    path.unlink()


@pytest.fixture
def output(tmp_path: Path) -> Iterator[OutputFile]:
    with output_file(str(tmp_path / "out.npy"), Spec((4, 6), np.dtype(np.int32))) as output:
        yield output


@pytest.mark.parametrize("block", [np.zeros((2, 3), np.int64), np.zeros((3, 2), np.int32), np.zeros(6, np.int32)])
def test_block_of_another_kind_is_refused(output: OutputFile, block: NDArray[Any]) -> None:
    with pytest.raises(PipelineError, match=r"^expected a block of int32 2×3, got \w+ [\d×]+$"):
        output.write(((0, 2), (0, 3)), block)


def test_system_that_writes_less_than_asked(output: OutputFile, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: whole(fd, data[:5], offset))
    block = counting((2, 6), "<i4")
    output.write(((1, 3), (0, 6)), block)
    same(read_region(output.readable(), ((1, 3), (0, 6))), block)


def test_refusal_of_the_disk_is_told(output: OutputFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, data: Any, offset: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    expected = f"the output: expected to write to {tmp_path}, got 'No space left on device'; nothing was kept"
    with pytest.raises(PipelineError, match=f"^{re.escape(expected)}$"):
        output.write(((0, 1), (0, 6)), counting((1, 6), "<i4"))
    elsewhere = replace(output, path=f"{tmp_path}/missing")
    with pytest.raises(PipelineError, match=r"expected to write to \S+, got 'No such file or directory'; nothing was kept$"):
        elsewhere.write(((0, 1), (0, 6)), counting((1, 6), "<i4"))


@pytest.mark.parametrize("error", [ValueError("planted"), KeyboardInterrupt(), PipelineError("planted")])
def test_failure_leaves_what_was_there(tmp_path: Path, error: BaseException) -> None:
    (tmp_path / "out.npy").write_bytes(b"old")
    with pytest.raises(type(error)), output_file(str(tmp_path / "out.npy"), Spec((9,), np.dtype("i4"))) as output:
        output.write(((0, 9),), counting((9,), "<i4"))
        assert len(os.listdir(tmp_path)) == 2
        raise error
    assert os.listdir(tmp_path) == ["out.npy"]
    assert (tmp_path / "out.npy").read_bytes() == b"old"


def test_full_disk_is_told_before_anything_is_computed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    text = rf"out.npy: expected 40128 free bytes in {tmp_path}, got 1000; ask for less or free space"
    with (
        pytest.raises(PipelineError, match=text),
        output_file(str(tmp_path / "out.npy"), Spec((10, 1000), np.dtype("i4"))),
    ):
        raise AssertionError("there is no room")
    assert os.listdir(tmp_path) == []


def test_limit_of_a_file_is_told_before_anything_is_computed(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10**6, limits[1]))
    text = rf"out.raw: expected room for 4000000 bytes in {tmp_path}, got 'File too large' with \d+ free; ask for less"
    try:
        with (
            pytest.raises(PipelineError, match=text),
            output_file(str(tmp_path / "out.raw"), Spec((10**6,), np.dtype("i4"))),
        ):
            raise AssertionError("there is no room")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("reason", [errno.EINVAL, errno.EOPNOTSUPP])
def test_file_system_that_promises_nothing(tmp_path: Path, reason: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(fd: int, offset: int, length: int) -> None:
        raise OSError(reason, os.strerror(reason))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    spec = Spec((3, 4), np.dtype("i4"))
    with output_file(str(tmp_path / "out.npy"), spec) as output:
        same(read_region(output.readable(), all_of(spec)), np.zeros((3, 4), np.int32))
    assert (np.load(tmp_path / "out.npy") == 0).all()
