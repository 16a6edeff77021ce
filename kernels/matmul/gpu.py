"""Exact matrix products on a GPU: chooses the fastest of the three products for the matrices at hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.matmul import small, small_k
from kernels.matmul.formats import multiplied, result_dtype
from kernels.matmul.residue import HOPPER_INSTANCES, INSTANCES, ResidueProduct
from kernels.matmul.small import SmallProduct
from kernels.matmul.small_k import SmallKProduct

__all__ = ["HOPPER_INSTANCES", "INSTANCES", "exact_matmul", "product_for"]  # of gpu.cu, and what runs them


def exact_matmul(a: Any, b: Any) -> Any:
    """Product of matrices, or of stacks of them, on the device that holds them: the same bits on every device.

    Parameters
    ----------
    a, b : CuPy arrays, shapes (..., rows, inner) and (..., inner, columns), C-contiguous

    Returns
    -------
    CuPy array
        int64 for integers, else of NumPy's dtype; on the current stream.

    Raises
    ------
    TypeError, ValueError
        If they cannot be multiplied.
    OverflowError
        If an integer does not fit.
    MemoryError
        If the device has too little free memory.
    """
    result = result_dtype((a.dtype, b.dtype))
    dtypes = (result, result) if result.kind == "f" else (a.dtype, b.dtype)
    return multiplied(product_for(dtypes, result, a.shape[-1], a, b), lambda: [(a, b)])


def product_for(
    dtypes: tuple[np.dtype[Any], np.dtype[Any]], result: np.dtype[Any], inner: int, a: Any, b: Any
) -> ResidueProduct | SmallProduct:
    """The fastest product for two stacks whose first parts are `a` and `b`; `inner` products in a sum."""
    if small.suits(result, inner, a, b):
        return SmallProduct(result)
    if small_k.suits(result, inner, a, b):
        return SmallKProduct(result)
    return ResidueProduct(dtypes, result, inner)
