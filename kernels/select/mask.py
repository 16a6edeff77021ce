"""Which samples a condition keeps, for NumPy and CuPy arrays: the same bits on both.

CuPy compiles its own kernels with ``-ftz=true``, which flushes float32 subnormals to zero, and compares int64 with
uint64 as float64. So on a device float16 and float32 are held in float64, where each operation on them is exact or
rounds twice without harm (53 bits are more than 2 · 24 + 2: Figueroa, "When is double rounding innocuous?", 1995), and
results are rounded to the narrow dtype here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kernels.common.arrays import array_module, converted
from kernels.select.tree import COMPARISONS
from kernels.select.typed import Typed

STEP = 2**15  # samples at a time on a CPU: they and what is computed of them stay in its caches
LEAST_NORMAL, GRID = 2.0**-126, 1.5 * 2.0**-97  # adding and subtracting GRID rounds to multiples of 2**-149


def kept(condition: Typed, values: Mapping[str, Any]) -> Any:
    """Whether each sample is kept.

    Parameters
    ----------
    condition
    values : NumPy or CuPy arrays, shape (n,), native byte order
        Of each name in the condition, all on one device; at least one.

    Returns
    -------
    bool array of the same kind, shape (n,)
    """
    first = next(iter(values.values()))
    if not isinstance(first, np.ndarray):
        return _spread(_on_device(condition, values), first)
    mask = np.empty(len(first), bool)
    with np.errstate(all="ignore"):
        for start in range(0, len(first), STEP):
            some = slice(start, start + STEP)
            mask[some] = _on_host(condition, {name: value[some] for name, value in values.items()})
    return mask


def _on_host(part: Typed, values: Mapping[str, Any]) -> Any:
    if part.op == "number":
        return part.value
    if part.op == "name":
        return values[part.value]
    args = (_on_host(arg, values).astype(take, copy=False) for arg, take in zip(part.args, part.takes, strict=True))
    return getattr(np, part.op)(*args)


def _on_device(part: Typed, values: Mapping[str, Any]) -> Any:
    """As NumPy arrays or scalars would be, but float16 and float32 as float64."""
    if part.op == "number":
        return part.value.astype(_held(part.dtype))
    if part.op == "name":
        return converted(values[part.value], _held(part.dtype))
    args = [
        _converted(_on_device(arg, values), take, arg.dtype) for arg, take in zip(part.args, part.takes, strict=True)
    ]
    if part.op in COMPARISONS and {take.str[1:] for take in part.takes} == {"i8", "u8"}:
        return _mixed(part.op, *args)
    first = next((arg for arg in args if not isinstance(arg, np.generic)), None)
    result = getattr(np if first is None else array_module(first), part.op)(*args)
    return _rounded(result, part.dtype) if part.dtype.kind == "f" else result


def _held(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.float64) if dtype.kind == "f" else dtype


def _converted(value: Any, dtype: np.dtype[Any], was: np.dtype[Any]) -> Any:
    if dtype.kind != "f":
        return value.astype(dtype)
    value = value.astype(np.float64)
    return value if was.kind == "f" else _rounded(value, dtype)


def _rounded(value: Any, dtype: np.dtype[Any]) -> Any:
    """float64 numbers rounded to a float dtype, still in float64."""
    if dtype.itemsize == 8:
        return value
    if dtype.itemsize == 2 or isinstance(value, np.generic):
        with np.errstate(all="ignore"):
            return value.astype(dtype).astype(np.float64)
    xp = array_module(value)
    grid = xp.copysign(GRID, value)
    small = xp.copysign((value + grid) - grid, value)
    return xp.where(xp.absolute(value) < LEAST_NORMAL, small, value.astype(np.float32).astype(np.float64))


def _mixed(op: str, a: Any, b: Any) -> Any:
    """A comparison of int64 with uint64, or the other way round."""
    first = next(arg for arg in (a, b) if not isinstance(arg, np.generic))
    xp = array_module(first)
    negative_a, negative_b = (arg < 0 if arg.dtype.kind == "i" else xp.zeros(arg.shape, bool) for arg in (a, b))
    same = getattr(xp, op)(a.astype(np.uint64), b.astype(np.uint64))
    differ = getattr(xp, op)(~negative_a, ~negative_b)  # only one can be negative, and it is less
    return xp.where(negative_a | negative_b, differ, same)


def _spread(mask: Any, like: Any) -> Any:
    """A mask of every sample, where it may be one for all."""
    return mask if getattr(mask, "shape", ()) == like.shape else array_module(like).full(like.shape, bool(mask))
