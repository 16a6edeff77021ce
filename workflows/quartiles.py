"""The interquartile range of the samples in a range: surveys that find it, and a pass that proves it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common.arrays import array_module
from kernels.histogram.inside import inside, inside_reference
from kernels.quantile.cells import combined
from kernels.quantile.search import Search
from workflows import order_statistics, quantile
from workflows.aggregation import Aggregation, Check

Range = tuple[float, float]


@dataclass(frozen=True)
class Quartiles:
    """How far the search for the quartiles is.

    Attributes
    ----------
    search
    limits
        The range of the samples that count; None for all that are not NaN.
    """

    search: Search
    limits: Range | None

    @staticmethod
    def begin(dtype: np.dtype[Any], limits: Range | None) -> Quartiles:
        """A search that has not counted anything yet."""
        return Quartiles(order_statistics.begin(("iqr",), dtype, omit=True), limits)

    @property
    def searching(self) -> bool:
        """Whether passes are missing before the one that proves what they found."""
        return quantile.survey_needed(self.search)


def compute(block: Any, options: Any) -> Any:
    """The number of samples that are left out, and counts of the others, on the device that holds the block."""
    quartiles = options.quartiles
    chosen = block if quartiles.limits is None else inside(block, *quartiles.limits)
    xp = array_module(block)
    counts = (
        quantile.count(chosen, quartiles.search) if chosen.size else xp.asarray(quantile.no_counts(quartiles.search))
    )
    return xp.concatenate((xp.asarray([block.size - chosen.size], dtype=np.int64), counts))


def reference(block: NDArray[Any], options: Any) -> NDArray[np.int64]:
    """The same by the reference of quantiles."""
    quartiles = options.quartiles
    chosen = block if quartiles.limits is None else inside_reference(block, *quartiles.limits)
    search = quartiles.search
    counts = quantile.count_reference(chosen, search) if len(chosen) else quantile.no_counts(search)
    return np.concatenate(([len(block) - len(chosen)], counts))


def check(options: Any, dtype: np.dtype[Any]) -> Check | None:
    """The same by the check of quantiles; None without a compiler."""
    compiled = quantile.count_check(options.quartiles.search)
    return None if compiled is None else _InsideCheck(compiled, options.quartiles.limits)


class _InsideCheck:
    """The check of quantiles, of samples in a range."""

    def __init__(self, check: Check, limits: Range | None) -> None:
        self._check, self._limits, self._outside = check, limits, 0

    def add(self, samples: NDArray[Any], first: int) -> None:
        """Add samples; places do not matter."""
        chosen = samples if self._limits is None else inside_reference(samples, *self._limits)
        self._outside += len(samples) - len(chosen)
        if len(chosen):
            self._check.add(chosen, 0)

    def partial(self) -> NDArray[np.int64]:
        """Counts so far."""
        return np.concatenate(([self._outside], self._check.partial()))


def _combine(a: Any, b: Any) -> Any:
    return array_module(a).concatenate((a[:1] + b[:1], combined(a[1:], b[1:])))


def _no_more_than_all(partial: NDArray[np.int64], samples: int) -> str | None:
    return quantile.no_more_than_all(partial[1:], samples - int(partial[0]))


def _label(position: int, options: Any) -> str:
    return quantile.label(position - 1, options.quartiles.search) if position else "samples outside"


def _proven(partial: NDArray[np.int64], options: Any) -> float:
    """The interquartile range, rounded once, of quartiles that the counts prove."""
    return order_statistics.value(quantile.proven(options.quartiles.search, partial[1:]), "iqr")


def _empty(dtype: np.dtype[Any], options: Any) -> NDArray[np.int64]:
    return np.concatenate(([0], quantile.no_counts(options.quartiles.search)))


# For options with `quartiles`; the next pass proves what this one gives.
SEARCH: Aggregation[Any] = Aggregation(
    name="quartile survey",
    summary="Counts of samples in the cells of a search for quartiles.",
    options=object,
    compute=compute,
    combine=_combine,
    finalize=lambda partial, options: quantile.advanced(options.quartiles.search, partial[1:]),
    reference=reference,
    invariants=(_no_more_than_all,),
    label=_label,
    empty=_empty,
)

PROOF: Aggregation[Any] = Aggregation(
    name="quartiles",
    summary="Counts that prove quartiles.",
    options=object,
    compute=compute,
    combine=_combine,
    finalize=_proven,
    reference=reference,
    invariants=(quantile.every_sample_counted_once,),
    label=_label,
    check=check,
    empty=_empty,
)
