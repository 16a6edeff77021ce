"""Small ragged inputs for the kernels of map and of its study: see all.py."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import cycle, product
from typing import Any

import numpy as np

from kernels.common import nvrtc
from kernels.map.gpu import OPERATIONS
from kernels.map.reference import elementwise_reference
from kernels.study import map as study
from kernels.study.variant import Variant
from tests.cases.case import Case, integers, same


def _elementwise(variant: Variant, dtype: str, shape: Any, start: int, own: dict[str, Any], cp: Any) -> None:
    operation = own.get("operation", "multiply" if variant.name == "product" else "add")
    count = OPERATIONS[operation][1]
    arrays = [integers(np.prod(shape) + start, dtype, seed) for seed in range(count)]
    on_device = [cp.asarray(array)[start:].reshape(shape) for array in arrays]
    expected = elementwise_reference(*(array[start:].reshape(shape) for array in arrays), operation=operation)
    same(variant.run(*on_device, **own), expected)


def _ragged_product(cp: Any) -> None:
    """More threads than elements, which its wrapper does not launch."""
    a, out = cp.asarray(integers(97, "int32")), cp.empty(97, np.int32)
    nvrtc.load(nvrtc.KERNELS / "study/map.cu", "product<int>")((1,), (128,), (a, a, out, np.int64(97)))
    same(out, a.get() ** 2)


def _special(variant: Variant, operation: str, dtype: str, start: int, cp: Any) -> None:
    """NaN, zeros and infinities of either sign, and equal numbers, each with each: the same bits."""
    values = np.array([np.nan, -np.nan, 0.0, -0.0, 1, -1, np.inf, -np.inf], dtype)
    size = 4096 // values.itemsize + 77 + start
    arrays = [np.resize(each, size) for each in np.meshgrid(*[values] * OPERATIONS[operation][1])]
    found = variant.run(*(cp.asarray(array)[start:] for array in arrays), operation=operation).get()
    expected = elementwise_reference(*(array[start:] for array in arrays), operation=operation)
    expected[np.isnan(expected)] = np.nan
    np.testing.assert_array_equal(found.view(np.uint8), expected.view(np.uint8))


def elementwise_cases() -> Iterator[Case]:
    """Operands that begin on 16 bytes and beside them; every operation of the job."""
    for name, variant in study.VARIANTS.items():
        own: dict[str, Any] = {"block": 96} if "block" in variant.parameters else {}
        chosen: list[tuple[str, Any, int, dict[str, Any]]] = [("int32", 401, 0, own), ("float64", 97, 1, own)]
        if name == "matrix_2d":
            chosen = [("float32", (17, 35), 0, {"block_x": 16, "block_y": 8}), ("int32", (1, 40), 0, {})]
        if name == "production":
            chosen = [(dtype, (4096 * 4 // np.dtype(dtype).itemsize + 77), start, {"operation": operation})
                      for (operation, dtype, start) in zip(OPERATIONS, ("int32", "float32", "float64") * 2,
                                                           (0, 1, 0, 1, 0, 0), strict=True)]  # fmt: skip
            for (operation, dtype), start in zip(
                product(OPERATIONS, ("float32", "float64")), cycle((0, 1, 0)), strict=False
            ):
                check = partial(_special, variant, operation, dtype, start)
                yield Case("map/gpu", "elementwise", f"{operation} of special {dtype} from {start}", check)
        if name == "product":
            yield Case("study/map", name, "128 threads for 97 elements", _ragged_product)
        for dtype, shape, start, chosen_own in chosen:
            check = partial(_elementwise, variant, dtype, shape, start, chosen_own)
            what = f"{dtype}, {shape} from {start}, {chosen_own}"
            stem, kernel = ("map/gpu", "elementwise") if name == "production" else ("study/map", name)
            yield Case(stem, kernel, what, check, variant.broken is not None)
