"""Random conditions and hostile samples of every dtype, the same for the same seed."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

DTYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64")
INTEGERS = (127, 128, 255, 256, -129, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 2**64, 65504, 65520, 70000)
FLOATS = (0.1, 0.5, 1e-40, 1e-45, 1e300, 2.0**53, -0.0, 1e-7)


def hostile(dtype: str, samples: int, random: np.random.Generator) -> NDArray[Any]:
    """Samples of a native dtype: any bits, values at the ends and near zero, ordinary ones."""
    kind = np.dtype(dtype)
    if kind.kind == "f":
        words = random.integers(0, 2 ** (8 * kind.itemsize) - 1, samples, f"u{kind.itemsize}", endpoint=True)
        values, limits = words.view(kind), np.finfo(kind)
        special = [0, -0.0, 1, -1, 0.5, np.inf, -np.inf, np.nan, limits.tiny, limits.smallest_subnormal, limits.max,
                   2, 3, 7, 10, 100, 1000]  # fmt: skip
        ordinary = random.random(samples) < 0.4
        values[ordinary] = (random.standard_normal(int(ordinary.sum())) * 100).astype(kind)
    else:
        ends = np.iinfo(kind)
        values = random.integers(ends.min, ends.max, samples, kind, endpoint=True)
        special = [0, 1, 2, 3, 7, 10, 100, ends.max, ends.min, ends.max - 1]
    chosen = random.random(samples) < 0.4
    values[chosen] = random.choice(np.array(special, kind), int(chosen.sum()))
    return values


def condition(random: Random, depth: int = 2) -> str:
    """A condition in the numbers x, i and c, and in m, which is true or false."""
    kind = random.random()
    if depth <= 0 or kind < 0.5:
        return f"({_number(random, 2)} {random.choice(['<', '<=', '==', '!=', '>', '>='])} {_number(random, 2)})"
    if kind < 0.6:
        return f"({_number(random, 1)} < {_number(random, 1)} <= {_number(random, 1)})"
    if kind < 0.7:
        return f"(not {condition(random, depth - 1)})"
    if kind < 0.75:
        return random.choice(["m", "(m == True)", "(m != m)"])
    return f"({condition(random, depth - 1)} {random.choice(['and', 'or'])} {condition(random, depth - 1)})"


def _number(random: Random, depth: int) -> str:
    kind = random.random()
    if depth <= 0 or kind < 0.35:
        others = str(random.randint(-5, 10)), str(random.choice(INTEGERS)), repr(random.choice(FLOATS)), "1e999"
        return random.choice(["x", "x", "x", "i", "c", "c", *others])
    if kind < 0.5:
        return f"-({_number(random, depth - 1)})"
    if kind < 0.6:
        return f"{random.choice(['abs', 'sqrt'])}({_number(random, depth - 1)})"
    return f"({_number(random, depth - 1)} {random.choice('+-*/')} {_number(random, depth - 1)})"
