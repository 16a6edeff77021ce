"""Compares two sources sample by sample, side by side: a block of each is in memory at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common.difference import Difference, difference
from pipeline.engine.inputs import check_order
from pipeline.errors import UsageError
from pipeline.storage.blocks import read_blocks
from pipeline.storage.chunks import plan
from pipeline.storage.sources import Source
from pipeline.timeline import Timeline

CHUNK_BYTES = 2**24  # of a source of unknown length, held at a time


@dataclass(frozen=True)
class Comparison:
    """What two sources have in common.

    Attributes
    ----------
    dtypes, shapes
        Of both, dtypes without byte orders.
    as_values
        Whether NaN was taken to equal NaN, and -0 to equal 0.
    compared
        Number of samples of which both were read: none if the dtypes differ, otherwise those of the shorter source.
    difference
        Of these; its `first` counts in C order.
    values
        The first two samples that differ; None if there are none.
    """

    dtypes: tuple[np.dtype[Any], np.dtype[Any]]
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    as_values: bool
    compared: int
    difference: Difference
    values: tuple[Any, Any] | None

    @property
    def equal(self) -> bool:
        """Whether dtypes, shapes and all samples are equal."""
        alike = self.dtypes[0] == self.dtypes[1] and self.shapes[0] == self.shapes[1]
        return alike and not self.difference.differing

    @property
    def index(self) -> tuple[int, ...] | None:
        """Index of the first samples that differ: along each axis if the shapes are equal, else in C order."""
        if self.difference.first is None:
            return None
        if self.shapes[0] != self.shapes[1]:
            return (self.difference.first,)
        return tuple(int(place) for place in np.unravel_index(self.difference.first, self.shapes[0]))


def compare(a: Source, b: Source, as_values: bool) -> Comparison:
    """Compare two sources.

    Parameters
    ----------
    a, b
    as_values
        Whether NaN equals NaN and -0 equals 0; otherwise samples are equal if all of their bits are, in one byte order.

    Raises
    ------
    UsageError
        If both are the same pipe, which can be read only once, or an array is stored in Fortran order.
    PipelineError
        If a source cannot be read, is no longer what it was, or cannot be decoded.
    """
    if a.read_once and b.read_once:
        raise UsageError(f"{b.names[0]}: expected at most one source that can be read only once, got two")
    for source in (a, b):
        check_order("compare", source)
    dtypes = a.dtype.newbyteorder("="), b.dtype.newbyteorder("=")
    if dtypes[0] != dtypes[1]:
        return Comparison(dtypes, (_shape(a, 0), _shape(b, 0)), as_values, 0, Difference(), None)
    total, compared, values = Difference(), 0, None
    blocks = _Blocks(a), _Blocks(b)
    while size := min(one.left() for one in blocks):
        first, second = (one.take(size) for one in blocks)
        of_block = difference(first, second, as_values)
        if values is None and of_block.first is not None:
            values = first[of_block.first], second[of_block.first]
        total, compared = total.then(of_block, compared), compared + size
    # A longer source of unknown length is read to its end, since its length is part of the answer.
    lengths = [one.skip_all() if source.shape is None else 0 for one, source in zip(blocks, (a, b), strict=True)]
    for source in (a, b):
        source.check_unchanged()
    shapes = _shape(a, lengths[0]), _shape(b, lengths[1])
    return Comparison(dtypes, shapes, as_values, compared, total, values)


def _shape(source: Source, length: int) -> tuple[int, ...]:
    """The shape; the length where neither a header nor the source says one."""
    return (length,) if source.shape_once_read is None else source.shape_once_read


class _Blocks:
    """Samples of a source in order, in pieces of any size."""

    def __init__(self, source: Source) -> None:
        self._blocks = self._read(source)
        self._block: NDArray[Any] = np.empty(0, source.dtype)
        self._done = 0  # samples taken

    @staticmethod
    def _read(source: Source) -> Iterator[NDArray[Any]]:
        for chunk in plan(source, CHUNK_BYTES, "off", 0):
            yield from read_blocks(chunk, Timeline())

    def left(self) -> int:
        """How many samples can be taken now; 0 at the end."""
        while not len(self._block):
            if (block := next(self._blocks, None)) is None:
                return 0
            self._block = block
        return len(self._block)

    def take(self, number: int) -> NDArray[Any]:
        """The next samples, valid until `left` is called."""
        taken, self._block = self._block[:number], self._block[number:]
        self._done += number
        return taken

    def skip_all(self) -> int:
        """Read the rest; the number of all samples."""
        while left := self.left():
            self.take(left)
        return self._done


def shown(value: Any) -> str:
    """A sample with all of its digits; floats with their bits, since these may be all that differs."""
    if value.dtype.kind != "f":
        return str(value)
    return f"{value} (0x{int(value.view(f'u{value.itemsize}')):0{2 * value.itemsize}x})"


def plain(value: Any) -> int | float | str:
    """A sample for JSON, which has no NaN and no infinity."""
    number: int | float = value.item()
    return number if isinstance(number, int) or math.isfinite(number) else str(number)
