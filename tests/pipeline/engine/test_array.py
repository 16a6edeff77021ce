"""Jobs that write an array: the same bytes for every region size; verdict, trace and progress."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import pipeline.engine.array
import pipeline.engine.array_task
from pipeline.cluster.workers import Workers
from pipeline.errors import VerificationError
from pipeline.storage.sources import Source, open_source
from tests.cases.array import SCALED, check, left, scaled
from tests.cases.array import array as array
from tests.cases.array import source as source
from tests.cases.array import workers as workers
from tests.cases.monitors import Told
from workflows.array_job import Checked
from workflows.regions import Bounds, Spec, in_rows, sizes

pytestmark = pytest.mark.usefixtures("shared")
CHECKED: list[int] = []  # elements in each call of the check; the cluster is in this process


@pytest.mark.parametrize(
    ("chunk_bytes", "name"),
    [(nbytes, "out.npy") for nbytes in (100, 496, 497, 5000, 41167, 41168, None)]
    + [(nbytes, name) for nbytes in (497, None) for name in ("out.raw", "out")],
)
def test_bytes_do_not_depend_on_the_cut(
    source: Source, array: NDArray[Any], chunk_bytes: int | None, name: str, tmp_path: Path
) -> None:
    outcome = scaled(source, chunk_bytes=chunk_bytes, name=name)
    path = tmp_path / name
    assert outcome.result.path == str(path)
    np.save(tmp_path / "expected.npy", 3 * array)
    expected = (tmp_path / "expected.npy").read_bytes()
    assert path.read_bytes() == (expected if name == "out.npy" else expected[128:])
    np.testing.assert_array_equal(outcome.result.array, 3 * array)
    assert left(tmp_path) == ["expected.npy", name]


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(1, 30), max_size=3).map(tuple), st.integers(1, 200))
def test_rows_cover_once_in_regions_of_about_the_same_length(shape: tuple[int, ...], elements: int) -> None:
    covered = np.zeros(shape, np.uint8)
    lengths = []
    for region in in_rows(Spec(shape, np.dtype("u1")), elements):
        covered[(*(slice(*ends) for ends in region), ...)] += 1
        lengths.append(sizes(region))
    assert (covered == 1).all()
    assert max(map(math.prod, lengths)) <= elements
    for axis, length in enumerate(shape):
        longest = max(region[axis] for region in lengths)
        assert longest == -(-length // -(-length // longest))  # fewer bytes each would not suffice


def test_one_element_at_a_time(tmp_path: Path) -> None:
    np.save(tmp_path / "in.npy", np.arange(35).reshape(5, 7))
    outcome = scaled(open_source((str(tmp_path / "in.npy"),)), chunk_bytes=1)
    assert (outcome.verdict.chunks, outcome.result.array.tolist()) == (35, (3 * np.arange(35)).reshape(5, 7).tolist())


def test_result_says_what_was_written(source: Source, tmp_path: Path) -> None:
    result = scaled(source).result
    path = str(tmp_path / "out.npy")
    described = {"path": path, "dtype": "int64", "byteorder": "little", "shape": [83, 31]}
    described |= {"bytes": 83 * 31 * 8, "notes": {}}
    assert result.to_json() == described
    assert result.lines() == [("output", f"{path} (int64 83×31)"), ("bytes", "20,584")]
    with pytest.raises(ValueError, match="read-only"):
        result.array[0] = 1


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,)])
@pytest.mark.parametrize("name", ["out.npy", "out.raw"])
def test_arrays_of_no_or_one_element(tmp_path: Path, shape: tuple[int, ...], name: str) -> None:
    np.save(tmp_path / "in.npy", np.full(shape, 7, ">i4"))
    steps: list[tuple[int, int]] = []
    source = open_source((str(tmp_path / "in.npy"),), samples=False)
    outcome = scaled(source, name=name, monitor=Told(lambda *step: steps.append(step)))
    got, size = outcome.result.array, int(np.prod(shape))
    assert (got.shape, got.dtype, got.tolist()) == (shape, np.int32, np.full(shape, 21).tolist())
    assert (outcome.verdict.samples, outcome.verdict.checked, outcome.verdict.chunks) == (size, size, size)
    assert steps == [(4, 4)] * size


def test_several_files_are_one_array(tmp_path: Path, array: NDArray[Any]) -> None:
    for number, part in enumerate(np.split(array, [30, 31])):
        np.save(tmp_path / f"{number}.npy", part)
    source = open_source((str(tmp_path / "[0-9].npy"),), samples=False)
    np.testing.assert_array_equal(scaled(source).result.array, 3 * array)


# --- verdict, trace, progress -----------------------------------------------------------------------------------------


def recording(read: Any, elements: NDArray[Any], region: Bounds, *more: Any) -> Checked:
    assert elements.shape == sizes(region)
    CHECKED.append(elements.size)
    return check(read, elements, region, *more)


@pytest.mark.parametrize(("mode", "checked"), [("full", 83 * 31), ("sample", 8 * 2 + 1), ("off", 0)])
def test_verdict_claims_what_was_checked(source: Source, mode: str, checked: int) -> None:
    """The sample is one of 256 elements, or one, of each region: eight of 10 x 31 and one of 3 x 31."""
    CHECKED.clear()
    verdict = scaled(source, workflow=replace(SCALED, check=recording), verify=mode).verdict
    assert (verdict.mode, verdict.samples, verdict.chunks) == (mode, 83 * 31, 9)
    assert verdict.checked == sum(CHECKED) == checked
    assert verdict.escape == (0.0 if mode == "off" else 2.0**-40)


@pytest.mark.parametrize(("nbytes", "most"), [(1, 1), (100, 6), (2000, 124), (10**6, 310)])
def test_regions_are_checked_piece_by_piece(
    source: Source, nbytes: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every element once, in pieces of about this many bytes, both arrays together."""
    monkeypatch.setattr(pipeline.engine.array_task, "CHECKED_BYTES", nbytes)
    CHECKED.clear()
    pieces = replace(SCALED, check=recording, pieces=lambda region, options, elements: in_rows(region, elements))
    verdict = scaled(source, workflow=pieces).verdict
    assert (verdict.checked, verdict.escape) == (83 * 31, 2.0**-40)
    assert sum(CHECKED) == 83 * 31 and max(CHECKED) == most


@pytest.mark.parametrize("wrong", [0, 7, 309, 310, 83 * 31 - 1])
def test_error_in_any_piece_is_found_where_it_is(
    source: Source, array: NDArray[Any], wrong: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline.engine.array_task, "CHECKED_BYTES", 16 * 20)

    def broken(blocks: Any, region: Bounds, *more: Any) -> NDArray[Any]:
        elements = SCALED.compute(blocks, region, *more)
        if region[0][0] <= wrong // 31 < region[0][1]:
            elements[wrong // 31 - region[0][0], wrong % 31] += 1
        return np.asarray(elements)

    pieces = replace(SCALED, compute=broken, pieces=lambda region, options, elements: in_rows(region, elements))
    place = (wrong // 31, wrong % 31)
    text = rf"a number is wrong in region .*: element {re.escape(str(place))}: expected {3 * array[place]}, got "
    with pytest.raises(VerificationError, match=text):
        scaled(source, workflow=pieces)


@pytest.mark.parametrize("streams", [False, True])
def test_memory_of_the_thread_is_for_what_is_read_at_once(
    source: Source, monkeypatch: pytest.MonkeyPatch, streams: bool
) -> None:
    """Streaming workflows read part after part, all of which would be kept in memory."""
    used: list[int] = []

    @contextmanager
    def counted() -> Iterator[Any]:
        used.append(1)
        yield np.empty

    def streamed(read: Any, region: Bounds, *more: Any) -> NDArray[Any]:
        return SCALED.compute([read(0, region)], region, *more)

    monkeypatch.setattr(pipeline.engine.array_task, "scratch", counted)
    workflow = replace(SCALED, streams=True, compute=streamed) if streams else SCALED
    assert scaled(source, workflow=workflow).verdict.checked == 83 * 31
    assert len(used) == (0 if streams else 18)  # nine regions, computed and checked


def test_whole_check_is_never_a_sample(source: Source) -> None:
    assert scaled(source, workflow=replace(SCALED, whole=True), verify="sample").verdict.checked == 83 * 31


def test_trace_has_every_stage_of_every_region(source: Source) -> None:
    stages = scaled(source, traced=True).stages
    nbytes = 83 * 31 * 8
    assert stages.nbytes == 2 * nbytes
    spans = [tuple(span.stage for span in trace.spans) for trace in stages.traces]
    assert sorted(spans) == [("read", "kernel", "write")] * 9 + [("verify",)] * 9
    for stage in ("read", "kernel", "write", "verify"):
        assert sum(span.nbytes for trace in stages.traces for span in trace.spans if span.stage == stage) == nbytes
        assert stages.moved[stage] == nbytes and stages.seconds[stage] > 0
    assert stages.devices == {"cpu"} and stages.wall > 0
    assert scaled(source).stages.traces == []


def test_progress_is_monotone_and_complete(source: Source) -> None:
    steps: list[tuple[int, int]] = []
    announced: list[Workers] = []
    scaled(source, monitor=Told(lambda *step: steps.append(step), announced.append))
    assert [total for _, total in steps] == [83 * 31 * 8] * 9
    done = [0, *(done for done, _ in steps)]
    assert all(a < b for a, b in pairwise(done)) and done[-1] == 83 * 31 * 8
    assert [workers.device for workers in announced] == ["cpu"]
