"""The search for order statistics: each pass counts samples in cells, and the next one looks into those that matter.

Counts of one pass tell in which slot a rank lies; its keys are the cell of the next pass, until a slot is a single key.
As many cells are divided at a time as there are ranks in different ones, and all of them share `MOST_SLOTS` counters.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common.rounded import rounded
from kernels.quantile.cells import (
    FEW,
    Cell,
    Cells,
    Disagreement,
    Ranges,
    cells_of,
    first_cells,
    gathering_cells,
    joined,
    slots_of,
)
from kernels.quantile.deviation import Deviation, ends_of
from kernels.quantile.keys import bits_of, nan_key, to_number, to_sample, to_samples
from kernels.quantile.ranks import SELECTING, Between, between

Counts = NDArray[np.int64]
Quantile = tuple[str, Fraction]  # a method of `kernels.quantile.ranks.METHODS`, and q


@dataclass(frozen=True, eq=False)
class Search:
    """How far a search is; a pass gives the next one.

    Attributes
    ----------
    dtype
        Of the samples, native.
    quantiles
        What is looked for.
    omit
        Whether NaN are left out; otherwise one makes every result NaN.
    cells
        What the next pass counts, by `kernels.quantile.cpu.count_cells`; None if the search is done.
    open
        The cells, with what is known of them; none before the first pass.
    samples, nan
        How many there are, and how many of them are NaN; unknown before the first pass.
    keys
        Of the order statistics that are known, by their ranks, counted from 0.
    deviation
        Whether the median of the distances to the median is looked for, too.
    top
        Where the numbers are by the first pass, for that.
    spread
        The search for it, once the median is known; None if that is infinite.
    around
        Counts samples around what was found, where that was done by one read of them: `bracket.Around`.
    """

    dtype: np.dtype[Any]
    quantiles: tuple[Quantile, ...]
    omit: bool
    cells: Cells | None
    open: tuple[Cell, ...] = ()
    samples: int = -1
    nan: int = -1
    keys: Mapping[int, int] = field(default_factory=dict)
    deviation: bool = False
    top: Ranges | None = None
    spread: Deviation | None = None
    around: Any = None

    @staticmethod
    def begin(dtype: np.dtype[Any], quantiles: Sequence[Quantile], omit: bool, deviation: bool = False) -> Search:
        """A search that has not counted anything yet.

        Parameters
        ----------
        dtype
            Of the samples: any integer or float dtype, in native byte order.
        quantiles
        omit, deviation
        """
        return Search(dtype, tuple(quantiles), omit, first_cells(bits_of(dtype)), deviation=deviation)

    def of_few(self, samples: int) -> Search:
        """The search, not begun, among at most so many samples: if they are few, its first pass gathers them."""
        if samples > FEW or self.dtype.itemsize == 1:
            return self
        return replace(self, cells=gathering_cells(bits_of(self.dtype), max(samples, 1)))

    @property
    def numbers(self) -> int:
        """Samples that are numbers; 0 if a NaN makes every result NaN."""
        return self.samples - self.nan if self.omit or not self.nan else 0

    @property
    def _middle(self) -> Between:
        """Where the median lies, of samples or of distances."""
        return between("linear", Fraction(1, 2), self.numbers)

    def ranks(self, numbers: int) -> list[int]:
        """Those of the order statistics that quantiles of so many numbers are made of, ascending."""
        if not numbers:
            return []
        places = [between(method, q, numbers) for method, q in self.quantiles]
        places += [between("linear", Fraction(1, 2), numbers)] if self.deviation else []
        return sorted({rank for place in places for rank in (place.low, place.high)})

    def completed(self, samples: int, nan: int, keys: Mapping[int, int], around: Any = None) -> Search:
        """The search with keys of some ranks that were found without it: done, if these are all, else not begun."""
        known = replace(self, samples=samples, nan=nan, keys=keys, around=around)
        if set(known.ranks(known.numbers)) <= keys.keys():
            return replace(known, cells=None)
        return replace(self, keys=keys)

    def counted(self, counts: Counts) -> Search:
        """The search after a pass.

        Parameters
        ----------
        counts : int64 array, shape (cells.size,)
            Of all samples.

        Raises
        ------
        Disagreement
            If the counts of a cell are not those of an earlier pass together.
        """
        assert self.cells is not None
        if self.spread is not None:
            spread = self.spread.counted(counts)
            return replace(self, spread=spread, cells=spread.cells)
        now, open_ = self, self.open
        if self.samples < 0:
            slots = [slots_of(self.cells, number, counts) for number in range(len(self.cells.firsts))]
            *below, samples = accumulate((int(one.samples.sum()) for one in slots), initial=0)
            ends = zip(self.cells.firsts.tolist(), self.cells.bits.tolist(), below, [*below[1:], samples], strict=True)
            open_ = tuple(Cell(first, bits, start, end - start) for first, bits, start, end in ends)
            every = joined(slots)
            is_nan = every.lasts == (-1 if (key := nan_key(self.dtype)) is None else key)
            nan = int(every.samples[is_nan].sum())
            now = replace(self, samples=samples, nan=nan, top=every.take(~is_nan) if self.deviation else None)
        keys, inner = now._divided(self.cells, open_, counts)
        now = replace(now, open=tuple(inner), keys=dict(self.keys) | keys)
        if inner:
            return replace(now, cells=cells_of(bits_of(self.dtype), inner))
        return now._spread() if self.deviation and now.numbers else replace(now, cells=None)

    def _divided(self, cells: Cells, open_: Sequence[Cell], counts: Counts) -> tuple[dict[int, int], list[Cell]]:
        """Ranks that are known now, and the slots that the others lie in."""
        ranks = [rank for rank in self.ranks(self.numbers) if rank not in self.keys]
        keys: dict[int, int] = {}
        inner: list[Cell] = []
        for number, cell in enumerate(open_):
            here = ranks[bisect_left(ranks, cell.below) : bisect_left(ranks, cell.below + cell.samples)]
            slots = slots_of(cells, number, counts, cell.samples)
            ends = cell.below + np.cumsum(slots.samples)
            for rank, slot in zip(here, np.searchsorted(ends, here, "right").tolist(), strict=True):
                first, last = int(slots.firsts[slot]), int(slots.lasts[slot])
                if first == last:
                    keys[rank] = first
                elif not inner or inner[-1].first != first:
                    samples = int(slots.samples[slot])
                    inner.append(Cell(first, (last - first).bit_length(), int(ends[slot]) - samples, samples))
        return keys, inner

    def _spread(self) -> Search:
        """With the search for the median of the distances to the median, where that is finite."""
        place = self._middle
        ends = [to_number(self.keys[rank], self.dtype) for rank in (place.low, place.high)]
        if not all(isinstance(end, Fraction) for end in ends):
            return replace(self, cells=None, top=None)
        assert self.top is not None
        middle = Fraction(ends[0] + (ends[1] - ends[0]) * place.weight)
        spread = Deviation(self.dtype, middle, tuple({place.low: 0, place.high: 0}), self.top).narrowed()
        return replace(self, spread=spread, cells=spread.cells, top=None)

    @cached_property
    def statistics(self) -> NDArray[Any]:
        """Keys around which samples are counted to prove what was found, ascending, once the search is done."""
        keys, bits = set(self.keys.values()), bits_of(self.dtype)
        if self.spread is not None:
            for distance in self.spread.distances.values():
                first, _, last, _ = ends_of(self.spread.middle, distance, self.dtype)
                keys |= {key for key in (first, last) if key < 2**bits}
        return np.array(sorted(keys), f"u{self.dtype.itemsize}")

    @cached_property
    def values(self) -> NDArray[Any]:
        """The samples of these keys."""
        return to_samples(self.statistics, self.dtype)

    def proven_by(self, counts: Counts) -> None:
        """Compare what was found with the counts of samples around `statistics`, as `cpu.count_around` gives them.

        Raises
        ------
        Disagreement
            If #(x < v) <= k < #(x <= v) does not hold for an order statistic v of rank k, or for a distance.
        """
        nan = int(counts[-1])
        if (int(counts.sum()), nan) != (self.samples, self.nan):
            raise Disagreement(f"expected {self.samples:,} samples and {self.nan:,} NaN as the first pass counted, got "
                               f"{int(counts.sum()):,} and {nan:,}")  # fmt: skip
        ends = np.cumsum(counts)[:-1].tolist()
        less = dict(zip(self.statistics.tolist(), ends[0::2], strict=False)) | {2 ** bits_of(self.dtype): ends[-1]}
        upto = dict(zip(self.statistics.tolist(), ends[1::2], strict=False))

        def check(what: str, rank: int, fewer: int, most: int) -> None:
            if not fewer <= rank < most:
                raise Disagreement(f"expected {what} to have rank {rank:,}, counted from 0, got {fewer:,} below it and "
                                   f"{most - fewer:,} equal to it")  # fmt: skip

        for rank, key in self.keys.items():
            check(str(to_sample(key, self.dtype)), rank, less[key], upto[key])
        for rank, distance in self.spread.distances.items() if self.spread is not None else ():
            assert self.spread is not None
            first, above, last, end = ends_of(self.spread.middle, distance, self.dtype)
            within = (upto[last] if end > last else less[last]) - less[first]
            nearer = less[last] - (upto[first] if above > first else less[first])
            size = rounded(distance) if isinstance(distance, Fraction) else distance
            check(f"a distance of {size} to the median", rank, nearer, within)

    def value(self, number: int) -> int | float:
        """A quantile, once the search is done.

        Parameters
        ----------
        number
            Of `quantiles`.

        Returns
        -------
        A sample, as an int or a float, where the method selects one; else a float, the exact value rounded once.
        NaN if there are no numbers.
        """
        method, q = self.quantiles[number]
        if method in SELECTING and self.numbers:
            return to_sample(self.keys[between(method, q, self.numbers).low], self.dtype)
        exact = self.number(number)
        return rounded(exact) if isinstance(exact, Fraction) else exact

    def number(self, number: int) -> Fraction | float:
        """A quantile, exact, once the search is done; a float only where it is infinite or NaN."""
        if not self.numbers:
            return math.nan
        place = between(*self.quantiles[number], self.numbers)
        low, high = (to_number(self.keys[rank], self.dtype) for rank in (place.low, place.high))
        if isinstance(low, Fraction) and isinstance(high, Fraction):
            return low + (high - low) * place.weight
        return float(low) if not place.weight else _sum(low, high)

    def median_deviation(self) -> float:
        """The median of the distances to the median, rounded once, once the search is done; NaN if that is infinite."""
        if self.spread is None:
            return math.nan
        place, distances = self._middle, self.spread.distances
        low, high = distances[place.low], distances[place.high]
        if isinstance(low, Fraction) and isinstance(high, Fraction):
            return rounded(low + (high - low) * place.weight)
        return float(low) if not place.weight else math.inf


def _sum(low: Fraction | float, high: Fraction | float) -> float:
    """What lies between two order statistics of which one is infinite: that one, or NaN if both are."""
    ends = [end for end in (low, high) if isinstance(end, float)]
    return ends[0] if len(ends) == 1 or ends[0] == ends[1] else math.nan
