"""Which errors the check of a product of floats finds: one wrong element in each row, of a known size.

python -m tests.benchmarks product_errors
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from kernels.matmul import check_floats
from kernels.matmul.check_defined import defined, functions
from kernels.matmul.check_exactly import DefinedCheck
from kernels.matmul.check_floats import FloatCheck
from kernels.matmul.cpu_narrow import product_on_cpu
from kernels.matmul.factors import Factors
from kernels.matmul.formats import FORMATS, multiplied

Array = NDArray[Any]
# Errors are 2**-k of the row's root mean square. The verification promises to find the first k of each dtype.
PROMISED = {"float16": 5, "float32": 10, "float64": 30}
FINER = range(0, 12, 2)
# Of these the groups are larger beyond 4096²; of such a product so many rows, an error in each.
LARGE_DTYPES, LARGE, LARGE_ROWS = ("float16", "float64"), 16384, 1000


@dataclass(frozen=True)
class Way:
    """A way to multiply, and its check.

    Attributes
    ----------
    largest
        By dtype, k of the largest errors planted.
    product
        (a, b) -> the product.
    check
        Checks one.
    caught
        (a, b, product, seed) -> the check, once it has run, and the rows in which it found an error.
    """

    largest: Mapping[str, int]
    product: Callable[[Array, Array], Array]
    check: type[FloatCheck]
    caught: Callable[[Array, Array, Array, int], tuple[FloatCheck, set[int]]]


def measure(
    sizes: tuple[int, ...] = (128, 1024, 4096), trials: int = 1000, large: int = LARGE, large_rows: int = LARGE_ROWS
) -> dict[str, Any]:
    """Errors found in N(0, 1) products of these sizes, and what is admitted for hard ones."""
    way = Way(PROMISED, _product, FloatCheck, _caught)
    figures = measured(way, sizes, trials)
    for dtype in LARGE_DTYPES:
        figures["rows"] += _rows(way, dtype, large, large_rows, large_rows)
    return figures


def measured(way: Way, sizes: tuple[int, ...], trials: int) -> dict[str, Any]:
    """The same for any way to multiply."""
    return {
        "rows": [row for dtype in way.largest for size in sizes for row in _rows(way, dtype, size, trials)],
        "hard": [_hard(way, dtype, kind, min(sizes[-1], 1024)) for dtype in way.largest for kind in HARD],
    }


def _rows(way: Way, dtype: str, size: int, trials: int, rows: int | None = None) -> Iterator[dict[str, Any]]:
    """Of square matrices, or so many rows of their product."""
    random = np.random.default_rng(size)
    a, b = (random.standard_normal((length, size)).astype(dtype) for length in (rows or size, size))
    began = perf_counter()
    right = way.product(a, b)
    computed = perf_counter() - began
    began = perf_counter()
    check, caught_rows = way.caught(a, b, right, 0)
    seconds = perf_counter() - began
    assert not caught_rows, "a right product"
    about = {"dtype": dtype, "size": size, "rows": len(right), "escape": check.escape, "undetected": check.undetected,
             "seconds_to_compute": computed, "seconds_to_check": seconds}  # fmt: skip
    for name, change in changes(way.largest[dtype]):
        caught = number = 0
        while number < trials:
            wrong, changed = planted(right, change, random)
            _, caught_rows = way.caught(a, b, wrong, number)
            number += len(changed)
            caught += len(changed & caught_rows)
        yield {**about, "error": name, "planted": number, "caught": caught}


def changes(largest: int) -> Iterator[tuple[str, Callable[[Array, int, float], Array]]]:
    """Name and (two elements, sign, root mean square of their row) -> wrong elements; errors of 2**-largest of that,
    and smaller ones."""
    yield "set to 0", lambda pair, sign, size: np.array([0, pair[1]])
    yield "negated", lambda pair, sign, size: np.array([-pair[0], pair[1]])
    yield "swapped", lambda pair, sign, size: pair[::-1]
    for finer in FINER:
        power = largest + finer

        def off(pair: Array, sign: int, size: float, power: int = power) -> Array:
            return np.array([pair[0] + sign * size * 2.0**-power, pair[1]])

        yield f"2^-{power}", off


def planted(right: Array, change: Callable[..., Array], random: np.random.Generator) -> tuple[Array, set[int]]:
    """A copy with one error in each row, and the rows in which that is one once it is rounded."""
    wrong, rows = right.copy(), set()
    sizes = np.sqrt(np.square(right.astype(np.float64)).mean(-1))
    for i, j in enumerate(random.integers(right.shape[-1] - 1, size=len(right)).tolist()):
        pair = right[i, j : j + 2].astype(np.float64)
        wrong[i, j : j + 2] = change(pair, int(random.choice([-1, 1])), float(sizes[i]))
        if (wrong[i, j : j + 2] != right[i, j : j + 2]).any():
            rows.add(i)
    return wrong, rows


def _caught(a: Array, b: Array, product: Array, seed: int) -> tuple[FloatCheck, set[int]]:
    """Rows in which an element that the check examines differs from its definition."""
    rows: set[int] = set()
    library = functions()
    assert library

    def examined(check: FloatCheck, places: Array, bounded: bool = False) -> list[str]:
        exponents = [lines.exponents.reshape(-1) for lines in (check.rows, check.columns)]
        right = defined(library, check.factors, exponents, places, check.format)
        got = product[tuple(places.T)]
        wrong = places[right != got, 0]
        rows.update(wrong.tolist())
        return ["found"] * bool(len(wrong))

    check = FloatCheck(Factors.of(a, b), product.shape, FORMATS[product.dtype.name], np.random.default_rng(seed))
    with patch.object(DefinedCheck, "wrong_exactly", examined), patch.object(check_floats, "BUDGET", 2**60):
        assert bool(check.wrong(product)) == bool(rows)
    return check, rows


def _product(a: Array, b: Array) -> Array:
    result: Array = multiplied(product_on_cpu((a.dtype, b.dtype), a.dtype), lambda: [(a, b)])
    return result


def _spread(dtype: str, size: int, random: np.random.Generator) -> tuple[Array, Array]:
    """Magnitudes over many powers of two."""
    most = {"float16": 6, "float32": 50, "float64": 300}[dtype]
    factors = (np.ldexp(random.standard_normal((size, size)), random.integers(-most, most, (size, size))) for _ in "ab")
    a, b = (factor.astype(dtype) for factor in factors)
    return a, b


def _cancelling(dtype: str, size: int, random: np.random.Generator) -> tuple[Array, Array]:
    """Pairs of terms of opposite sign that differ in the last bit."""
    a, b = (random.standard_normal((size, size)).astype(dtype) for _ in range(2))
    half = size // 2
    a[:, half : 2 * half] = -a[:, :half]
    b[half : 2 * half] = np.nextafter(b[:half], np.array(9, dtype))
    return a, b


HARD = {"spread": _spread, "cancelling": _cancelling}


def _hard(way: Way, dtype: str, kind: str, size: int) -> dict[str, Any]:
    """What the check of a right product admits, if its numbers are hard."""
    a, b = HARD[kind](dtype, size, np.random.default_rng(size))
    with np.errstate(all="ignore"):
        product = way.product(a, b)
        check = way.check(Factors.of(a, b), product.shape, FORMATS[dtype], np.random.default_rng(0))
        assert not check.wrong(product)
    return {"dtype": dtype, "kind": kind, "size": size, "escape": check.escape, "undetected": check.undetected}
