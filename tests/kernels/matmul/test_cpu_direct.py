"""Products by their definition on the CPU: the bits of the exact product, and of rational arithmetic."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from kernels.matmul import cpu_direct
from kernels.matmul.cpu import CpuProduct
from kernels.matmul.cpu_direct import DirectProduct, functions, suits
from kernels.matmul.cpu_narrow import product_on_cpu
from kernels.matmul.formats import INTEGERS, multiplied, result_dtype
from tests.cases.matmul import EVERY_KIND, FLOATS, Array, defined, factors, generator, overflowing, same_bits

EDGES = {  # around the ends of the format, and of what a product of two numbers keeps
    dtype: [
        0.0, -0.0, np.inf, -np.inf, np.nan, info.max, -info.max, info.tiny, -info.tiny, info.smallest_subnormal,
        -info.smallest_subnormal, info.tiny - info.smallest_subnormal, 1.0, -1.0, 0.5, 1.5, 1 + info.eps,
        1 - info.epsneg, 1 + 3 * info.eps, float(info.max) ** 0.5, float(info.tiny) ** 0.5,
    ]
    for dtype, info in ((name, np.finfo(name)) for name in FLOATS)
}  # fmt: skip


def direct(a: Array, b: Array, result: np.dtype[Any] | None = None, out: Array | None = None) -> DirectProduct:
    """The product, once it is finished."""
    result, library = result or result_dtype((a.dtype, b.dtype)), functions()
    assert library is not None
    dtypes = (result, result) if result.kind == "f" else (a.dtype, b.dtype)
    product = DirectProduct(library, dtypes, result, out)
    with np.errstate(all="ignore"):
        multiplied(product, lambda: [(a, b)])
    return product


def both(a: Array, b: Array) -> None:
    """The bits of the exact product, with as many elements term by term; or its error."""
    result = result_dtype((a.dtype, b.dtype))
    exact = CpuProduct((result, result) if result.kind == "f" else (a.dtype, b.dtype), result)
    try:
        with np.errstate(all="ignore"):
            expected = multiplied(exact, lambda: [(a, b)])
    except OverflowError as error:
        with pytest.raises(OverflowError, match=re.escape(str(error))):
            direct(a, b)
        return
    got = direct(a, b)
    same_bits(got.finish(), expected)
    assert got.uncertain == exact.uncertain


@pytest.mark.parametrize(("dtype", "kind"), EVERY_KIND)
def test_bits_of_the_definition(dtype: str, kind: str) -> None:
    for sizes in ((1, 1, 1), (3, 40, 4), (7, 3, 2), (9, 1, 8), (1, 70, 3), (5, 2, 6)):
        a, b = factors(kind, dtype, *sizes)
        same_bits(direct(a, b).finish(), defined(a, b))
    for sizes in ((65, 2, 129), (64, 257, 3), (130, 1, 64), (1, 600, 70), (2, 256, 66)):
        both(*factors(kind, dtype, *sizes))


@pytest.mark.parametrize("dtype", FLOATS)
def test_one_product_is_rounded_once(dtype: str) -> None:
    """Products of any two numbers by rational arithmetic; a sum of zero is +0, and what underflows keeps its sign."""
    random, bits = generator("one", dtype), np.dtype(f"u{np.dtype(dtype).itemsize}")
    some = random.integers(0, np.iinfo(bits).max, 200, bits, True).view(dtype)
    a = np.concatenate([np.array(EDGES[dtype], dtype), some])
    got = direct(a[:, None], a[None]).finish()
    with np.errstate(all="ignore"):
        expected = a[:, None] * a[None]
    expected[(a[:, None] == 0) & np.isfinite(a[None]) | (a[None] == 0) & np.isfinite(a[:, None])] = 0.0
    expected[np.isnan(expected)] = np.nan
    same_bits(got, expected)
    places = np.argwhere(np.isfinite(got))
    for i, j in places[random.integers(0, len(places), 2000)].tolist():
        exact, here = Fraction(float(a[i])) * Fraction(float(a[j])), got[i, j]
        for end in (-np.inf, np.inf):
            with np.errstate(over="ignore", under="ignore"):
                neighbour = np.nextafter(here, np.array(end, dtype))
            if np.isfinite(neighbour):
                assert abs(Fraction(float(here)) - exact) <= abs(Fraction(float(neighbour)) - exact)


@pytest.mark.parametrize("dtype", FLOATS)
def test_few_products_of_edges(dtype: str) -> None:
    random = generator("few", dtype)
    for inner in range(2, 9):
        values = random.choice(np.array(EDGES[dtype], dtype), (12 + 12, inner))
        a, b = values[:12], np.ascontiguousarray(values[12:].T)
        same_bits(direct(a, b).finish(), defined(a, b))
        both(a[np.isfinite(a).all(-1)], b)


def test_sums_that_overflow_on_the_way() -> None:
    a, b = overflowing(5, 24, 70)
    both(a, b)
    assert direct(a, b).uncertain


@pytest.mark.parametrize(("left", "right"), [(a, b) for a in INTEGERS for b in INTEGERS])
def test_integers_of_all_widths(left: str, right: str) -> None:
    random = generator(left, right)
    for inner in (1, 2, 5, 300):
        a, b = (
            random.integers(max(-(2**28), np.iinfo(dtype).min), min(2**28, np.iinfo(dtype).max), shape, dtype, True)
            for dtype, shape in ((left, (6, inner)), (right, (inner, 70)))
        )
        exact = a.astype(object) @ b.astype(object)
        same_bits(direct(a, b).finish(), exact.astype(np.int64))


def test_integers_that_do_not_fit() -> None:
    """They are errors that name the sum; large factors, and sums that are too large on the way, are not."""
    most, least = np.iinfo(np.int64).max, np.iinfo(np.int64).min
    for row, column in (([most, 1], [1, 1]), ([least] * 4, [least] * 4), ([least, 1], [1, -1])):
        with pytest.raises(OverflowError, match=f"got the sum {sum(x * y for x, y in zip(row, column, strict=True))},"):
            direct(np.array([row]), np.array([column]).T)
    # Beyond 128 bits on the way.
    a, b = np.array([[least, least, least, least, 2**62]]), np.array([[least, least, most, most, -4]]).T
    assert direct(a, b).finish().tolist() == [[0]]
    a, b = np.array([[2**64 - 1, 2**63]], np.uint64), np.array([[1], [-2]], np.int8)
    assert direct(a, b).finish().tolist() == [[-1]]
    assert direct(b.T, a.T).finish().tolist() == [[-1]]
    for large in (2**63, 2**64 - 1):
        factor, one = np.array([[large]], np.uint64), np.array([[1]])
        for pair in ((factor, one), (one, factor)):
            with pytest.raises(OverflowError, match=f"got the sum {large},"):
                direct(*pair)
    for value in (2**31, -(2**31) - 1):
        with pytest.raises(OverflowError, match=f"from {-(2**31)} to {2**31 - 1}, got the sum {value}"):
            direct(np.array([[value]]), np.array([[1]]), np.dtype(np.int32))
    ends = np.array([[2**31 - 1, -(2**31)]])
    assert direct(np.array([[1]]), ends, np.dtype(np.int32)).finish().tolist() == ends.tolist()


@pytest.mark.parametrize("dtype", ["float16", "float64", "int32"])
def test_stacks_and_places_for_the_result(monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    a, b = factors("special" if dtype in FLOATS else "mixed", dtype, 66, 3, 70)
    left, right = np.stack([a, a[::-1], a[:, ::-1]]), np.stack([b, b[:, ::-1]])
    for work in (cpu_direct.WORK, 1, 100_000):
        monkeypatch.setattr(cpu_direct, "WORK", work)
        for pair in ((left[:, None], right), (a, right), (left, b), (left[:, :2, :1], right[:1, :1]), (a, b[:, ::2])):
            both(*pair)
        whole = np.zeros((90, 100), result_dtype((a.dtype, b.dtype)))
        out = whole[5:71, 7:77]
        assert direct(a, b, out=out).finish() is out
        same_bits(out.copy(), direct(a, b).finish())
        assert not whole[:5].any() and not whole[71:].any() and not whole[:, :7].any() and not whole[:, 77:].any()


def test_longest_sums() -> None:
    """As large as they can be, of numbers that use all bits."""
    for dtype in FLOATS:
        most = np.full((1, cpu_direct.LONGEST), np.nextafter(np.array(1, dtype), np.array(0, dtype)))
        sign = np.where(np.arange(cpu_direct.LONGEST) < 5, 1, -1)[:, None].astype(dtype)
        for a, b in ((most, most.T), (most, -most.T), (most, most.T * sign)):
            both(a, b)


@pytest.mark.parametrize("dtype", ["float64", "int8"])
def test_nothing_to_multiply(dtype: str) -> None:
    for shapes in (((2, 0), (0, 3)), ((0, 2), (2, 3)), ((2, 2), (2, 0)), ((0, 2, 2), (2, 2))):
        a, b = (np.zeros(shape, dtype) for shape in shapes)
        same_bits(direct(a, b).finish(), (a @ b).astype(result_dtype((a.dtype, b.dtype))))


def test_what_it_is_chosen_for() -> None:
    """Short sums, few rows or columns, and enough of them to be worth compiling."""

    def chosen(dtype: str, *shapes: tuple[int, ...]) -> bool:
        return suits(np.dtype(dtype), *(np.empty(shape, dtype) for shape in shapes))

    assert chosen("float64", (600, 1), (1, 600)) and chosen("float32", (600, 1), (1, 600))
    assert chosen("float64", (1, 600), (600, 600)) and not chosen("float32", (1, 600), (600, 600))
    assert chosen("float32", (4096, 8, 8), (4096, 8, 8)) and not chosen("float64", (3, 1), (1, 3))
    assert not chosen("float64", (600, 600), (600, 600)) and not chosen("float64", (1, 2**16 + 1), (2**16 + 1, 1))
    assert chosen("int64", (1, 2**16 + 1), (2**16 + 1, 1))
    a, b = np.empty((600, 1)), np.empty((1, 600))
    assert isinstance(product_on_cpu((a.dtype, b.dtype), a.dtype, (a, b)), DirectProduct)
    assert isinstance(product_on_cpu((a.dtype, b.dtype), a.dtype), CpuProduct)
