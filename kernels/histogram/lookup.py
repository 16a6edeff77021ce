"""Lookup tables of histogram_search: the number of thresholds before and in each cell of a linear map."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.histogram.linear_map import LinearMap, make_map

FIRST_BITS = 21  # of an entry; FIRST_BITS in locate.cuh


@dataclass(frozen=True)
class LookupTable:
    """Cells of a linear map, with the number of thresholds before and in each: see Search in locate.cuh."""

    by_bits: bool
    line: LinearMap
    cells: NDArray[np.uint32]  # the first lies before the map, the last beyond it
    crowd: float  # average number of thresholds that share a threshold's cell


def lookup_table(keys: NDArray[Any], cells: int) -> LookupTable:
    """A table of at most `cells` cells, by value or by bits, whichever spreads the thresholds better."""
    tables = [_cut(keys, keys, cells, False)]
    if keys.dtype.kind == "f":
        tables.append(_cut(keys, ordered_bits(keys), cells, True))
    return min(tables, key=lambda table: table.crowd)


def ordered_bits(keys: NDArray[Any]) -> NDArray[Any]:
    """Ranks of floats among all floats, as ByBits in linear_map.cuh."""
    signed, unsigned = np.dtype(f"i{keys.itemsize}"), np.dtype(f"u{keys.itemsize}")
    with np.errstate(invalid="ignore"):
        bits = (keys + keys.dtype.type(0)).view(signed)
    sign = signed.type(np.iinfo(signed).min)
    return np.asarray(bits ^ (bits >> signed.type(8 * keys.itemsize - 1) | sign)).view(unsigned)


def _cut(keys: NDArray[Any], places: NDArray[Any], cells: int, by_bits: bool) -> LookupTable:
    finite = places[np.isfinite(places)] if places.dtype.kind == "f" else places
    line = None
    if len(finite) > 1 and finite[0] < finite[-1]:
        span = Fraction(_number(finite[-1])) - Fraction(_number(finite[0]))
        cells = cells if places.dtype.kind == "f" or span > cells else int(span)
        line = make_map(finite[0], finite[-1], cells / span * (1 - Fraction(1, 2**20)), Fraction(0), cells)
    if line is None or not 0 <= int(line.positions(finite[-1:])[0]) < cells:
        start = finite[0] if len(finite) else places.dtype.type(0)
        cells, line = 1, make_map(start, start, Fraction(0), Fraction(0), 1)
    assert line is not None
    if places.dtype.kind == "f" and len(finite):  # up to the last finite threshold
        line = LinearMap(line.start, np.uint32(line.positions(finite[-1:])[0]), line.scale, line.offset)
    of_threshold = line.positions(places)
    first = np.searchsorted(of_threshold, np.arange(-1, cells), side="left")
    inside = np.searchsorted(of_threshold, np.arange(-1, cells), side="right") - first
    many = 2 ** (32 - FIRST_BITS) - 1
    beyond = many << FIRST_BITS
    entries = np.append(first | np.minimum(inside, many) << FIRST_BITS, beyond).astype(np.uint32)
    if by_bits:
        entries[0] = beyond  # NaN with its sign set comes first
    crowd = float((inside.astype(np.float64) ** 2).sum() / max(1, len(keys)))
    return LookupTable(by_bits, line, entries, crowd)


def _number(value: Any) -> int | float:
    return float(value) if value.dtype.kind == "f" else int(value)
