"""Every element of a product of floats within gamma(K) of |A||B|, in rational arithmetic; which ones are uncertain."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.matmul import certificate
from kernels.matmul.certificate import Certificate
from kernels.matmul.cpu import CpuProduct
from kernels.matmul.formats import BITS, FORMATS, HALF_WAY, LOST, MOST_PRODUCTS, MOST_TOTAL
from kernels.matmul.residue import ResidueProduct
from tests.cases.matmul import (
    FLOATS,
    KINDS,
    Array,
    defined,
    factors,
    generator,
    mixed,
    on_cpu,
    overflowing,
    same_bits,
    with_uncertain,
)

SIZES = ((1, 1, 1), (3, 2, 4), (4, 3, 4), (5, 40, 6))


def assert_within_bound(a: Array, b: Array, result: Array) -> None:
    """|C - AB| <= gamma(K) |A||B|, and half of the least number for each product that may underflow."""
    format, inner = FORMATS[result.dtype.name], a.shape[1]
    unit = Fraction(1, 2**format.precision)
    gamma = format.gamma_terms(inner) * unit / (1 - format.gamma_terms(inner) * unit)
    least = Fraction(2) ** (format.least - 1) * (inner if format.precision == 53 else 1)
    too_large = Fraction(2) ** format.top * (1 - unit / 2)
    for i, row in enumerate(a.tolist()):
        for j, column in enumerate(b.T.tolist()):
            if not np.isfinite([*row, *column]).all():
                continue
            terms = [Fraction(x) * Fraction(y) for x, y in zip(row, column, strict=True)]
            exact, bound, got = sum(terms), gamma * sum(map(abs, terms)) + least, float(result[i, j])
            if np.isinf(got):
                assert exact * int(np.sign(got)) + bound >= too_large, (i, j)
            else:
                assert abs(Fraction(got) - exact) <= bound, (i, j, got, float(exact))
            assert any(terms) or repr(got) == "0.0"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_every_element_is_within_the_bound(dtype: str, kind: str) -> None:
    for sizes in SIZES:
        a, b = factors(kind, dtype, *sizes)
        assert_within_bound(a, b, on_cpu(a, b))


@pytest.mark.parametrize("least", [-1000, -990, -500])
@pytest.mark.parametrize("other", KINDS)
def test_mixtures_from_end_to_end_meet_any_others(other: str, least: int) -> None:
    """Magnitudes of 2^±1000, and factors whose scales fit the format only in the product."""
    random = generator("ends", other, least)
    a = np.ldexp(random.uniform(1, 2, (6, 30)), random.choice([least, 0, 1000], (6, 30)))
    for b in (factors(other, "float64", 1, 30, 5)[1], np.ldexp(random.uniform(-2, -1, (30, 5)), -least - 1)):
        assert_within_bound(a, b, on_cpu(a, b))


@settings(max_examples=60, deadline=None)
@given(data=st.data(), dtype=st.sampled_from(FLOATS), inner=st.integers(1, 7))
def test_any_numbers(data: st.DataObject, dtype: str, inner: int) -> None:
    width = np.dtype(dtype).itemsize * 8
    numbers = st.floats(width=width, allow_nan=False, allow_infinity=False)  # type: ignore[call-overload]
    a, b = (np.array(data.draw(st.lists(numbers, min_size=inner, max_size=inner)), dtype) for _ in range(2))
    got = on_cpu(a.reshape(1, -1), b.reshape(-1, 1))
    same_bits(got, defined(a.reshape(1, -1), b.reshape(-1, 1)))
    assert_within_bound(a.reshape(1, -1), b.reshape(-1, 1), got)


def test_sums_that_overflow_on_the_way() -> None:
    """Rounded terms overflow to infinity; the elements are recomputed with a scale that avoids it."""
    a, b = overflowing(5, 32, 4)
    with np.errstate(all="ignore"):
        assert not np.isfinite(np.add.accumulate(a[:, :, None] * b[None], axis=1)[:, -1]).any()
    got, uncertain = with_uncertain(a, b)
    assert np.isfinite(got).all() and uncertain == got.size
    same_bits(got, defined(a, b))
    assert_within_bound(a, b, got)


def test_doubtful_elements_are_those_that_have_to_be() -> None:
    assert with_uncertain(*factors("ordinary", "float64", 40, 60, 40))[1] == 0
    for inner in (1, 5):  # nothing is rounded
        ones = np.arange(1.0, 7 * inner + 1).reshape(-1, inner)
        assert with_uncertain(ones, ones.T.copy())[1] == 0
    small = np.array([[2.0**900, 1.0], [1.0, 1.0]])  # 1.0 vanishes next to 2^900
    got, uncertain = with_uncertain(small, np.array([[0.0], [1.0]]))
    assert uncertain == 1 and got.tolist() == [[1.0], [1.0]]
    triangle = np.triu(mixed("float64", (12, 12)))
    assert with_uncertain(triangle, triangle)[1] <= 12 * 13 // 2  # the others have no terms, as the zeros show


@pytest.mark.parametrize("dtype", FLOATS)
def test_certain_elements_are_within_the_bound(dtype: str) -> None:
    """The certificate's bound holds before uncertain elements are recomputed."""
    certain = 0
    for seed in range(40):
        random = generator(dtype, seed)
        inner, spread = int(random.integers(1, 12)), int(random.integers(1, 20 if dtype == "float16" else 90))
        shapes = ((6, inner), (inner, 6))
        a, b = (
            np.ldexp(random.uniform(-1, 1, shape), -random.integers(0, spread, shape)).astype(dtype)
            * (random.random(shape) < 0.8).astype(dtype)
            for shape in shapes
        )  # fmt: skip
        product = CpuProduct((a.dtype, b.dtype), a.dtype)
        product.measure(a, b)
        product.add(a, b)
        got = product.finish()
        assert product.certificate
        for i, j in np.argwhere(product.certificate.certain()):
            assert_within_bound(a[i : i + 1], b[:, j : j + 1], got[i : i + 1, j : j + 1])
            certain += 1
    assert certain > 100


def test_sizes_of_what_is_counted() -> None:
    """Products of magnitudes add up exactly in float32, scaled sums do not overflow, exponents stay normal."""
    assert certificate.INNER * (2**BITS - 1) ** 2 < 2**24
    assert 2 * HALF_WAY + MOST_PRODUCTS.bit_length() <= 1023
    assert all(2 * (1 - LOST) + format.precision >= -1022 for format in FORMATS.values())
    for format in FORMATS.values():
        assert format.gamma_terms(3) == 3 and format.gamma_terms(2**28) * 2.0**-format.precision < 0.13
        assert format.share(3) == 1.0


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["mixed", "blocks", "huge", "special", "close"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_as_many_on_a_device(cp: Any, dtype: str, kind: str) -> None:
    """As many elements are uncertain as on the CPU, with the same bits."""
    a, b = factors(kind, dtype, 33, 70, 21)
    product = ResidueProduct((a.dtype, b.dtype), a.dtype, 70)
    parts = cp.asarray(a), cp.asarray(b)
    product.measure(*parts)
    product.add(*parts)
    got = product.finish()
    while product.needs_recompute():
        product.recompute(*parts)
    expected, uncertain = with_uncertain(a, b)
    same_bits(got.get(), expected)
    assert product.uncertain == uncertain and (uncertain or dtype == "float16" or kind == "special")
    alone = ResidueProduct((a.dtype, b.dtype), a.dtype, 0)
    alone.measure(cp.asarray(a[:, :0].copy()), cp.asarray(b[:0].copy()))
    alone.add(cp.asarray(a[:, :0].copy()), cp.asarray(b[:0].copy()))
    assert not alone.finish().get().any() and alone.uncertain == 0 and not alone.needs_recompute()


@pytest.mark.parametrize("inner", [1, 2, 3, 64, 4096, 10**6])
@pytest.mark.parametrize("dtype", FORMATS)
def test_enough_is_enough(dtype: str, inner: int) -> None:
    """Rows of the largest numbers, all moved by half a unit, are certain from that total on."""
    format = FORMATS[dtype]
    enough = format.enough(inner)
    certificate = Certificate(format)
    certificate.inner, certificate.totals = inner, np.array([float(enough)])
    for line in certificate.lines:
        line.size, line.loss = np.array([2.0**BITS * inner]), np.array([float(BITS - format.kept)])
        line.first, line.end = np.array([0]), np.array([inner])
    assert enough == MOST_TOTAL or certificate.certain().all()
    assert inner < 64 or enough <= 2**15


@pytest.mark.parametrize("inner", [1 << power for power in range(18, 29)])
@pytest.mark.parametrize("dtype", FORMATS)
def test_what_saturates_is_certain(dtype: str, inner: int) -> None:
    """Whatever sums of more than 2**18 products of leading bits are: so a check need not saturate them."""
    format = FORMATS[dtype]
    certificate = Certificate(format)
    certificate.inner, certificate.totals = inner, np.array([float(MOST_TOTAL)])
    for line in certificate.lines:
        line.size, line.loss = np.array([2.0**BITS * inner]), np.array([float(BITS - format.kept)])
        line.first, line.end = np.array([0]), np.array([inner])
    assert certificate.certain().all() and (2**BITS - 1) ** 2 * (1 << 18) < MOST_TOTAL
