"""Rows: which sample is in which, and jobs on each of them, for blocks that begin anywhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import kernels.common.turns_check
import kernels.histogram.check
import workflows.rows_check
from kernels.common import nvrtc
from kernels.common.compiled_check import CompiledCheck
from tests.cases.aggregation_checks import plainly
from workflows.by_rows import by_rows
from workflows.calibration import Calibration, calibrated
from workflows.histogram import HISTOGRAM, HistogramOptions
from workflows.reduce import REDUCE, ReduceOptions
from workflows.rows import Rows, RowsOptions, split
from workflows.rows_check import RowsCheck
from workflows.rows_partial import Part, decoded, encoded
from workflows.selection import Selection, present, selected

BINS = HistogramOptions(bins=8, range=(0, 64))
SUMS = ReduceOptions(op="sum,argmin,argmax")


@st.composite
def layouts(draw: Any) -> tuple[Rows, int, NDArray[np.int64]]:
    """Rows, a number of samples, and the row of each of them, by NumPy's own arithmetic of axes."""
    if draw(st.booleans()):
        sizes = draw(st.lists(st.integers(0, 9), min_size=1, max_size=6).filter(any))
        rows = Rows("file", (len(sizes),), None, sizes=tuple(sizes), names=tuple(map(str, range(len(sizes)))))
        return rows, sum(sizes), np.repeat(np.arange(len(sizes)), sizes)
    outer, length, inner = (draw(st.integers(1, most)) for most in (3, 7, 5))
    of_all = np.broadcast_to(np.arange(outer * inner).reshape(outer, 1, inner), (outer, length, inner))
    return Rows("row", (outer, inner), length, inner), outer * length * inner, of_all.reshape(-1)


@settings(deadline=None)
@given(layouts(), st.data())
def test_every_sample_is_in_its_row(layout: tuple[Rows, int, NDArray[np.int64]], data: Any) -> None:
    rows, samples, expected = layout
    start = data.draw(st.integers(0, samples - 1))
    stop = data.draw(st.integers(start + 1, samples))
    got = np.full(stop - start, -1)
    for row, indices, place in rows.runs(range(start, stop)):
        assert (got[place] == -1).all()
        got[place] = row
        assert list(indices) == list(range(start, stop)[place])
    assert got.tolist() == expected[start:stop].tolist()
    assert rows.rows_of(np.arange(start, stop)).tolist() == got.tolist()
    for index in range(start, stop):
        of_row = np.flatnonzero(expected == expected[index])
        assert rows.within(index) == np.flatnonzero(of_row == index)[0]


@settings(deadline=None)
@given(layouts(), st.data())
def test_split_gives_the_samples_of_each_row(layout: tuple[Rows, int, NDArray[np.int64]], data: Any) -> None:
    rows, samples, expected = layout
    start = data.draw(st.integers(0, samples - 1))
    stop = data.draw(st.integers(start + 1, samples))
    of_rows: dict[int, list[int]] = {}
    for row, indices, run in split(rows, np.arange(start, stop), start):
        assert run.flags.c_contiguous and run.tolist() == list(indices)
        of_rows.setdefault(row, []).extend(run.tolist())
    wanted = {int(row): (start + np.flatnonzero(expected[start:stop] == row)).tolist()
              for row in np.unique(expected[start:stop])}  # fmt: skip
    assert of_rows == wanted


@settings(deadline=None)
@given(layouts(), st.data())
def test_partials_do_not_depend_on_how_samples_are_cut(layout: tuple[Rows, int, NDArray[np.int64]], data: Any) -> None:
    """Compute, the check and the reference give the same bits, which add up to those of each row by itself."""
    rows, samples, expected = layout
    values = np.array(data.draw(st.lists(st.integers(-3, 70), min_size=samples, max_size=samples)), np.int16)
    cuts = sorted(data.draw(st.sets(st.integers(1, samples), max_size=3)) | {samples})
    for workflow, inner in ((HISTOGRAM, BINS), (REDUCE, SUMS)):
        job, options = by_rows(workflow), RowsOptions(rows, values.dtype, (inner,))
        totals: list[Any] = []
        check = job.check(options, values.dtype)
        assert check is not None
        start = 0
        for stop in cuts:
            block, indices = values[start:stop], range(start, stop)
            partial = job.compute(block, options, indices)
            np.testing.assert_array_equal(job.reference(block, options, indices), partial)
            check.add(block, start)
            totals.append(partial)
            start = stop
        total = totals[0]
        for partial in totals[1:]:
            total = job.combine(partial, total)
        np.testing.assert_array_equal(total, job.compute(values, options, range(samples)))
        np.testing.assert_array_equal(check.partial(), total)
        assert not any(invariant(total, samples) for invariant in job.invariants)
        parts = decoded(total)
        for row, part in parts.items():
            assert workflow.lines
            (of_row,) = workflow.lines.partials(part.partial[None])
            np.testing.assert_array_equal(of_row, workflow.reference(values[expected == row], inner))


@pytest.mark.parametrize(
    "rows", [Rows("channel", (5,), None, 5), Rows("row", (2, 3), 10_000, 3), Rows("segment", (6,), 10_000)]
)
@pytest.mark.parametrize("most", [None, 1, 2])
def test_checks_take_limited_memory(rows: Rows, most: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of rows of any layout: those that do not fit give up what they have seen, and begin anew."""
    values = np.random.default_rng(0).integers(-5, 70, 60_000).astype(np.float32)
    job, options = by_rows(HISTOGRAM), RowsOptions(rows, values.dtype, (BINS,))
    if most is not None:
        one = HISTOGRAM.check(BINS, values.dtype)
        assert isinstance(one, CompiledCheck)
        monkeypatch.setattr(workflows.rows_check, "HELD_BYTES", most * one.nbytes)
        monkeypatch.setattr(kernels.common.turns_check, "MOST_BYTES", one.nbytes)
        monkeypatch.setattr(kernels.histogram.check, "TURNS_BYTES", 0)
        monkeypatch.setattr(workflows.rows_check, "CHECKED_BYTES", 100_000)
        kept = count_kept(monkeypatch)
    check = job.check(options, values.dtype)
    assert check is not None
    for start in range(0, len(values), 7_001):
        check.add(values[start : start + 7_001], start)
    np.testing.assert_array_equal(check.partial(), job.reference(values, options, range(len(values))))
    if most is not None:
        assert not isinstance(check, CompiledCheck) and max(kept) == most


def count_kept(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Checks that are kept after each is made."""
    kept, of = [], RowsCheck._of

    def counted(self: RowsCheck, row: int) -> Any:
        check = of(self, row)
        kept.append(len(self._checks))
        return check

    monkeypatch.setattr(RowsCheck, "_of", counted)
    return kept


def test_rows_of_which_one_has_no_compiled_check() -> None:
    """All are checked one by one."""
    values = np.arange(60, dtype=np.float32)
    each = tuple(HistogramOptions(bins=8, range=(0, end)) for end in (30, 40, 50))
    options = RowsOptions(Rows("channel", (3,), None, 3), values.dtype, each)
    plain = replace(HISTOGRAM, check=lambda one, dtype: (
        plainly(HISTOGRAM.reference) if one is each[1] else HISTOGRAM.check)(one, dtype))  # fmt: skip
    for workflow, compiled in ((HISTOGRAM, True), (plain, False)):
        job = by_rows(workflow)
        check = job.check(options, values.dtype)
        assert check is not None and isinstance(check, CompiledCheck) == compiled
        check.add(values, 0)
        np.testing.assert_array_equal(check.partial(), job.reference(values, options, range(60)))


def test_encoded_is_read_back() -> None:
    parts = {5: Part(3, np.arange(4)), 2: Part(1, np.arange(0)), 9: Part(0, np.arange(1))}
    back = decoded(encoded(parts))
    assert list(back) == [2, 5, 9]
    assert all(back[row].samples == part.samples and (back[row].partial == part.partial).all()
               for row, part in parts.items())  # fmt: skip
    assert decoded(encoded({})) == {}


def changed(partial: NDArray[np.int64], row: int, entry: int) -> NDArray[np.int64]:
    parts = decoded(partial.copy())
    parts[row].partial[entry] += 1
    return encoded(parts)


def test_what_differs_is_named() -> None:
    rows = Rows("channel", (3,), 4, 3)
    job, options = by_rows(HISTOGRAM), RowsOptions(rows, np.dtype(np.int32), (BINS,))
    values = np.arange(12, dtype=np.int32)
    partial = job.compute(values, options, range(12))
    assert job.differences
    assert list(job.differences(changed(partial, 1, 2), partial, options)) == [
        "channel 1, bin 1 [8, 16): expected 1, got 2"
    ]
    fewer = job.compute(values[:11], options, range(11))
    assert list(job.differences(fewer, partial, options)) == ["channel 2: expected 4 samples, got 3"]
    wrong = changed(partial, 2, 0)
    told = [text for invariant in job.invariants if (text := invariant(wrong, 12))]
    assert told == ["row 2: every sample is counted once: expected 4 in all, got 5"]
    assert job.invariants[0](fewer, 12) == "every sample is in a row: expected 12 in all, got 11"


@pytest.mark.gpu
@pytest.mark.parametrize(("workflow", "inner"), [(HISTOGRAM, BINS), (REDUCE, SUMS)])
@pytest.mark.parametrize("rows", [Rows("channel", (3,), 33, 3), Rows("segment", (4,), 25), Rows("row", (3, 3), 11, 3)])
def test_on_a_device(cp: Any, rows: Rows, workflow: Any, inner: Any) -> None:
    values = np.random.default_rng(0).integers(-5, 70, 99).astype(np.int16)
    job, options = by_rows(workflow), RowsOptions(rows, values.dtype, (inner,))
    for start, stop in ((0, 99), (7, 60), (98, 99)):
        got = job.compute(cp.asarray(values[start:stop]), options, range(start, stop))
        np.testing.assert_array_equal(got, job.reference(values[start:stop], options, range(start, stop)))


@pytest.mark.gpu
@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize(
    "rows",
    [
        Rows("channel", (5,), None, 5),
        Rows("row", (4, 3), 7, 3),
        Rows("segment", (40,), 3),
        Rows("segment", (200,), 1),
        Rows("file", (6,), None, sizes=(0, 40, 0, 1, 99, 0), names=tuple("abcdef")),
        Rows("channel", (1,), None, 1),
    ],
    ids=lambda rows: f"{rows.by} {rows.shape}",
)
def test_all_rows_of_a_block_at_once(cp: Any, monkeypatch: pytest.MonkeyPatch, rows: Rows, each: bool) -> None:
    """The bits of rows one by one, in one launch for a group of rows, wherever a block begins and ends."""
    assert rows.number
    launched: list[str] = []
    load = nvrtc.load
    monkeypatch.setattr(nvrtc, "load", lambda source, name: launched.append(name) or load(source, name))  # type: ignore
    samples = rows.number * (rows.length or 13) if not rows.sizes else sum(rows.sizes)
    values = np.random.default_rng(1).normal(30, 40, samples).astype(np.float32)
    values[::17], values[5::31] = np.nan, np.inf
    lines = np.sort(np.random.default_rng(2).uniform(0, 60, (rows.number, 9)), axis=1)
    own = HistogramOptions(edges=lines).of_rows(rows.number) if each else (BINS,)
    job, options = by_rows(HISTOGRAM), RowsOptions(rows, values.dtype, own)
    one_by_one = by_rows(replace(HISTOGRAM, compute_rows=None))
    for start, stop in ((0, samples), (1, samples), (4, samples - 3), (samples - 1, samples)):
        block, indices = cp.asarray(values[start:stop]), range(start, stop)
        launched.clear()
        got = job.compute(block, options, indices)
        at_once = [name for name in launched if name.startswith("rows_")]
        of_group = rows.inner * rows.length if rows.length and rows.inner > 1 else samples
        groups = len({place // of_group for place in indices})
        assert len(at_once) == (groups if got[0] > 1 or rows.inner > 1 else 0)  # one row alone has kernels of its own
        assert got.dtype == np.int64
        np.testing.assert_array_equal(got, one_by_one.compute(block, options, indices))
        np.testing.assert_array_equal(got, job.reference(values[start:stop], options, indices))


@pytest.mark.gpu
@pytest.mark.parametrize("each", [False, True])
def test_jobs_that_change_the_samples(cp: Any, each: bool) -> None:
    """Calibrated and selected samples, all rows of a block at once, also where a transform turns their order round."""
    values = np.arange(60, dtype=np.int16)
    rows = Rows("channel", (3,), 20, 3)
    options = RowsOptions(rows, values.dtype, (BINS, BINS, BINS) if each else (BINS,))
    for workflow in (
        calibrated(HISTOGRAM, Calibration(2.0, 1.0)),
        calibrated(HISTOGRAM, Calibration(-2.0, 70.0)),
        calibrated(HISTOGRAM, Calibration(1.0, -7.0, "sqrt")),
        calibrated(HISTOGRAM, Calibration(-1.0, 7.0, "log")),
        calibrated(HISTOGRAM, Calibration(1.0, -7.0, "abs")),
        selected(HISTOGRAM, Selection(present(7.0, values.dtype), {}, {})),
    ):
        assert workflow.compute_rows is not None
        job = by_rows(workflow)
        got = job.compute(cp.asarray(values), options, range(60))
        np.testing.assert_array_equal(got, job.reference(values, options, range(60)))


def test_lines_do_not_show_what_has_cancelled() -> None:
    """Partials of cut rows are those of whole ones, also where the sum of a row needs fewer words than its parts do."""
    values = np.array([1.0, 2.0, 1e300, -1e300, 3.0, 4.0, 1e-300, -1e-300])
    for rows in (Rows("segment", (4,), 2), Rows("file", (3,), None, sizes=(2, 5, 1)), Rows("channel", (2,), None, 2)):
        job, options = by_rows(REDUCE), RowsOptions(rows, values.dtype, (ReduceOptions(op="sum"),))
        whole = job.compute(values, options, range(8))
        for cut in range(1, 8):
            a, b = (job.compute(values[part], options, range(8)[part]) for part in (slice(cut), slice(cut, 8)))
            np.testing.assert_array_equal(job.combine(a, b), whole)
            np.testing.assert_array_equal(job.combine(b, a), whole)


@pytest.mark.parametrize(
    ("rows", "most"),
    [
        (Rows("channel", (10_000,), None, 10_000), 512), (Rows("channel", (6,), None, 6), 512 * 6),
        (Rows("segment", (9,), 10), 5120), (Rows("file", (3,), None, sizes=(4, 0, 2)), 1024),
        (Rows("channel", (4,), 2**40), 2**49), (Rows("file", (2,), None, sizes=(0, 0)), 512),
    ],
)  # fmt: skip
def test_references_compare_few_rows(rows: Rows, most: int) -> None:
    """Those of so many samples, and not fewer where there are few rows."""
    job = by_rows(REDUCE)
    compared = job.compared(RowsOptions(rows, np.dtype(np.int16), (SUMS,)))
    assert compared == most or (rows.inner == 6 and compared > most)
