"""Matrix products by the library: cuBLAS on a GPU, BLAS on a CPU; bits depend on both."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from kernels.common.once import once_per_process
from kernels.common.row_tiles import on_tiles

NO_HALF_SUMS = 16  # CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION
# Rows of a call of BLAS, which packs B for each, and takes an eighth longer for so few; or a share of what is left, so
# that calls are few, and all end together.
LEAST, SHARE = 128, 4


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
    out
        Where the product of two matrices may be put.
    """

    scaled = False  # parts need not be measured
    uncertain = 0

    def __init__(self, result: np.dtype[Any], whole: bool, out: Any = None) -> None:
        self.result, self._whole, self._out = result, whole, None if result == np.float16 else out
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
        out = self._out if self._total is None else None
        product = _multiplied(a.astype(dtype, copy=False), b.astype(dtype, copy=False), out)
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


def _multiplied(a: Any, b: Any, out: Any) -> Any:
    """The product; of two matrices on a CPU by all cores, also if each call of BLAS may use some of them only."""
    calls = _calls() if isinstance(a, np.ndarray) and a.ndim == b.ndim == 2 else None
    if calls is None:
        return a @ b
    product = np.empty((len(a), b.shape[1]), a.dtype) if out is None else out
    on_tiles(lambda rows: np.matmul(a[rows], b, out=product[rows]), list(_fewer_and_fewer(len(a))), calls)
    return product


def _fewer_and_fewer(rows: int) -> Iterator[slice]:
    start = 0
    while start < rows:
        height = max(LEAST, -(-(rows - start) // SHARE))
        yield slice(start, min(start + height, rows))
        start += height


@once_per_process
def _calls() -> ThreadPoolExecutor | None:
    """Threads for as many calls of BLAS as keep all cores busy, whatever computes in this process; None for one."""
    cores, threads = len(os.sched_getaffinity(0)), os.environ.get("OPENBLAS_NUM_THREADS", "")
    number = cores // int(threads) if threads.isdecimal() and int(threads) else 1
    return ThreadPoolExecutor(number, "blas") if number > 1 else None


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
