"""Histograms of rows on a GPU: rows that take turns, and rows that follow each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.histogram import rows as of_rows
from kernels.histogram.binning import Binning
from kernels.histogram.row_maps import RowMaps
from tests.cases.rows_small import MAPS, THIRDS, UNEVEN, per_row, runs, turns
from tests.cases.sizes import ON_GPU, sizes

ROWS = (1, 2, 3, 7, 16, 31, 32, 33, 384, 1000, 5000)
CASES = [(dtype, edges, regular) for _, dtypes, edges, regular in MAPS for dtype in dtypes]


@pytest.mark.gpu
@pytest.mark.parametrize("rows", ROWS)
def test_turns_of_any_number(cp: Any, rows: int) -> None:
    """Whole and part turns, arrays that begin anywhere, any first row."""
    for number, size in enumerate(sizes(1, 31, 1025, 4999, 1_000_003)):
        dtype, edges, regular = CASES[(rows + 5 * number) % len(CASES)]
        turns(cp, dtype, edges, regular, rows, size, start=number % 4, first=(7 * number) % rows)


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [2, 3, 16, 33, 384])
@pytest.mark.parametrize("dtype", ["int8", "int16", "float16", "int32", "uint64", "float32", "float64"])
def test_each_turn_has_edges_of_its_own(cp: Any, dtype: str, rows: int) -> None:
    turns(cp, dtype, per_row(rows), False, rows, sizes(3001, 300_007)[-1], start=1, first=rows - 1)


@pytest.mark.gpu
@pytest.mark.parametrize("shared", [2**11, 2**13])
@pytest.mark.parametrize("rows", [16, 33, 96])
def test_turns_in_slices(cp: Any, rows: int, shared: int) -> None:
    """Blocks that have room for the counters of a few rows, or of one."""
    for dtype, edges, regular in CASES:
        if np.dtype(dtype).itemsize > 1:
            turns(cp, dtype, edges, regular, rows, 2003, start=1, first=5, shared=shared)
    turns(cp, "uint8", THIRDS, True, rows, 2003, start=1, first=5, shared=2**11)
    turns(cp, "float32", per_row(rows), False, rows, 2003, start=1, first=5, shared=2**13)


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "edges", "regular"), CASES)
def test_runs_of_any_length(cp: Any, dtype: str, edges: Any, regular: bool) -> None:
    for start, lengths in enumerate(((1,) * 70, (0, 5, 0, 0, 2000, 1, 0), (1000,) * 5, (3,), (33, 4099, 2, 17))):
        runs(cp, dtype, edges, regular, lengths, start)
    runs(cp, dtype, edges, regular, (sizes(4999, 1_000_003)[-1], 7))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32", "int64"])
def test_each_run_has_edges_of_its_own(cp: Any, dtype: str) -> None:
    for lengths in ((100, 3, 2000), (1,) * 40, (0, 700, 0)):
        runs(cp, dtype, per_row(len(lengths)), False, lengths, 1)


@pytest.mark.gpu
def test_a_part_of_the_rows_with_edges_of_their_own(cp: Any) -> None:
    """`row` says which of the binnings is that of the first row."""
    edges = per_row(9)
    binnings = tuple(Binning(np.dtype(np.float32), line, False) for line in edges)
    samples = np.random.default_rng(0).uniform(-5, 200, 1200).astype(np.float32)
    by_turns = of_rows.histogram_turns(cp.asarray(samples), binnings, 4, 1, 3).get()
    by_runs = of_rows.histogram_runs(cp.asarray(samples), binnings, np.array([0, 700, 700, 1200]), 5).get()
    for row in range(4):
        counts = np.histogram(samples[(row - 1) % 4 :: 4], edges[3 + row])[0]
        np.testing.assert_array_equal(by_turns[row][1:-2], counts)
    for run, part in enumerate((samples[:700], samples[:0], samples[700:])):
        np.testing.assert_array_equal(by_runs[run][1:-2], np.histogram(part, edges[5 + run])[0])


@pytest.mark.gpu
@pytest.mark.parametrize("edges", [np.linspace(0, 1000, 60_001), UNEVEN + np.arange(41)])
def test_counters_that_do_not_fit_are_left_to_others(cp: Any, edges: Any) -> None:
    samples = cp.asarray(np.arange(99, dtype=np.int32))
    binnings = (Binning(np.dtype(np.int32), edges, len(edges) > 100),)
    fits = len(edges) < 100
    assert (of_rows.histogram_turns(samples, binnings, 3, 0) is not None) == fits
    assert (of_rows.histogram_runs(samples, binnings, np.array([0, 99])) is not None) == fits
    assert of_rows.histogram_turns(samples[:0], binnings, 3, 0) is None


@pytest.mark.gpu
def test_wrong_arrays_are_refused(cp: Any) -> None:
    binnings = (Binning(np.dtype(np.int32), THIRDS, True),)
    bounds = np.array([0, 6])
    for call in (
        lambda a: of_rows.histogram_turns(a, binnings, 2, 0),
        lambda a: of_rows.histogram_runs(a, binnings, bounds),
    ):
        with pytest.raises(ValueError, match="dimension"):
            call(cp.asarray(np.zeros((2, 3), np.int32)))
        with pytest.raises(TypeError, match="expected int32"):
            call(cp.asarray(np.zeros(6, np.int64)))
        with pytest.raises(ValueError, match="C-contiguous"):
            call(cp.asarray(np.zeros(12, np.int32))[::2])


@settings(deadline=None)
@given(
    rows=st.integers(1, 9000),
    itemsize=st.sampled_from([1, 2, 4, 8]),
    counters=st.integers(4, 60_000),
    words=st.integers(1, 5000),
    maps=st.sampled_from([1, 2]),
    available=st.sampled_from([2**16, 99 * 2**10, 232448]),
)
def test_layouts_fit(rows: int, itemsize: int, counters: int, words: int, maps: int, available: int) -> None:
    """Counters and tables fit a block, and so do the packs of a turn."""
    facts = np.zeros((maps, 1), np.int64)
    of_rows_maps = RowMaps("", facts, np.zeros((maps, words), np.uint64), np.zeros((maps, counters), np.uint32))
    one_fits = 4 * counters + 8 * words <= available
    threads, copies, shared = of_rows.run_layout(1000.0, itemsize, of_rows_maps, available)
    assert (copies > 0) == one_fits and 64 <= threads <= 1024
    assert shared == (8 * words + 4 * counters * copies if one_fits else 0) and shared <= available
    layout = of_rows.turn_layout(rows, itemsize, of_rows_maps, available)
    assert (layout is not None) == one_fits
    if layout is None:
        return
    tables = 8 * words * (layout.width if maps > 1 else 1)
    assert layout.shared == tables + 4 * counters * layout.pitch <= available
    assert layout.pitch >= layout.copies * layout.width and layout.pack * itemsize <= 16
    assert layout.turn % layout.pack == 0 and layout.turn % rows == 0
    if layout.width < rows:
        assert layout.turn == rows and layout.width % layout.pack == 0
    across = layout.turn if layout.width >= rows else layout.width
    assert 1 <= across // layout.pack <= 1024


@pytest.mark.skipif(not ON_GPU, reason="needs a GPU's speed")
@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "rows", "bins"), [("int16", 16, 1024), ("int16", 384, 1024), ("float32", 4, 1000)])
def test_large_turns(cp: Any, dtype: str, rows: int, bins: int) -> None:
    turns(cp, dtype, np.linspace(0, 1024, bins + 1), True, rows, 3_000_017, start=1, first=rows - 1)
