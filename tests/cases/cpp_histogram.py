"""A case of the compiled histograms."""

from __future__ import annotations

import numpy as np


def check_added_counts() -> int:
    """Counts are added to those before them, however many these are, and rows that take turns are counted one by one;
    returns how many were compared."""
    from kernels.histogram.binning import Binning
    from kernels.histogram.cpu import _compiled_function, count_turns, histogram_numpy
    from tests.cases.histogram import nasty

    even, uneven = np.arange(41.0) * 2, np.cumsum(1.0 + np.arange(41) ** 2 % 7)
    ways = (("uint8", even, True), ("int32", even, True), ("float32", even, True), ("float64", uneven, False))
    for dtype, edges, regular in ways:
        binning = Binning(np.dtype(dtype), edges, regular)
        samples, count = nasty(dtype, 4097, edges), _compiled_function(binning)
        assert count is not None
        before = 2**40 + np.arange(binning.slots)
        slots = before.copy()
        count(samples, slots[None], 0)
        np.testing.assert_array_equal(slots - before, histogram_numpy(samples, binning))
        for rows in (3, 5):
            of_rows = count_turns(samples, binning, rows, 1)
            assert of_rows is not None
            for row, counts in enumerate(of_rows):
                np.testing.assert_array_equal(counts, histogram_numpy(samples[(row - 1) % rows :: rows], binning))
    return len(ways)
