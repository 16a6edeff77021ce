"""Partials on the CPU by the function of cpu.cpp."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common import cxx

SOURCE = Path(__file__).with_name("cpu.cpp")

MOST = 2**29  # samples whose digits no counter of cpu.cpp lets overflow


def fill_natively(partial: NDArray[np.int64], samples: NDArray[Any], dtypes: tuple[str, ...], parts: int) -> bool:
    """Fill the empty partial of at most MOST samples, as `reduce_cpu` does; False where nothing can be compiled.

    Parameters
    ----------
    partial
    samples : array of one of these dtypes, native byte order, shape (n,)
    dtypes
        As cpu.cpp numbers them.
    parts
        One of ``kernels.reduce.partial.PARTS``.
    """
    functions = cxx.library(SOURCE)
    if functions is None:
        return False
    samples = np.require(samples, requirements=["C", "A"])
    function = functions.reduce_samples
    function.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
    function.restype = None
    function(dtypes.index(samples.dtype.name), parts, samples.ctypes.data, len(samples), partial.ctypes.data)
    return True
