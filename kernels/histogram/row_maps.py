"""How samples of rows find their slots: the locators of `from_facts.cuh`, as numbers and tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.histogram.binning import Binning
from kernels.histogram.guess import key_of, steps_of
from kernels.histogram.integer_maps import Clamps, fixed_map, narrow_map, shift_map
from kernels.histogram.launch import CLAMPED, KEY_TYPES, STEP_COPIES
from kernels.histogram.lookup import LookupTable, cut_table
from kernels.histogram.step_map import step_map

MOST_MAPS = 4096  # with tables of their own, each of at most a block's memory
CELLS_PER_THRESHOLD = (8, 4, 2, 1)
SECTOR = 32  # bytes: a block should hold the tables and counters of as many rows that take turns


@dataclass(frozen=True)
class RowMaps:
    """The maps of rows, one for all or one for each.

    Attributes
    ----------
    locate
        Template argument of the kernels.
    facts : int64 array, shape (maps, numbers)
    tables : uint64 array, shape (maps, words)
        For shared memory.
    slot_of : uint32 array, shape (maps, counters)
        Slot of each counter.
    """

    locate: str
    facts: NDArray[np.int64]
    tables: NDArray[np.uint64]
    slot_of: NDArray[np.uint32]

    @property
    def counters(self) -> int:
        """Of a row."""
        return int(self.slot_of.shape[1])


def row_maps(binnings: Sequence[Binning], rows: int, shared_per_block: int) -> RowMaps | None:
    """The maps of rows with these binnings, of one dtype and with as many slots; one of them is for all rows.

    None if their tables need more memory than a block has, or too much in all. So many counters of each slot as `rows`
    should fit, too.
    """
    binning = binnings[0]
    if binning.dtype.itemsize == 1:
        return _made("Value", [[0]] * len(binnings), [one.slot_of_pattern for one in binnings])
    if len(binnings) == 1 and (simple := _simple(binning, rows, shared_per_block)) is not None:
        return simple
    return _searched(binnings, shared_per_block)


def _simple(binning: Binning, rows: int, shared_per_block: int) -> RowMaps | None:
    """The map of evenly spaced edges."""
    key = KEY_TYPES[key_of(binning.dtype).str[1:]]
    numbers: tuple[Any, ...]
    if binning.dtype.kind in "iu":
        if binning.dtype.itemsize == 2 and (narrow := narrow_map(binning)):
            numbers = narrow.low, narrow.last, narrow.beyond, narrow.scale, narrow.offset, narrow.fraction
            return _made("Narrow", [numbers], [narrow.slot_of])
        if shifted := shift_map(binning):
            unit = str(shifted.shift == 0).lower()
            numbers = *_clamps(binning, shifted.clamps), shifted.base, shifted.shift
            return _made(f"Shift<{key}, {unit}>", [numbers], [_clamped_slots(binning, shifted.clamps)])
        if fixed := fixed_map(binning):
            numbers = *_clamps(binning, fixed.clamps), fixed.scale, fixed.offset, fixed.fraction
            return _made(f"Linear<{key}>", [numbers], [_clamped_slots(binning, fixed.clamps)])
    if binning.regular and (line := step_map(binning)):
        most = len(line.steps) - 1
        room = max(shared_per_block - 4 * (most + 2) * rows, shared_per_block // 4)
        copies = max([copies for copies in STEP_COPIES if copies * line.steps.nbytes <= room], default=1)
        numbers = _bits(line.guess.start), _bits(line.guess.scale), line.least, most, copies
        return _made(f"Stepped<{key}>", [numbers], [np.arange(most + 2)], [_words(np.repeat(line.steps, copies))])
    return None


def _searched(binnings: Sequence[Binning], shared_per_block: int) -> RowMaps | None:
    if len(binnings) > MOST_MAPS:
        return None
    key = key_of(binnings[0].dtype)
    stepped = [steps_of(binning.thresholds) for binning in binnings]
    keys = [binning.thresholds.astype(key) for binning in binnings]
    most = max(len(steps) for steps, _ in stepped) - 1
    steps = np.array([np.pad(steps, (0, most + 1 - len(steps)), "edge") for steps, _ in stepped])
    rows = SECTOR // binnings[0].dtype.itemsize if len(binnings) > 1 else 1
    for of_threshold in CELLS_PER_THRESHOLD:
        cells = 2 ** max(8, (of_threshold * most).bit_length() - 1)
        tables = _lookups(keys, [least for _, least in stepped], cells)
        entry = tables[0].entries.dtype
        longest = max(len(table.entries) for table in tables)
        taken = (most + 1) * key.itemsize + longest * entry.itemsize + 4 * (most + 2)
        if rows * taken <= shared_per_block * 3 // 4:
            break
    if any(table.entries.dtype != entry for table in tables) or taken > shared_per_block:
        return None
    entries = np.array([np.pad(table.entries, (0, longest - len(table.entries)), "edge") for table in tables])
    held = _words(steps)
    facts = [
        (_bits(table.guess.start), _bits(table.guess.scale), len(table.entries), held.shape[1]) for table in tables
    ]
    of_map = f"{'ByBits' if tables[0].by_bits else 'ByValue'}<{KEY_TYPES[key.str[1:]]}>"
    locate = f"Searched<{KEY_TYPES[key.str[1:]]}, {of_map}, u{8 * entry.itemsize}>"
    words = np.concatenate((held, _words(entries)), axis=1)
    return _made(locate, facts, [np.arange(most + 2)] * len(binnings), words)


def _lookups(keys: Sequence[NDArray[Any]], least: Sequence[int], cells: int) -> list[LookupTable]:
    """Tables that all divide values, or all ranks, whichever spreads the thresholds better."""
    kinds = (False, True) if keys[0].dtype.kind == "f" else (False,)
    choices = [
        [cut_table(of_row, first, cells, by_bits) for of_row, first in zip(keys, least, strict=True)]
        for by_bits in kinds
    ]  # fmt: skip
    return min(choices, key=lambda tables: sum(table.crowd for table in tables))


def _made(
    locate: str, facts: Sequence[Sequence[Any]], slot_of: Sequence[NDArray[Any]],
    tables: NDArray[np.uint64] | Sequence[NDArray[np.uint64]] = (),
) -> RowMaps:  # fmt: skip
    words = np.array(tables, np.uint64) if len(tables) else np.zeros((len(facts), 1), np.uint64)
    numbers = np.array([[int(number) % 2**64 for number in of_row] for of_row in facts], np.uint64)
    return RowMaps(locate, numbers.view(np.int64), words.reshape(len(facts), -1), np.array(slot_of, np.uint32))


def _bits(number: Any) -> int:
    """A float by its bits, an integer as it is."""
    return int(number.view(f"i{number.itemsize}")) if number.dtype.kind == "f" else int(number)


def _words(values: NDArray[Any]) -> NDArray[np.uint64]:
    """Rows of values in whole words, shape (rows, words); the last word may have zeros."""
    lines = np.atleast_2d(values)
    missing = -lines.shape[1] * lines.itemsize % 8 // lines.itemsize
    return np.ascontiguousarray(np.pad(lines, ((0, 0), (0, missing)))).view(np.uint64)


def _clamps(binning: Binning, clamps: Clamps) -> tuple[int, int, int]:
    return clamps.low, clamps.last, min(clamps.beyond, int(np.iinfo(key_of(binning.dtype)).max))


def _clamped_slots(binning: Binning, clamps: Clamps) -> NDArray[np.int64]:
    """Clamped in locate.cuh."""
    slots = np.arange(binning.bins + CLAMPED) + clamps.skipped
    return np.minimum(slots - (slots > clamps.bins), binning.slots - 1)
