"""Masks of conditions: on a CPU, on a device, by the compiled check and by NumPy; the same samples are kept."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from kernels.common import nvrtc
from kernels.select import gpu
from kernels.select.check import BLOCK, KeptCheck
from kernels.select.generated import STORED, condition_text
from kernels.select.mask import kept
from kernels.select.reference import kept_reference
from kernels.select.tree import Node
from kernels.select.typed import Typed, typed
from pipeline.study.inspection import inspect
from tests.cases.conditions import DTYPES, condition, hostile
from tests.cases.sizes import ON_GPU
from tests.emulator import device
from tests.emulator.build import compile_unit, flatten, unit
from tests.emulator.device import HOST, Loaded, open_library
from tests.kernels.common.test_nvrtc import require_compiler
from workflows.expression import parse

SEEDS = range(8)
CONDITIONS = 80  # of a seed
GENERATED = 5  # seeds of three times as many


def of_dtypes(text: str, values: dict[str, Any]) -> Typed | None:
    """A condition for these values; None if NumPy refuses it."""
    node = parse(text, ["x", "i", "c"], ["m"])
    dtypes = {name: value.dtype for name, value in values.items()}
    try:
        kept_reference(node, values, len(values["x"]))
    except OverflowError:
        with pytest.raises(ValueError, match="expected a number that fits"):
            typed(node, dtypes)
        return None
    return typed(node, dtypes)


def masks(text: str, values: dict[str, Any], cp: Any) -> dict[str, Any]:
    """Which samples are kept, by who says it; empty if NumPy refuses the condition."""
    condition, samples = of_dtypes(text, values), len(values["x"])
    if condition is None:
        return {}
    check = KeptCheck.of(condition)
    assert check is not None
    numbers, copied = np.zeros(samples, bool), np.zeros(samples, bool)
    numbers[check.numbers(values)] = True
    on_device = {name: cp.asarray(value) for name, value in values.items()}
    indices = range(int(values["i"][0]), int(values["i"][-1]) + 1, int(values["i"][1] - values["i"][0]))
    result = gpu.compact(condition, on_device["x"], indices, {name: on_device[name] for name in "cm"})
    copied[[result.place(number) for number in range(len(result.samples))]] = True
    assert np.array_equal(bits(result.samples.get()), bits(values["x"][copied]))
    expected = kept_reference(parse(text, ["x", "i", "c"], ["m"]), values, samples)
    return {"NumPy": expected, "CPU": kept(condition, values), "check": numbers, "device": copied}


def bits(samples: Any) -> Any:
    """NaN included."""
    return samples.view(f"u{samples.itemsize}")


def drawn(random: Random, samples: int) -> tuple[str, dict[str, Any]]:
    """A condition and values for it."""
    text, generator = condition(random), np.random.default_rng(random.getrandbits(32))
    first = 2 ** random.choice([0, 31, 53, 62])
    x, c = (hostile(random.choice(DTYPES), samples, generator) for _ in "xc")
    return text, {"x": x, "i": first + 3 * np.arange(samples), "c": c, "m": generator.random(samples) < 0.5}


def known(error: ValueError) -> bool:
    """Whether a drawn condition was refused for what it makes of numbers alone."""
    return any(word in str(error) for word in ("without a result", "division", "2**1023"))


@pytest.mark.parametrize("seed", SEEDS)
def test_all_keep_the_same_samples(seed: int) -> None:
    """On a CPU."""
    random, compared = Random(seed), 0
    for _ in range(CONDITIONS):
        text, values = drawn(random, random.choice([1, 7, BLOCK - 1, BLOCK, BLOCK + 1, 3000]))
        try:
            of = of_dtypes(text, values)
        except ValueError as error:
            assert known(error)
            continue
        if of is None:
            continue
        compared += 1
        expected = kept_reference(parse(text, ["x", "i", "c"], ["m"]), values, len(values["x"]))
        check = KeptCheck.of(of)
        assert check is not None
        numbers = check.numbers(values)
        assert np.array_equal(numbers, np.flatnonzero(expected)), (text, {n: v.dtype for n, v in values.items()})
        assert np.array_equal(kept(of, values), expected), (text, {n: v.dtype for n, v in values.items()})
    assert compared > CONDITIONS / 2


EVALUATE = """
__global__ void evaluate_{number}(const {x}* x, const i64* i, const {c}* c, const u8* m, u8* mask, int n) {{
    for (int j = threadIdx.x; j < n; j += 64) mask[j] = keep_{number}(x[j], i[j], c[j], m[j]);
}}
"""


@pytest.mark.parametrize("seed", range(100, 100 + GENERATED))
def test_generated_conditions(seed: int, host: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As NumPy evaluates them, sample by sample; all of a seed are compiled together."""
    random, source, cases = Random(seed), tmp_path / f"conditions_{seed}.cu", list[tuple[str, dict[str, Any]]]()
    with source.open("w") as file:
        while len(cases) < 3 * CONDITIONS:
            text, values = drawn(random, 400)
            try:
                of = of_dtypes(text, values)
            except ValueError as error:
                assert known(error)
                continue
            if of is not None:
                dtypes = {name: value.dtype for name, value in values.items()}
                number = len(cases)
                file.write(condition_text(of, dtypes, f"keep_{number}"))
                c_types = {name: STORED[values[name].dtype.name] for name in "xc"}
                file.write(EVALUATE.format(number=number, **c_types))
                cases.append((text, values))
    instances = [f"evaluate_{number}" for number in range(len(cases))]
    monkeypatch.setitem(HOST.replaced, source.stem, together(source, instances))
    for instance, (text, values) in zip(instances, cases, strict=True):
        mask = host.zeros(len(values["x"]), np.uint8)
        arrays = [host.asarray(value if value.dtype != bool else value.view(np.uint8)) for value in values.values()]
        nvrtc.load(source, instance)((1,), (64,), (*arrays, mask, np.int32(len(values["x"]))))
        expected = kept_reference(parse(text, ["x", "i", "c"], ["m"]), values, len(values["x"]))
        assert np.array_equal(mask.get() != 0, expected), (text, {name: value.dtype for name, value in values.items()})


@pytest.mark.parametrize("architecture", ["sm_75", "sm_90a"])
def test_devices_compile_every_operation(architecture: str, tmp_path: Path) -> None:
    """On every dtype, without a warning; NVRTC needs no GPU."""
    require_compiler()
    source = tmp_path / "conditions.cu"
    text = "sqrt(x + 2) * 3 - x / c < abs(-x) or not (c != x or i >= x) and -x <= 1e-5 or x > i and m == (x == 0.5)"
    with source.open("w") as file:
        for number, (x, c) in enumerate(product(DTYPES, ("int8", "uint64", "float16"))):
            dtypes = {"x": np.dtype(x), "i": np.dtype(np.int64), "c": np.dtype(c), "m": np.dtype(bool)}
            file.write(condition_text(typed(parse(text, ["x", "i", "c"], ["m"]), dtypes), dtypes, f"keep_{number}"))
            file.write(EVALUATE.format(number=number, x=STORED[x], c=STORED[c]))
    _, cubin, log = nvrtc.compile_source(source, ["evaluate_0"], architecture)
    assert cubin and log == ""


@pytest.mark.parametrize("architecture", ["sm_75", "sm_90a"])
@pytest.mark.parametrize(("dtype", "texts", "instruction"), [
    # 13.0 and 13.5 make a constant of what `abs.f32` is compared with here, also for NaN.
    ("float32", ("abs(x) >= 0", "abs(x) < 0", "abs(x) != -1", "-abs(x) <= 0"), "LDG"),
    # 13.0 compares what 16 bits do not hold, if it is left to negate in 16 bits.
    ("int16", ("-x <= 0", "0 - x <= 0", "x * -1 <= 0", "-abs(x) <= 0"), "SGXT"),
])  # fmt: skip
def test_mistakes_of_the_assembler(
    architecture: str, dtype: str, texts: Sequence[str], instruction: str, tmp_path: Path
) -> None:
    """Machine code has the instruction that NVIDIA's assembler left out."""
    require_compiler()
    source = tmp_path / "compared.cu"
    dtypes = {"x": np.dtype(dtype), "i": np.dtype(np.int64), "c": np.dtype(np.int8), "m": np.dtype(bool)}
    with source.open("w") as file:
        for number, text in enumerate(texts):
            file.write(condition_text(typed(parse(text, ["x"], []), dtypes), dtypes, f"keep_{number}"))
            file.write(EVALUATE.format(number=number, x=STORED[dtype], c="i8"))
    for one in inspect(source, {text: f"evaluate_{number}" for number, text in enumerate(texts)}, architecture):
        assert any(re.search(rf"\b{instruction}\b", line) for line in one.listing), one.name


def together(source: Path, instances: list[str]) -> Loaded:
    """All kernels of a source in one library."""
    device._runtime(HOST.flavour)
    return open_library(compile_unit(unit(flatten(source), instances), HOST.flavour))


@pytest.mark.gpu
@pytest.mark.parametrize("seed", range(4))
def test_a_device_copies_what_is_kept(seed: int, cp: Any) -> None:
    """Conditions with columns and indices, compiled one by one."""
    random, compared = Random(1000 + seed), 0
    for _ in range(8 if not ON_GPU else 40):
        text, values = drawn(random, random.choice([2, 33, 1025, 3000]))
        try:
            by = masks(text, values, cp)
        except ValueError as error:
            assert known(error)
            continue
        compared += bool(by)
        for who, mask in by.items():
            assert np.array_equal(mask, by["NumPy"]), (who, text, {name: value.dtype for name, value in values.items()})
    assert compared


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["int64", "uint64"])
@pytest.mark.parametrize("number", [2**63 - 1, 2**63, 2**64 - 1, 2**53 + 1, -1, -(2**63) - 1, 2**70])
def test_integers_compare_exactly(dtype: str, number: int, cp: Any) -> None:
    """With Python's integers of any size, whatever float64 would make of them."""
    ends = np.iinfo(dtype)
    near = {number - 1, number, number + 1, 0, 1, int(ends.min), int(ends.max), 2**53, 2**53 + 2}
    x = np.array(sorted(value for value in near if ends.min <= value <= ends.max), dtype)
    for sign in ("<", "<=", "==", "!=", ">=", ">"):
        exact = np.array([eval(f"{value} {sign} {number}") for value in x.tolist()])
        values = {"x": x, "i": np.arange(len(x)), "c": x, "m": x == x}
        for who, mask in masks(f"x {sign} {number}", values, cp).items():
            assert np.array_equal(mask, exact), (who, sign)


@pytest.mark.gpu
def test_int64_and_uint64_compare_exactly(cp: Any) -> None:
    a, b = np.array([-1, 2**53 + 1, 2**63 - 1, -(2**63)]), np.array([2**64 - 1, 2**53, 2**63, 0], np.uint64)
    for sign in ("<", "==", ">"):
        exact = np.array([eval(f"{x} {sign} {c}") for x, c in zip(a.tolist(), b.tolist(), strict=True)])
        for who, mask in masks(f"x {sign} c", {"x": a, "i": np.arange(4), "c": b, "m": a == a}, cp).items():
            assert np.array_equal(mask, exact), (who, sign)


def test_numbers_take_the_dtype_of_samples() -> None:
    """As in NumPy: 0.1 is float32(0.1) beside float32, and integers wrap."""
    x = np.array([0.1, 0.2], np.float32)
    keep = kept(typed(parse("x == 0.1", ["x"]), {"x": x.dtype}), {"x": x})
    assert keep.tolist() == [True, False]
    small = np.array([127, 1], np.int8)
    keep = kept(typed(parse("x + 1 < 0", ["x"]), {"x": small.dtype}), {"x": small})
    assert keep.tolist() == [True, False]


@pytest.mark.gpu
def test_the_sign_of_a_zero_matters(cp: Any) -> None:
    """Conditions that differ in it alone are equal to Python."""
    x = np.array([1.0, -1.0])
    for number, mask in (("0.0", [True, False]), ("-0.0", [False, True])):
        for who, got in masks(f"x / {number} > 0", {"x": x, "i": np.arange(2), "c": x, "m": x == x}, cp).items():
            assert got.tolist() == mask, (who, number)


@pytest.mark.gpu
def test_one_answer_for_all_samples(cp: Any) -> None:
    x = np.arange(5, dtype=np.int8)
    for text, all_of in (("True", True), ("1 > 2", False), ("x < 300", True), ("x == 300 or 300 < x", False)):
        for who, mask in masks(text, {"x": x, "i": np.arange(5), "c": x, "m": x == x}, cp).items():
            assert mask.tolist() == [all_of] * 5, (who, text)


def test_a_wrong_node_is_told() -> None:
    with pytest.raises(ValueError, match=r"fits int8.* got 300 \(at character 1\); write 300\.0"):
        typed(parse("x + 300 < 5", ["x"]), {"x": np.dtype(np.int8)})
    with pytest.raises(KeyError):
        typed(Node("name", value="gone"), {})


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_device_knows_what_no_size_is(dtype: str, cp: Any) -> None:
    """NVIDIA's assembler holds |x| >= 0 to be true of NaN; the least integer has no opposite."""
    x = hostile(dtype, 300, np.random.default_rng(0))
    values = {"x": x, "i": np.arange(300), "c": np.zeros(300, np.int8), "m": np.ones(300, bool)}
    sizes = "abs(x) >= 0", "abs(x) < 0", "abs(x) > -1", "abs(x) < 1", "abs(x) != -1", "-abs(x) <= 0"
    for text in (*sizes, "-x <= 0", "-x > x", "x * -1 < 1", "x - 1 - x < 0", "x + x < 0", "x * x < 0"):
        by = masks(text, values, cp)
        assert not by or np.array_equal(by["device"], by["NumPy"]), text
