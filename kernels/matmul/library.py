"""Matrix products by the library: cuBLAS on a GPU, BLAS on a CPU; bits depend on both."""

from __future__ import annotations

from typing import Any

import numpy as np

NO_HALF_SUMS = 16  # CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION


class LibraryProduct:
    """The product of two stacks of float matrices that come in parts; the interface is that of `CpuProduct`.

    Sums are of the dtype of the product, those of float16 of float32, rounded once at the end. Their order is the
    library's. No TF32, unless CUPY_TF32 or NVIDIA_TF32_OVERRIDE asks for it.

    Parameters
    ----------
    result
        Dtype of the product.
    whole
        Whether one part is all of it.
    """

    scaled = False  # parts need not be measured
    uncertain = 0

    def __init__(self, result: np.dtype[Any], whole: bool) -> None:
        self.result, self._whole = result, whole
        self._total: Any = None

    def measure(self, a: Any, b: Any) -> None:
        """Do nothing."""

    def add(self, a: Any, b: Any) -> None:
        """Add the product of the next part."""
        half = self.result == np.float16
        if half and self._whole and not isinstance(a, np.ndarray):
            self._total = _half_product(a.astype(self.result, copy=False), b.astype(self.result, copy=False))
            return
        dtype = np.dtype(np.float32) if half else self.result
        product = a.astype(dtype, copy=False) @ b.astype(dtype, copy=False)
        if self._total is None:
            self._total = product
        else:
            self._total += product

    def finish(self) -> Any:
        """The product."""
        return self._total.astype(self.result, copy=False)

    def needs_recompute(self) -> bool:
        """Never: it is final."""
        return False


def _half_product(a: Any, b: Any) -> Any:
    """By tensor cores, which add up in float32; cuBLAS may otherwise add up parts of long sums in float16."""
    from cupy import cuda

    handle = cuda.get_cublas_handle()
    before = cuda.cublas.getMathMode(handle)
    cuda.cublas.setMathMode(handle, NO_HALF_SUMS)
    try:
        return a @ b
    finally:
        cuda.cublas.setMathMode(handle, before)
