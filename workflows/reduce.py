"""Sum, mean, variance, norm, extremes and their positions in one pass: exact, and rounded once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.reduce import cpu, exact_sum
from kernels.reduce import partial as layout
from kernels.reduce.check import reduce_check
from kernels.reduce.partial import EXTREMES, NAN, NEGATIVE, POSITIVE, SAMPLES, SQUARES, SUM
from kernels.reduce.reference import reduce_reference
from workflows.aggregation import Aggregation

# What each operation needs.
OPERATIONS: Mapping[str, int] = MappingProxyType({
    "sum": SUM, "mean": SUM, "var": SUM | SQUARES, "std": SUM | SQUARES, "norm": SUM | SQUARES,
    "min": EXTREMES, "max": EXTREMES, "argmin": EXTREMES, "argmax": EXTREMES, "count": 0,
})  # fmt: skip
NAN_MODES = ("propagate", "omit")

Number = int | float | None


@dataclass(frozen=True)
class ReduceOptions:
    """Options of the reduction; raises ValueError for invalid ones."""

    op: str = field(
        default="count,sum,mean,std,min,max",
        metadata={
            "help": f"What to compute, separated by commas: {', '.join(OPERATIONS)}.",
            "metavar": "OP,...",
            "advice": "write the names with commas, like 'sum,std'",
        },
    )
    nan: str = field(
        default="propagate",
        metadata={
            "help": "`propagate`: one NaN makes the results NaN, and argmin and argmax its place. `omit`: NaN is left "
            "out everywhere.",
            "metavar": "MODE",
        },
    )
    ddof: int = field(
        default=0, metadata={"help": "Variances divide by the number of samples minus this; 1 for an estimate."}
    )

    def __post_init__(self) -> None:
        names = self.operations
        for name in names:
            if name not in OPERATIONS:
                raise ValueError(f"--op: expected some of {', '.join(OPERATIONS)}, separated by commas, got {name!r}")
            if names.count(name) > 1:
                raise ValueError(f"--op: expected each operation once, got {name} {names.count(name)} times")
        if self.nan not in NAN_MODES:
            raise ValueError(f"--nan: expected {' or '.join(NAN_MODES)}, got {self.nan!r}")
        if not 0 <= self.ddof < 2**63:
            raise ValueError(f"--ddof: expected 0 or more, got {self.ddof}")

    @cached_property
    def operations(self) -> tuple[str, ...]:
        """Names of the operations, in the order given."""
        return tuple(name.strip() for name in self.op.split(","))

    @cached_property
    def parts(self) -> int:
        """Parts of the partial that the operations need, as bits."""
        needed = 0
        for name in self.operations:
            needed |= OPERATIONS[name]
        return needed or EXTREMES  # which finds NaN, too, and costs the least


@dataclass(frozen=True)
class ReduceResult:
    """Verified results.

    Attributes
    ----------
    values
        By operation, in the order requested. Integer results are exact ints; floats are rounded once, to nearest; None
        for the position of an extreme that does not exist.
    samples, nan
        Number of samples, and how many of them are NaN.
    dtype
        Of the samples.
    verification
        What was checked, set by `pipeline.run`.
    """

    values: Mapping[str, Number]
    samples: int
    nan: int
    dtype: np.dtype[Any]
    verification: Any = field(default=None, compare=False, repr=False)

    def to_json(self) -> dict[str, Any]:
        """Results, samples and nan; "nan", "inf" and "-inf" as strings, because JSON has no such numbers."""
        plain = {name: str(x) if x in (math.inf, -math.inf) or x != x else x for name, x in self.values.items()}
        return {**plain, "samples": self.samples, "nan": self.nan}

    def document(self) -> dict[str, Any]:
        """As `to_json`, with the version of this layout: 1."""
        return {"format": 1} | self.to_json()

    def arrays(self) -> dict[str, NDArray[Any]]:
        """0-d arrays: float64; int64, uint64, or digits if neither is wide enough; -1 for a position that is None."""
        everything = {**self.values, "samples": self.samples, "nan": self.nan}
        return {name: _array(value) for name, value in everything.items()}

    def table(self) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        """One row per operation."""
        return ("operation", "value"), [(name, "" if x is None else x) for name, x in self.values.items()]

    def lines(self) -> list[tuple[str, str]]:
        """Samples, NaN if the dtype has it, and every result with all digits."""
        facts = [("samples", f"{self.samples:,}")]
        if self.dtype.kind == "f":
            facts.append(("NaN", f"{self.nan:,}"))
        return facts + [(name, "none" if x is None else f"{x:,}" if name == "count" else str(x))
                        for name, x in self.values.items()]  # fmt: skip


def _array(value: Number) -> NDArray[Any]:
    if isinstance(value, float):
        return np.array(value)
    number = -1 if value is None else value
    fits = next((np.dtype(name) for name in ("int64", "uint64") if np.can_cast(np.min_scalar_type(number), name)), None)
    return np.array(number, fits) if fits else np.array(str(number))


def compute(block: Any, options: ReduceOptions) -> Any:
    """Partial of one block, on the device that holds it."""
    if isinstance(block, np.ndarray):
        return cpu.reduce_cpu(block, options.parts)
    from kernels.reduce.gpu import reduce_on_device

    return reduce_on_device(block, options.parts)


def combine(a: Any, b: Any) -> Any:
    """Combined partial of two parts, on the device that holds them."""
    if isinstance(a, np.ndarray):
        return layout.combine(a, b)
    from kernels.reduce.gpu import combine_on_device

    return combine_on_device(a, b)


def place(partial: Any, start: int) -> Any:
    """The partial with positions relative to the start of the source, on the device that holds it."""
    if isinstance(partial, np.ndarray):
        return layout.place(partial, start)
    from kernels.reduce.gpu import place_on_device

    return place_on_device(partial, start)


def finalize(partial: NDArray[np.int64], options: ReduceOptions) -> ReduceResult:
    """Compute the requested results, each rounded once."""
    moments = _Moments(partial, options)
    values = {name: moments.value(name) for name in options.operations}
    return ReduceResult(values, int(partial[SAMPLES]), int(partial[NAN]), moments.dtype)


class _Moments:
    """The content of a partial, as numbers."""

    def __init__(self, partial: NDArray[np.int64], options: ReduceOptions) -> None:
        self.dtype = np.dtype(layout.DTYPES[partial[layout.CODE]])
        self._partial, self._ddof = partial, options.ddof
        self._has_nan = options.nan == "propagate" and bool(partial[NAN])
        self._positive, self._negative = bool(partial[POSITIVE]), bool(partial[NEGATIVE])
        self._count = int(partial[SAMPLES]) - (int(partial[NAN]) if options.nan == "omit" else 0)
        self._sum = Fraction(exact_sum.from_words(partial[layout.SUM_AT]), 2**exact_sum.SUM_BITS)
        self._squares = Fraction(exact_sum.from_words(partial[layout.SQUARES_AT]), 2**exact_sum.SQUARE_BITS)

    def value(self, name: str) -> Number:
        """Result of an operation."""
        if name == "count":
            return self._count
        if name in ("argmin", "argmax", "min", "max"):
            return self._extreme(name)
        if self._has_nan:
            return math.nan
        if self._positive or self._negative:
            return self._infinite(name)
        result: Number
        if name == "sum":
            result = int(self._sum) if self.dtype.kind != "f" else exact_sum.quotient(self._sum)
        elif name == "norm":
            result = exact_sum.square_root(self._squares)
        elif name == "mean":
            result = exact_sum.quotient(self._sum / self._count) if self._count else math.nan
        elif self._count <= self._ddof:
            result = math.nan
        else:
            variance = (self._squares - self._sum**2 / self._count) / (self._count - self._ddof)
            result = exact_sum.quotient(variance) if name == "var" else exact_sum.square_root(variance)
        return result

    def _infinite(self, name: str) -> float:
        if name == "norm":
            return math.inf
        if name in ("var", "std") or (self._positive and self._negative):
            return math.nan
        return math.inf if self._positive else -math.inf

    def _extreme(self, name: str) -> Number:
        place = name.startswith("arg")
        key, at = (layout.MIN_KEY, layout.MIN_AT) if name.endswith("min") else (layout.MAX_KEY, layout.MAX_AT)
        if self._has_nan:
            return int(self._partial[layout.FIRST_NAN]) // 2 if place else math.nan
        position = int(self._partial[at])
        if position == layout.NOWHERE:
            return None if place else math.nan
        return position // 2 if place else layout.from_key(int(self._partial[key]), self.dtype, bool(position % 2))


def every_sample_counted_once(partial: NDArray[np.int64], samples: int) -> str | None:
    """The partial has the expected number of samples, and no more NaN and infinities than that."""
    special = partial[[NAN, POSITIVE, NEGATIVE]]
    if partial[SAMPLES] != samples:
        return f"every sample is counted once: expected {samples:,}, got {int(partial[SAMPLES]):,}"
    if special.min() < 0 or int(special.sum()) > samples:
        return f"NaN and infinities are some of {samples:,} samples: got {special.tolist()}"
    return None


def moments_agree(partial: NDArray[np.int64], samples: int) -> str | None:
    """(sum x)^2 <= n sum x^2; n times the minimum <= sum x <= n times the maximum."""
    asked, special = int(partial[layout.ASKED]), partial[[NAN, POSITIVE, NEGATIVE]]
    finite = samples - int(special.sum())
    total = exact_sum.from_words(partial[layout.SUM_AT])
    if asked & SQUARES and not total**2 <= finite * exact_sum.from_words(partial[layout.SQUARES_AT]):
        return "the square of the sum is at most n times the sum of squares: it is more"
    if finite and asked & SUM and asked & EXTREMES and not special.any():
        dtype = np.dtype(layout.DTYPES[partial[layout.CODE]])
        least, greatest = (
            finite * int(Fraction(layout.from_key(int(partial[key]), dtype, False)) * 2**exact_sum.SUM_BITS)
            for key in (layout.MIN_KEY, layout.MAX_KEY)
        )
        if not least <= total <= greatest:
            return "the mean lies between minimum and maximum: it does not"
    return None


def places_exist(partial: NDArray[np.int64], samples: int) -> str | None:
    """First NaN, minimum and maximum have a position if and only if they exist."""
    if not int(partial[layout.ASKED]) & EXTREMES:
        return None
    exist = [int(place) != layout.NOWHERE for place in partial[layout.POSITIONS]]
    expected = [bool(partial[NAN]), *[int(partial[NAN]) < samples] * 2]
    if exist == expected:
        return None
    return f"first NaN, minimum and maximum have a place where there is one: expected {expected}, got {exist}"


def label(position: int, options: ReduceOptions) -> str:
    """Name of an entry."""
    if position < len(layout.NAMES):
        return layout.NAMES[position]
    start, name = (layout.SUM_AT.start, "sum") if position < layout.SQUARES_AT.start else (
        layout.SQUARES_AT.start, "sum of squares")  # fmt: skip
    return f"{name}, word {position - start}"


REDUCE: Aggregation[ReduceOptions] = Aggregation(
    name="reduce",
    summary="Exact sum, mean, variance, norm, minimum, maximum and their places.",
    example="'run-*.bin' --dtype int16 --op sum,std",
    options=ReduceOptions,
    compute=compute,
    combine=combine,
    finalize=finalize,
    reference=lambda block, options: reduce_reference(block, options.parts),
    invariants=(every_sample_counted_once, moments_agree, places_exist),
    label=label,
    check=lambda options, dtype: reduce_check(dtype, options.parts),
    place=place,
    empty=lambda dtype, options: layout.empty(dtype, options.parts, 0),
    cpu_source=cpu.SOURCE,
)
