"""The exact product on the CPU against its definition and exact rational arithmetic; the source of the kernels."""

from __future__ import annotations

import re
from fractions import Fraction
from math import gcd
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.common import nvrtc
from kernels.matmul import cpu
from kernels.matmul.cpu import CpuProduct
from kernels.matmul.formats import DTYPES, FORMATS, MODULI, MOST_PRODUCTS, bits_of, moduli_for, multiplied, result_dtype
from kernels.matmul.reference import rounded
from kernels.matmul.rounding import WORDS, to_float, to_integer
from tests.cases.matmul import EVERY_KIND, FLOATS, defined, factors, on_cpu, same_bits

KERNELS, NUMBERS = ((nvrtc.KERNELS / f"matmul/{name}").read_text() for name in ("gpu.cu", "numbers.cuh"))


@pytest.mark.parametrize(("dtype", "kind"), EVERY_KIND)
def test_product_is_the_defined_one(dtype: str, kind: str) -> None:
    for sizes in ((1, 1, 1), (3, 40, 4), (7, 3, 2)):
        a, b = factors(kind, dtype, *sizes)
        same_bits(on_cpu(a, b), defined(a, b))


@settings(max_examples=25, deadline=None)
@given(data=st.data(), dtype=st.sampled_from(FLOATS), inner=st.integers(0, 6))
def test_any_numbers(data: st.DataObject, dtype: str, inner: int) -> None:
    """Within the bound that docs/matmul.md states, in rational arithmetic; by definition where not finite."""
    width = np.dtype(dtype).itemsize * 8
    numbers = st.floats(width=width)  # type: ignore[call-overload]
    row = data.draw(st.lists(numbers, min_size=inner, max_size=inner))
    column = data.draw(st.lists(numbers, min_size=inner, max_size=inner))
    a, b = np.array([row], dtype).reshape(1, inner), np.array([column], dtype).reshape(inner, 1)
    result = on_cpu(a, b)
    same_bits(result, defined(a, b))
    if not np.isfinite([*row, *column, result[0, 0]]).all():
        return
    format, (x, y) = FORMATS[dtype], ([Fraction(v) for v in values] for values in (row, column))
    unit = Fraction(1, 2**format.kept)
    top_x, top_y = (max(map(abs, values), default=Fraction(0)) for values in (x, y))
    truncated = unit * (top_x * sum(map(abs, y)) + top_y * sum(map(abs, x)) + inner * unit * top_x * top_y)
    got = Fraction(float(result[0, 0]))
    half = max(abs(got) / 2**format.precision, Fraction(2) ** (format.least - 1))
    assert abs(got - sum(p * q for p, q in zip(x, y, strict=True))) <= truncated + half


@pytest.mark.parametrize("dtype", FLOATS)
def test_products_without_truncation_are_rounded_correctly(dtype: str) -> None:
    """Exact if rows and columns fit the kept bits, even if all but the last bit cancels."""
    random, bits = np.random.default_rng(5), FORMATS[dtype].precision
    a = random.integers(-(2 ** (bits - 1)), 2 ** (bits - 1), (5, 64)).astype(dtype)
    a[:, 32:] = -a[:, :32]
    a[:, 5] += 1
    b = np.repeat(random.integers(1, 2 ** (bits - 1), (1, 3)), 64, 0).astype(dtype)
    if dtype == "float16":
        b /= 2**9
    for i, j in np.ndindex(5, 3):
        exact = sum(Fraction(float(p)) * Fraction(float(q)) for p, q in zip(a[i], b[:, j], strict=True))
        assert Fraction(float(on_cpu(a, b)[i, j])) == Fraction(float(np.array(float(exact)).astype(dtype)))


@pytest.mark.parametrize("dtype", ["float64", "float32", "int32", "uint64"])
def test_any_parts(monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    kind = "special" if dtype in FLOATS else "mixed"
    a, b = factors(kind, dtype, 6, 90, 7)
    expected = on_cpu(a, b)
    for step, inner in ((90, 7), (13, 5), (1, 2048)):
        monkeypatch.setattr(cpu, "INNER", inner)
        product = CpuProduct((a.dtype, b.dtype), expected.dtype)
        parts = [(a[:, i : i + step], b[i : i + step]) for i in range(0, 90, step)]
        with np.errstate(all="ignore"):
            same_bits(multiplied(product, lambda parts=parts: parts), expected)


def test_stacks_broadcast() -> None:
    random = np.random.default_rng(0)
    a, b = random.standard_normal((3, 1, 4, 5)), random.standard_normal((2, 5, 6))
    got = on_cpu(a, b)
    assert got.shape == (3, 2, 4, 6)
    for i, j in np.ndindex(3, 2):
        same_bits(got[i, j], on_cpu(a[i, 0], b[j]))
    np.testing.assert_allclose(got, a @ b, rtol=1e-12, atol=1e-13)


@settings(max_examples=120, deadline=None)
@given(st.integers(-(2**158), 2**158), st.integers(-2500, 2500), st.sampled_from(FLOATS), st.integers(0, 158))
def test_rounding(value: int, exponent: int, dtype: str, shift: int) -> None:
    """Wide integers, some with many zeros, around the limits of a format."""
    format = FORMATS[dtype]
    for number in (value, value >> shift, value >> shift << shift, (value >> shift << shift) + 1, 0):
        for power in (exponent, format.least - shift, format.top - abs(number).bit_length()):
            words = [np.array([number >> 64 * i & 2**64 - 1], np.uint64) for i in range(WORDS)]
            with np.errstate(all="ignore"):
                got = to_float(words, np.array([power]), format)
            assert repr(float(got[0])) == repr(rounded(number, power, format)) and got.dtype == dtype


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_integers_that_do_not_fit(dtype: str) -> None:
    info = np.iinfo(dtype)
    for value in (info.min, info.max, 0, -1, info.min - 1, info.max + 1, 2**100, -(2**100), 2**64):
        words = [np.array([n >> 64 * i & 2**64 - 1 for n in (5, value)], np.uint64) for i in range(WORDS)]
        if info.min <= value <= info.max:
            assert to_integer(words, np.dtype(dtype)).tolist() == [5, value]
        else:
            with pytest.raises(OverflowError, match=rf"from {info.min} to {info.max}, got the sum {value}, outside"):
                to_integer(words, np.dtype(dtype))


def test_moduli() -> None:
    assert all(gcd(p, q) == 1 for i, p in enumerate(MODULI) for q in MODULI[:i])
    assert len(MODULI) == 21 and MODULI[0] == 256 and MODULI[-1] == 167
    assert moduli_for(2 * 55, 4096) == 16 and moduli_for(2 * 31, 4096) == 10
    assert moduli_for(2 * 64, MOST_PRODUCTS) == len(MODULI)
    with pytest.raises(ValueError, match="expected at most"):
        moduli_for(2 * 64, 2**40)


def test_residues_are_found_in_float32() -> None:
    """The quotient in `residue` of matmul/residues.cuh, near multiples of the modulus and for 256: the remainder of any
    sum of bytes fits eight bits, because the quotient is never so small that an odd modulus leaves 128."""
    largest = 8 * 255 * 128 + 255
    assert largest < 2**19 and 2**23 + 2**19 + 256 * 256 + largest < 2**24
    for modulus in MODULI:
        nearest = np.float32(1) / np.float32(modulus)
        exact = Fraction(1, modulus)
        inverse = Fraction(float(nearest if float(nearest) * modulus >= 1 else np.nextafter(nearest, np.float32(1))))
        assert Fraction(0) <= inverse - exact and np.float32(float(inverse)) == float(inverse)
        base = 256 * modulus * ((2**23 + 2**19) // (256 * modulus) + 1)
        # How much too large the quotient is, before it is rounded: times the modulus, of what is left.
        most = (inverse - exact) * (base + largest) * modulus
        least = (inverse - exact) * (base - largest) * modulus
        assert least >= 0 and Fraction(modulus, 2) + most < (129 if modulus % 2 else Fraction(257, 2))
        assert modulus % 2 or most == 0


def test_source_says_what_it_holds() -> None:
    header, _, rest = KERNELS.partition("#include")
    listed = re.findall(r"^//   (\w+) ", header, re.MULTILINE)
    assert listed == re.findall(r"__global__ void __launch_bounds__\([^\n]*\)\n(\w+)\(", rest) and len(listed) == 10
    for format in FORMATS.values():
        bits = f"{format.precision}, {format.least}, KEPT_{format.dtype[5:]}>"
        assert re.search(rf"using F{format.dtype[1:]} = Float<\w+, \w+, {bits}", NUMBERS)


def test_dtypes() -> None:
    def of(*names: str) -> str:
        return result_dtype([np.dtype(name) for name in names]).name

    assert (
        of("int8", "uint64") == "int64" and of("float32", "int32") == "float64" and of("float16", "int8") == "float16"
    )
    with pytest.raises(TypeError, match="expected matrices of integers, float16, float32 or float64, got complex64"):
        of("complex64", "float32")
    assert [bits_of(np.dtype(name)) for name in ("int8", "uint8", "float32", "float64")] == [7, 8, 31, 55]


def test_pieces_add_up_without_rounding() -> None:
    """For any dtypes and as many products as are added at a time."""
    counts: list[Any] = [-(-(bits_of(np.dtype(dtype)) + 1) // cpu.PIECE) for dtype in DTYPES]
    assert max(counts) * cpu.INNER * 2 ** (2 * cpu.PIECE - 2) <= 2**53
