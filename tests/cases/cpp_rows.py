"""Compiled functions for many rows, against each other and against one row at a time."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common.rounded import interpolated
from kernels.histogram.check import check_runs, plan
from kernels.histogram.cpu import count_runs
from kernels.histogram.reference import histogram_reference
from kernels.reduce.check_rows import reduce_rows_check
from kernels.reduce.cpu_powers import reduce_cpu_with_powers
from kernels.reduce.cpu_rows import reduce_rows_cpu
from kernels.reduce.finish import OPERATIONS, finished, first_apart
from kernels.reduce.lines import to_partials
from kernels.reduce.partial import DTYPES
from tests.cases.reduce import any_bits, ordinary, subnormal

BEGINS, ENDS = np.array([0, 0, 70, 5, 90, 200]), np.array([70, 0, 71, 18, 200, 300])
RUNS = np.array([0, 70, 70, 90, 210]), np.array([70, 70, 90, 200, 300])
EDGES = np.linspace(-50, 70, 9)


def check_rows() -> int:
    """Lines, results and counts of rows of all dtypes; returns how many rows were compared."""
    compared = 0
    for dtype in DTYPES:
        for kind in (any_bits, ordinary, subnormal):
            samples = kind(dtype, 300)
            compared += _reduced(samples) + _counted(samples)
    return compared


def _reduced(samples: NDArray[Any]) -> int:
    lines = reduce_rows_cpu(samples, BEGINS, ENDS, 15)
    assert lines is not None
    np.testing.assert_array_equal(lines, reduce_rows_check(samples, BEGINS, ENDS, 15))
    for partial, begin, end in zip(to_partials(lines), BEGINS, ENDS, strict=True):
        if begin < end:
            np.testing.assert_array_equal(partial, reduce_cpu_with_powers(samples[begin:end], 15))
    assert first_apart(lines) == len(lines)
    results = finished(lines, OPERATIONS, True, 0)
    assert results is not None and all(len(column) == len(lines) for column in results)
    np.testing.assert_array_equal(
        interpolated(samples, samples, [Fraction(1, 3)], np.zeros(len(samples), int)), samples.astype(np.float64)
    )
    return len(lines)


def _counted(samples: NDArray[Any]) -> int:
    from workflows.histogram import HistogramOptions

    planned = plan(EDGES, samples.dtype)
    assert planned is not None
    counts = count_runs(samples, HistogramOptions(edges=EDGES).binning(samples.dtype), *RUNS)
    np.testing.assert_array_equal(counts, check_runs(planned, samples, *RUNS))
    expected = [histogram_reference(samples[begin:end], EDGES) for begin, end in zip(*RUNS, strict=True)]
    np.testing.assert_array_equal(counts, expected)
    return len(expected)
