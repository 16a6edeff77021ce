"""Axes in another order as a transposition of matrices: which axes are their rows and columns, where each begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod


@dataclass(frozen=True)
class Matrices:
    """Matrices to transpose, in elements of two C-contiguous arrays.

    Attributes
    ----------
    rows, columns
        Of each matrix in the first array.
    pitch_in, pitch_out
        From one row to the next, in the first array and in the second.
    outer, inner
        How many there are: one axis, or two, of which `inner` is the later one in the first array.
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
        """Distances that decide, with the address, on what boundaries rows of the first array begin."""
        outer, inner = (self.in_outer,) * (self.outer > 1), (self.in_inner,) * (self.inner > 1)
        return (self.columns, self.pitch_in, *outer, *inner)

    @property
    def steps_out(self) -> tuple[int, ...]:
        """Those of the second array."""
        outer, inner = (self.out_outer,) * (self.outer > 1), (self.out_inner,) * (self.inner > 1)
        return (self.rows, self.pitch_out, *outer, *inner)


@dataclass(frozen=True)
class Runs:
    """Runs of elements to copy, in elements of two C-contiguous arrays; in the second one they lie one after another.

    Attributes
    ----------
    length
        Of each.
    counts
        How many there are along the axes of the second array before the last one, the latest first: three numbers.
    steps
        From one run to the next along those, in the first array.
    """

    length: int
    counts: tuple[int, int, int]
    steps: tuple[int, int, int]


def runs(lengths: Sequence[int], order: Sequence[int]) -> Runs | None:
    """What ``ascontiguousarray(array.transpose(axes))`` is where the last axis stays the last one.

    Parameters
    ----------
    lengths, order
        As `merged` gives them.

    Returns
    -------
    Runs, or None
        If it does not stay, if all axes do, or if more than three change places before it.
    """
    if not 2 < len(order) < 5 or order[-1] != len(order) - 1:
        return None
    places = [*reversed(order[:-1])]
    counts = [lengths[axis] for axis in places] + [1] * (3 - len(places))
    steps = [prod(lengths[axis + 1 :]) for axis in places] + [0] * (3 - len(places))
    return Runs(lengths[-1], (counts[0], counts[1], counts[2]), (steps[0], steps[1], steps[2]))


def matrices(shape: Sequence[int], axes: Sequence[int]) -> Matrices | None:
    """What ``ascontiguousarray(array.transpose(axes))`` is.

    Parameters
    ----------
    shape
        Of the array, C-contiguous, no axis empty.
    axes
        The new order.

    Returns
    -------
    Matrices, or None
        If the order of the elements stays, if the last axis stays the last one, or if more than two axes would be left
        beside those of rows and columns.
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
    found: dict[str, int] = {}
    for name, axis in zip(("inner", "outer"), reversed(others), strict=False):
        found |= {name: lengths[axis], f"in_{name}": steps_in[axis], f"out_{name}": steps_out[axis]}
    return Matrices(lengths[row], lengths[column], steps_in[row], steps_out[column], **found)


def merged(shape: Sequence[int], axes: Sequence[int]) -> tuple[list[int], list[int]]:
    """Lengths and new order without axes of length 1, those that stay side by side as one."""
    runs: list[list[int]] = []
    kept = [axis for axis in axes if shape[axis] != 1]
    of_array = sorted(kept)
    for axis in kept:
        follows = runs and of_array.index(axis) == of_array.index(runs[-1][-1]) + 1
        if follows:
            runs[-1].append(axis)
        else:
            runs.append([axis])
    in_order = sorted(runs)
    return [prod(shape[axis] for axis in run) for run in in_order], [in_order.index(run) for run in runs]
