"""CUB's histograms and reproducible sum as peers, compiled with nvcc if it is installed."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

HISTOGRAM, SUM = (Path(__file__).with_name(name) for name in ("cub_histogram.cu", "cub_sum.cu"))
# C types of samples and of levels, by NumPy dtype.
C_TYPES = {
    "uint8": ("unsigned char", "int"), "int16": ("short", "int"), "uint16": ("unsigned short", "int"),
    "int32": ("int", "int"), "float32": ("float", "float"), "float64": ("double", "double"),
}  # fmt: skip


@lru_cache
def _libraries(source: Path, dtypes: tuple[str, ...]) -> dict[str, Any]:
    """A library for each dtype, compiled concurrently for the GPU of this machine; none without nvcc.

    The sum is that of CuPy's copy of CUB, because the toolkit's may be too old for it.
    """
    import cupy

    bundled = Path(cupy.__file__).with_name("_core") / "include/cupy/_cccl"
    parts = ("cub", "thrust", "libcudacxx") if source == SUM else ()
    nvcc = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
    if not nvcc:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        compilers = {}
        for dtype in dtypes:
            sample, level = C_TYPES[dtype]
            command = [nvcc, "-O3", "-std=c++17", "-arch=native", "-shared", "-Xcompiler", "-fPIC",
                       *(f"-I{bundled / part}" for part in parts),
                       f"-DSAMPLE={sample}", f"-DLEVEL={level}", str(source), "-o", f"{folder}/{dtype}.so"]  # fmt: skip
            compilers[dtype] = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        return {dtype: ctypes.CDLL(f"{folder}/{dtype}.so") for dtype, done in compilers.items() if not done.wait()}


def cub_histogram(samples: Any, bins: int, limits: tuple[float, float], edges: Any) -> Callable[[], Any] | None:
    """A launch on the current stream that returns the counts, int32; None if CUB has none or is missing.

    Parameters
    ----------
    samples
        CuPy array, shape (n,).
    bins, limits
        How many, of equal widths.
    edges
        In place of them, float64, shape (bins + 1,); or None.
    """
    import cupy

    library = _libraries(HISTOGRAM, tuple(C_TYPES)).get(samples.dtype.name)
    if library is None or (edges is not None and samples.dtype.kind != "f"):
        return None
    run = library.histogram
    run.restype = ctypes.c_longlong
    counts = cupy.empty(bins, np.int32)
    levels = None if edges is None else cupy.asarray(edges, samples.dtype)
    arguments = (
        ctypes.c_void_p(samples.data.ptr), ctypes.c_longlong(samples.size), ctypes.c_void_p(counts.data.ptr),
        ctypes.c_int(bins), ctypes.c_double(limits[0]), ctypes.c_double(limits[1]),
        ctypes.c_void_p(levels.data.ptr if levels is not None else None),
    )  # fmt: skip
    scratch = cupy.empty(checked(run(*arguments, None, ctypes.c_size_t(0), None)), np.uint8)
    kept = (samples, levels)  # kept alive with the function, which only has their addresses

    def launch() -> Any:
        assert kept
        stream = ctypes.c_void_p(cupy.cuda.get_current_stream().ptr)
        checked(run(*arguments, ctypes.c_void_p(scratch.data.ptr), ctypes.c_size_t(scratch.nbytes), stream))
        return counts

    return launch


def cub_sum(samples: Any) -> Callable[[], Any] | None:
    """A launch of the reproducible sum on the current stream; None where CUB has none.

    Parameters
    ----------
    samples
        CuPy array of float32 or float64, shape (n,), n < 2**31.
    """
    import cupy

    name = samples.dtype.name
    library = _libraries(SUM, ("float32", "float64")).get(name) if name in ("float32", "float64") else None
    if library is None:
        return None
    total = cupy.empty(1, samples.dtype)
    kept = (samples, total)  # kept alive with the function, which only has their addresses

    def launch() -> Any:
        assert kept
        stream = ctypes.c_void_p(cupy.cuda.get_current_stream().ptr)
        checked(-library.reproducible_sum(ctypes.c_void_p(samples.data.ptr), ctypes.c_int(samples.size),
                                          ctypes.c_void_p(total.data.ptr), stream))  # fmt: skip
        return total

    return launch


def checked(result: int) -> int:
    """The number of bytes; raises if it is an error code."""
    if result < 0:
        raise RuntimeError(f"CUB: expected success, got CUDA error {-result}")
    return max(1, result)
