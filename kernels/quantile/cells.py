"""Cells: disjoint ranges of keys, each divided into as many equal slots as there is room for counters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.common.arrays import array_module

Words = NDArray[np.uint64]

TOP_BITS = 16  # of keys, by which a first pass counts, and by which later ones look cells up
MOST_SLOTS = 2**17  # counters of a pass, of all cells together: 1 MiB
MOST_GATHERED = 2**16  # samples of all cells together whose keys are returned instead: then all is known
FEW = 2**14  # samples that a first pass gathers, at most: of more, counts of slots take less memory and time


class Disagreement(Exception):
    """Counts of two passes that cannot both be right."""


class Cell(NamedTuple):
    """Keys from `first` on, 2^bits of them; `below`: samples with lesser keys, `samples`: those in it."""

    first: int
    bits: int
    below: int
    samples: int


@dataclass(frozen=True, eq=False)
class Cells:
    """What a pass counts: samples in each slot of each cell; all others are left out.

    A partial is an int64 array, shape (cells << slot_bits,). Or, where few samples are in the cells, their number n and
    their keys in ascending order: shape (1 + gathered,), [-1 - n, keys as int64, -1 in what is left]. `combined` adds
    partials of both kinds, which the sign of the first entry tells apart.

    Attributes
    ----------
    key_bits
        Bits of a key: 8, 16, 32 or 64.
    firsts : uint64 array, shape (cells,), ascending
    bits : uint64 array, shape (cells,)
        A cell has 2^bits keys; they overlap no other cell.
    slot_bits
        A cell has 2^slot_bits slots, of which one with fewer keys uses the first ones.
    gathered
        Number of samples in all cells, if their keys are asked for; else 0.
    """

    key_bits: int
    firsts: Words
    bits: Words
    slot_bits: int
    gathered: int = 0

    @property
    def slots(self) -> int:
        """Slots of all cells."""
        return len(self.firsts) << self.slot_bits

    @property
    def size(self) -> int:
        """Length of a partial."""
        return 1 + self.gathered if self.gathered else self.slots

    @property
    def everything(self) -> bool:
        """Whether one cell has all keys: no sample is left out."""
        return int(self.bits[0]) == self.key_bits

    @cached_property
    def shifts(self) -> Words:
        """By how much an offset in a cell is shifted to give its slot, shape (cells,)."""
        return np.maximum(self.bits, np.uint64(self.slot_bits)) - np.uint64(self.slot_bits)

    @cached_property
    def lookup(self) -> Lookup:
        """How cells are looked up; not for a cell of all keys."""
        return _lookup(self)


class Lookup(NamedTuple):
    """Where to begin to look for the cell of a key, and how far it is.

    Attributes
    ----------
    starts : uint32 array, shape (2^TOP_BITS,)
        By the upper bits of a key: how many cells begin before all keys with these.
    step
        A power of two: fewer cells than twice this begin among the keys of one entry.
    firsts, sizes, shifts : arrays of keys, shape (1 + cells + 2 step,)
        Those of the cells, after an empty one; the last one is repeated, so that a search may look beyond it.
    bases : uint32 array of that shape
        First slot of each.
    """

    starts: NDArray[np.uint32]
    step: int
    firsts: NDArray[Any]
    sizes: NDArray[Any]
    shifts: NDArray[Any]
    bases: NDArray[np.uint32]


def _lookup(cells: Cells) -> Lookup:
    top, number = np.uint64(cells.key_bits - TOP_BITS), len(cells.firsts)
    starts = np.searchsorted(cells.firsts, np.arange(2**TOP_BITS, dtype=np.uint64) << top).astype(np.uint32)
    most = int(np.diff(np.append(starts, number)).max())
    step = 1 << max(most.bit_length() - 1, 0)

    def around(values: Words) -> NDArray[Any]:
        return np.concatenate(([np.uint64(0)], values, np.repeat(values[-1:], 2 * step)))

    firsts, sizes, shifts = (
        around(values).astype(f"u{cells.key_bits // 8}")
        for values in (cells.firsts, np.uint64(1) << cells.bits, cells.shifts)
    )
    bases = around(np.arange(number, dtype=np.uint64) << np.uint64(cells.slot_bits)).astype(np.uint32)
    return Lookup(starts, step, firsts, sizes, shifts, bases)


def first_cells(key_bits: int) -> Cells:
    """The cells of a first pass: one of all keys, by their upper 16 bits."""
    bits = np.array([key_bits], np.uint64)
    return Cells(key_bits, np.zeros(1, np.uint64), bits, min(key_bits, TOP_BITS))


def gathering_cells(key_bits: int, samples: int) -> Cells:
    """The cells of a first pass over few samples: all keys, in two halves, which are gathered."""
    half = key_bits - 1
    return Cells(key_bits, np.array([0, 1 << half], np.uint64), np.full(2, half, np.uint64), 0, samples)


def cells_of(key_bits: int, cells: list[Cell]) -> Cells:
    """What to count in cells: as many slots as `MOST_SLOTS` has room for, but two at least; or the few keys in them."""
    gathered = sum(cell.samples for cell in cells)
    room = max((MOST_SLOTS // len(cells)).bit_length() - 1, 1)
    slot_bits = min(room, max(cell.bits for cell in cells))
    firsts = np.array([cell.first for cell in cells], np.uint64)
    bits = np.array([cell.bits for cell in cells], np.uint64)
    return Cells(key_bits, firsts, bits, slot_bits, gathered if gathered <= MOST_GATHERED else 0)


@dataclass(frozen=True, eq=False)
class Ranges:
    """Ranges of keys, ascending, and the samples in each, at least one.

    Attributes
    ----------
    firsts, lasts : uint64 arrays, shape (n,)
    samples : int64 array, shape (n,)
    """

    firsts: Words
    lasts: Words
    samples: NDArray[np.int64]

    def take(self, chosen: Any) -> Ranges:
        """Some of them."""
        return Ranges(self.firsts[chosen], self.lasts[chosen], self.samples[chosen])


def joined(ranges: Sequence[Ranges]) -> Ranges:
    """All of them, in this order."""
    names = ("firsts", "lasts", "samples")
    return Ranges(*(np.concatenate([getattr(one, name) for one in ranges]) for name in names))


def slots_of(cells: Cells, number: int, partial: NDArray[np.int64], samples: int | None = None) -> Ranges:
    """The slots, or the keys, of a cell that hold samples.

    Parameters
    ----------
    cells, number
        The cell is this one of them.
    partial
        Of a pass that counted them.
    samples
        In the cell, as an earlier pass counted, if one did.

    Raises
    ------
    Disagreement
        If it has another number of them now.
    """
    first, bits = int(cells.firsts[number]), int(cells.shifts[number])
    if cells.gathered:
        keys = keys_in(partial)
        inside = keys[(keys >= first) & (keys <= first + 2 ** int(cells.bits[number]) - 1)]
        firsts, counts = np.unique(inside, return_counts=True)
        lasts = firsts
    else:
        slots = partial[number << cells.slot_bits : number + 1 << cells.slot_bits]
        full = np.flatnonzero(slots)
        firsts, counts = np.uint64(first) + (full.astype(np.uint64) << np.uint64(bits)), slots[full]
        lasts = firsts + np.uint64(2**bits - 1)
    if samples is not None and int(counts.sum()) != samples:
        raise Disagreement(f"expected {samples:,} samples in a cell as an earlier pass counted, got "
                           f"{int(counts.sum()):,}")  # fmt: skip
    return Ranges(firsts, lasts, counts)


def gathered(keys: NDArray[Any], size: int, number: int) -> NDArray[np.int64]:
    """The partial of keys, in any order, of so many samples: more than it has room for if something is wrong."""
    partial = np.full(size, -1, np.int64)
    partial[0] = -1 - number
    ordered = np.sort(keys.astype(np.uint64))[: size - 1]
    partial[1 : 1 + len(ordered)] = ordered.view(np.int64)
    return partial


def keys_in(partial: NDArray[np.int64]) -> Words:
    """The keys that a partial holds, ascending."""
    keys: Words = partial[1 : -int(partial[0])].view(np.uint64)
    return keys


def combined(a: Any, b: Any) -> Any:
    """The partial of two parts together, NumPy or CuPy arrays."""
    if not int(a[0]) < 0:
        return a + b
    xp = array_module(a)
    keys = xp.concatenate((keys_in(a), keys_in(b)))
    keys.sort()
    keys = keys[: a.size - 1]
    partial = xp.full(a.size, -1, np.int64)
    partial[0] = 1 + a[0] + b[0]
    partial[1 : 1 + keys.size] = keys.view(np.int64)
    return partial
