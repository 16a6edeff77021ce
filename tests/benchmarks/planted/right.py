"""Whether a result is right, by NumPy, Python's integers and fractions; shares nothing with the jobs."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

PRECISION = {"float16": 11, "float32": 24, "float64": 53}
KEPT = {"float16": 31, "float32": 31, "float64": 55}  # as docs/matmul.md says
EXAMINED = 20  # elements of a product that are computed in fractions


def same(expected: Array, got: Any) -> bool:
    """Whether two arrays have the same bits; any NaN is like another."""
    if not isinstance(got, np.ndarray) or (got.shape, got.dtype) != (expected.shape, expected.dtype):
        return False
    bits = (np.ascontiguousarray(x).reshape(-1).view(np.uint8).reshape(x.size, -1) for x in (got, expected))
    equal = np.equal(*bits).all(axis=1)
    if got.dtype.kind == "f":
        equal |= np.isnan(got).reshape(-1) & np.isnan(expected).reshape(-1)
    return bool(equal.all())


def histogram(samples: Array, options: dict[str, Any], got: Any) -> bool:
    """Counts, edges and what lies outside."""
    values, edges = samples.astype(np.float64), edges_of(samples, options)
    numbers = values[~np.isnan(values)]
    inside = numbers[(numbers >= edges[0]) & (numbers <= edges[-1])]
    bins = np.minimum(np.searchsorted(edges, inside, "right") - 1, len(edges) - 2)
    counts = np.bincount(bins, minlength=len(edges) - 1)
    outside = [int((numbers < edges[0]).sum()), int((numbers > edges[-1]).sum()), len(values) - len(numbers)]
    return (
        np.array_equal(got.counts, counts)
        and np.array_equal(got.edges, edges)
        and [got.underflow, got.overflow, got.nan] == outside
    )


def edges_of(samples: Array, options: dict[str, Any]) -> Array:
    """Edges of the bins."""
    if options.get("edges") is not None:
        return np.asarray(options["edges"], np.float64)
    if options["range"] != "auto":
        return np.linspace(*options["range"], options["bins"] + 1)
    values = samples.astype(np.float64)
    finite = values[np.isfinite(values)]
    low, high = float(finite.min()), float(finite.max())
    half = max(0.5, abs(low) * 2.0**-30) if low == high else 0.0
    return np.linspace(low - half, high + half, options["bins"] + 1)


def reduction(samples: Array, options: dict[str, Any], got: Any) -> bool:
    """Every value, and the number of samples and of NaN."""
    facts = Facts(samples, options["nan"] == "omit")
    names = options["op"].split(",")
    if list(got.values) != names or (got.samples, got.nan) != (len(samples), int(facts.nan.sum())):
        return False
    return all(facts.agree(name, got.values[name]) for name in names)


class Facts:
    """What there is to know of samples; `places` are their indices."""

    def __init__(self, samples: Array, omit: bool, places: Array | None = None) -> None:
        self.places = np.arange(len(samples)) if places is None else places
        self.samples, self.floats = samples, samples.dtype.kind == "f"
        self.nan = np.isnan(samples) if self.floats else np.zeros(len(samples), np.bool_)
        self.spoilt = bool(self.nan.any()) and not omit
        self.count = len(samples) - (int(self.nan.sum()) if omit else 0)
        finite = samples[np.isfinite(samples)] if self.floats else samples
        self.infinite = {float(x) for x in samples[np.isinf(samples)]} if self.floats else set()
        self.sum, self.squares, *self.powers = _exact_sums(finite)

    def agree(self, name: str, got: Any) -> bool:
        """Whether a value is the right one, to the last bit."""
        if name == "count":
            return bool(got == self.count)
        if name in ("min", "max", "argmin", "argmax"):
            return repr(self._extreme(name)) == repr(got)
        if self.spoilt or not self.count:
            return bool((name == "sum" and not self.spoilt and got == 0) or got != got)
        if self.infinite:
            return repr(self._infinite(name)) == repr(got)
        if name == "sum" and not self.floats:
            return bool(got == self.sum)
        if name in ("skewness", "kurtosis"):
            return self._standardized(name, got)
        variance = (self.squares - self.sum**2 / self.count) / self.count
        exact = {"sum": self.sum, "mean": self.sum / self.count, "norm": self.squares}.get(name, variance)
        return is_root(exact, got) if name in ("norm", "std") else quotient(exact) == got

    def _infinite(self, name: str) -> float:
        if name == "norm":
            return math.inf
        return math.nan if name not in ("sum", "mean") or len(self.infinite) > 1 else next(iter(self.infinite))

    def _standardized(self, name: str, got: float) -> bool:
        """By moments about the mean, from the sums of powers about zero."""
        mean, (cubes, fourths) = self.sum / self.count, self.powers
        second = self.squares / self.count - mean**2
        third = cubes / self.count - 3 * mean * second - mean**3
        fourth = fourths / self.count - 4 * mean * third - 6 * mean**2 * second - mean**4
        if not second:
            return got != got
        if name == "kurtosis":
            return quotient(fourth / second**2 - 3) == got
        return (got < 0) == (third < 0) and is_root(third**2 / second**3, abs(got))

    def _extreme(self, name: str) -> Any:
        if self.spoilt:
            return int(self.places[self.nan.argmax()]) if name.startswith("arg") else math.nan
        places = np.flatnonzero(~self.nan)
        if not len(places):
            return None if name.startswith("arg") else math.nan
        find = np.argmin if name.endswith("min") else np.argmax
        at = int(places[find(self.samples[places])])
        return int(self.places[at]) if name.startswith("arg") else self.samples[at].item()


def _exact_sums(values: Array) -> list[Fraction]:
    """Sums of numbers, of their squares, cubes and fourth powers."""
    if values.dtype.kind != "f":
        whole = values.astype(object)
        return [Fraction(int((whole**k).sum())) for k in (1, 2, 3, 4)]
    fractions, exponents = np.frexp(values.astype(np.float64))
    integers, sums = (fractions * 2.0**53).astype(np.int64), [Fraction(0)] * 4
    for exponent in np.unique(exponents).tolist():
        whole = integers[exponents == exponent].astype(object)
        unit = Fraction(2) ** (exponent - 53)
        sums = [total + int((whole**k).sum()) * unit**k for k, total in enumerate(sums, 1)]
    return sums


def quotient(exact: Fraction) -> float:
    """A fraction, rounded once."""
    try:
        return exact.numerator / exact.denominator
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def is_root(exact: Fraction, got: float) -> bool:
    """Whether a number is the square root of another, rounded once."""
    if not exact or not math.isfinite(got):
        return got == 0
    below, above = (Fraction(math.nextafter(got, end)) for end in (-math.inf, math.inf))
    low, high = (below + Fraction(got)) / 2, (above + Fraction(got)) / 2
    return got > 0 and max(low, Fraction(0)) ** 2 <= exact <= high**2


def mapped(inputs: tuple[Array, ...], operation: str, got: Any) -> bool:
    """NumPy's own operations; of two zeros -0.0 is the minimum and 0.0 the maximum."""
    a, b = inputs[:2]
    with np.errstate(all="ignore"):
        if operation == "multiply_add":
            return same(np.add(np.multiply(a, b), inputs[2]), got)
        expected = getattr(np, operation)(a, b)
    if operation in ("minimum", "maximum") and expected.dtype.kind == "f":
        a, b = (np.broadcast_to(x.astype(expected.dtype), expected.shape) for x in (a, b))
        zeros = (a == 0) & (b == 0)
        negative = (np.logical_or if operation == "minimum" else np.logical_and)(np.signbit(a), np.signbit(b))
        expected[zeros] = np.where(negative, -0.0, 0.0)[zeros]
    return same(expected, got)


def windows(array: Array, options: dict[str, Any], got: Any) -> bool:
    """Sums of windows: of integers by slices, of floats by `math.fsum`; weighted ones in order."""
    radius, axis = options["radius"], options["axis"]
    modes = {"zero": "constant", "nearest": "edge", "reflect": "symmetric", "wrap": "wrap"}
    rows = np.moveaxis(array, axis, -1)
    if options["boundary"] != "valid":
        mode: Any = modes[options["boundary"]]
        rows = np.pad(rows, [(0, 0)] * (rows.ndim - 1) + [(radius, radius)], mode)
    length, width = rows.shape[-1] - 2 * radius, 2 * radius + 1
    parts = [rows[..., k : k + length] for k in range(width)]
    with np.errstate(all="ignore"):
        if "weights" in options:
            narrow = array.dtype.kind == "f" and array.itemsize <= 4 and options["weights"].itemsize <= 4
            dtype = np.dtype(np.float32 if narrow else np.float64)
            weights = options["weights"].astype(dtype)
            expected = parts[0].astype(dtype) * weights[0]
            for part, weight in zip(parts[1:], weights[1:], strict=True):
                expected = expected + part.astype(dtype) * weight
        elif array.dtype.kind != "f":
            expected = np.sum([part.astype(np.int64) for part in parts], axis=0)
        else:
            flat = np.stack(parts, -1).astype(np.float64).reshape(-1, width)
            sums = [_float_sum(window) for window in flat.tolist()]
            expected = np.array(sums).reshape(parts[0].shape)
    return same(np.ascontiguousarray(np.moveaxis(expected, -1, axis)), got)


def _float_sum(window: list[float]) -> float:
    nonfinite = [x for x in window if not math.isfinite(x)]
    if nonfinite:
        return sum(nonfinite)
    try:
        return math.fsum(window) + 0.0
    except OverflowError:
        return quotient(sum(map(Fraction, window), Fraction(0)))


def product(a: Array, b: Array, got: Any) -> bool:
    """Integers exactly; floats within the documented bound, and some elements to the last bit, in fractions."""
    if a.dtype.kind != "f" and b.dtype.kind != "f":
        return same(np.matmul(a.astype(np.int64), b.astype(np.int64)), got)
    dtype = np.result_type(a, b)
    if got.dtype != dtype or got.shape != (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]):
        return False
    wide = np.longdouble
    a, b = a.astype(dtype), b.astype(dtype)
    good = np.isfinite(a).all(-1, keepdims=True) & np.isfinite(b).all(-2, keepdims=True)
    x, y = (np.where(np.isfinite(factor), factor, 0).astype(wide) for factor in (a, b))
    exact, magnitudes = np.matmul(x, y), np.matmul(np.abs(x), np.abs(y))
    unit = wide(2.0) ** -PRECISION[dtype.name]
    count = min(a.shape[-1], 2 ** (PRECISION[dtype.name] - 3) + 1)
    bound = 1.001 * count * unit * magnitudes + a.shape[-1] * wide(np.finfo(dtype).smallest_subnormal)
    with np.errstate(all="ignore"):
        overflow = np.isinf(got) & (np.abs(exact) + bound >= np.finfo(dtype).max)
        near = overflow | (np.abs(got.astype(wide) - exact) <= bound)
    if not (near | ~good).all() or np.isfinite(got[~good]).any():
        return False
    random = np.random.default_rng(0)
    places = [tuple(int(random.integers(n)) for n in got.shape) for _ in range(EXAMINED)]
    return all(_element(a, b, place, got[place]) for place in places if good[place])


def _element(a: Array, b: Array, place: tuple[int, ...], got: Any) -> bool:
    """Whether an element is right, if no number of its row and column was rounded; others were seen to be near."""
    *batch, i, j = place
    row = a[(*batch[len(batch) - a.ndim + 2 :], i)]
    column = b[(*batch[len(batch) - b.ndim + 2 :], slice(None), j)]
    for line in (row, column):
        exponent = math.frexp(float(np.abs(line).max()))[1]
        scale = Fraction(2) ** (KEPT[a.dtype.name] - exponent)
        if any((Fraction(float(value)) * scale).denominator != 1 for value in line):
            return True
    exact = sum((Fraction(float(x)) * Fraction(float(y)) for x, y in zip(row, column, strict=True)), Fraction(0))
    if not np.isfinite(got):
        return abs(exact) > float(np.finfo(a.dtype).max)
    off = abs(Fraction(float(got)) - exact)
    with np.errstate(over="ignore"):
        others = [float(np.nextafter(got, got.dtype.type(end))) for end in (-np.inf, np.inf)]
    return all(math.isinf(other) or off <= abs(Fraction(other) - exact) for other in others)
