"""Elementwise operations on the CPU, with the bits of the GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def elementwise_cpu(*arrays: NDArray[Any], operation: str = "add") -> NDArray[Any]:
    """Apply an operation on the CPU, with the bits of `kernels.map.gpu.elementwise`.

    Parameters
    ----------
    arrays : two arrays (three for ``"multiply_add"``) of one integer or float dtype and shape
    operation
        A name in `kernels.map.gpu.OPERATIONS`.

    Returns
    -------
    array of the same dtype and shape
    """
    a, b = arrays[:2]
    with np.errstate(all="ignore"):
        if operation in ("minimum", "maximum"):
            first = a < b if operation == "minimum" else a > b
            if a.dtype.kind == "f":
                first |= (a == b) & (np.signbit(a) == (operation == "minimum"))
                first |= a != a
            result: NDArray[Any] = np.where(first, a, b)
        else:
            result = getattr(np, "multiply" if operation == "multiply_add" else operation)(a, b)
            if operation == "multiply_add":
                np.add(result, arrays[2], out=result)
    if result.dtype.kind == "f" and np.isnan(result.max(initial=-np.inf)):
        result[np.isnan(result)] = np.nan
    return result
