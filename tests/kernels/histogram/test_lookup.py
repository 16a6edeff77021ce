"""Lookup tables: the entry of every cell, against a count of its thresholds one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kernels.histogram.binning import MAX_BINS, Binning
from kernels.histogram.guess import key_of, steps_of
from kernels.histogram.lookup import NARROW, LookupTable, lookup_table, ordered_bits
from tests.cases.histogram import EDGES, beside, irregular, nasty

KEYED = ("int16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64")


def table_of(binning: Binning, cells: int) -> LookupTable:
    steps, least = steps_of(binning.thresholds)
    return lookup_table(binning.thresholds.astype(steps.dtype), least, cells)


def located(x: Any, entry: int, end: int, bits: int, steps: list[Any]) -> int:
    """As `Cells` in locate.cuh: how many thresholds a sample has passed, or one less, by the entry of its cell."""
    crowded, many = 2 ** (bits - 1), 2 ** (bits - 2)
    before = entry % many
    if entry < crowded:
        return before
    if not entry & many:
        return before + bool(x > steps[before])
    low, high = before, end % many
    if x != x:
        return high
    while high - low > 1:
        middle = (low + high - 1) // 2
        if x <= steps[middle]:
            high = middle
        else:
            low = middle + 1
    return low


def assert_finds(binning: Binning, samples: NDArray[Any], cells: int) -> LookupTable:
    """With one more comparison every sample gets its slot; entries have no more in a cell than they say."""
    table = table_of(binning, cells)
    steps, least = steps_of(binning.thresholds)
    entries, bits = table.entries.tolist(), 8 * table.entries.itemsize
    assert bits == (16 if len(binning.thresholds) < NARROW else 32)
    assert 1 + 3 <= len(entries) <= cells + 3
    assert (np.diff(table.entries % 2 ** (bits - 2)) >= 0).all()
    assert entries[-1] == len(binning.thresholds)
    keys = samples.astype(steps.dtype)
    places = ordered_bits(keys) if table.by_bits else keys
    numbers = keys == keys
    positions = np.minimum(table.guess.positions(places[numbers]), len(entries) - 3)
    cell = np.full(len(keys), len(entries) - 2)  # that of NaN
    cell[numbers] = positions + 1
    slots = np.full(len(keys), binning.bins + 2)
    slots[numbers] = binning.find(samples[numbers])
    for x, at, slot in zip(keys.tolist(), cell.tolist(), slots.tolist(), strict=True):
        guess = located(x, entries[at], entries[at + 1], bits, steps)
        assert least <= guess < len(steps)
        assert guess + (not x <= steps[guess]) == slot, (x, at)
    return table


@pytest.mark.parametrize("name", EDGES)
@pytest.mark.parametrize("dtype", KEYED)
def test_entries_find_every_sample(dtype: str, name: str) -> None:
    edges = np.asarray(EDGES[name][0], np.float64)
    binning = Binning(np.dtype(dtype), edges, False)
    with np.errstate(invalid="ignore"):
        samples = np.concatenate((nasty(dtype, 500, edges), beside(binning)))
    for cells in (1, 7, 256, 8192):
        assert_finds(binning, samples, cells)


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_entries_find_samples_beside_any_edges(data: st.DataObject) -> None:
    """Edges at any floats, some of them next to each other, some beyond the dtype."""
    dtype = data.draw(st.sampled_from(KEYED))
    finite = st.floats(allow_nan=False, allow_infinity=False, width=data.draw(st.sampled_from((32, 64))))
    some = np.array(data.draw(st.lists(finite, min_size=1, max_size=30)))
    with np.errstate(all="ignore"):
        near = [np.nextafter(some, way) for way in (-np.inf, np.inf)]
        edges = np.concatenate((some, near[1], some.astype(np.float32), some + 1e-3))
    edges = np.unique(edges[np.isfinite(edges)])
    binning = Binning(np.dtype(dtype), edges, False)
    samples = beside(binning)
    if binning.dtype.kind == "f":
        samples = np.append(samples, binning.dtype.type(np.nan))
    assert_finds(binning, samples, data.draw(st.sampled_from((2, 64, 1024))))


def test_crowded_cells() -> None:
    """None or one in a cell, two, three, and many beside numbers that are far away."""
    base = 2.0 ** np.arange(10, 15)
    for number, marks in ((1, {0}), (2, {0, 2}), (3, {0, 2, 3}), (40, {0, 2, 3})):
        edges = np.unique((base[:, None] + np.arange(number) / 64).ravel())
        table = assert_finds(Binning(np.dtype(np.float32), edges, False), edges.astype(np.float32), 64)
        assert set((table.entries[:-1] >> 14).tolist()) <= marks
        assert number == 1 or max(table.entries >> 14) == max(marks)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_nan_and_infinity_beyond_the_last_cell(dtype: str) -> None:
    """Thresholds at infinity are in the cell of NaN: it passes all of them, the largest finite number passes none."""
    most = float(np.finfo(dtype).max)
    last = [most] if dtype == "float64" else [1.5 * most, 2 * most, 3 * most]
    for finite in (np.arange(40.0), np.geomspace(1e-4, 1e4, 40)):
        binning = Binning(np.dtype(dtype), np.append(finite, last), False)
        assert np.isinf(binning.thresholds[-len(last) :]).all()
        samples = np.array([np.nan, np.inf, -np.inf, most, -most, 0, -0.0, 39, 40], dtype)
        for cells in (1, 256):
            table = assert_finds(binning, samples, cells)
            assert table.entries[-2] >> 14 == 3


def test_entries_of_four_bytes() -> None:
    """From so many thresholds on that a narrow entry has no room for them."""
    for count, size in ((NARROW - 1, 2), (NARROW, 4), (2**15 + 1, 4)):
        binning = Binning(np.dtype(np.float32), np.arange(float(count)), False)
        samples = np.random.default_rng(0).uniform(-5, count + 5, 300).astype(np.float32)
        table = assert_finds(binning, samples, 4096)
        assert table.entries.itemsize == size and table.entries[-1] == count
    assert MAX_BINS + 1 < 2 ** (8 * 4 - 2)


def test_bits_are_chosen_where_edges_are_of_every_magnitude() -> None:
    for dtype in ("float32", "float64"):
        kind = np.dtype(dtype)
        assert table_of(Binning(kind, np.geomspace(1e-30, 1e30, 1001), False), 8192).by_bits
        table = table_of(Binning(kind, irregular(1, 1024, 0, 1024), False), 32768)
        assert not table.by_bits
        assert table.crowd < 1.1 * 1025  # nearly every threshold has a cell of its own


def test_bits_are_in_the_order_of_the_numbers() -> None:
    for dtype in ("float32", "float64"):
        info = np.finfo(dtype)
        rising = [-np.inf, -info.max, -1.0, -info.tiny, -info.smallest_subnormal, 0.0, info.smallest_subnormal, 1.0]
        bits = ordered_bits(np.array([*rising, info.max, np.inf], dtype))
        assert (np.diff(bits.astype(object)) > 0).all()
        assert ordered_bits(np.array([-0.0], dtype)) == ordered_bits(np.array([0.0], dtype))


def test_each_integer_has_its_cell_where_there_are_few() -> None:
    """Then no cell is crowded, however close thresholds are, and no comparison changes the slot."""
    for dtype in ("int32", "uint64", "int16"):
        edges = np.array([0.0, 1, 2, 2.5, 7, 7.25, 7.5, 100])
        binning = Binning(np.dtype(dtype), edges, False)
        table = assert_finds(binning, beside(binning), 256)
        assert not (table.entries >> 14).any()
        assert key_of(binning.dtype) == table.guess.start.dtype


def test_nothing_to_reach() -> None:
    for dtype in ("int32", "uint64"):
        table = table_of(Binning(np.dtype(dtype), np.array([1e300, 2e300]), False), 256)
        assert not table.entries.any() and len(table.entries) <= 256 + 3
