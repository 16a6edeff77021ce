"""Sums of third and fourth powers: on a CPU, without a compiler, by the check and the reference; skewness, kurtosis."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from kernels.common import cxx
from kernels.reduce import check_powers, cpu_powers, powers
from kernels.reduce import partial as layout
from kernels.reduce.check import reduce_check
from kernels.reduce.check_powers import reduce_check_with_powers
from kernels.reduce.cpu_powers import power_sums_compiled, power_sums_numpy, reduce_cpu_with_powers
from kernels.reduce.exact_sum import from_words
from kernels.reduce.gpu import place_on_device
from kernels.reduce.gpu_powers import combine_on_device_with_powers, reduce_on_device_with_powers
from kernels.reduce.partial import PARTS, SQUARES, SUM, Partial
from kernels.reduce.powers import POWERS
from kernels.reduce.reference_powers import reduce_reference_with_powers
from tests.cases.aggregation_checks import checked
from tests.cases.reduce import CASES, DTYPES, FLOATS, case, two_sizes
from tests.kernels.reduce.test_cpu import result_of, same, standardized
from workflows.reduce import REDUCE, ReduceOptions

SOURCE = check_powers.SOURCE
ALL = layout.PARTS[-1] | POWERS
SIZES = (1, 2, 255, 2047, 2049, 5001)


def sums(partial: Partial) -> tuple[Fraction, Fraction]:
    return (Fraction(from_words(partial[powers.CUBES_AT]), 2**powers.CUBE_BITS),
            Fraction(from_words(partial[powers.FOURTHS_AT]), 2**powers.FOURTH_BITS))  # fmt: skip


def exact(samples: NDArray[Any]) -> tuple[Fraction, Fraction]:
    values = [Fraction(value) for value in samples[np.isfinite(samples)].tolist()]
    return sum((x**3 for x in values), Fraction()), sum((x**4 for x in values), Fraction())


def agree(samples: NDArray[Any], parts: int = ALL) -> Partial:
    """Of every way that computes them."""
    expected = reduce_reference_with_powers(samples, parts)
    np.testing.assert_array_equal(reduce_cpu_with_powers(samples, parts), expected)
    np.testing.assert_array_equal(checked(reduce_check_with_powers(samples.dtype, parts), samples), expected)
    return expected


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_way_finds_the_same(dtype: str, name: str) -> None:
    for size in SIZES:
        agree(case(name, dtype, size))


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16"])
def test_blocks_of_short_integers(dtype: str) -> None:
    """Which add up in 64 bits, 2**14 at a time."""
    for size in (2**14 - 1, 2**14, 2**14 + 1, 40_001):
        for name in ("full", "extreme", "any"):
            agree(case(name, dtype, size))
        agree(np.full(size, np.iinfo(dtype).min, dtype))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_are_those_of_fractions(dtype: str, name: str) -> None:
    samples = case(name, dtype, 300)
    assert sums(reduce_reference_with_powers(samples, ALL)) == exact(samples)
    without = powers.extended(reduce_cpu_with_powers(samples, SUM | SQUARES), *power_sums_numpy(samples))
    assert sums(without) == exact(samples)


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("dtype", FLOATS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_numbers_of_two_sizes(dtype: str, data: st.DataObject) -> None:
    samples = two_sizes(data, dtype, 2048)
    assert sums(agree(samples)) == exact(samples)


def test_integers_that_no_float64_holds() -> None:
    near = np.array([2**53 - 1, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63)], np.int64)
    values = [int(value) for value in near]
    assert sums(reduce_cpu_with_powers(near, ALL)) == (sum(x**3 for x in values), sum(x**4 for x in values))
    same(list(result_of(near, "skewness,kurtosis").values.values()), standardized(values))


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("dtype", DTYPES)
def test_byte_orders_gaps_and_addresses(dtype: str) -> None:
    samples = case("specials", dtype, 3001)
    expected = reduce_reference_with_powers(samples, ALL)
    unaligned = np.frombuffer(b"x" + samples.tobytes(), samples.dtype, offset=1)
    swapped = samples.astype(samples.dtype.newbyteorder())
    np.testing.assert_array_equal(reduce_reference_with_powers(swapped, ALL), expected)
    np.testing.assert_array_equal(reduce_cpu_with_powers(np.repeat(samples, 2)[::2], ALL), expected)
    for array in (unaligned, swapped):
        np.testing.assert_array_equal(checked(reduce_check_with_powers(samples.dtype, ALL), array), expected)


@pytest.mark.parametrize("dtype", DTYPES)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_cut_in_any_order_gives_the_same_partial(dtype: str, data: st.DataObject) -> None:
    samples = data.draw(arrays(dtype, st.integers(1, 30)))
    cuts = [0, *sorted(data.draw(st.sets(st.integers(1, len(samples)), max_size=5)) - {len(samples)}), len(samples)]
    waiting = [layout.place(reduce_cpu_with_powers(samples[a:b], ALL), a) for a, b in pairwise(cuts)]
    waiting = list(data.draw(st.permutations(waiting)))
    while len(waiting) > 1:
        i = data.draw(st.integers(0, len(waiting) - 2))
        waiting[i : i + 2] = [powers.combine(*waiting[i : i + 2])]
    np.testing.assert_array_equal(waiting[0], reduce_cpu_with_powers(samples, ALL))
    np.testing.assert_array_equal(powers.combine(waiting[0], powers.empty(samples.dtype, ALL)), waiting[0])


def test_nothing_changes_where_they_are_not_asked_for() -> None:
    samples = case("specials", "float64", 500)
    for parts in PARTS:
        assert len(reduce_cpu_with_powers(samples, parts)) == layout.SIZE
        assert type(reduce_check_with_powers(samples.dtype, parts)) is type(reduce_check(samples.dtype, parts))
        np.testing.assert_array_equal(reduce_cpu_with_powers(samples, parts | POWERS)[11 : layout.SIZE],
                                      reduce_cpu_with_powers(samples, parts)[11:])  # fmt: skip


def test_several_calls_and_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = case("specials", "float32", 3000)
    expected = reduce_cpu_with_powers(samples, ALL)
    with monkeypatch.context() as patched:
        patched.setattr(cpu_powers, "MOST", 1000)
        np.testing.assert_array_equal(reduce_cpu_with_powers(samples, ALL), expected)
    monkeypatch.setattr(cxx, "library", lambda source: None)
    assert power_sums_compiled(samples) is None and reduce_check_with_powers(samples.dtype, ALL) is None
    np.testing.assert_array_equal(reduce_cpu_with_powers(samples, ALL), expected)


@pytest.mark.parametrize("dtype", FLOATS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_results_are_rounded_once(dtype: str, data: st.DataObject) -> None:
    width: Any = 8 * np.dtype(dtype).itemsize
    elements = st.floats(width=width, allow_nan=False, allow_infinity=False)
    samples = data.draw(arrays(dtype, st.integers(1, 20), elements=elements))
    same(list(result_of(samples, "skewness,kurtosis").values.values()), standardized(samples.tolist()))


def test_the_largest_and_the_smallest_numbers() -> None:
    for samples in ([1.7976931348623157e308, -1.7976931348623157e308, 0.0], [5e-324, 0.0, 0.0], [1e308, 5e-324, -3.0]):
        same(list(result_of(np.array(samples), "skewness,kurtosis").values.values()), standardized(samples))
    # One far from many that are equal: the square root of n, and n, nearly.
    far = np.zeros(10_001)
    far[77] = 1
    values = result_of(far, "skewness,kurtosis").values
    same(list(values.values()), standardized(far.tolist()))
    assert values["skewness"] == pytest.approx(99.99, abs=0.01) and values["kurtosis"] == pytest.approx(9996, abs=1)


def test_what_numpy_computes_is_near() -> None:
    samples = np.random.default_rng(0).exponential(size=50_000)
    away = samples - samples.mean()
    values = result_of(samples, "skewness,kurtosis", ddof=1).values  # ddof does not matter
    assert values["skewness"] == pytest.approx((away**3).mean() / samples.std() ** 3, rel=1e-12)
    assert values["kurtosis"] == pytest.approx((away**4).mean() / samples.var() ** 2 - 3, rel=1e-12)


def test_invariants_catch() -> None:
    options = ReduceOptions("skewness")
    partial = REDUCE.compute(case("ordinary", "int32", 50), options)
    for position, change in ((powers.CUBES_AT.start + 52, 1), (powers.FOURTHS_AT.start + 68, -(2**28)),
                             (powers.FOURTHS_AT.stop - 1, -1)):  # fmt: skip
        wrong = partial.copy()
        wrong[position] += change
        assert any("fourth powers agree" in (check(wrong, 50) or "") for check in REDUCE.invariants), position


def test_labels_name_every_entry() -> None:
    names = [REDUCE.label(i, ReduceOptions("skewness")) for i in range(powers.SIZE)]
    assert len(set(names)) == powers.SIZE
    assert names[powers.CUBES_AT.start] == "sum of cubes, word 0" and names[-1] == "sum of fourth powers, word 132"


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
def test_kernel_is_the_reference(cp: Any, dtype: str) -> None:
    for name, size in (("specials", 3001), ("any", 1025), ("steps", 2047)):
        samples = case(name, dtype, size)
        halves = [reduce_on_device_with_powers(cp.asarray(half), ALL) for half in (samples[:700], samples[700:])]
        total = combine_on_device_with_powers(halves[0], place_on_device(halves[1], 700)).get()
        np.testing.assert_array_equal(total, reduce_reference_with_powers(samples, ALL))
