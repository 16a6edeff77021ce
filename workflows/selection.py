"""A job on the samples that a condition keeps: what it computes, checks and reports, and how many were left out."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from kernels.common.arrays import array_module
from kernels.histogram.grouped import RefinedBinning
from kernels.histogram.refined import refined_binning
from kernels.select.check import KeptCheck
from kernels.select.cuts import compared_with
from kernels.select.gpu import compact
from kernels.select.mask import kept
from kernels.select.reference import kept_reference
from kernels.select.tree import INDEX, SAMPLE, TRUE, Node, all_of
from kernels.select.typed import Typed, typed
from workflows.aggregation import Aggregation, Invariant, of_others
from workflows.histogram import HISTOGRAM
from workflows.selection_check import SelectedCheck, values_to_check
from workflows.selection_result import flags_of, selected_result
from workflows.selection_rows import compute_rows, lines_of

__all__ = ["INDEX", "SAMPLE", "Column", "Selection", "all_of", "of_mask", "present", "selected"]

Options = TypeVar("Options")


class Column(Protocol):
    """Numbers beside the samples, one for each; it travels with tasks, so it must be picklable."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype, in either byte order."""

    def read(self, indices: range, checks: bool = False) -> NDArray[Any]:
        """The numbers of these samples, on the host; PipelineError if they cannot be read.

        `checks`: whether a check needs them, which must not get what was read for a computation.
        """


@dataclass(frozen=True, eq=False)
class Selection:
    """Which samples are kept.

    Attributes
    ----------
    condition
        In the names `x`, the sample, `i`, its index in the source, and those of the columns.
    columns
    asked
        The same as the user said it, by flag.
    """

    condition: Node
    columns: Mapping[str, Column]
    asked: Mapping[str, Any]

    @cached_property
    def names(self) -> frozenset[str]:
        """Names in the condition."""
        return frozenset(self.condition.names())

    @cached_property
    def _typed(self) -> dict[np.dtype[Any], Typed]:
        return {}

    def typed(self, dtype: np.dtype[Any]) -> Typed:
        """The condition for samples of a native dtype; ValueError if a number in it does not fit."""
        known = self._typed  # another thread may replace it (functools, from Python 3.12 on)
        if dtype not in known:
            dtypes = {name: column.dtype.newbyteorder("=") for name, column in self.columns.items()}
            known[dtype] = typed(self.condition, {SAMPLE: dtype, INDEX: np.dtype(np.int64), **dtypes})
        return known[dtype]

    def beside(self, indices: range, checks: bool = False) -> dict[str, NDArray[Any]]:
        """The columns in the condition at these indices, in native byte order."""
        read = {name: column.read(indices, checks) for name, column in self.columns.items() if name in self.names}
        return {name: numbers.astype(numbers.dtype.newbyteorder("="), copy=False) for name, numbers in read.items()}

    def values(self, samples: NDArray[Any], indices: range) -> dict[str, NDArray[Any]]:
        """What every name stands for; the samples themselves in any case."""
        values = {SAMPLE: samples, **self.beside(indices)}
        if INDEX in self.names:
            values[INDEX] = np.arange(indices.start, indices.stop, indices.step, dtype=np.int64)
        return values


def of_mask(name: str, dtype: np.dtype[Any]) -> Node:
    """The condition that a column is not 0."""
    column = Node("name", value=name)
    return column if dtype.kind == "b" else Node("not_equal", (column, Node("number", value=0)))


def present(value: float, dtype: np.dtype[Any]) -> Node:
    """The condition that a sample of a dtype is not this value; NaN is the only one that differs from itself."""
    sample = Node("name", value=SAMPLE)
    if value != value:
        return Node("equal", (sample, sample))
    if dtype.kind != "f" and isinstance(value, float) and value.is_integer():
        value = int(value)  # compares exactly
    if dtype.kind == "f" and math.isfinite(value) and _overflows(value, dtype):
        return TRUE  # no sample is equal to it, while NumPy would compare with an infinity
    return Node("not_equal", (sample, Node("number", value=value)))


def _overflows(value: float, dtype: np.dtype[Any]) -> bool:
    with np.errstate(over="ignore"):
        return bool(np.isinf(dtype.type(value)))


def selected(workflow: Aggregation[Options], selection: Selection) -> Aggregation[Options]:
    """The job on the samples that are kept.

    Its partial is that of the job with the number of excluded samples before it, in the same dtype: float64 holds 2**53
    of them. Positions are indices in the source. What a survey finds are samples that are kept.

    Raises
    ------
    ValueError
        If the job needs all samples.
    """
    if workflow.located or workflow.empty is None or (workflow.place and not workflow.relocate):
        flags = ", ".join(f"--{flag}" for flag in flags_of(selection.asked))
        raise ValueError(f"{workflow.name}: expected no selection, since it needs all samples, got {flags}; "
                         "leave it out")  # fmt: skip
    survey = workflow.survey
    if survey is not None:
        survey = of_others(survey, partial(_surveying, selection))
    return replace(
        workflow,
        compute=partial(_compute, workflow, selection),
        compute_rows=None if workflow.compute_rows is None else partial(compute_rows, workflow, selection),
        lines=lines_of(workflow, selection),
        look=None,
        combine=partial(_combine, workflow),
        finalize=partial(_finalize, workflow, selection),
        reference=partial(_reference, workflow, selection),
        invariants=(_excluded_some, *(partial(_of_kept, holds) for holds in workflow.invariants)),
        label=lambda place, options: workflow.label(place - 1, options) if place else "excluded samples",
        check=partial(_check, workflow, selection),
        survey=survey,
        place=None,
        located=True,
        relocate=None if workflow.relocate is None else partial(_relocate, workflow),
        prepare=None,
        asked={**workflow.asked, **selection.asked},
        empty=lambda dtype, options: _counted(0, _nothing(workflow, dtype, options)),
        within=None if workflow.within is None else partial(_within, workflow),
        differences=None if workflow.differences is None else partial(_differences, workflow),
    )


def _surveying(selection: Selection, workflow: Aggregation[Options]) -> Aggregation[Options]:
    return replace(selected(workflow, selection), finalize=partial(_finalize_alone, workflow))


def _counted(excluded: int, of_kept: Any) -> Any:
    """A partial: the number of excluded samples, and the partial of the others."""
    counted = array_module(of_kept).empty(len(of_kept) + 1, of_kept.dtype)
    counted[:1], counted[1:] = excluded, of_kept
    return counted


def _nothing(workflow: Aggregation[Options], dtype: np.dtype[Any], options: Options) -> NDArray[Any]:
    assert workflow.empty is not None
    return workflow.empty(dtype.newbyteorder("="), options)


def _compute(workflow: Aggregation[Options], selection: Selection, block: Any, options: Options, indices: range) -> Any:
    if workflow.compute is HISTOGRAM.compute and not isinstance(block, np.ndarray):
        refined = _refined(selection, options, block.dtype)
        if refined is not None:
            return refined.count(array_module(block).ascontiguousarray(block))
    some, place = _kept(selection, block, indices)
    excluded = len(block) - len(some)
    if not len(some):
        nothing = _nothing(workflow, block.dtype, options)  # where the partials of other blocks are
        return _counted(excluded, nothing if workflow.relocate else array_module(block).asarray(nothing))
    of_kept = workflow.compute(some, options)
    if workflow.relocate is not None:
        host = of_kept if isinstance(of_kept, np.ndarray) else of_kept.get()
        of_kept = workflow.relocate(host, lambda number: indices[place(number)])
    return _counted(excluded, of_kept)


@lru_cache(maxsize=16)
def _refined(selection: Selection, options: Any, dtype: np.dtype[Any]) -> RefinedBinning | None:
    """Bins that tell samples apart that are kept and that are not; both arguments are compared by identity."""
    condition = selection.typed(dtype)
    numbers = compared_with(condition)
    if numbers is None:
        return None
    changes = [partial(_reaches, sign, *number) for number in numbers for sign in (operator.ge, operator.gt)]
    return refined_binning(options.binning(dtype), changes, lambda samples: kept(condition, {SAMPLE: samples}))


def _reaches(sign: Any, take: np.dtype[Any], number: Any, samples: NDArray[Any]) -> NDArray[np.bool_]:
    return sign(samples.astype(take), number)  # type: ignore[no-any-return]


def _kept(selection: Selection, block: Any, indices: range) -> tuple[Any, Callable[[int], int]]:
    """The samples of a block that are kept, and where each of them lies in it."""
    condition = selection.typed(block.dtype)
    if isinstance(block, np.ndarray):
        mask = kept(condition, selection.values(block, indices))
        places = cached(lambda: np.flatnonzero(mask))
        return block[mask], lambda number: int(places()[number])
    xp = array_module(block)
    columns = {name: xp.asarray(numbers) for name, numbers in selection.beside(indices).items()}
    chosen = compact(condition, xp.ascontiguousarray(block), indices, columns)
    return chosen.samples, chosen.place


def cached(make: Callable[[], Any]) -> Callable[[], Any]:
    """Makes something when it is needed first."""
    made: list[Any] = []

    def get() -> Any:
        if not made:
            made.append(make())
        return made[0]

    return get


def _combine(workflow: Aggregation[Options], a: Any, b: Any) -> Any:
    return array_module(a).concatenate((a[:1] + b[:1], workflow.combine(a[1:], b[1:])))


def _relocate(workflow: Aggregation[Options], counted: NDArray[Any], index_of: Callable[[int], int]) -> NDArray[Any]:
    assert workflow.relocate is not None
    return np.concatenate((counted[:1], workflow.relocate(counted[1:], index_of)))


def _finalize(workflow: Aggregation[Options], selection: Selection, counted: NDArray[Any], options: Options) -> Any:
    return selected_result(workflow.finalize(counted[1:], options), int(counted[0]), selection.asked)


def _finalize_alone(workflow: Aggregation[Options], counted: NDArray[Any], options: Options) -> Any:
    return workflow.finalize(counted[1:], options)


def _reference(
    workflow: Aggregation[Options], selection: Selection, samples: NDArray[Any], options: Options, indices: range
) -> NDArray[Any]:
    """By NumPy's boolean indexing."""
    mask = kept_reference(selection.condition, values_to_check(selection, samples, indices), len(samples))
    some = samples[mask]
    if not len(some):
        return _counted(len(samples), _nothing(workflow, samples.dtype, options))  # type: ignore[no-any-return]
    of_kept = workflow.reference(some, options)
    if workflow.relocate is not None:
        index = np.arange(indices.start, indices.stop, indices.step)[mask]
        of_kept = workflow.relocate(of_kept, lambda place: int(index[place]))
    return np.concatenate(([np.count_nonzero(~mask)], of_kept), dtype=of_kept.dtype, casting="unsafe")


def _check(
    workflow: Aggregation[Options], selection: Selection, options: Options, dtype: np.dtype[Any]
) -> SelectedCheck | None:
    inner = workflow.check(options, dtype)
    keeps = None if inner is None else KeptCheck.of(selection.typed(dtype))
    if inner is None or keeps is None:
        return None
    return SelectedCheck(workflow, options, dtype, inner, keeps, partial(values_to_check, selection))


def _excluded_some(counted: NDArray[Any], samples: int) -> str | None:
    if 0 <= int(counted[0]) <= samples:
        return None
    return f"as many samples are excluded as there are, at most: expected 0 to {samples:,}, got {int(counted[0]):,}"


def _of_kept(holds: Invariant, counted: NDArray[Any], samples: int) -> str | None:
    return holds(counted[1:], samples - int(counted[0]))


def _differences(workflow: Aggregation[Any], got: NDArray[Any], expected: NDArray[Any], options: Any) -> Iterator[str]:
    assert workflow.differences is not None
    if got[0] != expected[0]:
        yield f"excluded samples: expected {int(expected[0]):,}, got {int(got[0]):,}"
    yield from workflow.differences(got[1:], expected[1:], options)


def _within(workflow: Aggregation[Any], got: NDArray[Any], expected: NDArray[Any]) -> str | None:
    assert workflow.within is not None
    if got[0] != expected[0]:
        return f"excluded samples: expected {int(expected[0]):,}, got {int(got[0]):,}"
    return workflow.within(got[1:], expected[1:])
