"""The declaration of a job that aggregates, from which engine, command line and Python API are built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Options = TypeVar("Options")

# Checks an identity that every partial satisfies: (partial, number of samples) -> what is broken, or None.
Invariant = Callable[[NDArray[Any], int], str | None]


class Check(Protocol):
    """Recomputes the partial of samples that come array by array, in any order."""

    def add(self, samples: NDArray[Any], first: int) -> None:
        """Add samples in either byte order, shape (n,), n >= 1, the first of which has the index `first`; they are
        valid until this returns."""

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
        """Values and their edges, for a `.png` file and the sketch on a terminal."""


@dataclass(frozen=True)
class Survey(Generic[Options]):
    """A job that runs over the data first to complete the options of another."""

    needed: Callable[[Options], bool]
    workflow: Aggregation[Options]
    resolve: Callable[[Options, Any], Options]


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
        (block, options) -> partial. The block is a NumPy or CuPy array, shape (n,), native byte order, n >= 1; the
        partial is an array of the same kind.
    combine
        Two partials -> one. Exact, commutative and associative, for NumPy and CuPy arrays.
    finalize
        (partial as NumPy array, options) -> result; the only step that rounds.
    reference
        Like compute, on NumPy arrays in either byte order: plain and slow, sharing no code with it.
    invariants
        Identities that every partial satisfies.
    label
        (position in the partial, options) -> name of the entry, for messages about a mismatch.
    check
        (options, native dtype) -> what recomputes partials like reference, but compiled, as fast as the data can be
        read, and by another algorithm than compute; it shares no function with compute either, and the reference in
        turn recomputes a part of what it checks. None without a compiler: the reference checks everything.
    survey
        The job that completes the options, if any.
    place
        (partial, index in the source of its block's first sample) -> partial, for partials that hold positions:
        compute and reference count from the start of the block.
    empty
        (native dtype, options) -> partial of no samples; None to refuse empty files.
    cpu_source
        C++ file that computes it on a CPU, if there is a compiler, without the GIL, so that threads of one process
        compute in parallel.
    formats
        Suffixes of supported result files; ``.png`` needs a result that is `Drawn`.
    example
        A useful command line, without the job's name, shown in its help.
    kernel
        The variant of its ladder that computes in the place of the job's own kernel; empty if none does.
    dtypes
        Names of the dtypes of samples that it takes; empty for all.
    within
        (partial, its reference) -> what is wrong with a partial that is not exact, but proven to be near; None where
        partials have to be equal.
    rounding
        (dtype, number of samples, options) -> in words, how far a result may be off that is not exact; empty if it is.
    """

    name: str
    summary: str
    options: type[Options]
    compute: Callable[[Any, Options], Any]
    combine: Callable[[Any, Any], Any]
    finalize: Callable[[NDArray[Any], Options], Any]
    reference: Callable[[NDArray[Any], Options], NDArray[Any]]
    invariants: tuple[Invariant, ...]
    label: Callable[[int, Options], str]
    check: Callable[[Options, np.dtype[Any]], Check | None] = lambda options, dtype: None
    survey: Survey[Options] | None = None
    place: Callable[[Any, int], Any] | None = None
    empty: Callable[[np.dtype[Any], Options], NDArray[Any]] | None = None
    cpu_source: Path | None = None
    formats: tuple[str, ...] = (".json", ".npz", ".csv")
    example: str = ""
    kernel: str = ""
    dtypes: tuple[str, ...] = ()
    within: Callable[[NDArray[Any], NDArray[Any]], str | None] | None = None
    rounding: Callable[[np.dtype[Any], int, Options], str] = lambda dtype, samples, options: ""
