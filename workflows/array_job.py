"""What a job is that writes an array: data, as in `workflows.aggregation`. Every region of it is computed alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from workflows.regions import Bounds, Spec

Options = TypeVar("Options")

Read = Callable[[int, Bounds], NDArray[Any]]  # number of the input, region of it -> its elements in native byte order


@dataclass(frozen=True)
class Checked:
    """What the check of a region found.

    Attributes
    ----------
    details
        What is wrong, the first few elements; empty where nothing is.
    elements
        Elements of the output that the check covers.
    escape
        Probability, at most, that a wrong element in them is not noticed.
    """

    details: tuple[str, ...]
    elements: int
    escape: float = 0.0


@dataclass(frozen=True)
class Counted:
    """The elements of a region, and how many of them were computed in which way, where that depends on the data.

    The counts of all regions are added up, so they must not depend on where regions are cut.
    """

    elements: Any
    counts: Mapping[str, int]


@dataclass(frozen=True)
class ArrayJob(Generic[Options]):
    """One job whose result is an array as large as you like.

    Attributes
    ----------
    name, summary
        The subcommand and its line of help.
    options
        Frozen dataclass: its fields are the flags; its ``__post_init__`` raises ValueError for what cannot be.
    operands
        (options) -> number of input arrays; None where all files are one array, one after another.
    outline
        (specs of the inputs, options) -> spec of the output; raises ValueError for what cannot be, naming the shapes.
    regions
        (specs, output, options, elements) -> regions of the output that cover it once, each of about so many elements.
        Their arithmetic does not depend on where they are cut.
    needs
        (region, specs, options) -> what to read of each input for a region of the output, in the order of the inputs;
        where that is several pieces of each, first one of every input, then the next.
    compute
        (blocks, region, specs, options) -> the elements of the region. The blocks are NumPy or CuPy arrays in native
        byte order and C order; the answer is an array of the same kind, or one `Counted`. A dtype that CuPy does not
        have comes, and goes, as bytes with one more axis for them.
    check
        (read, found, region, specs, options, random generator) -> what is wrong with the elements found in the file.
        Plain, slower, sharing nothing with compute. What was read, and the elements found, are gone when it returns.
    pieces
        (spec of a region, options, elements) -> pieces that cover the region once, each of about so many elements, with
        indexes from 0 on. Each is checked by itself; None where that takes longer than to check the region at once.
    files
        What its help says of the input files.
    whole
        The check covers every region whole, also where a sample was asked for, because it costs little.
    streams
        Compute is given, in the place of the blocks, a function that reads one to where it computes (a Read, of which
        also the blocks may be on a device); needs then says what is held at a time.
    notes
        (specs, options) -> how it is computed, by name: what a person may want to know of the numbers.
    """

    name: str
    summary: str
    options: type[Options]
    operands: Callable[[Options], int | None]
    outline: Callable[[Sequence[Spec], Options], Spec]
    regions: Callable[[Sequence[Spec], Spec, Options, int], Iterator[Bounds]]
    needs: Callable[[Bounds, Sequence[Spec], Options], tuple[Bounds, ...]]
    compute: Callable[[Any, Bounds, Sequence[Spec], Options], Any]
    check: Callable[[Read, NDArray[Any], Bounds, Sequence[Spec], Options, np.random.Generator], Checked]
    pieces: Callable[[Spec, Options, int], Iterator[Bounds]] | None = None
    files: str = "Each of the FILES is an array: .npy, or raw samples in one dimension."
    whole: bool = False
    streams: bool = False
    notes: Callable[[Sequence[Spec], Options], dict[str, str]] | None = None


def differing(found: NDArray[Any], expected: NDArray[Any], region: Bounds) -> tuple[str, ...]:
    """The first elements whose bits differ from what was expected; NaN is equal to NaN."""
    if found.dtype == expected.dtype and found.dtype.kind in "iuf" and found.dtype.itemsize <= 8:
        bits = f"u{found.dtype.itemsize}"
        if np.array_equal(found.view(bits), expected.view(bits)):  # as it nearly always is
            return ()
    equal = found == expected
    if found.dtype.kind == "f":
        equal &= np.signbit(found) == np.signbit(expected)
        equal |= np.isnan(found) & np.isnan(expected)
    places = np.argwhere(~equal)
    starts = np.array([start for start, _ in region], dtype=np.int64)
    lines = [
        f"element {tuple((place + starts).tolist())}: expected {expected[tuple(place)]}, got {found[tuple(place)]}"
        for place in places[:3]
    ]
    return (*lines, f"{len(places) - 3} more") if len(places) > 3 else tuple(lines)
