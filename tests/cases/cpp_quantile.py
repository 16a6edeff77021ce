"""A case of the compiled counts of keys."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def check_counts_of_keys(sizes: Sequence[int]) -> int:
    """Counts by upper bits, in cells and around keys are those of the references; returns how many were compared."""
    from kernels.quantile import cpu
    from kernels.quantile.cells import Cells, first_cells, gathering_cells
    from kernels.quantile.check import around_check, patterns_check
    from kernels.quantile.keys import to_keys
    from kernels.quantile.reference import around_reference, cells_reference
    from tests.cases.quantile_small import cells_around, samples_of

    compared = 0
    for dtype in cpu.TYPES:
        for size in filter(None, sizes):
            samples = samples_of(dtype, size, size)
            top = first_cells(8 * samples.itemsize)
            expected = cells_reference(samples, top.firsts, top.bits, top.slot_bits, 0)
            np.testing.assert_array_equal(cpu.count_cells(samples, top), expected)
            compared += 1
            if samples.itemsize > 1:
                every = gathering_cells(8 * samples.itemsize, size + 3)
                keys = cells_reference(samples, every.firsts, every.bits, every.slot_bits, every.gathered)
                np.testing.assert_array_equal(cpu.count_cells(samples, every), keys)
                if samples.itemsize == 2 and (patterns := patterns_check(samples.dtype, every.gathered)) is not None:
                    patterns.add(samples, 0)
                    np.testing.assert_array_equal(patterns.partial(), keys)
                compared += 1
            if samples.itemsize <= 2:
                if (patterns := patterns_check(samples.dtype)) is not None:
                    patterns.add(samples, 0)
                    np.testing.assert_array_equal(patterns.partial(), expected)
                continue
            values = np.unique(samples[samples == samples])
            for number, gather in ((1, False), (3, True), (5, False), (9, True), (40, False)):
                cells = cells_around(samples, number, gather)
                if gather:  # too many for the room that there is: they are counted, and left out
                    small = Cells(cells.key_bits, cells.firsts, cells.bits, cells.slot_bits, 1)
                    assert cpu.count_cells(samples, small)[0] == cpu.count_cells(samples, cells)[0]
                np.testing.assert_array_equal(
                    cpu.count_cells(samples, cells),
                    cells_reference(samples, cells.firsts, cells.bits, cells.slot_bits, cells.gathered),
                )
                some = np.unique(values[np.linspace(0, len(values) - 1, number).astype(int)]) if len(values) else values
                around = around_reference(samples, some)
                np.testing.assert_array_equal(cpu.count_around(samples, to_keys(some)), around)
                if (check := around_check(some)) is not None:
                    check.add(samples, 0)
                    np.testing.assert_array_equal(check.partial(), around)
                compared += 2
            np.testing.assert_array_equal(
                cpu.count_around(samples, to_keys(values[:0])), around_reference(samples, values[:0])
            )
    return compared
