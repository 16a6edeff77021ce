"""Checks partials of rows: a check of the job for each row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial as partial_
from functools import reduce
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from kernels.common.compiled_check import CompiledCheck
from kernels.common.turns_check import TurnsCheck, fits
from workflows.aggregation import Aggregation, Check, Lines
from workflows.rows import Rows, RowsOptions, Stretch
from workflows.rows_partial import Part, combined, encoded_lines, encoded_rows

# Samples of a row, which the reference recomputes faster than a check can be made for them: one for so many bytes of
# memory of the check, whose pages have to be mapped, and at most.
BYTES_OF_SAMPLE, FEW = 32, 2**16
FEW_CHECKS = 2**4  # of rows with options of their own: each takes milliseconds to make, and has tables of its own
HELD_BYTES = 2**26  # of memory of the checks that are kept for rows
OTHERS = 2**12, 2**6  # few samples, and checks that are kept, of those that do not say how much memory they take
SMALL_BYTES = 2**18  # of samples that wait for others where rows are checked together
CHECKED_BYTES = 2**25  # that a check gathers where rows take turns, so that each row gets many samples at a time


def of_run(
    workflow: Aggregation[Any], compute: Callable[..., Any], run: Any, options: RowsOptions, row: int, indices: range
) -> Any:
    """The partial of samples of one row; positions count from the start of the row, or as the job does."""
    if workflow.located:
        return compute(run, options.of(row), options.rows.counted(indices, workflow.within_rows))
    partial = compute(run, options.of(row))
    return workflow.place(partial, options.rows.within(indices.start)) if workflow.place else partial


def placed_lines(
    workflow: Aggregation[Any], lines: Sequence[NDArray[np.int64]], rows: Rows, stretches: Sequence[Stretch], start: int
) -> Sequence[NDArray[np.int64]]:  # fmt: skip
    """Lines of the rows of each stretch of a block that begins at an index, with positions counted in the row."""
    if workflow.located or workflow.lines is None or workflow.lines.relocate is None:
        return lines
    placed = []
    for of_stretch, stretch in zip(lines, stretches, strict=True):
        starts = rows.turns(start + stretch.place.start + stretch.firsts())[:, None]
        placed.append(workflow.lines.relocate(of_stretch, partial_(np.add, starts)))
    return placed


def check_of_rows(workflow: Aggregation[Any], options: RowsOptions, dtype: np.dtype[Any]) -> Check | None:
    """The checks of all rows as one; None if the job has none."""
    rows, first = options.rows, workflow.check(options.of(0), dtype)
    if first is None:
        return None
    turns = rows.inner > 1 and rows.number == rows.inner and (workflow.within_rows or not workflow.located)
    alike = len(options.options) == 1
    if turns and isinstance(first, CompiledCheck) and (alike or rows.inner <= FEW_CHECKS):
        if (together := first.in_turns(rows.inner, _put_together) if alike else None) is not None:
            return together
        others = (workflow.check(options.of(row), dtype) for row in range(1, rows.inner))
        if fits(rows.inner, dtype, first.nbytes):
            checks = [first, *(check for check in others if isinstance(check, CompiledCheck))]
            if len(checks) == rows.inner:
                return _TurnsCheck(checks, dtype, workflow.lines)
    return RowsCheck(workflow, options, dtype, first)


def _put_together(lines: NDArray[np.int64]) -> NDArray[np.int64]:
    """The partial of rows whose entries count every sample once."""
    return encoded_lines(np.arange(len(lines)), lines.sum(axis=1), [lines])


class _TurnsCheck(TurnsCheck):
    """A check of rows that take turns from the first sample to the last."""

    def __init__(self, checks: Sequence[CompiledCheck], dtype: np.dtype[Any], lines: Lines[Any] | None) -> None:
        super().__init__(checks, dtype)
        self._lines_of_job = lines

    def partial(self) -> NDArray[np.int64]:
        given = enumerate(zip(self.samples(), self.checks, strict=True))
        parts = {row: Part(samples, check.partial()) for row, (samples, check) in given if samples}
        return encoded_rows(self._lines_of_job, parts)


class RowsCheck:
    """A check of rows of any layout, which get copies of their samples; `one` checks a row."""

    def __init__(self, workflow: Aggregation[Any], options: RowsOptions, dtype: np.dtype[Any], one: Check) -> None:
        self._workflow, self._options, self._dtype = workflow, options, dtype
        self._few, self._most = OTHERS
        if len(options.options) > 1:
            self._few, self._most = FEW, FEW_CHECKS
        elif isinstance(one, CompiledCheck):
            self._few, self._most = min(one.nbytes // BYTES_OF_SAMPLE, FEW), max(HELD_BYTES // one.nbytes, 1)
        self._checks: dict[int, Check] = {}
        self._samples: dict[int, int] = {}
        self._partials: dict[int, NDArray[np.int64]] = {}  # of samples that no check has any more
        self._together: list[NDArray[np.int64]] = []  # of rows that were checked together, from the first sample on
        self._waiting: list[NDArray[Any]] = []
        self._first = self._bytes = 0

    def add(self, samples: NDArray[Any], first: int) -> None:
        if self._options.rows.inner == 1 and not (self._workflow.lines and samples.nbytes < SMALL_BYTES):
            self._add(samples, first)
            return
        if self._waiting and first != self._first + self._bytes // samples.itemsize:
            self._flush()
        if not self._waiting:
            self._first = first
        self._waiting.append(samples.copy())
        self._bytes += samples.nbytes
        if self._bytes >= CHECKED_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            waiting, self._waiting, self._bytes = self._waiting, [], 0
            self._add(np.concatenate(waiting, dtype=waiting[0].dtype), self._first)

    def _add(self, samples: NDArray[Any], first: int) -> None:
        if (together := self._lines(samples, first)) is not None:
            self._append(together)
            return
        for row, indices, place in self._options.rows.runs(range(first, first + len(samples))):
            run = np.ascontiguousarray(samples[place])
            self._samples[row] = self._samples.get(row, 0) + len(run)
            if len(run) < self._few and row not in self._checks:
                partial = of_run(self._workflow, self._workflow.reference, run, self._options, row, indices)
            elif self._workflow.located or not self._workflow.place:
                where = self._options.rows.counted(indices, self._workflow.within_rows or not self._workflow.located)
                cast(Any, self._of(row)).add(run, where.start, *([where.step] if where.step > 1 else []))
                continue
            else:
                check = self._new(row)
                check.add(run, 0)
                partial = self._workflow.place(check.partial(), self._options.rows.within(indices.start))
            self._merge(row, partial)

    def _lines(self, samples: NDArray[Any], first: int) -> NDArray[np.int64] | None:
        """The partial of all rows, by the job's check of many; None where it has none."""
        stretches, lines = list(self._options.rows.stretches(range(first, first + len(samples)))), []
        job, alike = self._workflow.lines, len(self._options.options) == 1
        if job is None or not alike or any(stretch.long for stretch in stretches):
            return None
        for stretch in stretches:
            some, options = samples[stretch.place], self._options.of(0)
            if self._workflow.located:
                start = first + stretch.place.start
                of_stretch = job.check(some, stretch, range(start, start + len(some)), options)
            else:
                of_stretch = job.check(*stretch.one_after_another(some, lambda matrix: matrix.T.copy()), options)
            if of_stretch is None:
                return None
            lines.append(of_stretch)
        placed = placed_lines(self._workflow, lines, self._options.rows, stretches, first)
        rows, counts = (np.concatenate(of) for of in ([one.rows for one in stretches],
                                                      [one.samples() for one in stretches]))  # fmt: skip
        return encoded_lines(rows, counts, placed, job=job)

    def _append(self, partial: NDArray[np.int64]) -> None:
        """Combine it with those of similar sizes: partials of rows grow, and would be copied again for each."""
        while self._together and self._together[-1].size < 2 * partial.size:
            partial = combined(self._workflow, self._together.pop(), partial)
        self._together.append(partial)

    def _merge(self, row: int, partial: NDArray[np.int64]) -> None:
        known = self._partials.get(row)
        self._partials[row] = partial if known is None else self._workflow.combine(known, partial)

    def _new(self, row: int) -> Check:
        check = self._workflow.check(self._options.of(row), self._dtype)
        assert check is not None
        return check

    def _of(self, row: int) -> Check:
        if row not in self._checks:
            if len(self._checks) == self._most:
                self._end()
            self._checks[row] = self._new(row)
        return self._checks[row]

    def _end(self) -> None:
        """Add up what the checks have seen, and forget them."""
        checks, self._checks = self._checks, {}
        for row, check in checks.items():
            self._merge(row, check.partial())

    def partial(self) -> NDArray[np.int64]:
        self._flush()
        self._end()
        parts = {row: Part(self._samples[row], partial) for row, partial in self._partials.items()}
        one_by_one = encoded_rows(self._workflow.lines, parts)
        return reduce(partial_(combined, self._workflow), reversed(self._together), one_by_one)
