"""Checks of jobs that aggregate, on samples of every kind: each compared with an oracle that shares nothing with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, cycle, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.histogram.check import HistogramCheck, plan
from kernels.histogram.check_range import finite_range_check
from kernels.histogram.finite_range import finite_range_reference
from kernels.reduce import partial
from kernels.reduce.check import reduce_check
from kernels.reduce.reference import reduce_reference
from tests.cases import reduce
from tests.cases.histogram import DTYPES, EDGES, nasty, oracle
from workflows.aggregation import Check

Views = Callable[[NDArray[Any]], Iterable[NDArray[Any]]]


class Plain:
    """A check by a function of all samples; made by `plainly`."""

    def __init__(self, function: Callable[[NDArray[Any], Any], NDArray[Any]], options: Any) -> None:
        self._function, self._options = function, options
        self._samples: list[tuple[int, NDArray[Any]]] = []

    def add(self, samples: NDArray[Any], first: int) -> None:
        self._samples.append((first, samples.copy()))

    def partial(self) -> NDArray[Any]:
        parts = [samples for _, samples in sorted(self._samples, key=lambda part: part[0])]
        return self._function(np.concatenate(parts, dtype=parts[0].dtype), self._options)


def plainly(function: Callable[[NDArray[Any], Any], NDArray[Any]]) -> Callable[[Any, np.dtype[Any]], Plain]:
    """What a job declares, to be checked by a function."""
    return lambda options, dtype: Plain(function, options)


def unchecked(options: Any, dtype: np.dtype[Any]) -> None:
    """What a job declares whose reference checks everything."""


def checked(check: Check | None, samples: NDArray[Any]) -> NDArray[Any]:
    """The partial of samples, given in two parts."""
    assert check is not None
    cut = len(samples) // 3
    for first, part in ((cut, samples[cut:]), (0, samples[:cut])):  # in any order
        check.add(part, first)
    return check.partial()


def count_checked(edges: NDArray[np.float64], samples: NDArray[Any]) -> NDArray[Any]:
    """Counts of samples."""
    planned = plan(edges, samples.dtype.newbyteorder("="))
    assert planned is not None
    return checked(HistogramCheck(planned), samples)


def count(sizes: Sequence[int], views: Views) -> int:
    """Counts are those of numpy.histogram; how many arrays were counted."""
    compared = 0
    for dtype, (listed, _) in product(DTYPES, EDGES.values()):
        edges = np.asarray(listed, np.float64)
        for number, size in enumerate(sizes):
            # The samples, and one of their views: all of these come up with every dtype.
            every = list(views(nasty(dtype, size, edges)))
            for samples in (every[0], every[1 + number % (len(every) - 1)]):
                np.testing.assert_array_equal(count_checked(edges, samples), oracle(samples, edges))
                compared += 1
    return compared


def ranges(sizes: Sequence[int], views: Views) -> int:
    """Finite ranges are those by sorting; how many were compared."""
    compared = 0
    for dtype, size in product(DTYPES, sizes):
        kinds = [nasty(dtype, size, np.array([-300.0, 300.0]))]
        if np.dtype(dtype).kind == "f":
            kinds += [np.full(size, value, dtype) for value in (np.nan, np.inf, -np.inf, -0.0)]
        for samples in chain.from_iterable(map(views, kinds)):
            if len(samples):
                np.testing.assert_array_equal(
                    checked(finite_range_check(samples.dtype), samples), finite_range_reference(samples)
                )
                compared += 1
    return compared


def reduced(sizes: Sequence[int], views: Views) -> int:
    """Partials are those of the reference; how many were compared."""
    compared = 0
    turns = cycle(partial.PARTS)
    for number, (dtype, size, name) in enumerate(product(reduce.DTYPES, sizes, reduce.CASES)):
        every = list(views(reduce.case(name, dtype, size)))
        samples = every[1 + number % (len(every) - 1)]
        for array, parts in ((every[0], partial.PARTS[-1]), (samples, next(turns))):
            if len(array):
                np.testing.assert_array_equal(
                    checked(reduce_check(array.dtype, parts), array), reduce_reference(array, parts)
                )
                compared += 1
    return compared
