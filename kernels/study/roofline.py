"""The limits of a device, as measured: reading, copying, products by cuBLAS."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from kernels.common import device, nvrtc
from kernels.common.checks import check_array

SOURCE = Path(__file__).with_suffix(".cu")

THREADS, MERGE_THREADS = 1024, 256  # THREADS in common/stream.cuh, MERGE_THREADS in roofline.cu


INSTANCES = ("read_stream", "displace_cache", *(f"merge<{count}>" for count in (1, 2, 3)))


def read_stream(data: Any) -> None:
    """Read an array once at memory bandwidth and discard it.

    Parameters
    ----------
    data : CuPy uint32 array, shape (n,), C-contiguous

    Raises
    ------
    TypeError, ValueError
        If it is anything else.
    """
    _read("read_stream", data)


def displace_cache(data: Any) -> None:
    """Read an array once to evict everything else from the L2 cache; parameters as in `read_stream`."""
    _read("displace_cache", data)


def copy(target: Any, source: Any) -> None:
    """Copy an array to another one on the same device: every byte is read once and written once.

    Parameters
    ----------
    target, source : CuPy uint32 arrays, shape (n,), C-contiguous

    Raises
    ------
    TypeError, ValueError
        If they are anything else, or differ in size.
    """
    for array in (target, source):
        check_array("copy", array, ("uint32",), 1)
    if target.size != source.size:
        raise ValueError(f"copy: expected arrays of one size, got {target.size} and {source.size}")
    import cupy

    target.data.copy_from_device_async(source.data, source.nbytes, cupy.cuda.get_current_stream())


def merge(target: Any, *sources: Any) -> None:
    """Read one to three arrays once and write their exclusive or, at memory bandwidth.

    Parameters
    ----------
    target, sources : CuPy uint32 arrays, shape (n,), C-contiguous, n a multiple of 4, on 16 bytes

    Raises
    ------
    TypeError, ValueError
        If they are anything else, differ in size, or are more.
    """
    if not 1 <= len(sources) <= 3:
        raise ValueError(f"merge: expected 1 to 3 sources, got {len(sources)}")
    for array in (target, *sources):
        check_array("merge", array, ("uint32",), 1)
        if array.size != target.size or array.size % 4 or array.data.ptr % 16:
            raise ValueError(f"merge: expected arrays of one size in packs of 16 bytes, got {array.size} numbers of "
                             f"{target.size} at {array.data.ptr:#x}")  # fmt: skip
    if not target.size:
        return
    packs = target.size // 4
    kernel = nvrtc.load(SOURCE, f"merge<{len(sources)}>")
    three = (*sources, *sources, *sources)[:3]
    kernel((-(-packs // MERGE_THREADS),), (MERGE_THREADS,), (*three, target, np.int64(packs)))


def product(a: Any, b: Any, out: Any) -> None:
    """Matrix product by cuBLAS, in the arithmetic of the dtype: without TF32.

    Parameters
    ----------
    a, b, out : CuPy float32 or float64 arrays of one dtype, shape (n, n), C-contiguous

    Raises
    ------
    TypeError, ValueError
        If they are anything else.
    """
    for array in (a, b, out):
        check_array("product", array, ("float32", "float64"), 2)
        if array.shape != (len(a), len(a)) or array.dtype != a.dtype:
            raise ValueError(f"product: expected square matrices of {a.dtype}, {a.shape}, got {array.dtype}, "
                             f"{array.shape}")  # fmt: skip
    os.environ["CUPY_TF32"] = "0"  # CuPy reads it at the process's first product
    import cupy

    cupy.matmul(a, b, out=out)


def _read(name: str, data: Any) -> None:
    check_array(name, data, ("uint32",), 1)
    import cupy

    kernel = nvrtc.load(SOURCE, name)
    grid = device.limits().resident_blocks(THREADS, kernel.registers, 0)
    # The sink's content does not matter: it only keeps the compiler from dropping the loads.
    kernel((grid,), (THREADS,), (data, np.int64(data.size), cupy.empty(1, cupy.uint32)))
