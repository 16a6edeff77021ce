"""The linear map of histogram_regular, replayed in NumPy: bins that it decides are right, and it decides most."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kernels.histogram.binning import Binning
from kernels.histogram.launch import C_TYPES
from kernels.histogram.linear_map import KEYS, RegularMap, narrow_map, regular_map
from tests.cases.histogram import EDGES, GUESSED
from workflows.histogram import HistogramOptions

WIDE = [dtype for dtype in C_TYPES if np.dtype(dtype).itemsize > 1]


def beside(binning: Binning) -> NDArray[Any]:
    """Every threshold, its neighbours on either side, and the ends of the dtype."""
    values = binning.thresholds
    if binning.dtype.kind == "f":
        ends = np.array([-np.inf, np.inf, 0.0, -0.0, np.nan], binning.dtype)
        with np.errstate(all="ignore"):
            near = [np.nextafter(values, binning.dtype.type(way)) for way in (-np.inf, np.inf)]
        return np.concatenate((values, *near, ends))
    low, high = np.iinfo(binning.dtype).min, np.iinfo(binning.dtype).max
    one = binning.dtype.type(1)
    ends = np.array([low, low + 1, high - 1, high], binning.dtype)
    return np.concatenate((values, values[values > low] - one, values[values < high] + one, ends))


def replay(binning: Binning, line_map: RegularMap, samples: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], Any]:
    """Samples within the map's range, the slots that the kernel chooses, and whether it is certain of them."""
    key = np.dtype(KEYS.get(binning.dtype.name, binning.dtype))
    keys, line = samples.astype(key), line_map.line
    if key.kind == "f":
        with np.errstate(invalid="ignore"):
            positions = line.positions(keys)
        on_line = (positions >= 0) & (positions <= int(line.reach)) & (keys == keys)
    else:
        far = np.array([int(value) - int(line.start) for value in keys.tolist()], object)
        on_line = np.array((far >= 0) & (far <= int(line.reach)), bool)
        positions = np.zeros(len(keys), np.int64)
        positions[on_line] = line.positions(keys[on_line])
    positions = positions[on_line]
    assert (positions < 2**32).all()
    inside = (positions + line_map.below) & ((1 << line_map.fraction) - 1)
    return samples[on_line], (positions >> line_map.fraction) + 1, inside >= line_map.uncertain


def assert_right(binning: Binning, samples: NDArray[Any]) -> RegularMap | None:
    line_map = regular_map(binning)
    if line_map is None:
        return None
    samples, slots, sure = replay(binning, line_map, samples)
    right = binning.find(samples)
    np.testing.assert_array_equal(slots[sure], right[sure])
    # Otherwise the kernel compares with one threshold: the slot is one of the two bins beside it.
    positions = (slots[~sure] - 1 << line_map.fraction) + 0
    key = np.dtype(KEYS.get(binning.dtype.name, binning.dtype))
    border = line_map.line.positions(samples[~sure].astype(key)) + line_map.below >> line_map.fraction
    assert positions.shape == border.shape
    assert np.isin(right[~sure] - border, (0, 1)).all()
    return line_map


@pytest.mark.parametrize("dtype", WIDE)
def test_positions_are_right_beside_every_edge(dtype: str) -> None:
    lines = 0
    cases = [numbers for numbers, regular in EDGES.values() if regular] + list(GUESSED.values())
    for numbers in cases:
        binning = Binning(np.dtype(dtype), np.asarray(numbers, np.float64), True)
        lines += assert_right(binning, beside(binning)) is not None
    assert lines > len(cases) // 5


@settings(deadline=None, max_examples=60)
@given(
    dtype=st.sampled_from(WIDE),
    bins=st.integers(1, 5000),
    lower=st.floats(-1e7, 1e7),
    width=st.floats(1e-3, 1e8),
    seed=st.integers(0, 2**32 - 1),
)
def test_positions_are_right(dtype: str, bins: int, lower: float, width: float, seed: int) -> None:
    try:
        binning = HistogramOptions(bins=bins, range=(lower, lower + width)).binning(np.dtype(dtype))
    except ValueError:
        return  # too many bins for so narrow a range
    values = np.random.default_rng(seed).uniform(lower, lower + width, 500)
    if binning.dtype.kind != "f":
        values = np.clip(values, float(np.iinfo(dtype).min), float(np.nextafter(float(np.iinfo(dtype).max), 0)))
    with np.errstate(all="ignore"):
        assert_right(binning, np.concatenate((values.astype(dtype), beside(binning))))


@pytest.mark.parametrize("dtype", [dtype for dtype in WIDE if dtype != "float16"])
@pytest.mark.parametrize("bins", [16, 1000, 1024, 4096])
def test_hardly_a_sample_is_looked_up(dtype: str, bins: int) -> None:
    """On ordinary data the map alone decides: integer widths, widths of a third, edges between integers."""
    for upper in (bins, 3 * bins, bins / 3 + 4096.5):
        binning = HistogramOptions(bins=bins, range=(0, upper)).binning(np.dtype(dtype))
        if binning.dtype.kind != "f" and upper < bins:
            continue  # more bins than integers
        line_map = regular_map(binning)
        if line_map is None:
            assert binning.shift is not None  # and needs no linear map
            continue
        samples = np.random.default_rng(0).uniform(0, upper, 10_000).astype(dtype)
        _, _, sure = replay(binning, line_map, samples)
        assert sure.mean() > (0.98 if dtype == "float32" else 1 - 1e-9)


@pytest.mark.parametrize("dtype", WIDE)
def test_positions_are_those_of_plain_arithmetic(dtype: str) -> None:
    """One by one, in Python integers and NumPy scalars."""
    binning = Binning(np.dtype(dtype), np.linspace(-700.3, 20_000.7, 1001), True)
    line_map = regular_map(binning)
    assert line_map is not None
    line = line_map.line
    keys = binning.thresholds.astype(KEYS.get(dtype, dtype))
    if keys.dtype.kind == "f":
        shift = int(line.offset) - 2 ** {4: 23, 8: 52}[keys.itemsize]
        expected = [math.floor((x - line.start) * line.scale) + shift for x in keys]
    elif keys.itemsize == 8:
        shift = int(line.offset) - 2**52
        expected = [math.floor(float(int(x) - int(line.start)) * float(line.scale)) + shift for x in keys]
    else:
        expected = [(int(x) - int(line.start)) * int(line.scale) + int(line.offset) >> 32 for x in keys]
    assert line.positions(keys).tolist() == expected
    assert line.start.dtype == keys.dtype


def test_no_line_where_it_says_nothing() -> None:
    """More bins than values, edges that float32 cannot distinguish, no value in range."""
    for dtype, edges in (
        ("int32", np.linspace(0, 10, 1001)),
        ("uint16", np.linspace(1e6, 2e6, 11)),
        ("float32", np.linspace(1e300, 2e300, 11)),
        ("float32", np.linspace(-1e300, 1e300, 12)),
        ("int8", np.linspace(-2e300, -1e300, 11)),
    ):
        assert regular_map(Binning(np.dtype(dtype), edges, True)) is None


@pytest.mark.parametrize("dtype", ["int16", "uint16"])
def test_narrow_line_counts_every_value_where_it_belongs(dtype: str) -> None:
    """All values, in Python integers."""
    mapped = 0
    shifted = [
        np.asarray(numbers, np.float64) + move for numbers, regular in EDGES.values() if regular for move in (0, 0.5)
    ]
    for edges in [*shifted, *GUESSED.values()]:
        binning = Binning(np.dtype(dtype), edges, True)
        line = narrow_map(binning)
        if line is None:
            continue
        mapped += 1
        bounds = np.iinfo(dtype)
        for value in range(int(bounds.min), int(bounds.max) + 1, 1 if mapped == 1 else 41):
            clamped = (line.beyond if value > line.last else max(value, line.low)) % 2**32
            counter = (clamped * int(line.scale) + int(line.offset)) % 2**32 >> line.fraction
            expected = np.searchsorted(binning.thresholds, binning.dtype.type(value), side="right")
            assert line.slot_of[counter] == expected, (value, edges[:3])
    assert mapped > 5
    assert narrow_map(HistogramOptions().binning(np.dtype(dtype))) is not None  # 1024 bins over [0, 1024)
