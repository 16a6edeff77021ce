"""Which samples a condition keeps, as NumPy computes it: on a CPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.select.typed import Typed

STEP = 2**15  # samples at a time: they and what is computed of them stay in the caches


def kept(condition: Typed, values: Mapping[str, NDArray[Any]]) -> NDArray[np.bool_]:
    """Whether each sample is kept.

    Parameters
    ----------
    condition
    values : arrays, shape (n,), native byte order
        Of each name in the condition; at least one.

    Returns
    -------
    bool array, shape (n,)
    """
    first = next(iter(values.values()))
    mask = np.empty(len(first), bool)
    with np.errstate(all="ignore"):
        for start in range(0, len(first), STEP):
            some = slice(start, start + STEP)
            mask[some] = _value(condition, {name: value[some] for name, value in values.items()})
    return mask


def _value(part: Typed, values: Mapping[str, Any]) -> Any:
    if part.op == "number":
        return part.value
    if part.op == "name":
        return values[part.value]
    args = (_value(arg, values).astype(take, copy=False) for arg, take in zip(part.args, part.takes, strict=True))
    return getattr(np, part.op)(*args)
