"""The compiled check of a job on the samples that a condition keeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.select.check import KeptCheck
from kernels.select.tree import INDEX, SAMPLE
from workflows.aggregation import Aggregation, Check


def values_to_check(selection: Any, samples: NDArray[Any], indices: range) -> dict[str, NDArray[Any]]:
    """As `Selection.values`, for checks: columns are read again, and indices are worked out in another way."""
    values = selection.beside(indices, checks=True) | {SAMPLE: samples}
    if INDEX in selection.names:
        values[INDEX] = indices.start + indices.step * np.indices(samples.shape)[0]
    return values  # type: ignore[no-any-return]


class SelectedCheck:
    """The compiled check of a job on the samples that are kept, which another function than that of `compute` says.

    Parameters
    ----------
    workflow, options, dtype
    inner
        The job's own check.
    keeps
    values
        (samples, indices) -> what every name in the condition stands for.
    """

    def __init__(
        self,
        workflow: Aggregation[Any],
        options: Any,
        dtype: np.dtype[Any],
        inner: Check,
        keeps: KeptCheck,
        values: Callable[[NDArray[Any], range], Mapping[str, NDArray[Any]]],
    ) -> None:
        self._workflow, self._options, self._dtype = workflow, options, dtype
        self._inner, self._keeps, self._values = inner, keeps, values
        self._kept = self._excluded = 0
        self._moved: NDArray[Any] | None = None  # with positions in the source

    def add(self, samples: NDArray[Any], first: int, step: int = 1) -> None:
        """Add samples; `first` and, from one to the next, `step`: their indices in the source."""
        indices = range(first, first + step * len(samples), step)
        native = samples.astype(self._dtype, copy=False)
        numbers = self._keeps.numbers(self._values(native, indices))
        self._excluded += len(samples) - len(numbers)
        if not len(numbers):
            return
        some = native.take(numbers)
        if self._workflow.relocate is None:
            self._inner.add(some, self._kept)
        else:
            inner = self._workflow.check(self._options, self._dtype) or self._inner
            inner.add(some, 0)
            moved = self._workflow.relocate(inner.partial(), lambda place: first + step * int(numbers[place]))
            self._moved = moved if self._moved is None else self._workflow.combine(self._moved, moved)
        self._kept += len(numbers)

    def partial(self) -> NDArray[Any]:
        """The partial of all samples so far."""
        if not self._kept:
            assert self._workflow.empty is not None
            of_kept = self._workflow.empty(self._dtype, self._options)
        else:
            of_kept = self._inner.partial() if self._moved is None else self._moved
        return np.insert(of_kept, 0, self._excluded)
