"""Sum, mean, variance, skewness, kurtosis, norm, extremes and their positions in one pass: exact, rounded once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.reduce import cpu, exact_sum, powers
from kernels.reduce import lines as of_lines
from kernels.reduce import partial as layout
from kernels.reduce.check_powers import reduce_check_with_powers
from kernels.reduce.check_rows import reduce_rows_check
from kernels.reduce.cpu_powers import reduce_cpu_with_powers
from kernels.reduce.partial import EXTREMES, NAN, SAMPLES, SQUARES, SUM
from kernels.reduce.powers import POWERS
from kernels.reduce.reference_powers import reduce_reference_with_powers
from workflows.aggregation import Aggregation, Lines
from workflows.moments import Moments
from workflows.order_statistics import NAMES, is_order_statistic, with_order_statistics
from workflows.reduce_result import Exact, ReduceResult
from workflows.reduce_rows import ReduceColumns, broken, compute_rows

# What each operation needs.
OPERATIONS: Mapping[str, int] = MappingProxyType({
    "sum": SUM, "mean": SUM, "var": SUM | SQUARES, "std": SUM | SQUARES,
    "skewness": SUM | SQUARES | POWERS, "kurtosis": SUM | SQUARES | POWERS, "norm": SUM | SQUARES,
    "min": EXTREMES, "max": EXTREMES, "argmin": EXTREMES, "argmax": EXTREMES, "count": 0,
})  # fmt: skip
NAN_MODES = ("propagate", "omit")


@dataclass(frozen=True)
class ReduceOptions:
    """Options of the reduction; raises ValueError for invalid ones."""

    op: str = field(
        default="count,sum,mean,std,min,max",
        metadata={
            "help": f"What to compute, separated by commas: {', '.join(OPERATIONS)}, {', '.join(NAMES)}, "
            "and quantiles: q0.01.",
            "metavar": "OP,...",
            "advice": "write the names with commas, like 'sum,std'",
        },
    )
    nan: str = field(
        default="propagate",
        metadata={
            "help": "`propagate`: one NaN makes the results NaN, and argmin and argmax its place. `omit`: leave out "
            "NaN everywhere.",
            "metavar": "MODE",
        },
    )
    ddof: int = field(
        default=0, metadata={"help": "Variances divide by the number of samples minus this; 1 for an estimate."}
    )

    def __post_init__(self) -> None:
        names = self.operations
        for name in names:
            if name not in OPERATIONS and not is_order_statistic(name):
                known = f"{', '.join(OPERATIONS)}, {', '.join(NAMES)}, q0.01"
                raise ValueError(f"--op: expected some of {known}, separated by commas, got {name!r}")
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
            needed |= OPERATIONS.get(name, 0)
        return needed or EXTREMES  # which finds NaN, too, and costs the least


def compute(block: Any, options: ReduceOptions) -> Any:
    """Partial of one block, on the device that holds it."""
    if isinstance(block, np.ndarray):
        return reduce_cpu_with_powers(block, options.parts)
    from kernels.reduce.gpu_powers import reduce_on_device_with_powers

    return reduce_on_device_with_powers(block, options.parts)


def combine(a: Any, b: Any) -> Any:
    """Combined partial of two parts, on the device that holds them."""
    if isinstance(a, np.ndarray):
        return powers.combine(a, b)
    from kernels.reduce.gpu_powers import combine_on_device_with_powers

    return combine_on_device_with_powers(a, b)


def place(partial: Any, start: int) -> Any:
    """The partial with positions relative to the start of the source, on the device that holds it."""
    if isinstance(partial, np.ndarray):
        return layout.place(partial, start)
    from kernels.reduce.gpu import place_on_device

    return place_on_device(partial, start)


def finalize(partial: NDArray[np.int64], options: ReduceOptions) -> ReduceResult:
    """Compute the requested results, each rounded once."""
    moments = Moments(partial, options.nan, options.ddof)
    values = {name: moments.value(name) for name in options.operations if name in OPERATIONS}
    exact = Exact(partial, options.nan, options.ddof)
    return ReduceResult(values, int(partial[SAMPLES]), int(partial[NAN]), moments.dtype, exact)


def every_sample_counted_once(partial: NDArray[np.int64], samples: int) -> str | None:
    """The partial has the expected number of samples, and no more NaN and infinities than that."""
    counted, *special = partial[layout.COUNTS].tolist()
    if counted != samples:
        return f"every sample is counted once: expected {samples:,}, got {counted:,}"
    if min(special) < 0 or sum(special) > samples:
        return f"NaN and infinities are some of {samples:,} samples: got {special}"
    return None


def moments_agree(partial: NDArray[np.int64], samples: int) -> str | None:
    """(sum x)^2 <= n sum x^2; n times the minimum <= sum x <= n times the maximum."""
    asked, special = int(partial[layout.ASKED]), partial[layout.COUNTS].tolist()[1:]
    if not asked & (SQUARES | EXTREMES):  # nothing to compare the sum with
        return None
    finite, total = samples - sum(special), exact_sum.from_words(partial[layout.SUM_AT])
    if asked & SQUARES and not total**2 <= finite * exact_sum.from_words(partial[layout.SQUARES_AT]):
        return "the square of the sum is at most n times the sum of squares: it is more"
    if finite and asked & SUM and asked & EXTREMES and not any(special):
        dtype = np.dtype(layout.DTYPES[partial[layout.CODE]])
        least, greatest = (
            finite * int(Fraction(layout.from_key(int(partial[key]), dtype, False)) * 2**exact_sum.SUM_BITS)
            for key in (layout.MIN_KEY, layout.MAX_KEY)
        )
        if not least <= total <= greatest:
            return "the mean lies between minimum and maximum: it does not"
    return None


def powers_agree(partial: NDArray[np.int64], samples: int) -> str | None:
    """(sum x^2)^2 <= n sum x^4; (sum x^3)^2 <= sum x^2 sum x^4."""
    if not int(partial[layout.ASKED]) & POWERS:
        return None
    finite = samples - sum(partial[layout.COUNTS].tolist()[1:])
    squares, cubes, fourths = (
        exact_sum.from_words(partial[at]) for at in (layout.SQUARES_AT, powers.CUBES_AT, powers.FOURTHS_AT)
    )
    if squares**2 <= finite * fourths and cubes**2 <= squares * fourths:
        return None
    return "sums of squares, cubes and fourth powers agree (Cauchy and Schwarz): they do not"


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
    sums = {"sum": layout.SUM_AT, "sum of squares": layout.SQUARES_AT, "sum of cubes": powers.CUBES_AT,
            "sum of fourth powers": powers.FOURTHS_AT}  # fmt: skip
    name, at = next((name, at) for name, at in sums.items() if position < at.stop)
    return f"{name}, word {position - at.start}"


_MOMENTS: Aggregation[ReduceOptions] = Aggregation(
    name="reduce",
    summary="Compute exact sums, means, variances, skewness, kurtosis, norms, quantiles, extremes and their positions.",
    example="'run-*.bin' --dtype int16 --op sum,std",
    options=ReduceOptions,
    compute=compute,
    compute_rows=lambda block, options, stretch: compute_rows(block, options[0].parts, stretch),
    lines=Lines(
        results=lambda lines, options: ReduceColumns(lines, options.operations, options.nan, options.ddof),
        combine=of_lines.combine,
        broken=lambda lines, samples: broken(lines, samples, lambda *one: moments_agree(*one) or powers_agree(*one)),
        check=lambda samples, begins, ends, options: reduce_rows_check(samples, begins, ends, options.parts),
        relocate=of_lines.relocate,
        alike=of_lines.alike,
        lines=of_lines.to_lines,
        partials=of_lines.to_partials,
    ),
    combine=combine,
    finalize=finalize,
    reference=lambda block, options: reduce_reference_with_powers(block, options.parts),
    invariants=(every_sample_counted_once, moments_agree, powers_agree, places_exist),
    label=label,
    check=lambda options, dtype: reduce_check_with_powers(dtype, options.parts),
    place=place,
    relocate=layout.relocate,
    empty=lambda dtype, options: powers.empty(dtype, options.parts),
    cpu_source=cpu.SOURCE,
)
REDUCE = with_order_statistics(
    _MOMENTS,
    lambda options: options.operations,
    lambda lines, options, beside: ReduceColumns(lines, options.operations, options.nan, options.ddof, beside),
)
