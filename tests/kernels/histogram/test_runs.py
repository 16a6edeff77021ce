"""Counts of rows one after another, computed and checked, against those of each row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernels.histogram import cpu
from kernels.histogram.check import check_runs, plan
from kernels.histogram.cpu import count_runs
from kernels.histogram.reference import histogram_reference
from tests.cases.histogram import DTYPES, irregular, nasty
from workflows.histogram import HistogramOptions

pytestmark = pytest.mark.usefixtures("compiled")

SOURCE = cpu.SOURCE
# Bins of each way of counting: shifted, by a line, and any; few, and more than tables are made for.
EDGES = {"shifted": np.arange(0, 65, 8.0), "line": np.linspace(-1, 50, 12), "any": irregular(3, 300, -60, 60),
         "many": np.linspace(-100, 100, 20_000)}  # fmt: skip
# In order, with gaps and empty rows, around what is counted at a time; and in no order.
PLACES = {
    "all": ([0, 100, 100, 255, 256, 513, 1500], [100, 100, 255, 256, 513, 1500, 1600]),
    "gaps": ([3, 50, 300, 301, 1100], [10, 257, 301, 301, 1599]),
    "turned": ([700, 1000, 1300, 100, 400], [1000, 1299, 1600, 400, 699]),
    "one": ([0], [1600]),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", EDGES)
def test_counts_are_those_of_each_row(dtype: str, name: str) -> None:
    edges: Any = EDGES[name]
    samples = nasty(dtype, 1600, edges)
    binning, planned = HistogramOptions(edges=edges).binning(samples.dtype), plan(edges, samples.dtype)
    assert planned is not None
    for begins, ends in PLACES.values():
        places = np.array(begins), np.array(ends)
        expected = [histogram_reference(samples[begin:end], edges) for begin, end in zip(begins, ends, strict=True)]
        np.testing.assert_array_equal(count_runs(samples, binning, *places), expected)
        swapped = samples.astype(samples.dtype.newbyteorder(">"))
        np.testing.assert_array_equal(check_runs(planned, swapped, *places), expected)
