"""Products of float16 and float32 on the CPU: the bits of the exact product, whichever elements are deferred."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernels.matmul import cpu_narrow
from kernels.matmul.cpu import CpuProduct
from kernels.matmul.cpu_narrow import NarrowCpuProduct, product_on_cpu
from kernels.matmul.formats import multiplied
from tests.cases.matmul import KINDS, Array, defined, factors, generator, late, same_bits, strange

NARROW = ("float16", "float32")


@pytest.fixture(params=["compiled", "NumPy"], autouse=True)
def _computed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With and without a C++ compiler."""
    if request.param == "NumPy":
        monkeypatch.setattr(cpu_narrow, "functions", lambda: None)


def both(a: Array, b: Array, step: int | None = None) -> NarrowCpuProduct:
    """The product, after comparing it with the exact one: same bits, as many elements term by term; in parts."""
    length = a.shape[-1]
    starts = range(0, max(1, length), step or max(1, length))
    parts = [(a[..., i : i + (step or length)], b[..., i : i + (step or length), :]) for i in starts]
    exact, narrow = CpuProduct((a.dtype, b.dtype), a.dtype), NarrowCpuProduct(a.dtype)
    with np.errstate(all="ignore"):
        expected = multiplied(exact, lambda: parts)
        same_bits(multiplied(narrow, lambda: parts), expected)
        if len(parts) == 1:
            out = np.empty((len(a), b.shape[1]), a.dtype) if a.ndim == b.ndim == 2 else None
            whole = NarrowCpuProduct(a.dtype, True, out)
            got = multiplied(whole, lambda: parts)
            same_bits(got, expected)
            assert whole.uncertain == exact.uncertain
            same_bits(got if out is None or cpu_narrow.functions() is None or not length else out, expected)
    assert narrow.uncertain == exact.uncertain
    return narrow


def left_open(a: Array, b: Array) -> list[tuple[int, int]]:
    """Deferred elements: number of axes of their places, and how many there are."""
    product = NarrowCpuProduct(a.dtype)
    with np.errstate(all="ignore"):
        product.measure(a, b)
        product.add(a, b)
        product.finish()
    return [(len(deferred.places), len(deferred.places[0])) for deferred in product.deferred]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", NARROW)
def test_same_bits_as_the_exact_product(monkeypatch: pytest.MonkeyPatch, dtype: str, kind: str) -> None:
    for sizes in ((1, 1, 1), (3, 40, 4), (7, 3, 2), (70, 300, 40), (300, 64, 50)):
        a, b = factors(kind, dtype, *sizes)
        for step in (None, max(1, sizes[1] // 3)):
            both(a, b, step)
    for name, value in (("ROWS", 5), ("SUMMED", 7), ("FIRST", 3), ("ROUNDED", 60), ("TERMS", 80)):
        monkeypatch.setattr(cpu_narrow, name, value)
    for name, value in (("HEIGHT", 10), ("ACROSS", 24), ("DOTS", 3)):
        monkeypatch.setattr(cpu_narrow, name, value)
    for step in (11, None):
        both(*factors(kind, dtype, 23, 40, 30), step)
    both(*factors(kind, dtype, 23, 40, 130))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", NARROW)
def test_stacks(dtype: str, kind: str) -> None:
    a, b = factors(kind, dtype, 12, 40, 20)
    with np.errstate(over="ignore"):
        left = np.stack([a, a[::-1], a + a])
    right = np.stack([b, b[:, ::-1]])
    for pair in ((left[:, None], right), (a, right), (left, b)):
        both(*pair)
        both(*pair, 13)


@pytest.mark.parametrize("dtype", NARROW)
def test_matrices_with_nothing_in_them(dtype: str) -> None:
    for shapes in (((3, 0), (0, 4)), ((0, 4), (4, 3)), ((3, 4), (4, 0)), ((2, 3, 0), (0, 4)), ((0, 3, 4), (4, 2))):
        got = both(*(np.ones(shape, dtype) for shape in shapes))
        assert not got.deferred
    # Columns and rows of zeros defer nothing; their elements are +0.
    a, b = (factor.astype(dtype) for factor in factors("ordinary", dtype, 30, 50, 20))
    a[3], b[:, 5], b[:, 7] = 0, 0, -0.0
    both(a, b)
    assert left_open(a, b) == [(1, 1)] and left_open(a[4:], b) == []


@pytest.mark.parametrize("step", [None, 100])
def test_sums_around_the_ends_of_tiles(monkeypatch: pytest.MonkeyPatch, step: int | None) -> None:
    """Tiles are 4 or 8 rows high, and 6, 12 or 24 columns wide; 64 rows and 32 tiles are packed at a time."""
    for rows, inner, columns in ((7, 255, 23), (8, 256, 24), (9, 257, 25), (65, 3, 6), (1, 513, 769), (130, 90, 200)):
        both(*factors("ordinary", "float32", rows, inner, columns), step)
    monkeypatch.setattr(cpu_narrow, "SUMMED", 40)
    both(*factors("ordinary", "float32", 133, 130, 793), step)
    a, b = factors("ordinary", "float32", 140, 210, 800)
    both(a[1::2, 3:-4], b[3:-4, 5:], step)  # parts of larger arrays
    product = NarrowCpuProduct(a.dtype)
    product.measure(a, b)
    product.add(a, b)
    for squares, factor, axis in zip(product.squares, (a, b), (-1, -2), strict=True):  # each number counts once
        np.testing.assert_allclose(squares, np.square(factor.astype(float)).sum(axis, keepdims=True), 1e-6)


def test_sums_half_way_between_two_numbers_are_left_open() -> None:
    """Right to the last bit, though the deciding bits are far below float64 precision."""
    a = np.zeros((200, 64), np.float32)
    a[:, :2] = 1, 2.0**-24  # half of the last bit of the first
    a[:, 2:40] = 2.0**-7
    b = np.ones((64, 90), np.float32)
    b[2:40] = np.where(np.arange(38) % 2, -1, 1)[:, None]
    a[7, 2], a[9, 2] = np.nextafter(a[7, 2], np.float32(1)), np.nextafter(a[9, 2], np.float32(0))
    both(a, b)
    assert sum(places for _, places in left_open(a, b)) >= 198
    assert np.float32(1) == multiplied(product_on_cpu((a.dtype, b.dtype), a.dtype), lambda: [(a, b)])[0, 0]


def test_sign_of_what_becomes_zero() -> None:
    """All but the last bit cancels, far below the smallest number: beyond float64 precision."""
    p, q = 2**24 - 1, 2**24 - 3
    r = -pow(p, -1, q) % q  # p r + 1 is a multiple of q
    a, b = np.zeros((3, 100), np.float32), np.zeros((100, 2), np.float32)
    a[0, :2], a[1, :2], a[2, :3] = (p, q), (-p, -q), (p, q, 1)
    b[:2, 0], b[2, 0], b[:2, 1] = (r, -(p * r + 1) // q), 1, 1
    a, b = (np.ldexp(factor, -120).astype(np.float32) for factor in (a, b))
    got = multiplied(product_on_cpu((a.dtype, b.dtype), a.dtype), lambda: [(a, b)])
    same_bits(got, defined(a, b))
    assert np.signbit(got[:, 0]).tolist() == [True, False, False] and not got[:, 0].any()


def test_few_elements_are_computed_for_themselves_and_crowded_rows_as_a_whole() -> None:
    a, b = factors("ordinary", "float32", 400, 600, 300)
    assert all(axes == 2 and places < 200 for axes, places in left_open(a, b))
    a[17, 40] = 2.0**60  # next to it the others vanish
    got = left_open(a, b)
    assert (1, 1) in got and all(places < 200 for axes, places in got)
    assert left_open(np.stack([a, a]), b)[0] != (2, 400)
    both(a, b)
    both(np.stack([a[:50], a[100:150]]), b[:, :40])


@pytest.mark.parametrize("dtype", NARROW)
def test_infinities_and_what_comes_late(dtype: str) -> None:
    both(*strange(dtype, 60, 90, 40), 31)
    both(*late(60, 900, 16), 400)
    a, b = factors("ordinary", dtype, 40, 30, 20)
    a[5, 3], b[4, 6] = np.inf, np.nan
    both(a, b)


@pytest.mark.parametrize("dtype", [*NARROW, "float64"])
def test_parts_of_zeros_do_not_change_the_scale(dtype: str) -> None:
    """Rows and columns of small numbers: the bits kept depend on the largest alone."""
    a, b = factors("ordinary", dtype, 6, 24, 5)
    a[:, :8] = b[16:] = 0
    a, b = (np.ldexp(factor, -9 if dtype == "float16" else -40).astype(dtype) for factor in (a, b))
    with np.errstate(all="ignore"):
        for make in (product_on_cpu, CpuProduct):
            product: Any = make((a.dtype, b.dtype), a.dtype)
            got = multiplied(product, lambda: [(a[:, i : i + 8], b[i : i + 8]) for i in (0, 8, 16)])
            same_bits(got, defined(a, b))
            assert product.uncertain == 0


def test_bound_holds_for_any_order_of_sums() -> None:
    """The error of the float64 sums is within the bound, by exact integers."""
    random = generator("bound")
    for inner in (3, 100, 700):
        a = random.standard_normal((20, inner)).astype(np.float32)
        b = random.standard_normal((inner, 10)).astype(np.float32)
        product = NarrowCpuProduct(a.dtype)
        product.measure(a, b)
        product.add(a, b)
        sums, squares = product.sums.copy(), product.squares
        units = [np.ldexp(1.0, 31 - of) for of in product.exponents]
        x, y = ([[int(n) for n in row] for row in np.rint(factor.astype(np.float64) * unit).tolist()]
                for factor, unit in zip((a, b), units, strict=True))  # fmt: skip
        gamma = (min(inner, cpu_narrow.SUMMED) + product.parts) * 2.0**-53
        for i, j in np.ndindex(20, 10):
            exact = sum(p * q[j] for p, q in zip(x[i], y, strict=True))
            scale = float(units[0][i, 0] * units[1][0, j])
            off = abs(float(int(sums[i, j] * scale) - exact)) / scale
            assert off <= gamma * np.sqrt(squares[0][i, 0] * squares[1][0, j]) + 1 / scale
