"""The histogram at edges that nearly coincide, against NumPy and boost-histogram."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernels.histogram.binning import Binning
from kernels.histogram.cpu import histogram_cpu
from kernels.histogram.gpu import histogram
from kernels.histogram.reference import histogram_reference
from tests.cases.histogram import DTYPES, nasty, points

CLOSE = {
    "closer than float32 can tell": 1 + np.arange(400) * 2.0**-30,
    "closer than float32, far from zero": 2.0**24 + np.arange(300) * 0.03,
    "next to each other": np.array([1.0, np.nextafter(1.0, 2), 1 + 2.0**-23, 1 + 2.0**-22, 2.0, np.nextafter(2.0, 3)]),
    "many in one cell": np.concatenate((np.linspace(0, 1e-3, 500), [1e6, 1e12, 1e15])),
    "many in the last cell": np.concatenate(([-1e12, -1e6], np.linspace(1e3, 1e3 + 1, 700))),
    "subnormal": np.concatenate((np.arange(-40, 40) * 1e-45, [1e-38, 1.0])),
    "of every magnitude": np.unique(
        np.concatenate((-np.geomspace(1e-310, 1e300, 300), np.geomspace(1e-310, 1e300, 300)))
    ),
    "as wide as float64": np.array([-1.7e308, -1e-300, 0.0, 1e-300, 1.7e308]),
    "on integers and beside them": np.unique(np.concatenate((np.arange(100.0), np.nextafter(np.arange(100.0), 1e9)))),
}


@pytest.mark.gpu
@pytest.mark.parametrize("name", CLOSE)
@pytest.mark.parametrize("dtype", DTYPES)
def test_gpu_counts_at_edges_that_are_hard_to_tell_apart(cp: Any, dtype: str, name: str) -> None:
    """On and next to every edge, against NumPy and boost-histogram."""
    edges = CLOSE[name]
    samples = np.concatenate((points(np.dtype(dtype), edges, len(edges)), nasty(dtype, 2001, edges, seed=2)))
    binning = Binning(np.dtype(dtype), edges, False)
    got = histogram(cp.asarray(samples), binning).get()
    np.testing.assert_array_equal(got, histogram_reference(samples, edges))
    np.testing.assert_array_equal(got, histogram_cpu(samples, binning))
    bh = pytest.importorskip("boost_histogram")
    with np.errstate(invalid="ignore"):
        values = samples.astype(np.float64)
    boost = bh.Histogram(bh.axis.Variable(edges), storage=bh.storage.Int64())
    boost.fill(values[~np.isnan(values)])
    expected = boost.view(flow=True).astype(np.int64)
    on_last_edge = int((values == edges[-1]).sum())  # which is overflow there
    expected[-2:] += (on_last_edge, -on_last_edge)
    np.testing.assert_array_equal(got[:-1], expected)
