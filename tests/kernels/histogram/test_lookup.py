"""Lookup tables: the entry of every cell, against a count of its thresholds one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kernels.histogram.binning import Binning
from kernels.histogram.linear_map import KEYS
from kernels.histogram.lookup import FIRST_BITS, lookup_table, ordered_bits
from tests.cases.histogram import EDGES, irregular, nasty

KEYED = ("int16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64")


def keys_of(dtype: str, edges: Any) -> NDArray[Any]:
    return Binning(np.dtype(dtype), np.asarray(edges, np.float64), False).thresholds.astype(KEYS.get(dtype, dtype))


def assert_brackets(keys: NDArray[Any], samples: NDArray[Any], cells: int) -> None:
    """The number of thresholds that a sample reaches is always one that the entry of its cell allows."""
    table = lookup_table(keys, cells)
    assert 3 <= len(table.cells) <= max(1, cells) + 2
    places = ordered_bits(samples) if table.by_bits else samples
    line, last = table.line, len(table.cells) - 1
    if places.dtype.kind == "f":
        positions = line.positions(places)
        on_line = (positions >= 0) & (positions <= int(line.reach)) & (places == places)
        before = places < line.start
    else:
        far = np.array([int(place) - int(line.start) for place in places.tolist()], object)
        on_line, before = (np.array(some, bool) for some in ((far >= 0) & (far <= int(line.reach)), far < 0))
        positions = line.positions(np.where(on_line, places, line.start).astype(places.dtype))
    entries = table.cells[np.where(on_line, positions + 1, np.where(before, 0, last))]
    first, inside = entries & (2**FIRST_BITS - 1), entries >> FIRST_BITS
    anything = inside == 2 ** (32 - FIRST_BITS) - 1  # all thresholds are searched
    reached = np.searchsorted(keys, samples, side="right")
    assert (anything | (first <= reached) & (reached <= first + inside)).all()
    assert (anything | (samples == samples)).all()


@pytest.mark.parametrize("name", EDGES)
@pytest.mark.parametrize("dtype", KEYED)
def test_entries_bracket_every_sample(dtype: str, name: str) -> None:
    edges = np.asarray(EDGES[name][0], np.float64)
    keys = keys_of(dtype, edges)
    with np.errstate(invalid="ignore"):
        samples = np.concatenate((nasty(dtype, 3000, edges).astype(keys.dtype), keys))
    for cells in (1, 7, 256, 8192):
        assert_brackets(keys, samples, cells)


@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_entries_bracket_samples_beside_any_edges(data: st.DataObject) -> None:
    """Edges at any floats, some of them next to each other."""
    dtype = data.draw(st.sampled_from(("float32", "float64")))
    width = int(dtype[5:])
    finite = st.floats(allow_nan=False, allow_infinity=False, width=width)  # type: ignore[arg-type]
    some = np.array(data.draw(st.lists(finite, min_size=1, max_size=30)), dtype)
    with np.errstate(all="ignore"):
        near = [np.nextafter(some, some.dtype.type(way)) for way in (-np.inf, np.inf)]
    keys = np.unique(np.concatenate((some, near[1])))
    assert_brackets(keys, np.concatenate((some, *near)), data.draw(st.sampled_from((2, 64, 1024))))


def test_bits_are_chosen_where_edges_are_of_every_magnitude() -> None:
    for dtype in ("float32", "float64"):
        assert lookup_table(keys_of(dtype, np.geomspace(1e-30, 1e30, 1001)), 8192).by_bits
        table = lookup_table(keys_of(dtype, irregular(1, 1024, 0, 1024)), 8192)
        assert not table.by_bits
        assert table.crowd < 1.5  # nearly every threshold has a cell of its own


def test_bits_are_in_the_order_of_the_numbers() -> None:
    for dtype in ("float32", "float64"):
        info = np.finfo(dtype)
        rising = [-np.inf, -info.max, -1.0, -info.tiny, -info.smallest_subnormal, 0.0, info.smallest_subnormal, 1.0]
        bits = ordered_bits(np.array([*rising, info.max, np.inf], dtype))
        assert (np.diff(bits.astype(object)) > 0).all()
        assert ordered_bits(np.array([-0.0], dtype)) == ordered_bits(np.array([0.0], dtype))


def test_nothing_to_reach() -> None:
    for dtype in ("int32", "uint64"):
        table = lookup_table(keys_of(dtype, [1e300, 2e300]), 256)
        assert table.cells.tolist() == [0, 0, (2 ** (32 - FIRST_BITS) - 1) << FIRST_BITS]
