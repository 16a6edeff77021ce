"""A permutation of axes as a batch of matrix transposes or of row copies: their sizes and strides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod


@dataclass(frozen=True)
class Matrices:
    """Matrices to transpose from one C-contiguous array to another; distances are in elements.

    Attributes
    ----------
    rows, columns
        Of each matrix in the input.
    pitch_in, pitch_out
        From one row to the next, in the input and in the output.
    outer, inner
        Number of matrices along two axes, of which `inner` is the later one in the input.
    in_outer, in_inner, out_outer, out_inner
        From one matrix to the next along either.
    """

    rows: int
    columns: int
    pitch_in: int
    pitch_out: int
    outer: int = 1
    inner: int = 1
    in_outer: int = 0
    in_inner: int = 0
    out_outer: int = 0
    out_inner: int = 0

    @property
    def steps_in(self) -> tuple[int, ...]:
        """Distances that decide, with the address, how rows of the input are aligned."""
        outer, inner = (self.in_outer,) * (self.outer > 1), (self.in_inner,) * (self.inner > 1)
        return (self.columns, self.pitch_in, *outer, *inner)

    @property
    def steps_out(self) -> tuple[int, ...]:
        """The same for the output."""
        outer, inner = (self.out_outer,) * (self.outer > 1), (self.out_inner,) * (self.inner > 1)
        return (self.rows, self.pitch_out, *outer, *inner)


@dataclass(frozen=True)
class Rows:
    """Rows to copy from one C-contiguous array to another, in which they are consecutive; in elements.

    Attributes
    ----------
    length
        Of each row.
    counts
        Number of rows along each of the three axes of the output before the last one, the latest axis first.
    steps
        From one row to the next along these axes, in the input.
    """

    length: int
    counts: tuple[int, int, int]
    steps: tuple[int, int, int]


def as_rows(lengths: Sequence[int], order: Sequence[int]) -> Rows | None:
    """``ascontiguousarray(array.transpose(axes))`` as a copy of rows, where the last axis stays the last one.

    Parameters
    ----------
    lengths, order
        From `merged`.

    Returns
    -------
    Rows, or None
        If the last axis moves, if no axis does, or if there are more than three axes before the last one.
    """
    if not 2 < len(order) < 5 or order[-1] != len(order) - 1:
        return None
    places = [*reversed(order[:-1])]
    counts = [lengths[axis] for axis in places] + [1] * (3 - len(places))
    steps = [prod(lengths[axis + 1 :]) for axis in places] + [0] * (3 - len(places))
    return Rows(lengths[-1], (counts[0], counts[1], counts[2]), (steps[0], steps[1], steps[2]))


def matrices(shape: Sequence[int], axes: Sequence[int]) -> Matrices | None:
    """``ascontiguousarray(array.transpose(axes))`` as a batch of matrix transposes.

    Parameters
    ----------
    shape
        Of the array, which is C-contiguous and not empty.
    axes
        Their new order.

    Returns
    -------
    Matrices, or None
        If the elements keep their order, if the last axis stays the last one, or if there are more than two axes beside
        those of rows and columns.
    """
    lengths, order = merged(shape, axes)
    if len(order) < 2 or order[-1] == len(order) - 1:
        return None
    steps_in = [prod(lengths[axis + 1 :]) for axis in range(len(lengths))]
    steps_out = {axis: prod(lengths[other] for other in order[place + 1 :]) for place, axis in enumerate(order)}
    row, column = order[-1], len(order) - 1
    others = [axis for axis in range(len(lengths)) if axis not in (row, column)]
    if len(others) > 2:
        return None
    batch: dict[str, int] = {}
    for name, axis in zip(("inner", "outer"), reversed(others), strict=False):
        batch |= {name: lengths[axis], f"in_{name}": steps_in[axis], f"out_{name}": steps_out[axis]}
    return Matrices(lengths[row], lengths[column], steps_in[row], steps_out[column], **batch)


def merged(shape: Sequence[int], axes: Sequence[int]) -> tuple[list[int], list[int]]:
    """Lengths and new order of the axes, without those of length 1; axes that stay adjacent count as one."""
    groups: list[list[int]] = []
    kept = [axis for axis in axes if shape[axis] != 1]
    of_array = sorted(kept)
    for axis in kept:
        if groups and of_array.index(axis) == of_array.index(groups[-1][-1]) + 1:
            groups[-1].append(axis)
        else:
            groups.append([axis])
    in_order = sorted(groups)
    return [prod(shape[axis] for axis in group) for group in in_order], [in_order.index(group) for group in groups]
