"""Checks partials of rows: a check of the job for each row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from workflows.aggregation import Aggregation, Check
from workflows.rows import Part, RowsOptions, encoded

FEW = 2**12  # samples of a row, which the reference recomputes faster than a check can be made for them
CHECKED_BYTES = 2**25  # that a check gathers where rows take turns, so that each row gets many samples at a time


def of_run(
    workflow: Aggregation[Any], compute: Callable[..., Any], run: Any, options: RowsOptions, row: int, indices: range
) -> Any:
    """The partial of samples of one row; positions count from the start of the row, or as the job does."""
    if workflow.located:
        return compute(run, options.of(row), options.rows.counted(indices, workflow.within_rows))
    partial = compute(run, options.of(row))
    return workflow.place(partial, options.rows.within(indices.start)) if workflow.place else partial


class RowsCheck:
    """A check of the job for each row, which get copies of their samples."""

    def __init__(self, workflow: Aggregation[Any], options: RowsOptions, dtype: np.dtype[Any]) -> None:
        self._workflow, self._options, self._dtype = workflow, options, dtype
        self._checks: dict[int, Check] = {}
        self._samples: dict[int, int] = {}
        self._partials: dict[int, NDArray[np.int64]] = {}  # of samples that no check has any more
        self._waiting: list[NDArray[Any]] = []
        self._first = self._bytes = 0

    def add(self, samples: NDArray[Any], first: int) -> None:
        if self._options.rows.inner == 1:
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
        for row, indices, place in self._options.rows.runs(range(first, first + len(samples))):
            run = np.ascontiguousarray(samples[place])
            self._samples[row] = self._samples.get(row, 0) + len(run)
            if len(run) < FEW:
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

    def _merge(self, row: int, partial: NDArray[np.int64]) -> None:
        known = self._partials.get(row)
        self._partials[row] = partial if known is None else self._workflow.combine(known, partial)

    def _new(self, row: int) -> Check:
        check = self._workflow.check(self._options.of(row), self._dtype)
        assert check is not None
        return check

    def _of(self, row: int) -> Check:
        if row not in self._checks:
            self._checks[row] = self._new(row)
        return self._checks[row]

    def partial(self) -> NDArray[np.int64]:
        self._flush()
        checks, self._checks = self._checks, {}
        for row, check in checks.items():
            self._merge(row, check.partial())
        return encoded({row: Part(self._samples[row], partial) for row, partial in self._partials.items()})
