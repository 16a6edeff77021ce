"""The search for order statistics against sorting and exact rationals, on hostile samples; and what disproves it."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kernels.quantile import cells, cpu
from kernels.quantile.cells import Disagreement
from kernels.quantile.ranks import METHODS, SELECTING, between
from kernels.quantile.reference import around_reference
from kernels.quantile.search import Search

HALF = Fraction(1, 2)
MOST_PASSES = 16  # of 64 bits with a median absolute deviation, in the worst case


def counted(search: Search, samples: NDArray[Any], change: Callable[[NDArray[Any]], None] | None = None) -> Search:
    """The search after all passes; `change` plants an error in the last one."""
    passes = 0
    while search.cells is not None:
        counts = cpu.count_cells(samples, search.cells)
        passes += 1
        assert passes <= MOST_PASSES and counts.nbytes <= 8 * cells.MOST_SLOTS
        if change is not None and passes > 1:
            change(counts)
            change = None
        search = search.counted(counts)
    search.proven_by(around_reference(samples, search.values))
    return search


def exact(sample: Any) -> Fraction | float:
    return Fraction(sample) if math.isfinite(sample) else float(sample)


def interpolated(ordered: list[Any], place: Fraction) -> Fraction | float:
    """What lies at a place between order statistics."""
    low, weight = int(place), place - int(place)
    a = ordered[low]
    if not weight:
        return a
    b = ordered[low + 1]
    return a + (b - a) * weight if isinstance(a, Fraction) and isinstance(b, Fraction) else float(a) + float(b)


def rounded(number: Fraction | float) -> float:
    if not isinstance(number, Fraction):
        return number
    try:
        return number.numerator / number.denominator
    except OverflowError:
        return math.copysign(math.inf, number)


def same(got: float, expected: Fraction | float) -> bool:
    if isinstance(got, int):
        return got == expected
    wanted = rounded(expected)
    return got == wanted or (math.isnan(got) and math.isnan(wanted))


def hostile(dtype: np.dtype[Any], random: np.random.Generator) -> NDArray[Any]:
    """Random bits, ties, one value, few values, the ends of the range, specials, subnormals, any sizes."""
    size, kind = int(random.choice([1, 2, 3, 4, 10, 101, 700])), int(random.integers(8))
    bits = random.integers(0, 256, size * dtype.itemsize, np.uint8).view(dtype).copy()
    if kind == 0:
        return bits
    if kind == 1:
        return (random.normal(size=size) * 30 + 60).clip(0, 120).astype(dtype)
    if kind == 2:
        return np.full(size, 7).astype(dtype)
    if kind == 3:
        return (10 + random.integers(0, 3, size)).astype(dtype)
    if kind == 4:
        return np.exp(random.normal(size=size) * 2).clip(0, 120).astype(dtype)
    if dtype.kind == "f":
        if kind == 5:
            return (random.integers(-3, 4, size) * float(np.finfo(dtype).smallest_subnormal)).astype(dtype)
        special = np.array([np.inf, -np.inf, 0.0, -0.0, np.nan, np.finfo(dtype).max, np.finfo(dtype).min], dtype)
        places = random.integers(0, size, size // 2 + 1)
        bits[places] = special[random.integers(0, 7 if kind == 6 else 4, len(places))]
        return bits
    ends = np.iinfo(dtype)
    near = [2**53 - 1, 2**53, 2**53 + 1] if dtype.itemsize == 8 and kind == 5 else [ends.max, ends.max - 1, ends.min]
    return np.array([near[i] for i in random.integers(0, 3, size)], dtype)


@pytest.mark.parametrize("dtype", cpu.TYPES)
def test_quantiles_and_deviations_are_the_exact_ones_rounded_once(dtype: str) -> None:
    random = np.random.default_rng(len(dtype))
    for _ in range(60):
        samples = hostile(np.dtype(dtype), random)
        q, method = Fraction(int(random.integers(0, 201)), 200), METHODS[int(random.integers(len(METHODS)))]
        wanted = (("linear", q), (method, q), ("linear", HALF))
        search = counted(Search.begin(samples.dtype, wanted, True, True), samples)
        few = counted(Search.begin(samples.dtype, wanted, True, True).of_few(len(samples)), samples)
        assert few.keys == search.keys and (few.samples, few.nan) == (search.samples, search.nan)
        assert repr(few.median_deviation()) == repr(search.median_deviation())
        ordered = sorted(map(exact, samples[samples == samples].tolist()))
        if not ordered:
            assert all(math.isnan(search.value(number)) for number in range(3))
            assert math.isnan(search.median_deviation())
            continue
        last = len(ordered) - 1
        assert same(search.value(0), interpolated(ordered, last * q))
        place = between(method, q, len(ordered))
        assert same(search.value(1), interpolated(ordered, place.low + place.weight))
        middle = interpolated(ordered, last * HALF)
        assert same(search.value(2), middle)
        if isinstance(middle, Fraction):
            far = sorted(abs(x - middle) if isinstance(x, Fraction) else math.inf for x in ordered)
            assert same(search.median_deviation(), interpolated(far, last * HALF))
        else:
            assert math.isnan(search.median_deviation())


@pytest.mark.parametrize("method", METHODS)
def test_order_statistics_are_those_of_numpy(method: str) -> None:
    """Bit for bit where a sample is selected; q of which no product is rounded, so that NumPy's places are exact."""
    random = np.random.default_rng(1)
    for size in (1, 2, 3, 4, 5, 8, 16, 17, 100):
        samples = random.normal(size=size)
        for number in range(33):
            place = between(method, Fraction(number, 32), size)
            expected = np.quantile(np.arange(float(size)), number / 32, method=method)
            assert float(place.low + place.weight) == pytest.approx(expected, abs=1e-12)
            if method in SELECTING:
                assert np.sort(samples)[place.low] == np.quantile(samples, number / 32, method=method)


def test_q_is_exact_where_a_float_is_not() -> None:
    """0.1 n is a whole number: the binary 0.1 lies above, and NumPy takes the next sample."""
    place = between("inverted_cdf", Fraction("0.1"), 10 * 3**20)
    assert place.low == 3**20 - 1
    assert between("higher", Fraction("0.7"), 11).low == 7


def test_every_cell_may_be_hit() -> None:
    """As many quantiles as there may be, everywhere: counters stay within their bound."""
    samples = np.random.default_rng(2).integers(0, 2**64, 40_000, np.uint64)
    quantiles = tuple(("nearest", Fraction(number, 4095)) for number in range(4096))
    search = counted(Search.begin(samples.dtype, quantiles, True), samples)
    ordered = np.sort(samples)
    assert [search.value(number) for number in range(4096)] == [
        ordered[round(Fraction(number * 39_999, 4095))] for number in range(4096)
    ]


def test_gathering_and_counting_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = np.random.default_rng(3).normal(size=5001)
    wanted = (("linear", Fraction("0.3")), ("hazen", Fraction("0.999")))
    gathered = counted(Search.begin(samples.dtype, wanted, True, True), samples)
    for name in ("cells", "deviation"):
        monkeypatch.setattr(f"kernels.quantile.{name}.MOST_GATHERED", 0)
    one_by_one = counted(Search.begin(samples.dtype, wanted, True, True), samples)
    assert one_by_one.keys == gathered.keys
    assert one_by_one.median_deviation() == gathered.median_deviation()


@pytest.mark.parametrize("dtype", ["int16", "float16", "float64"])
def test_few_samples_are_gathered_in_one_pass(dtype: str) -> None:
    samples = np.random.default_rng(4).normal(0, 99, 300).astype(dtype)
    search = Search.begin(samples.dtype, (("linear", HALF),), False, True)
    assert search.of_few(cells.FEW + 1) is search
    few = search.of_few(300)
    assert few.cells is not None and few.cells.size == 301
    done = few.counted(cpu.count_cells(samples, few.cells))
    assert done.cells is None and done.value(0) == np.median(samples.astype(np.float64))


def test_a_nan_makes_all_nan_or_is_left_out() -> None:
    samples = np.array([3, np.nan, 1, 2], np.float32)
    wanted = (("linear", HALF),)
    assert math.isnan(counted(Search.begin(samples.dtype, wanted, False), samples).value(0))
    assert counted(Search.begin(samples.dtype, wanted, True), samples).value(0) == 2


def test_zero_has_no_sign() -> None:
    samples = np.array([-0.0, -0.0, -0.0])
    value = counted(Search.begin(samples.dtype, (("lower", HALF),), True), samples).value(0)
    assert math.copysign(1, value) == 1


def _move(counts: NDArray[Any]) -> None:
    first, second = np.flatnonzero(counts)[:2]
    counts[second] += counts[first]
    counts[first] = 0


def _replace_key(counts: NDArray[Any]) -> None:
    counts[1] -= 1 if counts[0] < 0 else 0


@pytest.mark.parametrize(("size", "change"), [(200_000, _move), (3000, _replace_key)])
def test_a_wrong_survey_is_disproved(size: int, change: Callable[[NDArray[Any]], None]) -> None:
    """Counts of a cell that add up, but lie elsewhere, and a key that is another one."""
    samples = np.random.default_rng(4).integers(0, 2**17, size, np.int32)
    wanted = (("lower", Fraction(0)),)
    with pytest.raises(Disagreement, match="to have rank 0"):
        counted(Search.begin(samples.dtype, wanted, True), samples, change)


def test_a_wrong_certificate_is_disproved() -> None:
    samples = np.random.default_rng(5).normal(size=4001)
    search = counted(Search.begin(samples.dtype, (("linear", HALF),), True, True), samples)
    right = around_reference(samples, search.values)
    for place in range(len(right) - 1):
        wrong = right.copy()
        wrong[place] -= 1
        with pytest.raises(Disagreement):
            search.proven_by(wrong)
    wrong = right.copy()
    wrong[[0, 2]] += (samples.size, -samples.size)
    with pytest.raises(Disagreement):
        search.proven_by(wrong)
