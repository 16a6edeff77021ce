"""A study of a job's kernels, as data; `pipeline study` checks every case, then times it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.study.variant import NO_PARAMETERS, Variant
from workflows.study.drawing import Drawing

Arrays = tuple[NDArray[Any], ...]

# What a time is of: one launch on data that no cache holds, one right after the same, the mean of a thousand in a row.
COLD, WARM, THOUSAND = "cold", "warm", "1000 runs"
# Tables that several studies have: the baselines, and variants that are wrong.
ON_CPU, BROKEN = "on the CPU", "broken on purpose, beside the right ones"
OURS = "ours"  # the place of a conclusion that no course draws


@dataclass(frozen=True)
class Case:
    """One measurement: a variant on data of one size.

    Attributes
    ----------
    table
        Table of the study in which it is a row.
    variant
    sizes
        Sizes of the data, in the study's own order, e.g. (n,) or (rows, inner, columns).
    dtype
        NumPy name.
    parameters
        Launch parameters of the variant.
    course_ms
        Kernel time that the course reports, in milliseconds; None if it reports none.
    quick
        Whether it is part of the quick run.
    timing
        `COLD`, `WARM` or `THOUSAND`.
    course_transfers_ms
        Times that the course reports of the copies to the device and back; None if it reports none.
    """

    table: str
    variant: str
    sizes: tuple[int, ...]
    dtype: str
    parameters: Mapping[str, Any] = field(default_factory=lambda: NO_PARAMETERS)
    course_ms: float | None = None
    quick: bool = False
    timing: str = COLD
    course_transfers_ms: tuple[float, float] | None = None


@dataclass(frozen=True)
class Row:
    """Outcome of a case.

    Attributes
    ----------
    case
    verified
        Whether the result agrees with the reference; for a variant that is broken on purpose, whether it was caught.
    ms
        Median kernel time in milliseconds; None where it was not timed. For a broken variant that of a wrong result.
    rate
        GB/s or GFLOP/s, as the study says; None for a broken variant.
    share
        Fraction of the device's limit, measured in the same run.
    to_device_ms, to_host_ms
        Times of copying the inputs from pinned memory and the result to it; None for a baseline on the CPU.
    note
        Why the case was refused, or what verification caught.
    """

    case: Case
    verified: bool
    ms: float | None = None
    rate: float | None = None
    share: float | None = None
    to_device_ms: float | None = None
    to_host_ms: float | None = None
    note: str = ""

    @property
    def kernel_share(self) -> float | None:
        """Share of the kernel in the time of both copies and itself."""
        if self.ms is None or self.to_device_ms is None or self.to_host_ms is None:
            return None
        return self.ms / (self.to_device_ms + self.ms + self.to_host_ms)


@dataclass(frozen=True)
class Conclusion:
    """A conclusion of the course, and a function that judges from the rows whether it holds: (held, the numbers).

    `place` is a document of docs/studies.md and the place in it, or `OURS`.
    """

    claim: str
    place: str
    judge: Callable[[list[Row]], tuple[bool, str]]


@dataclass(frozen=True)
class Figure:
    """A picture of one table.

    Attributes
    ----------
    table, title
    x
        Launch parameter or ``"size"`` on the horizontal axis.
    y
        Launch parameter on the vertical axis of a heat map of the rate; None draws lines of the rate, one per variant.
    """

    table: str
    title: str
    x: str
    y: str | None = None


@dataclass(frozen=True)
class Study:
    """A study of one job, after one of the courses.

    Attributes
    ----------
    job
        Name of the job.
    course
        Author, title and GPU of the document whose figures are shown next to ours.
    unit
        ``"GB/s"`` or ``"GFLOP/s"``.
    limit
        What bounds it: ``"read"`` or ``"copy"`` of device memory, ``"float32"`` or ``"float64"`` products by cuBLAS;
        a function of the case if it depends on that.
    variants
    cases
        In the order of the tables.
    inputs
        (case, generator) -> host arrays.
    reference
        (host arrays, case) -> the expected host array, by the plain CPU reference.
    disagreement
        (got, expected, host arrays, case) -> what is wrong, or None. NaN never agrees; bounds come from the data.
    work
        case -> bytes or operations, whichever `unit` counts.
    figures, conclusions
    related
        By table, the sizes of the case to whose rate those of the same variant are related, as a course does.
    drawings
    derived
        Tables of what follows from the sources and was not measured: title -> header and rows.
    """

    job: str
    course: str
    unit: str
    limit: Callable[[Case], str]
    variants: Mapping[str, Variant]
    cases: tuple[Case, ...]
    inputs: Callable[[Case, np.random.Generator], Arrays]
    reference: Callable[[Arrays, Case], NDArray[Any]]
    disagreement: Callable[[NDArray[Any], NDArray[Any], Arrays, Case], str | None]
    work: Callable[[Case], float]
    figures: tuple[Figure, ...] = ()
    conclusions: tuple[Conclusion, ...] = ()
    related: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: MappingProxyType({}))
    drawings: tuple[Drawing, ...] = ()
    derived: Mapping[str, Sequence[Sequence[str]]] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def kernels(self) -> Mapping[str, Variant]:
        """The variants without the baselines on the CPU."""
        return {name: variant for name, variant in self.variants.items() if not variant.on_host}


def parameters(**values: Any) -> Mapping[str, Any]:
    """Launch parameters of a case."""
    return MappingProxyType(values)


def first_difference(got: NDArray[Any], expected: NDArray[Any]) -> str | None:
    """Where two arrays differ that should be bitwise equal; NaN differs from everything."""
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return f"expected {expected.shape} of {expected.dtype}, got {got.shape} of {got.dtype}"
    wrong = ~(got == expected)
    if not wrong.any():
        return None
    place = tuple(int(i) for i in np.argwhere(wrong)[0])
    count = np.count_nonzero(wrong)
    return f"{count} of {got.size} differ, first at {place}: expected {expected[place]}, got {got[place]}"


def farther_than(
    got: NDArray[Any], expected: NDArray[Any], bound: NDArray[Any], dtype: Any, exact: bool = False
) -> str | None:
    """Where a result is farther from the expected one than rounding explains; a NaN always is.

    Parameters
    ----------
    got
    expected, bound : float64 arrays
        A bound that is not finite allows nothing.
    dtype
        Expected dtype of the result.
    exact
        Accept elements that equal the expected number, whatever their bound: infinities.
    """
    if got.shape != expected.shape or got.dtype != dtype:
        return f"expected {expected.shape} of {dtype}, got {got.shape} of {got.dtype}"
    with np.errstate(all="ignore"):
        right = np.abs(np.subtract(got, expected, dtype=np.float64)) <= bound
    if not right.all() or not np.isfinite(bound).all():
        right &= np.isfinite(bound)
    wrong = ~(right | (got == expected)) if exact else ~right
    if not wrong.any():
        return None
    place = tuple(int(i) for i in np.argwhere(wrong)[0])
    return (f"{np.count_nonzero(wrong)} of {got.size} differ by more than rounding, first at "
            f"{place[0] if len(place) == 1 else place}: expected {expected[place]} ± {bound[place]:.2g}, "
            f"got {got[place]}")  # fmt: skip


def caught(rows: list[Row], variant: str) -> tuple[bool, str]:
    """Holds if verification caught a broken variant in each case that ran; KeyError if none did."""
    of_variant = [row for row in rows if row.case.variant == variant]
    if not of_variant:
        raise KeyError(f"no row of {variant}")
    return all(row.verified for row in of_variant), "; ".join(_caught_note(row) for row in of_variant)


def _caught_note(row: Row) -> str:
    return f"{label(row.case)}: {row.note if row.verified else 'not caught'}"


def label(case: Case) -> str:
    """A case in a few words."""
    return " ".join((case.variant, *(f"{name}={value}" for name, value in case.parameters.items()),
                     "×".join(map(str, case.sizes)), case.dtype))  # fmt: skip


def best(rows: list[Row], variant: str, table: str | None = None) -> Row:
    """Fastest timed row of a variant; KeyError where none was timed."""
    timed = [row for row in rows if row.case.variant == variant and row.ms and table in (None, row.case.table)]
    if not timed:
        raise KeyError(f"no timed row of {variant}")
    return min(timed, key=lambda row: row.ms or 0.0)


def cost(rows: list[Row], right: str, wrong: str, table: str) -> tuple[float, str]:
    """How many times as long a right variant takes as the wrong one that lacks something, and that in words.

    Raises
    ------
    KeyError
        If one of them was not timed in this table.
    """
    ours, theirs = (best(rows, name, table).ms or 0.0 for name in (right, wrong))
    return ours / theirs, f"{right} {ours:.4g} ms, {wrong} {theirs:.4g} ms (wrong): {ours / theirs:.3g} times"


def all_caught(variants: Mapping[str, Variant], rows: list[Row]) -> tuple[bool, str]:
    """Holds if verification caught every broken variant of these that ran; KeyError if none did."""
    broken = [row for row in rows if row.case.variant in variants and variants[row.case.variant].broken]
    if not broken:
        raise KeyError("no rows of broken variants")
    return all(row.verified for row in broken), "; ".join(map(_caught_note, broken))
