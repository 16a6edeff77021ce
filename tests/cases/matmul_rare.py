"""Matrices whose products take ways that are rare: ties that the lowest bit decides, ends of lines, subnormal sums."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from tests.cases.case import Case
from tests.cases.matmul import (
    GROUPS,
    ONE_WARP,
    WARPS,
    Array,
    Chosen,
    factors,
    generator,
    in_residues,
    on_cpu,
    same_bits,
    tiled,
)


def ties() -> tuple[Array, Array]:
    """In float64, sums halfway between two numbers but for their lowest bit, or for nothing, of both signs."""
    a = np.array([[s, s * 2.0**-27, t * 2.0**-54] for s in (1, -1) for t in (1, -1, 0)])
    return a, np.array([[1.0], [2.0**-26], [2.0**-54]])


PLACES = 1, 16, 62, 63, 64, 65


def ends(inner: int, columns: int, last: bool, scale: float = 1.0) -> tuple[Array, Array]:
    """A stack of matrices in float64 of which no element is certain: rounding removes all numbers of a row but one,
    which meets a zero. Rows of each end, or begin, at another place, around the ends of what is computed together."""
    places = [k for k in PLACES if k < inner - 1] + [inner - 1]
    a, b = np.zeros((len(places), 3, inner)), 1 + generator("ends").random((inner, columns))
    a[:, :, 0], b[0] = scale, 0
    for matrix, place in zip(a, places, strict=True):
        matrix[:, 1 : place + 1] = np.ldexp(1 + generator(place).random((3, place)), -60) * scale
    return (a, b * scale) if last else (a[:, :, ::-1].copy(), b[::-1] * scale)


def _transposed_ends(inner: int, last: bool) -> tuple[Array, Array]:
    """The same with lines of B for those of A."""
    a, b = ends(inner, 3, last)
    return np.ascontiguousarray(b.T), np.ascontiguousarray(np.swapaxes(a, -1, -2))


def _subnormal(inner: int) -> tuple[Array, Array]:
    a, b = ends(inner, 3, True, 2.0**-496)
    return a[-2:].copy(), b


def in_order() -> Iterator[tuple[str, Callable[[int], tuple[Array, Array]]]]:
    """Factors of so many products to a sum, whose sums take the ways that are rare."""
    for last in (True, False):
        what = "last" if last else "first"
        yield f"{what} numbers of rows", partial(ends, columns=3, last=last)
        yield f"{what} numbers of columns", partial(_transposed_ends, last=last)
        yield f"{what} numbers in squares", partial(ends, columns=17, last=last)
    yield "sums that are subnormal", _subnormal


def at_the_bound() -> tuple[Array, Array]:
    """In float32, an element that is uncertain only for the product of two rounding errors: without it the error is
    137 + 70 = 207, just the share 1.5 of the sum of products of magnitudes, 69 * 2."""
    a = [1, 2.0**-8, 69 / 64, 2.0**-8 + 2.0**-31]
    b = [2.0**-8, 1, 2 / 64, 2.0**-8 + 2.0**-31]
    return np.array([a], "float32"), np.array([b], "float32").T.copy()


def barely_rounded() -> tuple[Array, Array]:
    """In float64, a number below zero of which rounding removes little, but which is all that there is in the sum."""
    return np.array([[1.0, -(1 + 2.0**-26) * 2.0**-54]]), np.array([[0.0], [1.0]])


def in_one_factor(which: int) -> tuple[Array, Array]:
    """Infinities and NaN in A alone, or in B alone."""
    pair = factors("ordinary", "float32", 19, 70, 17)
    pair[which][[3, 9, 11], [5, 2, 7]] = np.inf, -np.inf, np.nan
    pair[which][2, 5] = 0
    return pair


def _pair(pair: tuple[Array, Array], tile: Chosen, cp: Any) -> None:
    a, b = pair
    with tiled(tile):
        same_bits(in_residues(cp.asarray(a), cp.asarray(b)).get(), on_cpu(a, b))


def rare_cases() -> Iterator[Case]:
    """By the kernels for all sizes."""
    yield Case("matmul/gpu", "finish_floats", "ties", partial(_pair, ties(), ONE_WARP))
    yield Case("matmul/gpu", "split", "barely rounded", partial(_pair, barely_rounded(), ONE_WARP))
    nothing = np.zeros((17, 34), "float16")
    pair = nothing, nothing.T.copy()
    yield Case("matmul/gpu", "multiply_warpgroups", "zeros, all uncertain at first", partial(_pair, pair, GROUPS))
    for which, kernel in enumerate(("largest_in_rows", "largest_in_columns")):
        yield Case("matmul/gpu", kernel, "not finite in one factor", partial(_pair, in_one_factor(which), WARPS))
    for what, pair in in_order():
        yield Case("matmul/gpu", "dot_products", what, partial(_pair, pair(130), WARPS))
