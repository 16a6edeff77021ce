"""check.cpp, and NumPy where there is no compiler, against exact fractions; every wrong bit is found."""

from __future__ import annotations

import ast
import itertools
import math
import re
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy
from numpy.typing import NDArray

from kernels.map import check as module
from kernels.map.check import OPERATIONS, TYPES, numpy_results, operands_at, right_results, wrong_places
from kernels.map.promotion import combine
from tests.cases import cpp as cpp_cases
from tests.emulator.inputs import c_code

SOURCE = module.SOURCE
pytestmark = pytest.mark.usefixtures("by")

FLOATS = ("float16", "float32", "float64")
ROUNDED = ("add", "subtract", "multiply", "multiply_add")
PATCHED = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def words(array: NDArray[Any]) -> NDArray[Any]:
    return array.view(f"u{array.dtype.itemsize}")


def operands(operation: str) -> int:
    return 3 if operation == "multiply_add" else 2


def random_bits(dtype: str, size: int, seed: int = 0) -> NDArray[Any]:
    return np.frombuffer(np.random.default_rng(seed).bytes(size * np.dtype(dtype).itemsize), dtype)


def results(arrays: Sequence[NDArray[Any]], operation: str) -> NDArray[Any]:
    """By compiled code or NumPy, whichever the test is about."""
    got = right_results(arrays, operation)
    return numpy_results(arrays, operation) if got is None else got


# --- exact fractions --------------------------------------------------------------------------------------------------


def rounded(exact: Fraction, dtype: str) -> float:
    """To nearest, ties to even, by the definition; infinite from half a step beyond the largest number on."""
    info = np.finfo(dtype)
    if not exact:
        return 0.0
    size = abs(exact)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    step = Fraction(2) ** max(exponent - info.nmant, int(info.minexp) - info.nmant)
    near = round(size / step) * step  # Python rounds ties to even
    result = math.inf if near >= Fraction(2) ** int(info.maxexp) else float(near)
    return result if exact > 0 else -result


def sum_of(a: float, b: float, dtype: str) -> float:
    if not (math.isfinite(a) and math.isfinite(b)):
        return a + b
    if a == b == 0:
        return -0.0 if math.copysign(1, a) == math.copysign(1, b) == -1 else 0.0
    return rounded(Fraction(a) + Fraction(b), dtype)


def product_of(a: float, b: float, dtype: str) -> float:
    if not (math.isfinite(a) and math.isfinite(b)):
        return a * b
    return math.copysign(rounded(Fraction(a) * Fraction(b), dtype), math.copysign(1, a) * math.copysign(1, b))


def exactly(operation: str, numbers: Sequence[float], dtype: str) -> float:
    a, b = numbers[:2]
    if operation == "multiply_add":
        return sum_of(product_of(a, b, dtype), numbers[2], dtype)
    if operation == "multiply":
        return product_of(a, b, dtype)
    return sum_of(a, -b if operation == "subtract" else b, dtype)


def compare(arrays: Sequence[NDArray[Any]], operation: str) -> None:
    """Every result with that of fractions, bit for bit."""
    dtype = str(arrays[0].dtype)
    expected = [exactly(operation, numbers, dtype) for numbers in zip(*(a.tolist() for a in arrays), strict=True)]
    right = np.array(expected).astype(dtype)
    right[np.isnan(right)] = np.nan
    np.testing.assert_array_equal(words(results(arrays, operation)), words(right))


def hard(dtype: str) -> NDArray[Any]:
    """Numbers whose sums and products are ties, nearly ties, subnormal, cancelling, overflowing or far apart."""
    info = np.finfo(dtype)
    width = info.nmant + 1
    least, most = int(info.minexp), int(info.maxexp) - 1
    apart = (1, 2, width - 1, width, width + 1, width + 2, width + 3)
    exponents = {0, least, least + 1, most, most - 1, least // 2, least // 2 - 1, most // 2, most // 2 + 1}
    exponents |= {sign * by for by in apart for sign in (1, -1)} | {most - width, most - width - 1}
    eps = float(info.eps)
    numbers = [math.ldexp(one, k) for k in sorted(exponents) if least <= k <= most for one in (1, 1 + eps, 2 - eps)]
    numbers += [math.ldexp(n, least - info.nmant) for n in (0, 1, 2, 3, 2**info.nmant - 1)] + [1.5, math.inf]
    return np.array([*numbers, *(-number for number in numbers), math.nan]).astype(dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("operation", ROUNDED)
def test_hard_pairs_are_rounded_exactly(dtype: str, operation: str) -> None:
    a, b = (part.reshape(-1) for part in np.meshgrid(hard(dtype), hard(dtype)))
    if operation == "multiply_add":
        random = np.random.default_rng(0)
        chosen = random.integers(len(a), size=4000)
        a, b = a[chosen], b[chosen]
        compare([a, b, random.choice(hard(dtype), len(a))], operation)
    else:
        compare([a, b], operation)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("operation", ROUNDED)
def test_random_bits_and_near_exponents_are_rounded_exactly(dtype: str, operation: str) -> None:
    compare([random_bits(dtype, 3000, seed) for seed in range(operands(operation))], operation)
    near = np.random.default_rng(1).uniform(-4, 4, (operands(operation), 2000)).astype(dtype)
    compare(list(near), operation)
    tiny = np.finfo(dtype).tiny
    compare([near[0] * tiny, *near[1:]] if "multiply" in operation else list(near * tiny), operation)


@PATCHED
@given(data=st.data(), dtype=st.sampled_from(FLOATS), operation=st.sampled_from(ROUNDED))
def test_any_bits_are_rounded_exactly(data: st.DataObject, dtype: str, operation: str) -> None:
    info = np.finfo(dtype)
    exponents, fractions = st.integers(0, 2**info.iexp - 1), st.integers(0, 2**info.nmant - 1)
    number = st.tuples(st.booleans(), exponents, fractions).map(
        lambda parts: (parts[0] << info.iexp | parts[1]) << info.nmant | parts[2]
    )
    arrays = [np.array([data.draw(number)], f"u{info.dtype.itemsize}").view(dtype) for _ in range(operands(operation))]
    compare(arrays, operation)


def test_known_roundings() -> None:
    """Written out: ties, a tie broken by the last bit far below, gradual underflow, the edge of overflow, two steps."""
    most, least = float(np.finfo("float64").max), 5e-324
    for operation, numbers, right in [
        ("add", (1.0, 2.0**-53), 1.0), ("add", (1 + 2.0**-52, 2.0**-53), 1 + 2.0**-51),
        ("add", (1.0, 2.0**-53 + 2.0**-105), 1 + 2.0**-52), ("add", (1.0, -(2.0**-54)), 1.0),
        ("add", (1.0, -(2.0**-54) - 2.0**-106), 1 - 2.0**-53), ("subtract", (2.0**53, -1.0), 2.0**53),
        ("add", (1.0, least), 1.0), ("subtract", (1.0, least), 1.0),
        ("subtract", (2.0**-1022, least), 2.0**-1022 - least),
        ("add", (most, 2.0**969), most), ("add", (most, 2.0**970), math.inf), ("multiply", (2.0**-538, 2.0**-537), 0.0),
        ("multiply", (2.0**-538, 1.5 * 2.0**-537), least), ("multiply", (-least, 0.5), -0.0), ("add", (3.0, -3.0), 0.0),
        ("add", (-0.0, -0.0), -0.0), ("subtract", (-0.0, 0.0), -0.0), ("subtract", (0.0, 0.0), 0.0),
        ("multiply_add", (1 + 2.0**-52, 1 + 2.0**-52, -1 - 2.0**-51), 0.0), ("multiply_add", (-0.0, 1.0, 0.0), 0.0),
        ("minimum", (0.0, -0.0), -0.0), ("maximum", (-0.0, 0.0), 0.0), ("minimum", (-math.inf, math.nan), math.nan),
        ("multiply", (0.0, math.inf), math.nan), ("subtract", (math.inf, math.inf), math.nan),
    ]:  # fmt: skip
        got = results([np.array([number]) for number in numbers], operation)
        assert words(got).tolist() == words(np.array([right])).tolist(), (operation, numbers)


# --- wrong results ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_flipped_bit_of_every_result_is_found(operation: str, dtype: str) -> None:
    """Random bits and hard numbers: the next float, the other zero and other bits of NaN included."""
    arrays = [random_bits(dtype, 400, seed).copy() for seed in range(operands(operation))]
    if dtype in FLOATS:
        random = np.random.default_rng(2)
        for array in arrays:
            array[:300] = random.choice(hard(dtype), 300)
    right = combine(arrays, operation)
    assert wrong_places(right, arrays, operation).tolist() == []
    for bit in range(8 * right.itemsize):
        wrong = (words(right) ^ words(right).dtype.type(1 << bit)).view(dtype)
        np.testing.assert_array_equal(wrong_places(wrong, arrays, operation), np.arange(400))


@pytest.mark.parametrize("dtype", ["int8", "float16", "float64"])
def test_errors_of_long_arrays_are_located(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In any chunk, in the first and last elements, in arrays that are not contiguous."""
    monkeypatch.setattr(module, "CHUNK", 1000)
    a, b = (random_bits(dtype, 40_000, seed).reshape(4, 100, 100)[:, ::2] for seed in range(2))
    right = combine([a.copy(), b.copy()], "add")
    assert wrong_places(right, [a, b], "add").size == 0
    places = [0, 999, 1000, 7777, 19_998, 19_999]
    wrong = right.copy()
    words(wrong).reshape(-1)[places] ^= 1
    assert wrong_places(wrong, [a, b], "add").tolist() == places
    x, y = operands_at(np.array(places), right.shape, [a, b])
    assert (x.tobytes(), y.tobytes()) == tuple(part.reshape(-1)[places].tobytes() for part in (a, b))


@st.composite
def broadcast(draw: st.DrawFn) -> tuple[str, list[NDArray[Any]]]:
    """An operation, and arrays of any dtypes whose shapes broadcast."""
    operation = draw(st.sampled_from(OPERATIONS))
    shapes = draw(st_numpy.mutually_broadcastable_shapes(num_shapes=operands(operation), min_side=0, max_side=6))
    dtypes = [draw(st.sampled_from(TYPES)) for _ in shapes.input_shapes]
    return operation, [draw(st_numpy.arrays(*pair)) for pair in zip(dtypes, shapes.input_shapes, strict=True)]


@PATCHED
@given(case=broadcast(), chunk=st.integers(1, 100), data=st.data())
def test_arrays_are_broadcast_and_promoted(
    case: tuple[str, list[NDArray[Any]]], chunk: int, data: st.DataObject
) -> None:
    operation, arrays = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK", chunk)
        right = np.array(combine(arrays, operation))
        assert wrong_places(right, arrays, operation).tolist() == []
        if right.size:
            place = data.draw(st.integers(0, right.size - 1))
            words(right.reshape(-1))[place] ^= 1 << data.draw(st.integers(0, 8 * right.itemsize - 1))
            assert wrong_places(right, arrays, operation).tolist() == [place]


@pytest.mark.parametrize("integers", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("floats", FLOATS)
def test_integers_become_floats_rounded_to_nearest(integers: str, floats: str) -> None:
    """Around every power of two, where 64-bit integers are ties, or nearly."""
    info = np.iinfo(integers)
    near = {sign * (2**k + by) for k in range(65) for by in (-1025, -1024, -1, 0, 1, 3, 1024, 1025) for sign in (1, -1)}
    numbers = sorted(number for number in near if info.min <= number <= info.max)
    least = np.full(len(numbers), -np.inf, floats)
    got = results([np.array(numbers, integers), least], "maximum")
    assert got.dtype == np.result_type(integers, floats)
    assert got.tolist() == [rounded(Fraction(number), str(got.dtype)) for number in numbers]


def test_a_product_of_other_dtype_is_rounded_before_it_is_promoted() -> None:
    """int8 * uint8 is int16, float16 * float16 is rounded to float16, whatever is added."""
    for dtypes in itertools.product(TYPES, repeat=3):
        arrays = [random_bits(dtype, 50, seed) for seed, dtype in enumerate(dtypes)]
        with np.errstate(all="ignore"):
            expected = np.add(np.multiply(arrays[0], arrays[1]), arrays[2])
        got = results(arrays, "multiply_add")
        if got.dtype.kind == "f":
            expected[np.isnan(expected)] = np.nan
        assert got.dtype == expected.dtype and got.tobytes() == expected.tobytes()


def test_arrays_that_would_be_misread_are_refused() -> None:
    a = np.zeros(3)
    for arrays in ([a, a.astype(">f8")], [a, a.astype(complex)], [a.astype(bool), a], [a, a.astype(np.longdouble)]):
        with pytest.raises(TypeError, match=r"^expected integers or floats in native byte order, got "):
            wrong_places(a, arrays, "add")
    with pytest.raises(TypeError, match=r"^result: expected float64, got float32$"):
        wrong_places(a.astype(np.float32), [a, a], "add")
    with pytest.raises(ValueError, match=r"^result: expected shape \(2, 3\), got \(3,\)$"):
        wrong_places(a, [a, np.zeros((2, 1))], "add")


# --- independence -----------------------------------------------------------------------------------------------------


def test_the_check_shares_no_code_with_what_it_checks() -> None:
    """No header of the kernels, no type of floats, no module that computes."""
    sources = [SOURCE, *SOURCE.parent.glob("*.hpp")]
    code = "\n".join(c_code(path.read_text("utf-8")) for path in sources)
    included = set(re.findall(r"#\s*include\s*(\S+)", code))
    assert included == {"<cstddef>", "<cstdint>", *(f'"{path.name}"' for path in sources[1:])}
    assert re.findall(r"\b(?:float|double|_Float\w*|asm|__asm__)\b", code) == []
    tree = ast.parse(Path(module.__file__).read_text("utf-8"))
    names = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    assert {name for name in names if name.startswith("kernels")} == {"kernels.common", "kernels.map.reference"}


def test_every_pair_of_dtypes_agrees_with_numpy(by: str) -> None:
    if by == "compiled":
        assert cpp_cases.check_map() > 400_000
