"""Regions of arrays, and how to cut an array into them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

Bounds = tuple[tuple[int, int], ...]  # start and stop for each axis


@dataclass(frozen=True)
class Spec:
    """Shape and dtype of an array."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of elements."""
        return self.size * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.dtype.name} {'×'.join(map(str, self.shape)) or 'scalar'}"


def sizes(bounds: Bounds) -> tuple[int, ...]:
    """Shape of a region."""
    return tuple(stop - start for start, stop in bounds)


def common(a: Bounds, b: Bounds) -> int:
    """Number of elements that two regions share."""
    return math.prod(max(0, min(x[1], y[1]) - max(x[0], y[0])) for x, y in zip(a, b, strict=True))


def along(region: Bounds, axis: int, step: int) -> Iterator[tuple[Bounds, tuple[slice, ...]]]:
    """Cut a region into steps along an axis: yields each part, and its slices in an array of the region."""
    start, stop = region[axis]
    for first in range(start, stop, step):
        last = min(first + step, stop)
        inside = (*(slice(None) for _ in range(axis)), slice(first - start, last - start))
        yield (*region[:axis], (first, last), *region[axis + 1 :]), inside


def all_of(spec: Spec) -> Bounds:
    """The whole array as a region."""
    return tuple((0, length) for length in spec.shape)


def in_rows(spec: Spec, elements: int) -> Iterator[Bounds]:
    """Regions of at most `elements` elements, each contiguous in memory: several rows, one row, or part of a row.

    All have about the same length, since a short remainder would take as long as the others.
    """
    if not spec.size:
        return
    axis, inner = 0, spec.size
    for axis, length in enumerate(spec.shape):
        inner //= length
        if inner <= elements or axis == len(spec.shape) - 1:
            break
    if not spec.shape:
        yield ()
        return
    parts = -(-spec.shape[axis] // max(1, elements // inner))
    step = -(-spec.shape[axis] // parts)
    rest = tuple((0, length) for length in spec.shape[axis + 1 :])
    for outer in np.ndindex(spec.shape[:axis]):
        for start in range(0, spec.shape[axis], step):
            stop = min(start + step, spec.shape[axis])
            yield (*((i, i + 1) for i in outer), (start, stop), *rest)


def part_of_input(region: Bounds, shape: tuple[int, ...]) -> Bounds:
    """The elements of an input of a shape that NumPy broadcasts to a region.

    For checks only: by what a computation uses they would read what it has wrong, too.
    """
    ends = zip(reversed(region), reversed(shape), strict=False)
    return tuple((min(start, length - 1), min(stop, length)) for (start, stop), length in ends)[::-1]
