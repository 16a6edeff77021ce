"""The array that a job writes: regions fill it, and it appears whole or not at all."""

from __future__ import annotations

import errno
import itertools
import os
import re
import resource
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from time import sleep
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import pipeline.storage.mapped_output
from pipeline.errors import PipelineError
from pipeline.storage.array_file import read_region
from pipeline.storage.output_array import OutputFile
from pipeline.storage.output_file import output_file
from tests.cases.region import DTYPES, TINY, counting, part, same, shapes
from workflows.regions import Bounds, Spec, all_of


@st.composite
def cut_arrays(draw: st.DrawFn) -> tuple[NDArray[Any], list[Bounds]]:
    """An array and regions that cover it, in any order."""
    shape = draw(shapes)
    array = counting(shape, draw(st.sampled_from(DTYPES)))
    edges = [sorted({0, length, *draw(st.lists(st.integers(0, length), max_size=2))}) for length in shape]
    regions = list(itertools.product(*(list(itertools.pairwise(axis)) for axis in edges)))
    return array, draw(st.permutations(regions))


@TINY
@given(
    case=cut_arrays(),
    suffix=st.sampled_from(["npy", "raw"]),
    mappable=st.booleans(),
    slab=st.tuples(st.integers(1, 5), st.integers(1, 40)),
)
def test_regions_make_the_array(
    tmp_path: Path, case: tuple[NDArray[Any], list[Bounds]], suffix: str, mappable: bool, slab: tuple[int, int]
) -> None:
    """Through a mapping, in parts of few runs and bytes, and through a descriptor."""
    array, regions = case
    native = array.astype(array.dtype.newbyteorder("="))
    path = tmp_path / f"out.{suffix}"
    with (
        pytest.MonkeyPatch.context() as monkeypatch,
        output_file(str(path), Spec(array.shape, native.dtype)) as ready,
    ):
        output = ready()
        monkeypatch.setattr(pipeline.storage.mapped_output, "SLAB_RUNS", slab[0])
        monkeypatch.setattr(pipeline.storage.mapped_output, "SLAB_BYTES", slab[1])
        assert output.mappable or not native.size
        output = replace(output, mappable=output.mappable and mappable)
        for region in regions:
            output.write(region, part(native, region))
            same(read_region(output.readable(), region), part(native, region))
            same(output.read(region), part(native, region))
        assert not path.exists()
    got = np.load(path) if suffix == "npy" else np.fromfile(path, native.dtype).reshape(array.shape)
    assert got.tobytes() == native.tobytes() and got.shape == array.shape
    assert got.dtype == array.dtype.newbyteorder("<")
    assert os.listdir(tmp_path) == [path.name]
    path.unlink()


@pytest.fixture
def output(tmp_path: Path) -> Iterator[OutputFile]:
    with output_file(str(tmp_path / "out.npy"), Spec((4, 6), np.dtype(np.int32))) as ready:
        output = ready()
        yield output


@pytest.mark.parametrize("block", [np.zeros((2, 3), np.int64), np.zeros((3, 2), np.int32), np.zeros(6, np.int32)])
def test_block_of_another_kind_is_refused(output: OutputFile, block: NDArray[Any]) -> None:
    with pytest.raises(PipelineError, match=r"^expected a block of int32 2×3, got \w+ [\d×]+$"):
        output.write(((0, 2), (0, 3)), block)


def test_system_that_writes_less_than_asked(output: OutputFile, monkeypatch: pytest.MonkeyPatch) -> None:
    output = replace(output, mappable=False)
    whole = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: whole(fd, data[:5], offset))
    block = counting((2, 6), "<i4")
    output.write(((1, 3), (0, 6)), block)
    same(read_region(output.readable(), ((1, 3), (0, 6))), block)


def test_refusal_of_the_disk_is_told(output: OutputFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, data: Any, offset: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    output = replace(output, mappable=False)
    expected = f"the output: expected to write to {tmp_path}, got 'No space left on device'; nothing was kept"
    with pytest.raises(PipelineError, match=f"^{re.escape(expected)}$"):
        output.write(((0, 1), (0, 6)), counting((1, 6), "<i4"))
    for mappable in (False, True):
        elsewhere = replace(output, path=f"{tmp_path}/missing", mappable=mappable)
        with pytest.raises(PipelineError, match=r"to write to \S+, got 'No such file or directory'; nothing was kept$"):
            elsewhere.write(((0, 1), (0, 6)), counting((1, 6), "<i4"))


def test_output_that_somebody_cuts_off_is_told(tmp_path: Path) -> None:
    """Allocating its pages reports it; touching them would kill the process."""
    if tuple(map(int, os.uname().release.split(".")[:2])) < (5, 14):
        pytest.skip("pages cannot be asked for")
    with (
        pytest.raises(PipelineError, match="the run ends"),
        output_file(str(tmp_path / "out.raw"), Spec((2**20,), np.dtype(np.int32))) as ready,
    ):
        output = ready()
        os.truncate(output.path, 100)
        with pytest.raises(PipelineError, match=r"to write to \S+, got 'Input/output error'; nothing was kept$"):
            output.write(((2**19, 2**20),), np.zeros(2**19, np.int32))
        with pytest.raises(PipelineError, match=r"shrank while it was read: expected 4194304 bytes, got 100"):
            output.read(((0, 1),))
        raise PipelineError("the run ends")


def test_mapping_that_is_refused_is_told(output: OutputFile) -> None:
    """The process has no address space left for it."""
    limits = resource.getrlimit(resource.RLIMIT_AS)
    large = replace(output, spec=Spec((2**40,), np.dtype(np.int32)))
    resource.setrlimit(resource.RLIMIT_AS, (2**40, limits[1]))
    try:
        with pytest.raises(PipelineError, match=r"got 'Cannot allocate memory'; nothing was kept$"):
            large.write(((0, 2**40),), np.broadcast_to(np.int32(0), 2**40))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


def test_slabs_that_are_under_way_end_before_a_failure_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They write to the mapping, which then is gone; regions that have not started are skipped."""
    monkeypatch.setattr(pipeline.storage.mapped_output, "SLAB_BYTES", 4)
    together, ended = Barrier(2), []

    def to_host(part: NDArray[Any]) -> NDArray[Any]:
        value = int(part[0])
        if value < 2:
            together.wait()
        if value == 0:
            raise PipelineError("planted")
        sleep(0.2)
        ended.append(value)
        return part

    with output_file(str(tmp_path / "out.raw"), Spec((50,), np.dtype(np.int32))) as ready, ThreadPoolExecutor(2) as two:
        with pytest.raises(PipelineError, match=r"^planted$"):
            ready().write(((0, 50),), np.arange(50, dtype=np.int32), to_host, two.map)
        assert ended == [1]


@pytest.mark.parametrize("error", [ValueError("planted"), KeyboardInterrupt(), PipelineError("planted")])
def test_failure_leaves_what_was_there(tmp_path: Path, error: BaseException) -> None:
    (tmp_path / "out.npy").write_bytes(b"old")
    with pytest.raises(type(error)), output_file(str(tmp_path / "out.npy"), Spec((9,), np.dtype("i4"))) as ready:
        output = ready()
        output.write(((0, 9),), counting((9,), "<i4"))
        assert len(os.listdir(tmp_path)) == 3  # with the lock
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
    text = rf"out.raw: expected space for 4000000 bytes in {tmp_path}, got 'File too large' with \d+ free; ask for less"
    try:
        with (
            pytest.raises(PipelineError, match=text),
            output_file(str(tmp_path / "out.raw"), Spec((10**6,), np.dtype("i4"))) as ready,
        ):
            ready()
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
    with output_file(str(tmp_path / "out.npy"), spec) as ready:
        output = ready()
        same(read_region(output.readable(), all_of(spec)), np.zeros((3, 4), np.int32))
    assert (np.load(tmp_path / "out.npy") == 0).all()


def test_header_is_read_again(tmp_path: Path) -> None:
    """Nobody else reads it: checks read the elements."""
    with (
        pytest.raises(PipelineError, match=r"out\.npy: expected the header that was written, got another one"),
        output_file(str(tmp_path / "out.npy"), Spec((3, 4), np.dtype("i4"))) as ready,
        open(ready().path, "r+b") as file,
    ):
        file.write(b"lost")
    assert os.listdir(tmp_path) == []


def test_header_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with (
            pytest.raises(
                PipelineError, match=r"out\.npy: expected to write the file, got File too large; choose another"
            ),
            output_file(str(tmp_path / "out.npy"), Spec((3, 4), np.dtype("i4"))),
        ):
            raise AssertionError("opened")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert os.listdir(tmp_path) == []
