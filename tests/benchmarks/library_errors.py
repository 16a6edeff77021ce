"""Which errors the check of a product by a library finds: one wrong element in each row, of a known size.

python -m tests.benchmarks library_errors
"""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np

from kernels.matmul import check_floats
from kernels.matmul.check_library import LibraryCheck
from kernels.matmul.factors import Factors
from kernels.matmul.formats import FORMATS, multiplied
from kernels.matmul.library import LibraryProduct
from tests.benchmarks.product_errors import Array, Way, measured

# Errors are 2**-k of the row's root mean square: the largest k, and finer ones.
LARGEST = {"float16": 3, "float32": 5, "float64": 34}


class _Noting(LibraryCheck):
    """Notes the rows with elements beyond their bound."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.caught: set[int] = set()

    def _compare_conventionally(self, batch: Any, rows: Array, *more: Any) -> tuple[Array, Array, Array, Array]:
        errors, sizes, wrong, unsure = super()._compare_conventionally(batch, rows, *more)
        self.caught.update(rows[wrong.any(-1)].tolist())
        return errors, sizes, wrong, unsure

    def beyond(self, library: Any, places: Array) -> Array:
        beyond = super().beyond(library, places)
        self.caught.update(places[beyond, 0].tolist())
        return beyond


def measure(sizes: tuple[int, ...] = (128, 1024, 4096), trials: int = 1000) -> dict[str, Any]:
    """Errors found in N(0, 1) products of these sizes, and what is admitted for hard ones."""
    return measured(Way(LARGEST, _product, LibraryCheck, _caught), sizes, trials)


def _caught(a: Array, b: Array, product: Array, seed: int) -> tuple[LibraryCheck, set[int]]:
    check = _Noting(Factors.of(a, b), product.shape, FORMATS[product.dtype.name], np.random.default_rng(seed))
    with patch.object(check_floats, "BUDGET", 2**60):
        assert bool(check.wrong(product)) == bool(check.caught)
    return check, check.caught


def _product(a: Array, b: Array) -> Array:
    result: Array = multiplied(LibraryProduct(a.dtype, True), lambda: [(a, b)])
    return result
