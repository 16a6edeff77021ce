"""Maps of integers to counters, replayed in Python integers: each sample in its slot."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.histogram.binning import Binning
from kernels.histogram.guess import key_of
from kernels.histogram.integer_maps import Clamps, FixedMap, ShiftMap, fixed_map, narrow_map, shift_map
from kernels.histogram.launch import CLAMPED
from tests.cases.histogram import EDGES, GUESSED, beside, nasty
from workflows.histogram import HistogramOptions

INTEGERS = ("int16", "uint16", "int32", "uint32", "int64", "uint64")


def bits_of(dtype: str) -> int:
    return 8 * key_of(np.dtype(dtype)).itemsize


def clamped(x: int, clamps: Clamps, dtype: str) -> int:
    """As `Clamped` in locate.cuh, with the argument that the wrapper passes for `beyond`."""
    most = int(np.iinfo(key_of(np.dtype(dtype))).max)
    return min(clamps.beyond, most) if x > clamps.last else max(x, clamps.low)


def slot_of(counter: int, clamps: Clamps) -> int:
    counter += clamps.skipped
    return counter - (counter > clamps.bins)


def shifted(x: int, line: ShiftMap, dtype: str) -> int:
    """As `Shift` in locate.cuh."""
    modulus, clamps = 2 ** bits_of(dtype), line.clamps
    if line.shift == 0:
        beyond = min(clamps.beyond, int(np.iinfo(key_of(np.dtype(dtype))).max))
        return min((max(x, clamps.low) - clamps.low) % modulus, (beyond - clamps.low) % modulus) % 2**32
    return ((clamped(x, clamps, dtype) - line.base) % modulus >> line.shift) % 2**32


def fixed(x: int, line: FixedMap, dtype: str) -> int:
    """As `Linear` in locate.cuh."""
    far = (clamped(x, line.clamps, dtype) - line.clamps.low) % 2**32
    return (far * line.scale + line.offset) % 2**64 >> 32 >> line.fraction


def assert_in_their_slots(binning: Binning, samples: list[int], line: ShiftMap | FixedMap) -> None:
    dtype = binning.dtype.name
    slots = binning.find(np.array(samples, binning.dtype)).tolist()
    for x, slot in zip(samples, slots, strict=True):
        counter = shifted(x, line, dtype) if isinstance(line, ShiftMap) else fixed(x, line, dtype)
        assert 0 <= counter < binning.bins + CLAMPED, (dtype, x)
        assert slot_of(counter, line.clamps) == slot, (dtype, x, binning.edges[:3])


def maps(binning: Binning, size: int = 200) -> tuple[ShiftMap | None, FixedMap | None]:
    """Both maps, verified on samples beside every edge and anywhere."""
    samples = np.concatenate((beside(binning), nasty(binning.dtype, size, binning.edges))).tolist()
    lines = shift_map(binning), fixed_map(binning)
    for line in lines:
        if line is not None:
            assert_in_their_slots(binning, samples, line)
    return lines


@pytest.mark.parametrize("dtype", INTEGERS)
def test_counters_are_right_beside_every_edge(dtype: str) -> None:
    made = [0, 0]
    moved = [np.asarray(numbers, np.float64) + by for numbers, _ in EDGES.values() for by in (0, 0.5)]
    for edges in [*moved, *GUESSED.values()]:
        lines = maps(Binning(np.dtype(dtype), edges, True))
        made = [count + (line is not None) for count, line in zip(made, lines, strict=True)]
    assert made[0] >= 3
    assert made[1] > 10 if np.dtype(dtype).itemsize <= 4 else made[1] == 0


@settings(deadline=None, max_examples=200)
@given(
    dtype=st.sampled_from(INTEGERS),
    bins=st.integers(1, 70),
    shift=st.integers(0, 12),
    where=st.sampled_from(("bottom", "zero", "top")),
    by=st.integers(-80, 80),
    fraction=st.sampled_from((0.0, 0.25, 0.5, 0.999)),
)
def test_bins_of_powers_of_two(dtype: str, bins: int, shift: int, where: str, by: int, fraction: float) -> None:
    """At both ends of the dtype and beyond them; edges on samples and between them."""
    bounds = np.iinfo(dtype)
    start = {"bottom": int(bounds.min), "zero": 0, "top": int(bounds.max) - (bins << shift)}[where] + by - fraction
    edges = start + 2.0**shift * np.arange(bins + 1)
    if len(np.unique(edges)) == bins + 1:  # float64 tells them apart
        maps(Binning(np.dtype(dtype), edges, True), size=20)


@settings(deadline=None, max_examples=100)
@given(
    dtype=st.sampled_from(INTEGERS[:4]),
    bins=st.integers(1, 3000),
    lower=st.floats(-5e9, 5e9) | st.integers(-100, 100).map(float),
    width=st.floats(0.5, 5e9) | st.integers(1, 10**5).map(float),
)
def test_bins_of_any_width(dtype: str, bins: int, lower: float, width: float) -> None:
    try:
        binning = HistogramOptions(bins=bins, range=(lower, lower + width)).binning(np.dtype(dtype))
    except ValueError:
        return  # too many bins for so narrow a range
    maps(binning, size=20)


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint64"])
def test_bins_one_wide(dtype: str) -> None:
    """The upper edge is in the last bin if it is a sample; one between two samples leaves no sample there."""
    for lower in (100, 100.5, 99.5, 0, 0.5, -0.5, float(np.iinfo(dtype).min), float(np.iinfo(dtype).min) + 0.5):
        binning = Binning(np.dtype(dtype), lower + np.arange(11.0), True)
        line = shift_map(binning)
        if binning.shift is not None:
            assert line is not None and line.shift == 0
            start = int(binning.thresholds[0])
            least = max(start - 3, int(np.iinfo(dtype).min))
            assert_in_their_slots(binning, list(range(least, start + 15)), line)


@pytest.mark.parametrize("bins", [16, 1000, 1024, 4096, 65536])
def test_ordinary_bins_have_a_line(bins: int) -> None:
    """Integer widths, widths of a third, edges between integers: other kernels are slower."""
    for dtype in ("int32", "uint32"):
        for upper in (bins, 3 * bins, *((10 * bins // 3, bins + 0.5) if bins <= 4096 else ())):
            binning = HistogramOptions(bins=bins, range=(0, upper)).binning(np.dtype(dtype))
            assert any(maps(binning, size=20)), (dtype, upper)


@pytest.mark.parametrize("dtype", ["int16", "uint16"])
def test_narrow_line_counts_every_value_where_it_belongs(dtype: str) -> None:
    """All values, in Python integers."""
    mapped = 0
    moved = [
        np.asarray(numbers, np.float64) + move for numbers, regular in EDGES.values() if regular for move in (0, 0.5)
    ]
    for edges in [*moved, *GUESSED.values()]:
        binning = Binning(np.dtype(dtype), edges, True)
        line = narrow_map(binning)
        if line is None:
            continue
        mapped += 1
        bounds = np.iinfo(dtype)
        for value in range(int(bounds.min), int(bounds.max) + 1, 1 if mapped == 1 else 41):
            kept = (line.beyond if value > line.last else max(value, line.low)) % 2**32
            counter = (kept * int(line.scale) + int(line.offset)) % 2**32 >> line.fraction
            expected = np.searchsorted(binning.thresholds, binning.dtype.type(value), side="right")
            assert line.slot_of[counter] == expected, (value, edges[:3])
    assert mapped > 5
    assert narrow_map(HistogramOptions().binning(np.dtype(dtype))) is not None  # 1024 bins over [0, 1024)
