"""Exact products of stacks of small matrices of floats on a GPU: launches the kernel of `small.cu`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from kernels.common import nvrtc
from kernels.common.arrays import converted
from kernels.common.checks import check_array
from kernels.common.constants import constant
from kernels.matmul.formats import FORMATS
from kernels.matmul.memory import ceil_div, empty, is_small, matrices_of, numbered

SOURCE = Path(__file__).with_suffix(".cu")

C_TYPES = {"float16": "Float16", "float32": "Float32", "float64": "Float64"}
SIDE = constant(SOURCE.with_name("operands.cuh"), "SIDE")
PER_BLOCK = constant(SOURCE, "PER_BLOCK")


def suits(result: np.dtype[Any], inner: int, a: Any, b: Any) -> bool:
    """Whether these are two whole stacks of small matrices that can be multiplied."""
    if min(a.ndim, b.ndim) < 2 or not a.shape[-1] == b.shape[-2] == inner:
        return False
    return is_small(result, a.shape[-2], inner, b.shape[-1])


class SmallProduct:
    """The product of two stacks of matrices that `suits` accepts, in one part; the interface of `ResidueProduct`.

    Parameters
    ----------
    result
        Dtype of the product, to which the factors are converted.
    """

    scaled, kind = True, "small"

    def __init__(self, result: np.dtype[Any]) -> None:
        self.result = result

    def measure(self, a: Any, b: Any) -> None:
        """Do nothing: one kernel does everything."""

    def add(self, a: Any, b: Any) -> None:
        """Multiply.

        Parameters
        ----------
        a, b : CuPy arrays, shapes (..., rows, inner) and (..., inner, columns), C-contiguous
            Of any dtype that NumPy converts to that of the product.

        Raises
        ------
        TypeError, ValueError
            If they cannot be multiplied, or not by this kernel.
        """
        import cupy

        a, b = converted(a, self.result), converted(b, self.result)
        for what, array in (("first", a), ("second", b)):
            check_array(f"matmul, {what} matrix", array, (self.result.name,), max(2, array.ndim))
        (rows, inner), columns = a.shape[-2:], b.shape[-1]
        if inner != b.shape[-2] or not self._fits(rows, inner, columns):
            raise ValueError(f"matmul: expected {self.kind} matrices to multiply, got shapes {a.shape} and {b.shape}")
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        self.product = empty((*batch, rows, columns), f"u{self.result.itemsize}")
        self.counter = cupy.zeros(1, np.uint64)
        if not self.product.size:
            return
        listed = not a.shape[:-2] == b.shape[:-2] == batch
        if listed:
            lists = [cupy.asarray(np.ascontiguousarray(numbered(matrices_of(array), array.shape[:-2], batch)))
                     for array in (a, b)]  # fmt: skip
        else:
            lists = [empty((1,), np.int32)] * 2
        self._launch(a, b, (*lists, np.int32(listed)), matrices_of(self.product))

    def _fits(self, rows: int, inner: int, columns: int) -> bool:
        return is_small(self.result, rows, inner, columns)

    def _launch(self, a: Any, b: Any, lists: tuple[Any, ...], matrices: int) -> None:
        (rows, inner), columns = a.shape[-2:], b.shape[-1]
        warps, chunks = ceil_div(max(rows, columns), SIDE), ceil_div(inner, SIDE)
        whole = rows == columns == warps * SIDE and inner == chunks * SIDE and not any(x.data.ptr % 16 for x in (a, b))
        kernel = f"multiply_small<{C_TYPES[self.result.name]}, {warps}, {chunks}, {str(whole).lower()}>"
        per_block = PER_BLOCK if warps == 1 else 1
        nvrtc.load(SOURCE, kernel)(
            (ceil_div(matrices, per_block),),
            (32 * warps * per_block,),
            (a, b, *lists, *map(np.int32, (matrices, rows, inner, columns)),
             np.float64(FORMATS[self.result.name].share(inner)), self.product, self.counter),
        )  # fmt: skip

    def finish(self) -> Any:
        """The product, on the current stream."""
        return self.product.view(self.result)

    @property
    def uncertain(self) -> int:
        """Elements computed term by term."""
        return int(self.counter.get()[0])

    def needs_recompute(self) -> bool:
        """Never: the kernel recomputes uncertain elements itself."""
        return False


# One of each kind, for inspecting machine code.
INSTANCES = tuple(
    f"multiply_small<Float{bits}, {size}, {size}, {whole}>"
    for bits in (16, 32, 64) for size in (1, 2, 3, 4) for whole in ("true", "false")
)  # fmt: skip
