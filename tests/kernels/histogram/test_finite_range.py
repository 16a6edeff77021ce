"""Finite minimum and maximum, on the CPU and on a GPU."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kernels.histogram import finite_range
from tests.cases.histogram import DTYPES, nasty


def exact_range(samples: NDArray[Any]) -> list[float]:
    finite = [value for value in samples.tolist() if math.isfinite(value)]
    return [float(min(finite)), float(max(finite))] if finite else [math.inf, -math.inf]


@pytest.mark.parametrize("dtype", DTYPES)
def test_finite_range(dtype: str) -> None:
    for size in (1, 2, 1023, 5000):
        for samples in (nasty(dtype, size, np.array([-300.0, 300.0]), seed=size), np.full(size, 77, dtype)):
            expected = exact_range(samples)
            for got in (finite_range.finite_range(samples), finite_range.finite_range_reference(samples)):
                assert got.dtype == np.float64
                assert got.tolist() == expected
            halves = [finite_range.finite_range(samples[: size // 2]), finite_range.finite_range(samples[size // 2 :])]
            assert finite_range.merge(*halves).tolist() == finite_range.merge(*halves[::-1]).tolist() == expected
            swapped = samples.astype(samples.dtype.newbyteorder())
            assert finite_range.finite_range_reference(swapped).tolist() == expected


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_finite_range_ignores_what_is_not_finite(dtype: str) -> None:
    mixed = np.array([np.nan, 3, np.inf, -2.5, -np.inf, np.nan], dtype)
    none = np.array([np.nan, np.inf, -np.inf, np.nan], dtype)
    for count in (finite_range.finite_range, finite_range.finite_range_reference):
        assert count(mixed).tolist() == [-2.5, 3]
        assert count(none).tolist() == [math.inf, -math.inf]
        assert count(none[:1]).tolist() == [math.inf, -math.inf]
    assert finite_range.merge(finite_range.finite_range(none), finite_range.finite_range(mixed)).tolist() == [-2.5, 3]
    assert finite_range.merge(finite_range.finite_range(none), finite_range.finite_range(none)).tolist() == [
        math.inf,
        -math.inf,
    ]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
def test_gpu_finite_range(cp: Any, dtype: str) -> None:
    samples = nasty(dtype, 5000, np.array([-300.0, 300.0]))
    whole = finite_range.finite_range(cp.asarray(samples))
    assert whole.dtype == np.float64
    assert whole.get().tolist() == exact_range(samples)
    halves = [finite_range.finite_range(cp.asarray(half)) for half in (samples[:1], samples[1:])]
    assert finite_range.merge(*halves).get().tolist() == exact_range(samples)
    if dtype[0] == "f":
        tiny = float(np.finfo(dtype).smallest_subnormal)
        assert finite_range.finite_range(cp.asarray(np.array([3, -2, 5], dtype) * tiny)).get().tolist() == [
            -2 * tiny,
            5 * tiny,
        ]
        assert finite_range.finite_range(cp.full(9, np.nan, dtype)).get().tolist() == [math.inf, -math.inf]
