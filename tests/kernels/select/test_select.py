"""Masks of conditions: on a CPU, on a device, by the compiled check and by NumPy; the same samples are kept."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from kernels.select.check import BLOCK, KeptCheck
from kernels.select.mask import _rounded, kept
from kernels.select.reference import kept_reference
from kernels.select.tree import Node
from kernels.select.typed import typed
from tests.cases.conditions import DTYPES, condition, hostile
from workflows.expression import parse

SEEDS = range(8)
CONDITIONS = 80  # of a seed


def masks(text: str, values: dict[str, Any], device: Any) -> dict[str, Any]:
    """Which samples are kept, by who says it; empty if NumPy refuses the condition."""
    node = parse(text, ["x", "i", "c"], ["m"])
    samples = len(values["x"])
    try:
        expected = kept_reference(node, values, samples)
    except OverflowError:
        with pytest.raises(ValueError, match="expected a number that fits"):
            typed(node, {name: value.dtype for name, value in values.items()})
        return {}
    of_dtypes = typed(node, {name: value.dtype for name, value in values.items()})
    check = KeptCheck.of(of_dtypes)
    assert check is not None
    numbers = np.zeros(samples, bool)
    numbers[check.numbers(values)] = True
    with np.errstate(all="ignore"):  # a device never warns
        on_device = kept(of_dtypes, {name: device.asarray(value) for name, value in values.items()}).get()
    return {"NumPy": expected, "CPU": kept(of_dtypes, values), "check": numbers, "device": on_device}


@pytest.mark.parametrize("seed", SEEDS)
def test_all_keep_the_same_samples(seed: int, host: Any) -> None:
    random, compared = Random(seed), 0
    for _ in range(CONDITIONS):
        text, generator = condition(random), np.random.default_rng(random.getrandbits(32))
        samples, first = random.choice([1, 7, BLOCK - 1, BLOCK, BLOCK + 1, 3000]), 2 ** random.choice([0, 31, 53, 62])
        x, c = (hostile(random.choice(DTYPES), samples, generator) for _ in "xc")
        values = {"x": x, "i": first + 3 * np.arange(samples), "c": c, "m": generator.random(samples) < 0.5}
        try:
            by = masks(text, values, host)
        except ValueError as error:  # of numbers alone
            assert "without a result" in str(error) or "division" in str(error) or "2**1023" in str(error)
            continue
        compared += bool(by)
        for who, mask in by.items():
            assert np.array_equal(mask, by["NumPy"]), (who, text, {name: value.dtype for name, value in values.items()})
    assert compared > CONDITIONS / 2


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
@pytest.mark.parametrize("number", [2**63 - 1, 2**63, 2**64 - 1, 2**53 + 1, -1, -(2**63) - 1, 2**70])
def test_integers_compare_exactly(dtype: str, number: int, host: Any) -> None:
    """With Python's integers of any size, whatever float64 would make of them."""
    ends = np.iinfo(dtype)
    near = {number - 1, number, number + 1, 0, 1, int(ends.min), int(ends.max), 2**53, 2**53 + 2}
    x = np.array(sorted(value for value in near if ends.min <= value <= ends.max), dtype)
    for sign in ("<", "<=", "==", "!=", ">=", ">"):
        exact = np.array([eval(f"{value} {sign} {number}") for value in x.tolist()])
        values = {"x": x, "i": np.arange(len(x)), "c": x, "m": x == x}
        for who, mask in masks(f"x {sign} {number}", values, host).items():
            assert np.array_equal(mask, exact), (who, sign)


def test_int64_and_uint64_compare_exactly(host: Any) -> None:
    a, b = np.array([-1, 2**53 + 1, 2**63 - 1, -(2**63)]), np.array([2**64 - 1, 2**53, 2**63, 0], np.uint64)
    for sign in ("<", "==", ">"):
        exact = np.array([eval(f"{x} {sign} {c}") for x, c in zip(a.tolist(), b.tolist(), strict=True)])
        for who, mask in masks(f"x {sign} c", {"x": a, "i": a, "c": b, "m": a == a}, host).items():
            assert np.array_equal(mask, exact), (who, sign)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_devices_round_as_numpy_does(dtype: Any, host: Any) -> None:
    """Also what is subnormal, and halfway between two numbers: CuPy's own conversion would make it 0."""
    random, least = np.random.default_rng(0), float(np.finfo(dtype).smallest_subnormal)
    normal = random.standard_normal(3000) * 10.0 ** random.uniform(-46, 39, 3000)
    halves = random.integers(-4000, 4000, 3000) * least / 2
    values = np.concatenate([normal, halves, np.nextafter(halves, 1), [np.inf, -np.inf, np.nan, 0.0, -0.0]])
    with np.errstate(all="ignore"):
        expected = values.astype(dtype).astype(np.float64)
        got = _rounded(host.asarray(values), np.dtype(dtype)).get()
    assert np.array_equal(got, expected, equal_nan=True) and np.array_equal(np.signbit(got), np.signbit(expected))


def test_numbers_take_the_dtype_of_samples() -> None:
    """As in NumPy: 0.1 is float32(0.1) beside float32, and integers wrap."""
    x = np.array([0.1, 0.2], np.float32)
    keep = kept(typed(parse("x == 0.1", ["x"]), {"x": x.dtype}), {"x": x})
    assert keep.tolist() == [True, False]
    small = np.array([127, 1], np.int8)
    keep = kept(typed(parse("x + 1 < 0", ["x"]), {"x": small.dtype}), {"x": small})
    assert keep.tolist() == [True, False]


def test_one_answer_for_all_samples(host: Any) -> None:
    x = np.arange(5, dtype=np.int8)
    for text, all_of in (("True", True), ("1 > 2", False), ("x < 300", True), ("x == 300 or 300 < x", False)):
        for who, mask in masks(text, {"x": x, "i": x, "c": x, "m": x == x}, host).items():
            assert mask.tolist() == [all_of] * 5, (who, text)


def test_a_wrong_node_is_told() -> None:
    with pytest.raises(ValueError, match=r"fits int8.* got 300 \(at character 1\); write 300\.0"):
        typed(parse("x + 300 < 5", ["x"]), {"x": np.dtype(np.int8)})
    with pytest.raises(KeyError):
        typed(Node("name", value="gone"), {})
