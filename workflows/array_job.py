"""The declaration of a job that writes an array, whose regions are computed independently of each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from workflows.regions import Bounds, Spec

Options = TypeVar("Options")

Read = Callable[[int, Bounds], NDArray[Any]]  # (number of the input, region) -> its elements in native byte order


@dataclass(frozen=True)
class Checked:
    """Result of the check of a region.

    Attributes
    ----------
    details
        The first few wrong elements; empty if all are correct.
    elements
        Elements of the output that the check covered.
    escape
        Upper bound on the probability that a wrong element among them went unnoticed.
    undetected
        Errors up to this do not count as wrong: in units of the root mean square of the element's row.
    """

    details: tuple[str, ...]
    elements: int
    escape: float = 0.0
    undetected: float = 0.0

    def __add__(self, other: Checked) -> Checked:
        """The check of both."""
        return Checked(
            self.details + other.details, self.elements + other.elements, max(self.escape, other.escape),
            max(self.undetected, other.undetected),
        )  # fmt: skip


Shared = dict[Any, Any]
Prepared = Callable[[NDArray[Any]], Checked]
Prepare = Callable[[Read, Bounds, Sequence[Spec], Options, np.random.Generator, Shared], Prepared]


@dataclass(frozen=True)
class Counted:
    """The elements of a region, and counts of elements by the path that computed them, if that depends on the data.

    Counts are summed over all regions, so they must not depend on where regions are cut.
    """

    elements: Any
    counts: Mapping[str, int]


@dataclass(frozen=True)
class ArrayJob(Generic[Options]):
    """One job whose result is an array of any size.

    Attributes
    ----------
    name, summary
        The subcommand and its one-line help.
    options
        Frozen dataclass: its fields are the flags; its ``__post_init__`` raises ValueError for invalid values.
    operands
        (options) -> number of input arrays; None if all files are parts of a single array.
    outline
        (specs of the inputs, options) -> spec of the output; raises ValueError, naming the shapes, if they do not fit.
    regions
        (specs, output, options, elements) -> regions of about that many elements that cover the output once. Results
        do not depend on where they are cut.
    boxes
        Whether any box of the output may be a region. Boxes along chunks of decoded inputs may then replace `regions`.
    needs
        (region, specs, options) -> the parts of the inputs that a region of the output needs, in the order of the
        inputs; if there are several parts of each, first one part of every input, then the next.
    compute
        (blocks, region, specs, options) -> the elements of the region. Blocks are NumPy or CuPy arrays in native byte
        order and C order; the result is an array of the same kind, or `Counted`. A dtype that CuPy lacks is passed
        and returned as bytes, in an additional axis.
    check
        (read, elements, region, specs, options, random generator) -> what is wrong with the elements in the file.
        Plain and slow, sharing no code with compute. The memory of `elements` and of blocks read is reused after it
        returns.
    prepare
        (read, region, specs, options, random generator, shared) -> a function of the elements that returns what check
        would. It does beforehand, while the elements are computed, all that needs no elements; `read` reads the inputs
        again. `shared` is a dict for what other regions of the run can use. Regions may be prepared at the same time.
    pieces
        (spec of a region, options, elements) -> pieces of about that many elements that cover the region once, indexed
        from 0. They are checked one at a time; None if checking the region at once is faster.
    example
        A useful command line, without the job's name, shown in its help.
    files
        Help text about the input files.
    whole
        Whether the check covers whole regions even in a sample, because it costs little.
    streams
        Whether compute gets, instead of blocks, a function that reads a block to the computing device (a Read whose
        blocks may be on a device); needs then gives the least that is held at a time. If the function has an
        attribute `out`, an array of the region's shape, compute may put the elements there and return it. If it has
        an attribute `nbytes`, what is held and the elements should take no more bytes; so with that of check.
    shares
        (region, specs, options) -> for each input, whether other regions need the same parts of it: those stay on a
        GPU, if there is room.
    verbatim
        Whether elements are only moved, not computed with: compute and check then get them as they are stored, and the
        output has the dtype of the first input, byte order included.
    operations
        (specs, options) -> number of multiplications and additions, if these may take longer than moving the elements;
        it decides the number of GPUs.
    reads
        (region, specs, options) -> for a job that streams: all that it reads of the inputs, one part of each, for
        inputs that are cut into blocks in another way.
    notes
        (specs, options) -> how the numbers are computed, by name, for people to read.
    rounding
        (specs, options) -> in words, how far elements may be off where bits differ between machines: the verdict says
        so, and the job cannot be replayed. Empty if bits are the same everywhere.
    kernel
        The variant of the courses that computes in place of the job's own kernel; empty if none does.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import numpy, pipeline
    >>> from workflows import ArrayJob
    >>> from workflows.array_job import Checked
    >>> from workflows.regions import in_rows
    >>> @dataclass(frozen=True)
    ... class Nothing:
    ...     pass
    >>> def check(read, elements, region, specs, options, random):
    ...     wrong = int((elements + read(0, region) != 0).sum())
    ...     return Checked((f"{wrong} elements differ",) if wrong else (), elements.size)
    >>> negate = pipeline.register(ArrayJob(
    ...     "negate", "Negate an array.", Nothing,
    ...     operands=lambda options: 1,
    ...     outline=lambda specs, options: specs[0],
    ...     regions=lambda specs, output, options, elements: in_rows(output, elements),
    ...     needs=lambda region, specs, options: (region,),
    ...     compute=lambda blocks, region, specs, options: -blocks[0],
    ...     check=check,
    ... ))
    >>> pipeline.run("negate", numpy.arange(3)).array.tolist()
    [0, -1, -2]
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
    prepare: Prepare[Options] | None = None
    pieces: Callable[[Spec, Options, int], Iterator[Bounds]] | None = None
    example: str = ""
    files: str = "Each of the FILES is an array: .npy, or raw samples in one dimension."
    whole: bool = False
    streams: bool = False
    shares: Callable[[Bounds, Sequence[Spec], Options], tuple[bool, ...]] | None = None
    verbatim: bool = False
    operations: Callable[[Sequence[Spec], Options], float] | None = None
    reads: Callable[[Bounds, Sequence[Spec], Options], tuple[Bounds, ...]] | None = None
    notes: Callable[[Sequence[Spec], Options], dict[str, str]] | None = None
    rounding: Callable[[Sequence[Spec], Options], str] = lambda specs, options: ""
    kernel: str = ""
    boxes: bool = False


def differing(got: NDArray[Any], expected: NDArray[Any], region: Bounds) -> tuple[str, ...]:
    """The first elements of numbers whose bits differ from the expected ones."""
    bits = f"u{got.dtype.itemsize}"
    places = np.argwhere(got.view(bits) != expected.view(bits))
    starts = np.array([start for start, _ in region], dtype=np.int64)
    lines = [
        f"element {tuple((place + starts).tolist())}: expected {expected[tuple(place)]}, got {got[tuple(place)]}"
        for place in places[:3]
    ]
    return (*lines, f"{len(places) - 3} more") if len(places) > 3 else tuple(lines)
