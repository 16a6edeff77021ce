"""Lookup tables of histogram_search: the number of thresholds before each cell of a linear map."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.histogram.guess import Guess, make_guess

NARROW = 2**14  # thresholds, from which on an entry takes four bytes


@dataclass(frozen=True)
class LookupTable:
    """Cells of a linear map, with the number of thresholds before each: see Cells in locate.cuh.

    Attributes
    ----------
    by_bits
        Whether cells divide the ranks of floats instead of their values.
    guess
    entries : uint16 or uint32 array
        For the cell before the map, those on it, the one beyond it, and the end. The highest bit is set if there are
        two thresholds or more in a cell, the next one if there are more.
    crowd
        Squares of the numbers of thresholds in the cells, added up: the number of thresholds, if each is alone.
    """

    by_bits: bool
    guess: Guess
    entries: NDArray[Any]
    crowd: float


def lookup_table(keys: NDArray[Any], least: int, cells: int) -> LookupTable:
    """A table of `cells` cells, by value or by bits, whichever spreads the thresholds better.

    Parameters
    ----------
    keys : array, shape (thresholds,)
        The thresholds, ascending, as keys.
    least
        Number of thresholds that every sample passes.
    cells
    """
    kinds = (False, True) if keys.dtype.kind == "f" else (False,)
    return min((cut_table(keys, least, cells, by_bits) for by_bits in kinds), key=lambda table: table.crowd)


def ordered_bits(keys: NDArray[Any]) -> NDArray[Any]:
    """Ranks of floats among all floats, as ByBits in guess.cuh."""
    signed, unsigned = np.dtype(f"i{keys.itemsize}"), np.dtype(f"u{keys.itemsize}")
    with np.errstate(invalid="ignore"):
        bits = (keys + keys.dtype.type(0)).view(signed)
    sign = signed.type(np.iinfo(signed).min)
    return np.asarray(bits ^ (bits >> signed.type(8 * keys.itemsize - 1) | sign)).view(unsigned)


def cut_table(keys: NDArray[Any], least: int, cells: int, by_bits: bool) -> LookupTable:
    """The same by value or by bits, of floats, as is asked for."""
    places = ordered_bits(keys) if by_bits else keys
    known = places[np.isfinite(keys)] if keys.dtype.kind == "f" else places[least:]
    first, last = (_number(known[at]) for at in (0, -1)) if len(known) else (0, 0)
    whole = places.dtype.kind != "f"
    start = Fraction(first) - whole  # integers before the first count as the one before it
    span = Fraction(last) - start
    exact = whole and span < cells  # a cell for each integer
    if exact:
        cells = int(span) + 1
    scale = Fraction(1) if exact or not span else cells / span * (1 - Fraction(1, 2**20))
    guess = make_guess(start, scale, places.dtype)
    if guess is None:  # everything from there on in one cell
        exact, cells, guess = False, 1, _one_cell(places.dtype.type(first))
    positions = np.minimum(guess.positions(places), cells)
    positions[:least] = -1
    counts = np.bincount(positions + 1, minlength=cells + 2)
    before = np.maximum(np.cumsum(counts) - counts, least)
    counts[0] -= least
    if exact:  # its samples have passed all thresholds in a cell
        before[:-1] += counts[:-1]
        counts[:-1] = 0
    if counts[-1]:  # thresholds at infinity, or where no guess reaches: with NaN
        counts[-1] = 3
    entry = np.dtype(np.uint16 if len(keys) < NARROW else np.uint32)
    crowded = (counts > 1) * 2 + (counts > 2) << 8 * entry.itemsize - 2
    entries = np.append(before | crowded, len(keys)).astype(entry)
    return LookupTable(by_bits, guess, entries, float((counts.astype(np.float64) ** 2).sum()))


def _one_cell(start: Any) -> Guess:
    """A map with one position for all keys from `start` on, or as many as it can."""
    real = np.float64 if start.dtype.itemsize == 8 else np.float32
    return Guess(start, np.nextafter(real(0), real(1)))  # zero would make NaN of infinity


def _number(value: Any) -> int | float:
    return float(value) if value.dtype.kind == "f" else int(value)
