"""A study of a job's kernels, as data; `pipeline study` checks every case, then times it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.study.variant import NO_PARAMETERS, Variant

Arrays = tuple[NDArray[Any], ...]


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
    """

    table: str
    variant: str
    sizes: tuple[int, ...]
    dtype: str
    parameters: Mapping[str, Any] = field(default_factory=lambda: NO_PARAMETERS)
    course_ms: float | None = None
    quick: bool = False


@dataclass(frozen=True)
class Row:
    """Outcome of a case.

    Attributes
    ----------
    case
    verified
        Whether the result agrees with the reference; for a variant that is broken on purpose, whether it was caught.
    ms
        Median kernel time in milliseconds; None where it was not timed.
    rate
        GB/s or GFLOP/s, as the study says.
    share
        Fraction of the device's limit, measured in the same run.
    to_device_ms, to_host_ms
        Times of the transfers, if the study measures them.
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


@dataclass(frozen=True)
class Conclusion:
    """A conclusion of the course, and a function that judges from the rows whether it holds: (held, the numbers)."""

    claim: str
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
    transfers
        Whether to time host to device and device to host, too.
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
    transfers: bool = False


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
        right = (np.abs(got.astype(np.float64) - expected) <= bound) & np.isfinite(bound)
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


def all_caught(variants: Mapping[str, Variant], rows: list[Row]) -> tuple[bool, str]:
    """Holds if verification caught every broken variant that ran; KeyError if none did."""
    broken = [row for row in rows if variants[row.case.variant].broken]
    if not broken:
        raise KeyError("no rows of broken variants")
    return all(row.verified for row in broken), "; ".join(map(_caught_note, broken))
