"""Reduce on the CPU: partials against the reference, results against fsum, fractions, statistics and NumPy."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from kernels.reduce import partial as layout
from kernels.reduce.cpu import reduce_cpu, reduce_numpy
from kernels.reduce.exact_sum import quotient, square_root
from kernels.reduce.partial import EXTREMES, NAN, PARTS, SQUARES, SUM
from kernels.reduce.reference import reduce_reference
from tests.cases.reduce import CASES, DTYPES, FINITE, FLOATS, case, generator
from workflows.reduce import OPERATIONS, REDUCE, ReduceOptions
from workflows.reduce_result import ReduceResult

ALL = SUM | SQUARES | EXTREMES
EVERYTHING = ",".join(OPERATIONS)


def samples_of(dtype: str) -> st.SearchStrategy[NDArray[Any]]:
    return arrays(dtype, st.integers(1, 30))


def result_of(samples: NDArray[Any], op: str = EVERYTHING, **options: Any) -> ReduceResult:
    """The partial, after comparing it with the reference and checking every invariant."""
    asked = ReduceOptions(op, **options)
    partial = REDUCE.compute(samples, asked)
    np.testing.assert_array_equal(partial, REDUCE.reference(samples, asked))
    assert [check(partial, len(samples)) for check in REDUCE.invariants] == [None] * len(REDUCE.invariants)
    got: ReduceResult = REDUCE.finalize(partial, asked)
    assert list(got.values) == op.split(",")
    return got


def standardized(samples: Iterable[Any]) -> list[float]:
    """Skewness and excess kurtosis, from deviations as rational numbers."""
    exact = [Fraction(value) for value in samples]
    mean = Fraction(sum(exact), len(exact))
    second, third, fourth = (sum((value - mean) ** k for value in exact) / Fraction(len(exact)) for k in (2, 3, 4))
    if not second:
        return [math.nan, math.nan]
    root = square_root(third**2 / second**3)
    return [-root if third < 0 else root, quotient(fourth / second**2 - 3)]


def same(got: Any, expected: Any) -> None:
    """Equal to the last bit, with the sign of a zero; NaN is NaN."""
    assert type(got) is type(expected)
    assert str(got) == str(expected)


# --- partials ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_partials_are_those_of_the_reference(dtype: str, name: str) -> None:
    for size in (1, 2, 1025, 30_001):
        samples = case(name, dtype, size)
        for parts in PARTS:
            expected = reduce_reference(samples, parts)
            np.testing.assert_array_equal(reduce_cpu(samples, parts), expected)
            np.testing.assert_array_equal(reduce_numpy(samples, parts), expected)


@pytest.mark.parametrize("dtype", DTYPES)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_cut_in_any_order_gives_the_same_partial(dtype: str, data: st.DataObject) -> None:
    samples = data.draw(samples_of(dtype))
    cuts = [0, *sorted(data.draw(st.sets(st.integers(1, len(samples)), max_size=5)) - {len(samples)}), len(samples)]
    parts = [layout.place(reduce_cpu(samples[a:b], ALL), a) for a, b in pairwise(cuts)]
    waiting = data.draw(st.permutations(parts))
    while len(waiting) > 1:  # combined as a tree of any shape
        i = data.draw(st.integers(0, len(waiting) - 2))
        waiting[i : i + 2] = [layout.combine(*waiting[i : i + 2])]
    np.testing.assert_array_equal(waiting[0], reduce_cpu(samples, ALL))


def test_combining_leaves_its_arguments_alone() -> None:
    a, b = (reduce_cpu(case("specials", "float64", size), ALL) for size in (100, 200))
    before = a.copy(), b.copy()
    np.testing.assert_array_equal(layout.combine(a, b), layout.combine(b, a))
    np.testing.assert_array_equal((a, b), before)


@pytest.mark.parametrize("dtype", DTYPES)
def test_keys_are_in_the_order_of_the_samples(dtype: str) -> None:
    samples = np.sort(case("any", dtype, 500))
    keys = [layout.to_key(value, samples.dtype) for value in samples]
    for (a, b), (key_a, key_b) in zip(pairwise(samples), pairwise(keys), strict=True):
        assert (a < b) == (key_a < key_b) and (a == b) == (key_a == key_b)
    for value, key in zip(samples.tolist(), keys, strict=True):
        same(layout.from_key(key, samples.dtype, str(value) == "-0.0"), value)
    assert all(-(2**63) <= key < 2**63 for key in keys)


# --- results ----------------------------------------------------------------------------------------------------------


@settings(max_examples=80, deadline=None)
@given(arrays("float64", st.integers(1, 60), elements=st.floats(-1e300, 1e300)))
def test_float_sum_is_fsum(samples: NDArray[np.float64]) -> None:
    values = result_of(samples, "sum,mean,var,std,norm", ddof=1).values
    same(values["sum"], math.fsum(samples))
    exact = [Fraction(value) for value in samples.tolist()]
    mean = sum(exact) / len(exact)
    same(values["mean"], quotient(mean))
    same(values["norm"], square_root(Fraction(sum(value * value for value in exact))))
    if len(exact) > 1:
        variance = Fraction(sum((value - mean) ** 2 for value in exact)) / (len(exact) - 1)
        same((values["var"], values["std"]), (quotient(variance), square_root(variance)))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", FINITE)
def test_sum_of_many_is_fsum(dtype: str, name: str) -> None:
    samples = case(name, dtype, 20_001).tolist()
    try:
        expected = math.fsum(samples)
    except OverflowError:  # on the way, though the sum itself may be small
        expected = quotient(Fraction(sum(map(Fraction, samples))))
    same(result_of(np.array(samples, dtype), "sum").values["sum"], expected)


def test_cancellation_to_the_last_bit() -> None:
    large = np.ldexp(generator("cancel").standard_normal(5000), generator("scale").integers(-1000, 1000, 5000))
    samples = generator("order").permutation(np.concatenate((large, -large, [5e-324])))
    same(result_of(samples, "sum").values["sum"], 5e-324)
    same(result_of(np.array([1e308, 1e308, -1e308, 1.0]), "sum,mean").values["sum"], 1e308)
    same(result_of(np.array([1e308, 1e308]), "sum").values["sum"], math.inf)
    same(result_of(np.array([1e308, 1e308]), "mean").values["mean"], 1e308)
    offset = np.float64(1e15) + np.array([0.0, 1.0, 2.0])
    same(result_of(offset, "var", ddof=1).values["var"], 1.0)


@pytest.mark.parametrize("dtype", [name for name in DTYPES if name not in FLOATS])
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_integer_results_are_exact(dtype: str, data: st.DataObject) -> None:
    samples = data.draw(samples_of(dtype))
    numbers = samples.tolist()
    values = result_of(samples).values
    n, total, squares = len(numbers), sum(numbers), sum(x * x for x in numbers)
    variance = Fraction(squares * n - total**2, n * n)
    moments = [total, quotient(Fraction(total, n)), quotient(variance), square_root(variance), *standardized(numbers)]
    places = [int(samples.argmin()), int(samples.argmax())]
    expected = [*moments, square_root(Fraction(squares)), min(numbers), max(numbers), *places, n]
    same(list(values.values()), expected)


@pytest.mark.parametrize("dtype", FLOATS)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_extremes_are_numpy_s(dtype: str, data: st.DataObject) -> None:
    few = st.sampled_from([0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan])
    width: Any = 8 * np.dtype(dtype).itemsize
    samples = data.draw(arrays(dtype, st.integers(1, 12), elements=few | st.floats(width=width)))
    values = result_of(samples, "min,max,argmin,argmax,count").values
    assert values["argmin"] == samples.argmin() and values["argmax"] == samples.argmax()
    for name in ("min", "max"):
        same(values[name], samples[values[f"arg{name}"]].item())  # the first of equal zeros, with its sign
        assert np.array_equal(values[name], getattr(samples, name)(), equal_nan=True)
    left = np.flatnonzero(~np.isnan(samples))
    values = result_of(samples, "argmin,argmax,min,max,count", nan="omit").values
    assert values["count"] == len(left)
    if not len(left):
        assert [str(x) for x in values.values()] == ["None", "None", "nan", "nan", "0"]
        return
    # Not np.nanargmin, which treats NaN as infinite: 0 for [nan, inf].
    assert values["argmin"] == left[samples[left].argmin()] and values["argmax"] == left[samples[left].argmax()]
    assert values["min"] == np.nanmin(samples) and values["max"] == np.nanmax(samples)


INF, NONE = math.inf, math.nan


@pytest.mark.parametrize(
    ("samples", "nan", "expected"),
    [  # sum, mean, var, std, skewness, kurtosis, norm, min, max, argmin, argmax, count
        ([1.0, NONE, 3.0], "propagate", [NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, 1, 1, 3]),
        ([1.0, NONE, 3.0], "omit", [4.0, 2.0, 1.0, 1.0, 0.0, -2.0, math.sqrt(10), 1.0, 3.0, 0, 2, 2]),
        ([NONE, NONE], "omit", [0.0, NONE, NONE, NONE, NONE, NONE, 0.0, NONE, NONE, None, None, 0]),
        ([1.0, INF], "propagate", [INF, INF, NONE, NONE, NONE, NONE, INF, 1.0, INF, 0, 1, 2]),
        ([-INF, 1.0], "propagate", [-INF, -INF, NONE, NONE, NONE, NONE, INF, -INF, 1.0, 0, 1, 2]),
        ([INF, -INF], "propagate", [NONE, NONE, NONE, NONE, NONE, NONE, INF, -INF, INF, 1, 0, 2]),
        ([INF, INF], "omit", [INF, INF, NONE, NONE, NONE, NONE, INF, INF, INF, 0, 0, 2]),
        ([-0.0, -0.0], "propagate", [0.0, 0.0, 0.0, 0.0, NONE, NONE, 0.0, -0.0, -0.0, 0, 0, 2]),
        ([0.0, -0.0], "propagate", [0.0, 0.0, 0.0, 0.0, NONE, NONE, 0.0, 0.0, 0.0, 0, 0, 2]),
        (
            [5e-324, -5e-324, 5e-324],
            "propagate",
            [5e-324, 0.0, 0.0, 5e-324, -math.sqrt(0.5), -1.5, 1e-323, -5e-324, 5e-324, 1, 0, 3],
        ),
    ],
)
def test_what_is_not_ordinary(samples: list[float], nan: str, expected: list[Any]) -> None:
    same(list(result_of(np.array(samples), nan=nan).values.values()), expected)


def test_degrees_of_freedom() -> None:
    for ddof, expected in ((0, 2.0), (1, 2.5), (4, 10.0), (5, math.nan), (6, math.nan)):
        same(result_of(np.arange(5), "var", ddof=ddof).values["var"], expected)


def test_options_that_cannot_be() -> None:
    for keywords, text in (
        ({"op": "sum,mode"}, "--op: expected some of sum, mean, .* got 'mode'"),
        ({"op": ""}, "--op: expected some of .* got ''"),
        ({"op": "sum,,mean"}, "--op: expected some of .* got ''"),
        ({"op": "sum,mean,sum"}, "--op: expected each operation once, got sum 2 times"),
        ({"nan": "drop"}, "--nan: expected propagate or omit, got 'drop'"),
        ({"ddof": -1}, "--ddof: expected 0 or more, got -1"),
    ):
        with pytest.raises(ValueError, match=text):
            ReduceOptions(**keywords)  # type: ignore[arg-type]
    assert ReduceOptions("sum, max").operations == ("sum", "max")
    assert [ReduceOptions(name).parts for name in ("count", "sum", "norm", "sum,max")] == [EXTREMES, SUM, 3, 5]


def test_result_in_every_form() -> None:
    samples = np.full(2**8, 2**64 - 1, np.uint64)
    got = result_of(samples, "sum,max,mean,argmax")
    arrays_ = got.arrays()
    assert list(arrays_) == ["sum", "max", "mean", "argmax", "samples", "nan"]
    assert [(array.dtype.kind, array.shape) for array in arrays_.values()] == [(kind, ()) for kind in "Uufiii"]
    assert int(str(arrays_["sum"])) == (2**64 - 1) * 2**8 and arrays_["max"] == 2**64 - 1
    assert json.loads(json.dumps(got.to_json(), allow_nan=False))["sum"] == (2**64 - 1) * 2**8
    rows = [("sum", 2**72 - 2**8), ("max", 2**64 - 1), ("mean", 2.0**64), ("argmax", 0)]
    assert got.table() == (("operation", "value"), rows)
    assert dict(got.lines())["sum"] == str(2**72 - 2**8)
    spoilt = result_of(np.array([np.nan, np.inf]), "sum,max,argmin", nan="omit")
    document = spoilt.document()
    assert document.pop("exact")["words"] == layout.SIZE
    assert document == {
        "format": 2, "sum": "inf", "max": "inf", "argmin": 1, "samples": 2, "nan": 1, "dtype": "float64",
    }  # fmt: skip
    nothing = result_of(np.array([np.nan]), "max,argmin", nan="omit")
    assert nothing.to_json() == {"max": "nan", "argmin": None, "samples": 1, "nan": 1}
    assert nothing.arrays()["argmin"] == -1 and dict(nothing.lines())["argmin"] == "none"


def test_invariants_catch() -> None:
    options = ReduceOptions(EVERYTHING)
    for position, change, text in (
        (layout.SAMPLES, 1, "counted once: expected 50, got 51"),
        (NAN, 60, "some of 50 samples: got \\[60, 0, 0\\]"),
        (layout.POSITIVE, -1, "got \\[0, -1, 0\\]"),
        (layout.SUM_AT.start + 17, 2**40, "square of the sum"),
        (layout.SQUARES_AT.stop - 1, -1, "square of the sum"),
        (layout.MIN_KEY, 2**40, "mean lies between"),
        (layout.MAX_AT, layout.NOWHERE - 10**6, "have a place"),
    ):
        partial = layout.place(REDUCE.compute(case("ordinary", "int32", 50), options), 500_000)
        partial[position] += min(change, layout.NOWHERE - int(partial[position]))
        broken = [problem for check in REDUCE.invariants if (problem := check(partial, 50))]
        assert any(re.search(text, line) for line in broken), (position, broken)


def test_labels_name_every_entry() -> None:
    names = [REDUCE.label(i, ReduceOptions()) for i in range(layout.SIZE)]
    assert len(set(names)) == layout.SIZE
    assert names[2:8:5] == ["samples", "place of the minimum"]
    assert names[11::100] == ["sum, word 0", "sum of squares, word 66"]
