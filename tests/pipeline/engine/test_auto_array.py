"""`--verify auto` on jobs that write an array: whole regions while there is time, 1 % of each always."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import pipeline.engine.array_plan
import pipeline.engine.array_regions
import pipeline.engine.run_loop
from pipeline.errors import VerificationError
from pipeline.storage.sources import Source
from tests.cases.array import SCALED, check, left, scaled
from tests.cases.array import array as array
from tests.cases.array import source as source
from tests.cases.array import workers as workers
from workflows.array_job import Checked
from workflows.regions import Bounds, in_rows

pytestmark = pytest.mark.usefixtures("shared")
ELEMENTS = 83 * 31
REGIONS: list[Bounds] = []  # of calls of the check
CHECKED: list[int] = []  # elements in each call of the check; the cluster lives in this process


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine regions, eight of 310 elements, of which at least four are always checked, and one of 93."""
    CHECKED.clear()
    REGIONS.clear()
    monkeypatch.setitem(pipeline.engine.array_plan.LEAST_BYTES, "auto", 0)
    monkeypatch.setattr(pipeline.engine.run_loop, "LEAST_SECONDS", 1e6)


@pytest.fixture
def none_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time is up as soon as computing has ended."""
    monkeypatch.setattr(pipeline.engine.run_loop, "LEAST_SECONDS", -1.0)
    monkeypatch.setattr(pipeline.engine.run_loop, "perf_counter", lambda: 0.0)


def recording(read: Any, found: NDArray[Any], *more: Any) -> Checked:
    CHECKED.append(found.size)
    return check(read, found, *more)


def slow(*arguments: Any) -> Checked:
    time.sleep(0.05)
    return recording(*arguments)


def noting(read: Any, elements: NDArray[Any], region: Bounds, *more: Any) -> Checked:
    time.sleep(0.002)
    REGIONS.append(region)
    return check(read, elements, region, *more)


def test_all_is_checked_where_there_is_time(source: Source) -> None:
    verdict = scaled(source, workflow=replace(SCALED, check=recording), verify="auto").verdict
    assert (verdict.mode, verdict.samples, verdict.checked, verdict.chunks) == ("auto", ELEMENTS, ELEMENTS, 9)
    assert verdict.escape == 2.0**-40
    assert len(CHECKED) == 18
    assert sum(CHECKED) == ELEMENTS + 8 * 4 + 1  # the parts that are always checked are checked twice


@pytest.mark.usefixtures("none_left")
def test_a_slow_check_ends_with_the_run_and_one_percent_of_each_region(source: Source) -> None:
    verdict = scaled(source, workflow=replace(SCALED, check=slow), verify="auto").verdict
    whole = [elements for elements in CHECKED if elements > 4]
    assert len(CHECKED) == 9 + len(whole) and len(whole) < 9
    assert ELEMENTS / 100 <= verdict.checked < ELEMENTS
    again = sum(4 if elements == 310 else 1 for elements in whole)
    assert verdict.checked == sum(CHECKED) - again


@pytest.mark.parametrize("time_left", [True, False])
def test_pieces_of_regions_are_counted_once(
    source: Source, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, time_left: bool
) -> None:
    """Each in a task of its own, so that little is begun before time is up; what is checked twice counts once."""
    if not time_left:
        request.getfixturevalue("none_left")
    monkeypatch.setattr(pipeline.engine.array_regions, "EXTRA_BYTES", 31 * 16)  # a row
    in_pieces = replace(SCALED, check=noting, pieces=lambda region, options, elements: in_rows(region, elements))
    verdict = scaled(source, workflow=in_pieces, verify="auto").verdict
    seen = np.zeros((83, 31), int)
    for region in REGIONS:
        seen[tuple(slice(*ends) for ends in region)] += 1
    assert verdict.checked == np.count_nonzero(seen)
    assert (verdict.checked == ELEMENTS) == time_left and verdict.checked >= 8 * 4 + 1
    assert seen.max() <= 2 and np.count_nonzero(seen == 2) <= 8 * 4 + 1


def test_small_regions_are_checked_whole_once(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(pipeline.engine.array_plan.LEAST_BYTES, "auto", 310 * 8)
    scaled(source, workflow=replace(SCALED, check=recording), verify="auto")
    assert sorted(CHECKED) == [93] + [310] * 8


@pytest.mark.usefixtures("none_left")
def test_what_is_always_checked_whole_is_so(source: Source) -> None:
    workflow = replace(SCALED, check=recording, whole=True)
    assert scaled(source, workflow=workflow, verify="auto").verdict.checked == ELEMENTS
    assert sum(CHECKED) == ELEMENTS  # once


@pytest.mark.parametrize("wrong", [0, 7, 309, 310, ELEMENTS - 1])
def test_an_error_anywhere_is_found(source: Source, array: NDArray[Any], wrong: int, tmp_path: Any) -> None:
    place = (wrong // 31, wrong % 31)

    def broken(blocks: Any, region: Bounds, *more: Any) -> NDArray[Any]:
        found = SCALED.compute(blocks, region, *more)
        if region[0][0] <= place[0] < region[0][1]:
            found[place[0] - region[0][0], place[1]] += 1
        return np.asarray(found)

    with pytest.raises(VerificationError, match=rf"element \({place[0]}, {place[1]}\): expected {3 * array[place]}, "):
        scaled(source, workflow=replace(SCALED, compute=broken), verify="auto")
    assert left(tmp_path) == []
