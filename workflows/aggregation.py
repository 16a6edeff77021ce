"""The declaration of a job that aggregates, from which engine, command line and Python API are built."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Options = TypeVar("Options")

# Checks an identity that every partial satisfies: (partial, number of samples) -> what is broken, or None.
Invariant = Callable[[NDArray[Any], int], str | None]

Moved = Callable[[NDArray[np.int64]], NDArray[np.int64]]  # indices -> others


class Check(Protocol):
    """Recomputes the partial of samples that come array by array, in any order."""

    def add(self, samples: NDArray[Any], first: int) -> None:
        """Add samples in either byte order, shape (n,), n >= 1, the first of which has the index `first`; they are
        valid until this returns. If the job is `located`, indices count from the start of the source, and the distance
        from one to the next follows as a third argument if it is not 1."""

    def partial(self) -> NDArray[Any]:
        """The partial of all samples so far; positions are their indices."""


class Result(Protocol):
    """What a job returns; all output formats derive from it."""

    def to_json(self) -> dict[str, Any]:
        """The `result` of the JSON object: plain numbers, lists and dicts."""

    def document(self) -> dict[str, Any]:
        """The result for a `.json` file."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The result as named arrays, for a `.npz` file."""

    def table(self) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        """The result as column names and rows, for a `.csv` file."""

    def lines(self) -> list[tuple[str, str]]:
        """Labels and texts for the panel on a terminal."""


@runtime_checkable
class Drawn(Result, Protocol):
    """A result that can be plotted."""

    def steps(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Values and their edges, for a picture and the sketch on a terminal."""


@runtime_checkable
class Mapped(Result, Protocol):
    """A result of two dimensions that can be drawn as a map."""

    def heat(self) -> tuple[NDArray[Any], NDArray[Any], str, Sequence[str]]:
        """Values of shape (rows, columns), the edges of the columns, what a row is, and the names of the rows."""


class Disproved(Exception):
    """Counts of different passes that cannot all be right; says what was expected and what was got."""


@dataclass(frozen=True)
class Survey(Generic[Options]):
    """A job that runs over the data first to complete the options of another, as often as they are incomplete.

    Attributes
    ----------
    needed
        Whether options are incomplete.
    workflow
    resolve
        (options, result of the workflow) -> options. Raises ValueError if no options can be made of it, `Disproved`.
    of_rows
        Whether each row of a job on rows is surveyed by itself; otherwise all samples are surveyed together.
    proven
        Whether a later pass proves what the next pass of the survey gives; that pass is then not verified.
    instead
        What makes the survey unnecessary, for a message; empty if nothing does.
    choose
        The job that runs next in place of `workflow`; None for `workflow`.
    """

    needed: Callable[[Options], bool]
    workflow: Aggregation[Options]
    resolve: Callable[[Options, Any], Options]
    of_rows: bool = False
    proven: Callable[[Options], bool] = lambda options: False
    instead: Callable[[Options], str] = lambda options: ""
    choose: Callable[[Options], Aggregation[Options] | None] = lambda options: None

    def next(self, options: Options) -> Aggregation[Options]:
        """The job that completes incomplete options, or a part of them."""
        return self.choose(options) or self.workflow


def of_others(
    survey: Survey[Options], changed: Callable[[Aggregation[Options]], Aggregation[Options]]
) -> Survey[Options]:
    """The survey with its jobs changed."""

    def choose(options: Options) -> Aggregation[Options] | None:
        chosen = survey.choose(options)
        return None if chosen is None else changed(chosen)

    return replace(survey, workflow=changed(survey.workflow), choose=choose)


@dataclass(frozen=True)
class Lines(Generic[Options]):
    """What a job does with the partials of many rows at once: int64 arrays of shape (rows, entries), a line for each.

    Attributes
    ----------
    results
        (lines of all rows, options) -> their results, a sequence.
    combine
        Two arrays of lines, of the same rows -> one, as the job combines partials.
    broken
        (lines, samples of each) -> the first line that breaks an invariant of the job, or None.
    check
        (samples in either byte order, begin of each row, end of each, options) -> lines, as the check of the job makes
        partials; None without a compiler.
        Of a job that is located: (samples, `workflows.rows.Stretch`, indices of these in the source, options) -> lines.
    relocate
        (lines, indices -> others, arrays of shape (rows, positions)) -> lines, in place, for a job with a `relocate`.
    alike
        Arrays of lines, at least one -> the same, with entries as they are in one array of all these lines. None where
        lines are as they are: arrays of different lengths of lines are no lines of one array.
    lines, partials
        The lines of partials, shape (rows, entries), at least one, and their partials. Equal partials make equal lines.
    """

    results: Callable[[NDArray[np.int64], Options], Sequence[Any]]
    combine: Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.int64]]
    broken: Callable[[NDArray[np.int64], NDArray[np.int64]], int | None]
    check: Callable[..., NDArray[np.int64] | None]
    relocate: Callable[[NDArray[np.int64], Moved], NDArray[np.int64]] | None = None
    alike: Callable[[Sequence[NDArray[np.int64]]], Sequence[NDArray[np.int64]]] | None = None
    lines: Callable[[NDArray[np.int64]], NDArray[np.int64]] = lambda partials: partials
    partials: Callable[[NDArray[np.int64]], NDArray[np.int64]] = lambda lines: lines


@dataclass(frozen=True)
class Aggregation(Generic[Options]):
    """One job.

    Attributes
    ----------
    name, summary
        The subcommand and its one-line help.
    options
        Frozen dataclass: its fields are the flags, as `pipeline.cli.flags.option_flags` says; its ``__post_init__``
        raises ValueError for invalid values.
    compute
        (block, options) -> partial. The block is a NumPy array, read-only, or a CuPy array, shape (n,), native byte
        order, n >= 1; the partial is an array of the same kind, or of NumPy.
    combine
        Two partials -> one. Exact, commutative and associative, for NumPy and CuPy arrays.
    finalize
        (partial as NumPy array, options) -> result; the only step that rounds. Raises ValueError if the samples,
        together, are not what the job needs, `Disproved`.
    compute_rows
        (block, options of all rows or of each, `workflows.rows.Stretch`) -> for each row of the stretch the partial
        that compute gives for it alone, or its line, positions counted from its first sample: integers of shape
        (rows, entries) where the block is, or on the host; None where it cannot. If the job is `located`, it takes the
        indices of the block in the source, too. The attribute is None if rows are
        computed one by one. Code that replaces compute must replace or drop it.
    lines
        How partials of many rows with the same options are treated at once; None if one by one. Code that changes
        partials must replace or drop it.
    reference
        Like compute, on NumPy arrays in either byte order: plain and slow, sharing no code with it.
    invariants
        Identities that every partial satisfies.
    label
        (position in the partial, options) -> name of the entry, for messages about a mismatch.
    check
        (options, native dtype) -> a compiled `Check`: it recomputes partials like reference, but as fast as the data
        can be read, and by another algorithm than compute, with which it shares no function. The reference recomputes
        a part of what it checks. None without a compiler: then the reference checks everything.
    prepare
        (this, options, native dtype of the samples) -> the job that runs, and its options; None if it is this one.
    survey
        The job that completes the options, if any. It runs again while the options are still incomplete.
    look
        (options, all samples as a CuPy array, shape (n,), native byte order) -> options, completed as far as possible
        without surveys. None if there is no such way. Code that replaces compute must drop it.
    of_few
        (prepared options, samples) -> options for results of at most so many samples each, where the job then takes
        another way; None if it never does.
    place
        (partial, index in the source of its block's first sample) -> partial, for partials that hold positions:
        compute and reference count from the start of the block.
    located
        Whether compute and reference take a third argument: the indices in the source of the samples of their block, a
        range of the same length. Positions in partials are then indices in the source, and there is no `place`.
    c_order
        Whether samples must come in C order; those of an array stored in Fortran order do not.
    options_of_rows
        (options, number of rows, None if it is not known) -> options of each row, or one for all; without rows, their
        number is 1. Raises ValueError if these options are for other rows.
    within_rows
        For a job that is located and runs on rows: whether the indices count the samples of a row instead.
    frame
        Number of successive samples after which partials stop growing; blocks on a CPU hold many times as many.
    differences
        (partial, its reference, options) -> the entries in which they differ, in words; None if `label` names each.
    compared
        options -> samples, at most, of which the reference makes a partial to compare with that of the check.
    relocate
        (partial on the host, index in the block -> index in the source) -> partial, for partials that hold positions,
        where the samples of a block were selected from others.
    asked
        Options of a wrapper of the job, by flag; for the report, and for the journal that continues a run.
    empty
        (native dtype, options) -> partial of no samples; None to refuse empty files.
    cpu_source
        C++ file that computes the job on a CPU, if there is a compiler. It runs without the GIL, so threads of one
        process compute in parallel.
    formats
        Suffixes of supported result files; ``.png``, ``.svg`` and ``.pdf`` need a result that is `Drawn`.
    example
        A useful command line, without the job's name, shown in its help.
    kernel
        The variant of the courses that computes in place of the job's own kernel; empty if none does.
    dtypes
        Names of the dtypes of samples that the job takes; empty for all.
    within
        (partial, its reference) -> what is wrong with a partial that is not exact but has a proven bound; None where
        partials must be equal.
    rounding
        (dtype, number of samples, options) -> in words, how far an inexact result may be off; empty if it is exact.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import numpy, pipeline
    >>> from workflows import Aggregation
    >>> @dataclass(frozen=True)
    ... class Limit:
    ...     limit: int = 0
    >>> above = pipeline.register(Aggregation(
    ...     "above", "Count samples above a limit.", Limit,
    ...     compute=lambda block, options: numpy.array([numpy.count_nonzero(block > options.limit)]),
    ...     combine=numpy.add,
    ...     finalize=lambda partial, options: {"above": int(partial[0])},
    ...     reference=lambda block, options: numpy.array([sum(x > options.limit for x in block.tolist())]),
    ...     invariants=(lambda partial, samples: None if 0 <= partial[0] <= samples else "expected fewer",),
    ...     label=lambda place, options: "above",
    ... ))
    >>> pipeline.run("above", numpy.arange(10), limit=6)
    {'above': 3}
    """

    name: str
    summary: str
    options: type[Options]
    compute: Callable[..., Any]
    combine: Callable[[Any, Any], Any]
    finalize: Callable[[NDArray[Any], Options], Any]
    reference: Callable[..., NDArray[Any]]
    invariants: tuple[Invariant, ...]
    label: Callable[[int, Options], str]
    compute_rows: Callable[[Any, tuple[Options, ...], Any], Any] | None = None
    lines: Lines[Options] | None = None
    check: Callable[[Options, np.dtype[Any]], Check | None] = lambda options, dtype: None
    prepare: Callable[[Aggregation[Any], Any, np.dtype[Any]], tuple[Aggregation[Any], Any]] | None = None
    survey: Survey[Options] | None = None
    look: Callable[[Options, Any], Options] | None = None
    of_few: Callable[[Options, int], Options] | None = None
    place: Callable[[Any, int], Any] | None = None
    located: bool = False
    c_order: bool = False
    options_of_rows: Callable[[Options, int | None], tuple[Options, ...]] = lambda options, number: (options,)
    within_rows: bool = False
    frame: Callable[[Options], int] = lambda options: 1
    differences: Callable[[NDArray[Any], NDArray[Any], Options], Iterable[str]] | None = None
    compared: Callable[[Options], int] = lambda options: sys.maxsize
    relocate: Callable[[NDArray[Any], Callable[[int], int]], NDArray[Any]] | None = None
    asked: Mapping[str, Any] = field(default_factory=dict)
    empty: Callable[[np.dtype[Any], Options], NDArray[Any]] | None = None
    cpu_source: Path | None = None
    formats: tuple[str, ...] = (".json", ".npz", ".csv", ".parquet")
    example: str = ""
    kernel: str = ""
    dtypes: tuple[str, ...] = ()
    within: Callable[[NDArray[Any], NDArray[Any]], str | None] | None = None
    rounding: Callable[[np.dtype[Any], int, Options], str] = lambda dtype, samples, options: ""
