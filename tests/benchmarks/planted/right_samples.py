"""Whether results of samples are right: order statistics, digests, bins that samples decide on; rows, kept samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import blake3
import numpy as np

from tests.benchmarks.planted.right import Array, Facts, edges_of, histogram, quotient

FINE = 1100  # bits after the point: any float64 is a whole number of 2**-FINE


class Question(NamedTuple):
    """A job on some numbers.

    Attributes
    ----------
    workflow, options
    agrees
        (numbers, their places, their row, the numbers of all rows, result) -> whether it is the right one.
    """

    workflow: str
    options: dict[str, Any]
    agrees: Callable[[Array, Array, int, Array, Any], bool]


class Asked(NamedTuple):
    """What happens to samples before a job gets them.

    Attributes
    ----------
    rows
        Indices of the samples of each row; none if there are no rows.
    kept
        Of each sample; None if all are.
    calibrate
        None for samples as they are.
    """

    rows: Sequence[Array] = ()
    kept: Array | None = None
    calibrate: Callable[[Array], Array] | None = None


def answered(question: Question, samples: Array, asked: Asked, got: Any) -> bool:
    """Whether a result is right for every row."""
    flat = samples.reshape(-1)
    kept = np.ones(len(flat), np.bool_) if asked.kept is None else asked.kept.reshape(-1)
    numbers = flat if asked.calibrate is None else asked.calibrate(flat)
    if asked.rows and len(got) != len(asked.rows):
        return False
    for row, indices in enumerate(asked.rows or [np.arange(len(flat))]):
        of_row, inside = got[row] if asked.rows else got, kept[indices]
        if asked.kept is not None:
            if of_row.excluded != np.count_nonzero(~inside):
                return False
            of_row = of_row.result
        if not question.agrees(numbers[indices][inside], np.flatnonzero(inside), row, numbers[kept], of_row):
            return False
    return True


# --- jobs -------------------------------------------------------------------------------------------------------------


def counts(options: dict[str, Any], numbers: Array, row: int, everything: Array, got: Any) -> bool:
    """A histogram; of rows with a line of edges for each, or in the range of all samples."""
    edges = edges_of(everything, options)
    return histogram(numbers, {"edges": edges[row] if edges.ndim == 2 else edges}, got)


def statistics(options: dict[str, Any], numbers: Array, places: Array, got: Any) -> bool:
    """A reduction, order statistics among it."""
    omit, names = options["nan"] == "omit", options["op"].split(",")
    facts = Facts(numbers, omit, places)
    if list(got.values) != names or (got.samples, got.nan) != (len(numbers), int(facts.nan.sum())):
        return False
    ordered = _Ordered(numbers, omit)
    return all(
        repr(ordered.statistic(name)) == repr(value) if is_order_statistic(name) else facts.agree(name, value)
        for name, value in got.values.items()
    )


def is_order_statistic(name: str) -> bool:
    """Whether it is the median, what is made of it, or a quantile."""
    return name in ("median", "iqr", "mad") or (name[0] == "q" and name[1:2].isdigit())


def quantiles(options: dict[str, Any], numbers: Array, got: Any) -> bool:
    """Quantiles by their definition."""
    ordered = _Ordered(numbers, options["nan"] == "omit")
    if (got.samples, got.nan, got.q) != (len(numbers), ordered.nan, tuple(options["q"].split(","))):
        return False
    expected = [ordered.quantile(Fraction(q), options["method"]) for q in got.q]
    return repr(list(got.values)) == repr(expected)


class _Ordered:
    """Numbers in order; whatever is asked for is NaN if there are none, or if a NaN counts."""

    def __init__(self, numbers: Array, omit: bool) -> None:
        nan = np.isnan(numbers) if numbers.dtype.kind == "f" else np.zeros(len(numbers), np.bool_)
        self.nan, self.dtype = int(nan.sum()), numbers.dtype
        valid = np.sort(numbers[~nan])
        self.numbers: list[Any] = [] if self.nan and not omit else [x + 0 for x in valid.tolist()]  # 0.0 for -0.0

    def quantile(self, q: Fraction, method: str) -> int | float:
        """Selected, or rounded once."""
        if not self.numbers:
            return math.nan
        at = q * (len(self.numbers) - 1)
        if method == "inverted_cdf":
            return self.numbers[max(math.ceil(q * len(self.numbers)) - 1, 0)]  # type: ignore[no-any-return]
        if method in ("lower", "higher"):
            return self.numbers[(math.floor if method == "lower" else math.ceil)(at)]  # type: ignore[no-any-return]
        weight = at % 1
        return _rounded(self._between(at, Fraction(1, 2) if method == "midpoint" and weight else weight))

    def statistic(self, name: str) -> float:
        """By name."""
        if not self.numbers:
            return math.nan
        if name == "iqr":
            upper, lower = (self._between(Fraction(part, 4) * (len(self.numbers) - 1)) for part in (3, 1))
            whole = isinstance(upper, Fraction) and isinstance(lower, Fraction)
            return _rounded(upper - lower if whole else float(upper) - float(lower))
        if name == "mad":
            return self._deviation()
        return float(self.quantile(Fraction(1, 2) if name == "median" else Fraction(name[1:]), "linear"))

    def _between(self, at: Fraction, weight: Fraction | None = None) -> Fraction | float:
        weight = at % 1 if weight is None else weight
        low, high = self.numbers[math.floor(at)], self.numbers[math.ceil(at)]
        if not weight or low == high:
            return Fraction(low) if math.isfinite(low) else low  # type: ignore[no-any-return]
        if math.isfinite(low) and math.isfinite(high):
            return Fraction(low) + (Fraction(high) - Fraction(low)) * weight
        return float(low) + float(high)

    def _deviation(self) -> float:
        """The median of the distances to the median, as whole numbers of 2**-FINE."""
        middle = self._between(Fraction(len(self.numbers) - 1, 2))
        if not isinstance(middle, Fraction):
            return math.nan
        unit = int(middle * 2**FINE)
        whole = [abs(_fine(x) - unit) if math.isfinite(x) else math.inf for x in self.numbers]
        whole.sort()
        low, high = whole[(len(whole) - 1) // 2], whole[len(whole) // 2]
        if math.inf in (low, high):
            return math.inf
        return quotient(Fraction(int(low) + int(high), 2 ** (FINE + 1)))


def _fine(number: int | float) -> int:
    numerator, denominator = number.as_integer_ratio()
    return numerator * (2**FINE // denominator)


def _rounded(exact: Fraction | float) -> float:
    return quotient(exact) if isinstance(exact, Fraction) else exact


def digested(samples: Array, got: Any) -> bool:
    """BLAKE3 of the samples, little endian."""
    expected = blake3.blake3(samples.astype(samples.dtype.newbyteorder("<")).tobytes()).hexdigest()
    return (got.blake3, got.dtype, got.samples) == (expected, samples.dtype, len(samples))


@np.errstate(all="ignore")
def automatic(samples: Array, options: dict[str, Any], got: Any) -> bool:
    """Bins as NumPy chooses them, or as narrow as a whole number allows; then the counts between these edges."""
    values = samples.astype(np.float64)
    finite = values[np.isfinite(values)]
    if options["range"] != "auto":
        low, high = options["range"]
        finite = finite[(finite >= low) & (finite <= high)]
    elif finite.min() < finite.max():
        low, high = float(finite.min()), float(finite.max())
    else:
        low, high = got.edges[0], got.edges[-1]
    number = len(got.counts)
    if options["bins"] is None and samples.dtype.kind != "f":
        steps = np.diff(got.edges)
        near = got.edges[0] == low and high <= got.edges[-1] and bool((steps == steps[0]).all()) and number <= 1024
    elif options["bins"] is None:
        near = number == 1024
    else:
        wide = samples.astype(np.float32) if samples.dtype == np.float16 else samples
        expected = len(np.histogram_bin_edges(wide[np.isfinite(wide)], options["bins"], (low, high))) - 1
        near = abs(number - expected) <= 1 + expected * 1e-6 and np.array_equal(
            got.edges, np.linspace(low, high, number + 1)
        )
    return bool(near) and histogram(samples, {"edges": got.edges}, got)
