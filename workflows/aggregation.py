"""What a distributed job is: data. The engine, the command line and the Python API are built from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Options = TypeVar("Options")

# Checks a partial against an identity that it must satisfy: (partial, number of samples) -> what is broken, or None.
Invariant = Callable[[NDArray[Any], int], str | None]


class Result(Protocol):
    """What a job returns; everything that leaves the program is made from it."""

    def to_json(self) -> dict[str, Any]:
        """The `result` of the JSON object: plain numbers, lists and dicts."""

    def document(self) -> dict[str, Any]:
        """The result for a `.json` file."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The result as named arrays, for a `.npz` file."""

    def table(self) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        """The result as column names and rows, for a `.csv` file."""

    def lines(self) -> list[tuple[str, str]]:
        """Label and text of what a person reads first."""


@runtime_checkable
class Drawn(Result, Protocol):
    """A result with a shape to look at."""

    def steps(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Values and their edges, for a `.png` file and the sketch on a terminal."""


@dataclass(frozen=True)
class Survey(Generic[Options]):
    """A job that runs over the data first, to complete the options of another."""

    needed: Callable[[Options], bool]
    workflow: Aggregation[Options]
    resolve: Callable[[Options, Any], Options]


@dataclass(frozen=True)
class Aggregation(Generic[Options]):
    """One job.

    Attributes
    ----------
    name, summary
        The subcommand and its line of help.
    options
        Frozen dataclass: its fields are the flags; its ``__post_init__`` raises ValueError for what cannot be.
    compute
        (block, options) -> partial. The block is a NumPy or CuPy array, shape (n,), native byte order, n >= 1; the
        partial is an array of the same kind.
    combine
        Two partials -> one. Exact, commutative, associative, and for partials of either kind.
    finalize
        (partial as NumPy array, options) -> result; the only place that rounds.
    reference
        Like compute, on NumPy arrays in either byte order: plain, slower, sharing nothing with it.
    invariants
        Identities that every partial satisfies.
    label
        (position in the partial, options) -> what is there, to name a mismatch.
    survey
        The job that completes the options, if any.
    place
        (partial, index in the source of its block's first sample) -> partial, for partials that hold places: compute
        and reference count from the beginning of the block.
    empty
        (native dtype, options) -> partial of no samples; None where a file that has none is refused.
    cpu_source
        C++ file that computes it on a CPU, where there is a compiler; then the threads of a process compute side by
        side.
    formats
        Suffixes of the files that a result can be written to; ``.png`` for a result that is `Drawn`.
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
    survey: Survey[Options] | None = None
    place: Callable[[Any, int], Any] | None = None
    empty: Callable[[np.dtype[Any], Options], NDArray[Any]] | None = None
    cpu_source: Path | None = None
    formats: tuple[str, ...] = (".json", ".npz", ".csv")
