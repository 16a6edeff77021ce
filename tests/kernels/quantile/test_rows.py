"""Keys of many short rows against the reference of each row."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.quantile import cpu
from kernels.quantile.cells import combined, gathering_cells
from kernels.quantile.check_gathered import GatheredCheck, check_gathered
from kernels.quantile.reference import cells_reference
from kernels.quantile.rows import combine, gather_rows
from tests.cases.quantile_small import samples_of

BEGINS, ENDS = np.array([0, 7, 7, 30, 29, 3]), np.array([7, 7, 30, 31, 49, 4])


@pytest.mark.parametrize("dtype", [name for name in cpu.TYPES if not name.endswith("int8")])
def test_keys_are_those_of_each_row(dtype: str) -> None:
    """Computed, checked, and added up, with room for as many as the longest row has and for more."""
    samples = samples_of(dtype, 50)
    swapped = samples.astype(samples.dtype.newbyteorder(">"))
    for room in (23, 40):
        cells = gathering_cells(8 * samples.itemsize, room)
        each = [cells_reference(samples[begin:end], cells.firsts, cells.bits, cells.slot_bits, room)
                for begin, end in zip(BEGINS, ENDS, strict=True)]  # fmt: skip
        found = gather_rows(samples, BEGINS, ENDS, room)
        np.testing.assert_array_equal(found, each)
        np.testing.assert_array_equal(check_gathered(swapped, BEGINS, ENDS, room), each)
        both = combine(found, found[::-1])
        np.testing.assert_array_equal(both, [combined(a, b) for a, b in zip(each, reversed(each), strict=True)])
        check = GatheredCheck(room)
        for part in (swapped[:5], swapped[5:]):
            check.add(part, 0)
        everything = gather_rows(samples, np.array([0]), np.array([50]), 50)[0]
        np.testing.assert_array_equal(check.partial(), everything[: 1 + room])
    assert samples.tobytes() == samples_of(dtype, 50).tobytes()  # not sorted in place


def test_counts_are_added() -> None:
    assert combine(np.array([[1, 2]]), np.array([[3, 4]])).tolist() == [[4, 6]]
