"""Elementwise operations by NumPy's own functions: what the other implementations are checked against."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def elementwise_reference(*arrays: NDArray[Any], operation: str = "add") -> NDArray[Any]:
    """Apply an operation with NumPy, without warnings about overflow or NaN.

    Parameters
    ----------
    arrays : two arrays (three for ``"multiply_add"``: a * b + c) of one dtype and shape
        Integers wrap.
    operation
        A name in `kernels.map.gpu.OPERATIONS`.

    Returns
    -------
    array of the same dtype and shape
        Of two zeros, -0.0 is the minimum and 0.0 the maximum, which NumPy leaves to the machine.
    """
    a, b = arrays[:2]
    with np.errstate(all="ignore"):
        if operation == "multiply_add":
            return np.asarray(np.add(np.multiply(a, b), arrays[2]))
        result = np.asarray(getattr(np, operation)(a, b))
    if operation in ("minimum", "maximum") and a.dtype.kind == "f":
        zeros = (a == 0) & (b == 0)
        either = np.logical_or if operation == "minimum" else np.logical_and
        negative = either(np.signbit(a[zeros]), np.signbit(b[zeros]))
        result[zeros] = np.where(negative, a.dtype.type(-0.0), a.dtype.type(0.0))
    return result
