"""Stacks of small matrices for the kernels that multiply them, and the expected products."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np

from kernels.common import device
from kernels.matmul.formats import FORMATS, multiplied
from kernels.matmul.small import SmallProduct
from kernels.matmul.small_k import SmallKProduct
from tests.cases.case import Case
from tests.cases.matmul import Array, Sizes, factors, generator, overflowing, same_bits, with_uncertain
from tests.cases.matmul_rare import at_the_bound, barely_rounded, in_order, ties

# Of rows of A and columns of B, over the whole range of a format and around the moderate exponents of the kernel.
EXPONENTS = {
    "float16": (-24, -14, 0, 10),
    "float32": (-149, -140, -97, -51, -50, 0, 92, 93, 120),
    "float64": (-1074, -1060, -970, -456, -455, 0, 455, 456, 1000),
}


def by_lines(dtype: str, rows: int, inner: int, columns: int) -> tuple[Array, Array]:
    """Lines of very different magnitudes: some products are subnormal or too large."""
    random = generator("by lines", dtype, rows, inner, columns)
    with np.errstate(all="ignore"):
        a, b = (
            np.ldexp(random.standard_normal((count, inner)), random.choice(EXPONENTS[dtype], (count, 1))).astype(dtype)
            for count in (rows, columns)
        )  # fmt: skip
    return np.nan_to_num(a, posinf=1, neginf=-1), np.ascontiguousarray(np.nan_to_num(b, posinf=1, neginf=-1).T)


def vanishing(dtype: str, rows: int, inner: int, columns: int) -> tuple[Array, Array]:
    """Integers whose sums cancel except for the last bits, and a few zeros."""
    random, bits = generator("vanishing", dtype, rows, inner, columns), FORMATS[dtype].precision
    a = random.integers(-(2 ** (bits - 1)), 2 ** (bits - 1), (rows, inner)).astype(dtype)
    half = inner // 2
    a[:, half : 2 * half] = -a[:, :half]
    a[::2, 0] += 1
    b = np.repeat(random.integers(1, 2 ** (bits - 1), (1, columns)), inner, 0).astype(dtype)
    return a, b / np.array(2**9 if dtype == "float16" else 1, dtype)


def nearly(dtype: str, rows: int, inner: int, columns: int) -> tuple[Array, Array]:
    """The same with a last term of any size, down to the last bits that are kept."""
    a, b = vanishing(dtype, rows, inner, columns)
    random, format = generator("nearly", dtype, rows, inner, columns), FORMATS[dtype]
    a[:, 0] = -a[:, inner // 2]
    more = format.kept - format.precision
    a[:, -1] = np.ldexp(2.0 ** random.integers(1, format.precision, rows) + 1, -more)
    b[-1] = 2.0 ** -random.integers(0, more + 1, columns)
    return a, b


def tiny(dtype: str, rows: int, inner: int, columns: int) -> tuple[Array, Array]:
    """Ordinary numbers, scaled so that their products are subnormal."""
    a, b = factors("ordinary", dtype, rows, inner, columns)
    scale = np.ldexp(1.0, FORMATS[dtype].least // 2 + 2)
    return (a * scale).astype(dtype), (b * scale).astype(dtype)


def apart(dtype: str, rows: int, inner: int, columns: int) -> tuple[Array, Array]:
    """Small integers, some times 2^-20, which meet the others: exact, but the top bits of magnitudes tell nothing about
    their products."""
    random = generator("apart", dtype, rows, inner, columns)
    low = np.arange(inner) % 2 == 0
    a = np.where(low, 2.0**-20, 1) * random.integers(1, 64, (rows, inner))
    b = np.where(low, 1, 2.0**-20)[:, None] * random.integers(1, 64, (inner, columns))
    return a.astype(dtype), b.astype(dtype)


def by_small(cp: Any, a: Array, b: Array, how: type[SmallProduct] = SmallProduct) -> tuple[Array, int]:
    """The product by a kernel, and how many elements it computed term by term."""
    product = how(np.result_type(a, b))
    got = multiplied(product, lambda: [(cp.asarray(a), cp.asarray(b))])
    return got.get(), product.uncertain


def check(cp: Any, a: Array, b: Array, how: type[SmallProduct] = SmallProduct) -> None:
    """Assert the bits of the CPU's product and the same number of elements computed term by term."""
    expected, uncertain = with_uncertain(a, b)
    got, count = by_small(cp, a, b, how)
    same_bits(got, expected)
    assert count == uncertain, (count, uncertain)


def _case(
    kind: str, dtype: str, sizes: tuple[int, int, int], batches: tuple[Sizes, Sizes], how: type[SmallProduct], cp: Any
) -> None:
    pair = {"by lines": by_lines, "vanishing": vanishing, "nearly": nearly, "tiny": tiny, "apart": apart}.get(kind)
    a, b = pair(dtype, *sizes) if pair else factors(kind, dtype, *sizes)
    if batches[0]:
        a = np.stack([np.roll(a, i, 0) for i in range(int(np.prod(batches[0])))]).reshape(*batches[0], *a.shape)
    if batches[1]:
        b = np.stack([np.roll(b, i, 1) for i in range(int(np.prod(batches[1])))]).reshape(*batches[1], *b.shape)
    check(cp, a, b, how)


def _overflowing(cp: Any) -> None:
    check(cp, *overflowing(20, 30, 18))


def _undefined(cp: Any) -> None:
    """Infinity times zero, and no other infinities or NaN."""
    a, b = factors("ordinary", "float64", 6, 5, 4)
    a[1::2, 2], b[2, 1] = 0, np.inf
    a[0, 3], b[3, 2] = -np.inf, 0
    check(cp, a, b)


def _pair(pair: tuple[Array, Array], how: type[SmallProduct], cp: Any) -> None:
    check(cp, *pair, how)


def _infinite_among_large(how: type[SmallProduct], inner: int, cp: Any) -> None:
    """Infinities in float16 beside numbers that are nearly as large, some of them times zero."""
    a = np.full((3, inner), 6e4, "float16")
    a[0, 0], a[1, 1], b = np.inf, np.nan, np.full((inner, 5), 1e-3, "float16")
    b[0, :2] = 0
    check(cp, a, b, how)


def _extreme_rows(how: type[SmallProduct], cp: Any) -> None:
    """Only A has subnormal numbers, and numbers near the end of the format."""
    a, b = factors("ordinary", "float64", 9, 70, 6)
    a[0] *= 2.0**-1060
    a[1] = np.ldexp(a[1], 1000)
    check(cp, a, np.ldexp(b, -20), how)


def _uncertain_row(how: type[SmallProduct], inner: int, cp: Any) -> None:
    """A row of which rounding removes all but one number, and a column with a zero there."""
    a, b = factors("ordinary", "float64", 9, inner, 6)
    a[0, 1:] *= 2.0**-58
    b[0, 0] = 0
    a[2] = -0.0  # certainly zero
    b[1:, 1] *= 2.0**-58
    check(cp, a, b, how)


def _uncertain_element(how: type[SmallProduct], inner: int, cp: Any) -> None:
    """One element alone is uncertain, among rows and columns of large numbers; small ones of both signs are left."""
    a, b = factors("ordinary", "float64", 9, inner, 6)
    a[0, 1:] *= 2.0**-50
    b[0], b[0, 0] = 3, 0
    check(cp, a, b, how)


def small_cases() -> Iterator[Case]:
    """One warp and several for a matrix, whole and ragged ones, lists of matrices; every path of an element."""
    for kind, dtype, sizes, batches in (
        ("ordinary", "float32", (16, 16, 16), ((5,), (5,))), ("ordinary", "float64", (16, 16, 16), ((2,), (2,))),
        ("ordinary", "float64", (5, 3, 4), ((3, 1), (2,))), ("mixed", "float32", (17, 20, 3), ((), (3,))),
        ("special", "float64", (3, 17, 33), ((2,), ())), ("ordinary", "float32", (32, 32, 32), ((2,), (2,))),
        ("cancelling", "float64", (32, 48, 16), ((), ())), ("huge", "float64", (16, 16, 16), ((), ())),
        ("special", "float16", (7, 9, 20), ((), ())), ("by lines", "float32", (16, 16, 16), ((), ())),
        ("by lines", "float64", (18, 33, 20), ((), ())), ("vanishing", "float32", (16, 64, 16), ((), ())),
        ("vanishing", "float64", (9, 20, 9), ((), ())), ("blocks", "float64", (20, 20, 20), ((), ())),
        ("subnormal", "float32", (4, 5, 6), ((), ())), ("tiny", "float32", (6, 5, 7), ((), ())),
        ("tiny", "float64", (6, 5, 7), ((), ())), ("apart", "float32", (16, 2, 3), ((), ())),
        ("apart", "float64", (5, 4, 16), ((), ())), ("ordinary", "float32", (16, 16, 32), ((), (2,))),
        ("nearly", "float32", (16, 33, 16), ((), ())), ("nearly", "float64", (16, 33, 16), ((), ())),
    ):  # fmt: skip
        yield Case("matmul/small", "multiply_small", f"{kind} {dtype}, {sizes}, {batches}",
                   partial(_case, kind, dtype, sizes, batches, SmallProduct))  # fmt: skip
    yield Case("matmul/small", "multiply_small", "sums that overflow", _overflowing)
    yield Case("matmul/small", "multiply_small", "infinity times zero", _undefined)
    for what, pair in (("ties", ties()), ("at the bound", at_the_bound()), ("barely rounded", barely_rounded())):
        yield Case("matmul/small", "multiply_small", what, partial(_pair, pair, SmallProduct))
    a, b = vanishing("float64", 9, 20, 9)
    yield Case("matmul/small", "multiply_small", "small sums below zero", partial(_pair, (-a, b), SmallProduct))
    for what, pair in in_order():
        yield Case("matmul/small", "multiply_small", what, partial(_pair, pair(48), SmallProduct))
    yield Case("matmul/small", "multiply_small", "a uncertain row", partial(_uncertain_row, SmallProduct, 40))
    among = partial(_infinite_among_large, SmallProduct, 16)
    yield Case("matmul/small", "multiply_small", "infinities among large numbers", among)


class Certain(SmallKProduct):
    """Of numbers of one size: the kernel itself is certain of all elements, and nothing is computed once more."""

    def recompute(self, *_: Any) -> None:
        raise AssertionError("expected elements that are certain")


def _one_block(dtype: str, cp: Any) -> None:
    """All groups of columns by one block, which uses its stages again."""
    one = replace(device.limits(), multiprocessors=1)
    with patch.object(device, "limits", lambda: one):
        check(cp, *factors("ordinary", dtype, 5, 66, 150), Certain)


def _largest_digits(cp: Any) -> None:
    """Sums of 256 products of digits that are all as large as they can be."""
    most = np.nextafter(2, 1)
    check(cp, np.full((3, 256), most), np.full((256, 4), [most, -most, 1, -1]), Certain)


def small_k_cases() -> Iterator[Case]:
    """Whole blocks and ragged ones, one and two pieces of a sum; lists of matrices; every path of an element."""
    hows: dict[str, type[SmallKProduct]] = {"ordinary": Certain}
    for kind, dtype, sizes, batches in (
        ("ordinary", "float64", (64, 128, 16), ((2,), (2,))), ("ordinary", "float32", (64, 128, 32), ((), ())),
        ("ordinary", "float64", (9, 140, 19), ((2, 1), (1,))), ("mixed", "float32", (70, 20, 33), ((), ())),
        ("special", "float64", (17, 40, 9), ((), ())), ("cancelling", "float64", (5, 256, 8), ((), ())),
        ("cancelling", "float32", (5, 200, 8), ((), ())), ("extreme", "float64", (3, 256, 4), ((), ())),
        ("huge", "float16", (6, 30, 10), ((), ())), ("by lines", "float32", (12, 130, 9), ((), ())),
        ("by lines", "float64", (12, 20, 9), ((), ())), ("vanishing", "float64", (9, 150, 5), ((), ())),
        ("apart", "float64", (5, 4, 16), ((), ())), ("tiny", "float32", (6, 5, 7), ((), ())),
        ("nearly", "float32", (16, 33, 16), ((), ())), ("nearly", "float64", (16, 141, 16), ((), ())),
        ("ordinary", "float16", (20, 70, 18), ((), ())),
    ):  # fmt: skip
        yield Case("matmul/small_k", "multiply_small_k", f"{kind} {dtype}, {sizes}, {batches}",
                   partial(_case, kind, dtype, sizes, batches, hows.get(kind, SmallKProduct)))  # fmt: skip
    yield Case("matmul/small_k", "multiply_small_k", "ties", partial(_pair, ties(), SmallKProduct))
    what, pair = list(in_order())[-1]
    yield Case("matmul/small_k", "multiply_small_k", what, partial(_pair, pair(66), SmallKProduct))
    among = partial(_infinite_among_large, SmallKProduct, 65)
    yield Case("matmul/small_k", "multiply_small_k", "infinities among large numbers", among)
    yield Case("matmul/small_k", "multiply_small_k", "extreme rows", partial(_extreme_rows, SmallKProduct))
    yield Case("matmul/small_k", "multiply_small_k", "a uncertain row", partial(_uncertain_row, SmallKProduct, 200))
    for dtype in ("float32", "float64"):
        yield Case("matmul/small_k", "multiply_small_k", f"one block, {dtype}", partial(_one_block, dtype))
    yield Case("matmul/small_k", "multiply_small_k", "the largest digits", _largest_digits)
    yield Case("matmul/small_k", "multiply_small_k", "one uncertain element",
               partial(_uncertain_element, SmallKProduct, 200))  # fmt: skip
