"""Stencils by their definition, with exact Python numbers; the job run region by region without a cluster."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workflows.regions import Bounds, Spec, all_of
from workflows.stencil import STENCIL, StencilOptions

INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
FLOATS = ("float16", "float32", "float64")


def numbers(dtype: str, shape: Any, seed: int = 0) -> NDArray[Any]:
    """Random numbers over the range of the dtype; 64-bit integers so small that sums of thousands of them fit."""
    random = np.random.default_rng(seed)
    if dtype in FLOATS:
        return (random.standard_normal(shape) * 100).astype(dtype)
    limits = np.iinfo(dtype)
    scale = 2**14 if limits.bits == 64 else 1
    return random.integers(limits.min // scale, limits.max // scale, shape, dtype, endpoint=True)


def adversarial(case: str, shape: Any, dtype: str = "float64") -> NDArray[Any]:
    """Floats that are hard to sum exactly."""
    random = np.random.default_rng(5)
    normal = random.standard_normal(shape)
    limits = np.finfo(dtype)
    low, high = int(limits.minexp - limits.nmant), int(limits.maxexp - 3)
    cases: dict[str, Callable[[], NDArray[Any]]] = {
        "cancellation": lambda: normal[..., ::-1] * 2.0 ** (high // 2) * np.resize([1, -1], shape) + normal,
        "mixture": lambda: normal * 2.0 ** random.choice([low // 2, 0, high // 2], shape),
        "all exponents": lambda: normal * 2.0 ** random.integers(low, high, shape),
        "one word": lambda: random.integers(-4, 5, shape) * 1.0,
        "two words": lambda: normal * 2.0 ** random.integers(0, 30, shape),
        "subnormal": lambda: normal * 2.0 ** (low + 3),
        "largest": lambda: np.sign(normal) * float(limits.max),
        "both ends": lambda: normal * 2.0 ** random.choice([low + 10, high], shape),
        "bits": lambda: random.integers(0, 2 ** (limits.bits - 1), shape).astype(f"u{limits.bits // 8}").view(dtype),
        "ties": lambda: random.choice([1, -1, 2.0**-53, -(2.0**-53), 2.0**-106, 1 + 2.0**-52, 2.0**53], shape),
        "specials": lambda: random.choice([*[1.0] * 300, np.inf, -np.inf, np.nan, -0.0], shape),
    }
    with np.errstate(over="ignore"):
        return cases[case]().astype(dtype)


ADVERSARIAL = (
    "cancellation", "mixture", "all exponents", "one word", "two words", "subnormal", "largest", "both ends", "bits",
    "ties", "specials",
)  # fmt: skip


def around(x: NDArray[Any], radius: int, boundary: str, axis: int) -> NDArray[Any]:
    """The array extended by its boundary."""
    n = x.shape[axis]
    i = np.arange(-radius, n + radius)
    if boundary == "valid":
        return x
    if boundary == "zero":
        inside = ((i >= 0) & (i < n)).reshape([-1 if k == axis % x.ndim else 1 for k in range(x.ndim)])
        return np.where(inside, np.take(x, np.clip(i, 0, n - 1), axis), x.dtype.type(0))
    back = i % (2 * n)
    where = {"nearest": np.clip(i, 0, n - 1), "wrap": i % n, "reflect": np.minimum(back, 2 * n - 1 - back)}
    return np.take(x, where[boundary], axis)


def windows(x: NDArray[Any], radius: int, boundary: str = "zero", axis: int = -1) -> NDArray[Any]:
    """The window of each output, along one more axis."""
    return np.lib.stride_tricks.sliding_window_view(around(x, radius, boundary, axis), 2 * radius + 1, axis)


def exact(window: NDArray[Any]) -> float:
    """The sum of a window, rounded once."""
    try:
        return math.fsum(window.tolist())
    except OverflowError:  # of a partial sum, or of the result
        total = sum(map(Fraction, window.tolist()), Fraction(0))
        try:
            return total.numerator / total.denominator
        except OverflowError:
            return math.inf if total > 0 else -math.inf
    except ValueError:  # infinities of both signs
        return math.nan


def expected(x: NDArray[Any], radius: int, boundary: str = "zero", axis: int = -1) -> NDArray[Any]:
    """Plain sums."""
    of = windows(x, radius, boundary, axis)
    flat = of.reshape(-1, of.shape[-1])
    if x.dtype.kind == "f":
        return np.array([exact(window) for window in flat]).reshape(of.shape[:-1])
    dtype = np.uint64 if x.dtype == np.uint64 else np.int64
    return np.array([sum(window.tolist()) for window in flat], dtype).reshape(of.shape[:-1])


def expected_weighted(x: NDArray[Any], weights: NDArray[Any], boundary: str = "zero", axis: int = -1) -> NDArray[Any]:
    """Rounded after each multiplication and each addition, from the first element of a window to the last."""
    dtype = np.float32 if {x.dtype.name, weights.dtype.name} <= {"float16", "float32"} else np.float64
    of = windows(x, len(weights) // 2, boundary, axis).astype(dtype)
    with np.errstate(all="ignore"):
        return np.array(np.add.accumulate(of * weights.astype(dtype), axis=-1)[..., -1])


def same(got: NDArray[Any], right: NDArray[Any]) -> None:
    """Assert the same bits: dtype, shape, signs of zeros, and the one NaN."""
    assert got.dtype == right.dtype
    assert got.shape == right.shape
    right = np.where(np.isnan(right), np.nan, right).astype(got.dtype) if right.dtype.kind == "f" else right
    np.testing.assert_array_equal(got, right)
    assert got.tobytes() == right.tobytes()


def part(x: NDArray[Any], bounds: Bounds) -> NDArray[Any]:
    """A region of an array, as read from a file."""
    return np.ascontiguousarray(x[tuple(slice(*ends) for ends in bounds)])


def in_regions(x: NDArray[Any], elements: int, **options: Any) -> NDArray[Any]:
    """The job's output, computed and checked in regions of about this many elements."""
    chosen = StencilOptions(**options)
    specs = [Spec(x.shape, x.dtype)]
    output = STENCIL.outline(specs, chosen)
    out = np.empty(output.shape, output.dtype)
    covered = np.zeros(output.shape, int)
    for region in STENCIL.regions(specs, output, chosen, elements):
        blocks = [part(x, bounds) for bounds in STENCIL.needs(region, specs, chosen)]
        here = tuple(slice(*ends) for ends in region)
        out[here] = STENCIL.compute(blocks, region, specs, chosen)
        covered[here] += 1
    assert (covered == 1).all()
    assert not wrong(x, out, all_of(output), **options)
    return out


def wrong(x: NDArray[Any], out: NDArray[Any], region: Bounds, **options: Any) -> tuple[str, ...]:
    """The errors that the job's check reports in a region of an output."""
    random = np.random.default_rng(0)
    checked = STENCIL.check(lambda number, bounds: part(x, bounds), part(out, region), region,
                            [Spec(x.shape, x.dtype)], StencilOptions(**options), random)  # fmt: skip
    assert checked.elements == part(out, region).size
    assert checked.escape == 0
    return checked.details
