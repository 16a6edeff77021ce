"""Thresholds, shift, slots of patterns and slots of samples against definitions in plain Python numbers."""

from __future__ import annotations

import math
import struct
from bisect import bisect_right
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.histogram.binning import Binning

INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
FLOATS = ("float16", "float32", "float64")
DTYPES = INTEGERS + FLOATS
PATTERNS = {"float16": ("e", "H"), "float32": ("f", "I"), "float64": ("d", "Q")}  # format characters of struct
HUGE = float(np.finfo(np.float64).max)
TINY = float(np.nextafter(0.0, 1.0))

few = settings(max_examples=25, deadline=None)
many = settings(max_examples=80, deadline=None)


def binning(dtype: str, edges: Sequence[float], regular: bool = False) -> Binning:
    return Binning(np.dtype(dtype), np.array(edges, np.float64), regular)


def below(value: float, dtype: str) -> float | None:
    """The preceding value of the dtype; None if there is none."""
    if dtype in INTEGERS:
        return int(value) - 1 if value > np.iinfo(dtype).min else None
    if value == -math.inf:
        return None
    number, pattern = PATTERNS[dtype]
    (bits,) = struct.unpack(pattern, struct.pack(number, abs(value)))
    # The patterns of positive numbers are in the order of the numbers.
    (beside,) = struct.unpack(number, struct.pack(pattern, bits - 1 if value > 0 else bits + 1))
    return float(beside if value > 0 else -beside)


def assert_thresholds(dtype: str, edges: Sequence[float]) -> None:
    """Each threshold reaches its edge and the value before it does not; Python's float() rounds as IEEE 754 says."""
    got = binning(dtype, edges).thresholds
    assert got.dtype == np.dtype(dtype)
    targets = [*map(float, edges[:-1]), math.nextafter(edges[-1], math.inf)]
    largest = float(int(np.iinfo(dtype).max)) if dtype in INTEGERS else math.inf
    assert len(got) == sum(target <= largest for target in targets)
    for threshold, target in zip(got.tolist(), targets, strict=False):
        before = below(threshold, dtype)
        assert float(threshold) >= target, (dtype, threshold, target)
        assert before is None or float(before) < target, (dtype, threshold, target)


def slot(value: float, edges: Sequence[float]) -> int:
    """Where the definition puts a value: half-open bins, but the last edge belongs to the last bin."""
    place = float(value)
    return len(edges) - 1 if place == edges[-1] else bisect_right(edges, place)


def numbers(dtype: str) -> st.SearchStrategy[float]:
    """Any value of a dtype except NaN, as a Python number."""
    if dtype in INTEGERS:
        bounds = np.iinfo(dtype)
        return st.integers(int(bounds.min), int(bounds.max))
    return st.floats(allow_nan=False, width=int(dtype[5:]))  # type: ignore[arg-type]


def edge_lists(dtype: str) -> st.SearchStrategy[list[float]]:
    """Ascending float64 edges: anywhere, or on values of the dtype and one ulp beside them."""
    on_values = numbers(dtype).map(float).filter(math.isfinite)
    beside = on_values.map(lambda edge: math.nextafter(edge, math.inf))
    under = on_values.map(lambda edge: math.nextafter(edge, -math.inf))
    one = st.one_of(on_values, beside, under, st.floats(allow_nan=False, allow_infinity=False)).filter(math.isfinite)
    # -0.0 and 0.0 are one number, so a set keeps only one of them.
    return st.sets(one, min_size=2, max_size=12).map(sorted)


@pytest.mark.parametrize("dtype", DTYPES)
@few
@given(data=st.data())
def test_thresholds_are_the_smallest_that_reach(dtype: str, data: st.DataObject) -> None:
    assert_thresholds(dtype, data.draw(edge_lists(dtype)))


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
@many
@given(data=st.data())
def test_thresholds_where_float64_skips_integers(dtype: str, data: st.DataObject) -> None:
    """Beyond 2**53 an integer lies between two float64 and rounds to the nearer, ties to even."""
    exponent = data.draw(st.integers(53, 63 if dtype == "int64" else 64))
    start = data.draw(st.integers(2**53 - 4, 2**53 + 4)) * 2 ** (exponent - 53)
    sign = data.draw(st.sampled_from((1, -1))) if dtype == "int64" else 1
    steps = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=6))
    edges = [float(sign * start)]
    for step in steps:
        for _ in range(step):
            edges.append(math.nextafter(edges[-1], math.inf))
        del edges[-step:-1]
    assert_thresholds(dtype, edges)


def test_thresholds_at_ties() -> None:
    """2**53 + 1 rounds down to even, 2**53 + 3 rounds up to even: worked by hand."""
    edges = [2.0**53, 2.0**53 + 2, 2.0**53 + 4, 2.0**53 + 6]
    for dtype in ("int64", "uint64"):
        expected = [2**53, 2**53 + 2, 2**53 + 3, 2**53 + 7]
        assert binning(dtype, edges).thresholds.tolist() == expected
    assert binning("int64", [-(2.0**53) - 4, -(2.0**53) - 2, 0]).thresholds.tolist() == [-(2**53) - 5, -(2**53) - 2, 1]


def test_thresholds_at_the_end_of_64_bits() -> None:
    """float64 has no 2**63 - 1: the integers from 2**63 - 512 on round to 2**63, and -2**63 itself is exact."""
    assert binning("int64", [-(2.0**63), 2.0**63]).thresholds.tolist() == [-(2**63)]
    assert binning("int64", [0.0, 2.0**63, 2.0**64]).thresholds.tolist() == [0, 2**63 - 512]
    assert binning("uint64", [0.0, 2.0**63, 2.0**64]).thresholds.tolist() == [0, 2**63 - 512]
    assert binning("uint64", [0.0, 2.0**64, 2.0**65]).thresholds.tolist() == [0, 2**64 - 1024]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_thresholds_at_the_end_of_integers(dtype: str) -> None:
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    around = {float(end) + step for end in (low, high) for step in (-2, -1, -0.5, 0, 0.5, 1, 2)}
    ends = {math.nextafter(float(end), way) for end in (low, high) for way in (-math.inf, math.inf)}
    ordered = sorted(around | ends)
    assert_thresholds(dtype, ordered)
    for first, last in pairwise(ordered):
        assert_thresholds(dtype, [first, last])


@pytest.mark.parametrize("dtype", DTYPES)
def test_thresholds_of_edges_out_of_reach(dtype: str) -> None:
    assert_thresholds(dtype, [-HUGE, HUGE])
    assert_thresholds(dtype, [-HUGE, -1e300, 1e300])
    assert_thresholds(dtype, [1e300, 2e300])
    assert_thresholds(dtype, [-2e300, -1e300])
    if dtype in INTEGERS:
        assert binning(dtype, [1e300, 2e300]).thresholds.size == 0
        # Every sample is above the edges: all of them, the last one too, are reached by the smallest.
        assert binning(dtype, [-2e300, -1e300]).thresholds.tolist() == [int(np.iinfo(dtype).min)] * 2


@pytest.mark.parametrize("dtype", FLOATS)
def test_thresholds_at_special_floats(dtype: str) -> None:
    info = np.finfo(np.dtype(dtype))
    special = [float(info.smallest_subnormal), float(info.tiny), float(info.max), 1.0, TINY]
    halves = [value / 2 for value in special] + [float(info.smallest_subnormal) * 1.5, float(info.max) * (1 - 1e-9)]
    positive = {value for value in special + halves if value > 0}
    around = {math.nextafter(value, way) for value in positive for way in (0.0, math.inf)} | positive
    finite = {value for value in around if math.isfinite(value)}
    assert_thresholds(dtype, sorted(finite | {-value for value in finite} | {0.0}))
    assert_thresholds(dtype, [-0.0, 1.0])
    assert_thresholds(dtype, [-1.0, -0.0])


def test_thresholds_of_narrow_floats_at_infinity() -> None:
    """Only infinity reaches what is beyond the largest number; what is below the smallest, -infinity does not."""
    assert binning("float16", [-1e6, 65504.0, 1e6]).thresholds.tolist() == [-65504.0, 65504.0, math.inf]
    assert binning("float16", [65504.5, 65519.0]).thresholds.tolist() == [math.inf, math.inf]
    assert binning("float64", [0.0, HUGE]).thresholds.tolist() == [0.0, math.inf]


@pytest.mark.parametrize("dtype", DTYPES)
@few
@given(data=st.data())
def test_find_is_the_definition(dtype: str, data: st.DataObject) -> None:
    edges = data.draw(edge_lists(dtype))
    near = [end for end in binning(dtype, edges).thresholds.tolist() if math.isfinite(end)]
    beside = [value for end in near if (value := below(end, dtype)) is not None]
    values = [*data.draw(st.lists(numbers(dtype), max_size=8)), *near, *beside]
    got = binning(dtype, edges).find(np.array(values, dtype))
    assert got.tolist() == [slot(value, edges) for value in values]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "float16"])
@pytest.mark.parametrize("edges", [[-3.0, 0.0, 0.3, 7.0], [0.0, 65535.0], [-1e9, 1e9], [1e9, 2e9], [-2e9, -1e9]])
def test_slot_of_every_pattern(dtype: str, edges: list[float]) -> None:
    patterns = np.arange(2 ** (8 * np.dtype(dtype).itemsize), dtype=f"u{np.dtype(dtype).itemsize}")
    expected = [len(edges) + 1 if value != value else slot(value, edges) for value in patterns.view(dtype).tolist()]
    got = binning(dtype, edges).slot_of_pattern
    assert got.dtype == np.uint32
    assert got.tolist() == expected


def shift_of(dtype: str, edges: Sequence[float]) -> int | None:
    """k when ((x - first) >> k) + 1 is the slot of every sample from the first bin on for as many times 2**k."""
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    starts = [max(math.ceil(Fraction(edge)), low) for edge in edges[:-1] if edge <= high]
    width = starts[1] - starts[0] if len(starts) > 1 else 0
    if width < 1 or width & (width - 1):
        return None
    for i in range(len(edges) - 1):
        first = starts[0] + i * width
        last = min(first + width - 1, high)
        if first <= high and not slot(first, edges) == slot(last, edges) == i + 1:
            return None
    return width.bit_length() - 1


@pytest.mark.parametrize(
    ("dtype", "edges", "expected"),
    [
        ("int32", range(1025), 0),  # the default: 10-bit samples in 1024 bins
        ("int32", range(0, 1025, 4), 2),
        ("int32", range(-512, 513, 2), 1),
        ("int32", np.linspace(0, 1023, 1025), 0),  # edges between the integers separate them as well
        ("int32", np.linspace(-0.5, 1023.5, 1025), 0),
        ("uint16", range(0, 65537, 64), 6),
        ("uint16", range(0, 2**17 + 1, 64), 6),  # half of the bins are out of reach
        ("int16", range(-(2**15), 2**15 + 1, 256), 8),
        ("int64", [-(2.0**63), 0, 2.0**63], None),  # right, but an offset would not fit 62 bits
        ("int64", [-(2.0**62), -(2.0**61), 0, 2.0**61], None),  # the starts round: they are not 2**61 apart
        ("int16", [0, 4, 1e6, 2e6], None),  # the second bin goes on to the end of the dtype
        ("uint64", [2.0**63, 2.0**63 + 2**12, 2.0**63 + 2**13], None),  # the starts round: they are not 2**12 apart
        ("uint64", [2.0**52, 2.0**52 + 4, 2.0**52 + 8], 2),
        ("int32", range(0, 1024, 3), None),
        ("int32", [0, 1, 2, 4], 0),  # the last one is wider and takes everything past the shift
        ("int32", [0, 2, 4, 5], 1),  # the last edge is closed: 4 and 5
        ("int32", [0, 4, 8, 9], None),  # 10 and 11 are above the last edge
        ("int32", [0, 3.25, 6.5], None),  # evenly spaced, 7 is above the last edge
        ("int32", [0.5, 1.5, 1.7], None),  # the last bin is empty of integers
        ("int32", [0, 4, 9, 12], None),
        ("int32", [0, 1024], None),  # one bin has no width to compare
        ("int32", [1e300, 2e300, 3e300], None),
        ("int32", [-3e300, -2e300, -1e300], None),
        ("float32", range(1025), None),
        ("float64", range(0, 1025, 4), None),
    ],
)
def test_shift(dtype: str, edges: Sequence[float], expected: int | None) -> None:
    assert binning(dtype, list(edges)).shift == expected


@pytest.mark.parametrize("dtype", ["int16", "uint16", "int32", "uint32"])
@many
@given(data=st.data())
def test_shift_is_given_exactly_where_it_is_right(dtype: str, data: st.DataObject) -> None:
    """Bins 2**k wide, at times with an edge moved, at times over the ends of the dtype."""
    k = data.draw(st.integers(0, 6))
    bounds = np.iinfo(dtype)
    near = st.sampled_from((0, int(bounds.min), int(bounds.max)))
    first = data.draw(near) + data.draw(st.integers(-300, 300)) + data.draw(st.sampled_from((0.0, 0.25, -0.5)))
    edges = [float(first + i * 2**k) for i in range(data.draw(st.integers(3, 9)))]
    moved = data.draw(st.integers(0, 2 * len(edges)))
    if moved < len(edges):
        edges[moved] += data.draw(st.sampled_from((-0.75, -0.5, -0.25, 0.25, 0.5, 1.0)))
    if sorted(set(edges)) == edges:
        assert binning(dtype, edges).shift == shift_of(dtype, edges)


def test_slots_and_bins() -> None:
    assert (binning("int8", [0, 1]).bins, binning("int8", [0, 1]).slots) == (1, 4)
    assert (binning("int8", range(1025)).bins, binning("int8", range(1025)).slots) == (1024, 1027)
