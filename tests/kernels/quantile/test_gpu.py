"""Counts of keys on a GPU are those of the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernels.quantile import cpu, gpu
from kernels.quantile.cells import first_cells
from kernels.quantile.keys import to_keys
from tests.cases.quantile_small import cells_around, samples_of
from tests.cases.sizes import sizes

SIZES = sizes(1, 31, 33, 1025, 4999, 70_001)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", cpu.TYPES)
def test_counts_by_upper_bits(cp: Any, dtype: str) -> None:
    cells = first_cells(8 * np.dtype(dtype).itemsize)
    for size in SIZES:
        samples = samples_of(dtype, size, size)
        got = gpu.count_cells_on_device(cp.asarray(samples), cells)
        assert (got.dtype, got.shape) == (np.int64, (cells.size,))
        np.testing.assert_array_equal(got.get(), cpu.count_cells(samples, cells))


@pytest.mark.gpu
@pytest.mark.parametrize("gather", [False, True])
@pytest.mark.parametrize("dtype", gpu.WIDE)
def test_counts_in_cells_and_around_keys(cp: Any, dtype: str, gather: bool) -> None:
    samples = samples_of(dtype, 5001)
    cells, on_device = cells_around(samples, 20, gather), cp.asarray(samples)
    np.testing.assert_array_equal(gpu.count_cells_on_device(on_device, cells).get(), cpu.count_cells(samples, cells))
    keys = to_keys(np.unique(samples[samples == samples])[:: 200 if gather else 9])
    np.testing.assert_array_equal(gpu.count_around_on_device(on_device, keys).get(), cpu.count_around(samples, keys))


@pytest.mark.gpu
def test_wrong_arrays_are_refused(cp: Any) -> None:
    cells = first_cells(32)
    with pytest.raises(ValueError, match="dimension"):
        gpu.count_cells_on_device(cp.asarray(np.zeros((2, 2), np.int32)), cells)
    with pytest.raises(TypeError, match="expected"):
        gpu.count_around_on_device(cp.asarray(np.zeros(3, np.int16)), np.zeros(1, np.uint16))
    with pytest.raises(ValueError, match="C-contiguous"):
        gpu.count_cells_on_device(cp.asarray(np.zeros(6, np.int32))[::2], cells)
