"""Which errors the check of a product by a library finds: one wrong element in each row, of a known size.

python -m tests.benchmarks library_errors
"""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter
from typing import Any
from unittest.mock import patch

import numpy as np

from kernels.matmul import check_floats
from kernels.matmul.check_library import LibraryCheck
from kernels.matmul.factors import Factors
from kernels.matmul.formats import FORMATS, multiplied
from kernels.matmul.library import LibraryProduct
from tests.benchmarks.product_errors import HARD, Array, changes, planted

# Errors are 2**-k of the row's root mean square: the largest k, and finer ones.
LARGEST = {"float16": 3, "float32": 5, "float64": 34}


class _Noting(LibraryCheck):
    """Notes the rows with elements beyond their bound."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.caught: set[int] = set()

    def _compare_conventionally(self, batch: Any, rows: Array, *more: Any) -> tuple[Array, Array, Array]:
        errors, sizes, right = super()._compare_conventionally(batch, rows, *more)
        self.caught.update(rows[~right.all(-1)].tolist())
        return errors, sizes, right


def measure(sizes: tuple[int, ...] = (128, 1024, 4096), trials: int = 1000) -> dict[str, Any]:
    """Errors found in N(0, 1) products of these sizes, and what is admitted for hard ones."""
    return {
        "rows": [row for dtype in LARGEST for size in sizes for row in _rows(dtype, size, trials)],
        "hard": [_hard(dtype, kind, min(sizes[-1], 1024)) for dtype in LARGEST for kind in HARD],
    }


def _rows(dtype: str, size: int, trials: int) -> Iterator[dict[str, Any]]:
    random = np.random.default_rng(size)
    a, b = (random.standard_normal((size, size)).astype(dtype) for _ in range(2))
    began = perf_counter()
    right = _product(a, b)
    computed = perf_counter() - began
    began = perf_counter()
    check = _checked(a, b, right, 0)
    seconds = perf_counter() - began
    assert not check.caught, "a right product"
    about = {"dtype": dtype, "size": size, "escape": check.escape, "undetected": check.undetected,
             "seconds_to_compute": computed, "seconds_to_check": seconds}  # fmt: skip
    for name, change in changes(LARGEST[dtype]):
        caught = number = 0
        while number < trials:
            wrong, rows = planted(right, change, random)
            caught += len(rows & _checked(a, b, wrong, number).caught)
            number += len(rows)
        yield {**about, "error": name, "planted": number, "caught": caught}


def _checked(a: Array, b: Array, product: Array, seed: int) -> _Noting:
    check = _Noting(Factors.of(a, b), product, FORMATS[product.dtype.name], np.random.default_rng(seed))
    with patch.object(check_floats, "BUDGET", 2**60):
        assert bool(check.wrong()) == bool(check.caught)
    return check


def _product(a: Array, b: Array) -> Array:
    result: Array = multiplied(LibraryProduct(a.dtype, True), lambda: [(a, b)])
    return result


def _hard(dtype: str, kind: str, size: int) -> dict[str, Any]:
    """What the check of a right product admits, if its numbers are hard."""
    a, b = HARD[kind](dtype, size, np.random.default_rng(size))
    with np.errstate(all="ignore"):
        check = LibraryCheck(Factors.of(a, b), _product(a, b), FORMATS[dtype], np.random.default_rng(0))
        assert not check.wrong()
    return {"dtype": dtype, "kind": kind, "size": size, "escape": check.escape, "undetected": check.undetected}
