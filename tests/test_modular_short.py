"""The kernel for sums that are short: the bits of the CPU for any numbers and shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from modular_cases import factors, on_cpu, same_bits, with_doubtful

from kernels.modular import multiplied
from kernels.modular_short import ProductOfShort


def check(cp: Any, a: Any, b: Any) -> None:
    product = ProductOfShort(np.result_type(a, b))
    found = multiplied(product, lambda: [(cp.asarray(a), cp.asarray(b))]).get()
    expected, doubtful = with_doubtful(a, b)
    same_bits(found, expected)
    assert product.doubtful == doubtful


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("sizes", [(64, 128, 32), (20, 70, 37), (70, 130, 50)])
def test_quick(cp: Any, dtype: str, sizes: Any) -> None:
    check(cp, *factors("ordinary", dtype, *sizes))
