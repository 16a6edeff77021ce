"""Small ragged inputs for sliding windows: see host_cases.py."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from host_case import RANDOM, Case
from numpy.typing import NDArray
from stencil_cases import adversarial, numbers, same

from kernels.sliding import box_cpu, weighted_cpu
from kernels.sliding_device import box, weighted

Where = tuple[int, int, str]


def _box(x: NDArray[Any], radius: int, where: Where, cp: Any) -> None:
    same(box(cp.asarray(x), radius, *where).get(), box_cpu(x, radius, *where))


def _weighted(x: NDArray[Any], weights: NDArray[Any], where: Where, cp: Any) -> None:
    same(weighted(cp.asarray(x), cp.asarray(weights), *where).get(), weighted_cpu(x, weights, *where))


def _overflow(x: NDArray[Any], cp: Any) -> None:
    try:
        box(cp.asarray(x), 1)
    except OverflowError:
        return
    raise AssertionError("expected an OverflowError")


def _far(dtype: str) -> NDArray[Any]:
    """Exponents from end to end, what is not finite, windows of nothing, and of the smallest numbers only."""
    x = adversarial("all exponents", (2, 300), dtype)
    x[0, 40], x[0, 90], x[1, 60] = np.inf, np.nan, -np.inf
    x[1, 200:] = np.resize([1, -1], 100) * x[1, 200]
    least = np.finfo(dtype).smallest_subnormal
    x[0, 180:260] = least * np.arange(1, 81)
    x[1, 100:180] = 0
    x[1, 140:142] = least * 2.0**63, least * 2.0**10  # just between two of float64
    return x


def sliding_cases() -> Iterator[Case]:
    """Spans of one tile and of several, rows in several spans; every neighbourhood; floats of every kind."""
    for what, x, radius, where in (
        ("int8, two spans", numbers("int8", (1, 1900)), 3, (0, 0, "zero")),
        ("int16, two tiles", numbers("int16", (2, 1900)), 1792, (1792, 1792, "reflect")),
        ("uint64", numbers("uint64", (2, 90)), 30, (30, 30, "nearest")),
        ("int64", numbers("int64", (2, 301)), 5, (0, 5, "reflect")),
        ("float32, one word", adversarial("one word", (2, 300), "float32"), 40, (1, 40, "zero")),
        ("float64, two words", adversarial("two words", (2, 300)), 40, (1, 40, "nearest")),
        ("float32, specials", adversarial("specials", (1, 1900), "float32"), 4, (0, 4, "zero")),
        ("float64, subnormal", adversarial("subnormal", (1, 90)), 2, (2, 90, "reflect")),
    ):
        yield Case("sliding", "box", what, partial(_box, x, radius, where))
    for dtype in ("int64", "uint64"):
        for at in (1, 150, 299):
            x = np.zeros((2, 301), dtype)
            x[1, at - 1], x[1, at] = np.iinfo(dtype).max, 1
            yield Case("sliding", "box", f"{dtype} that do not fit at {at}", partial(_overflow, x))
    for dtype in ("float32", "float64"):
        yield Case("sliding", "box_far", dtype, partial(_box, _far(dtype), 20, (20, 7, "zero")))
    yield Case(
        "sliding", "box_far", "several spans", partial(_box, adversarial("both ends", (1, 2000)), 3, (0, 0, "zero"))
    )
    for dtype, kind, shape, radius, where in (
        ("float32", "float32", (2, 501), 14, (14, 14, "nearest")),
        ("float32", "float32", (1, 3854), 7, (0, 0, "zero")),
        ("uint8", "float64", (1, 2500), 150, (150, 0, "zero")),
        ("float64", "float64", (3, 70), 4, (4, 70, "reflect")),
        ("float32", "float32", (1, 4000), 245, (0, 0, "zero")),
    ):
        x, weights = numbers(dtype, shape), RANDOM(1).standard_normal(2 * radius + 1).astype(kind)
        if dtype == "float32":
            x[0, ::97], x[0, 5:9] = -0.0, (np.inf, np.nan, 1e-40, -np.inf)
        yield Case("sliding", "weighted", f"{dtype}, {shape}, {radius}", partial(_weighted, x, weights, where))
