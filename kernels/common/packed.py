"""Packs the arguments of a launch into words, as the driver takes them; CuPy takes a microsecond for each scalar."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from threading import local
from typing import Any

import numpy as np

from kernels.common.nvrtc import Kernel

# The bits of a scalar as an integer; ctypes takes negative ones as well.
WORDS: Mapping[type, Callable[[Any], int]] = {
    **dict.fromkeys((np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64, np.bool_), int),
    np.float32: lambda number: int(number.view(np.uint32)),
    np.float64: lambda number: int(number.view(np.uint64)),
}

_threads = local()  # buffers by function: the driver copies arguments before it returns


class Buffers:
    """Words of so many arguments, and the addresses of these words."""

    def __init__(self, number: int) -> None:
        self.words = (ctypes.c_uint64 * number)()
        first = ctypes.addressof(self.words)
        self._addresses = (ctypes.c_uint64 * number)(*range(first, first + 8 * number, 8))
        self.address = ctypes.addressof(self._addresses)


def launch(
    kernel: Kernel, grid: tuple[int, ...], block: tuple[int, ...], arguments: Sequence[Any], shared_mem: int = 0
) -> None:
    """As `kernel(...)`, sooner: launch on the current stream.

    Parameters
    ----------
    kernel
    grid, block
        Of one to three dimensions.
    arguments
        Device arrays and NumPy scalars of the exact C type; with anything else, CuPy launches the kernel.
    shared_mem
        Dynamic, in bytes.
    """
    if not (hasattr(kernel.function, "ptr") and _launched(kernel.function.ptr, grid, block, arguments, shared_mem)):
        kernel(grid, block, arguments, shared_mem=shared_mem)


def _launched(
    function: int, grid: tuple[int, ...], block: tuple[int, ...], arguments: Sequence[Any], shared_mem: int
) -> bool:
    """Launch a function, or return False: the first time in a thread, so that CuPy binds a context to the thread."""
    known: dict[int, Buffers] = vars(_threads).setdefault("buffers", {})
    buffers = known.get(function)
    if buffers is None or len(buffers.words) != len(arguments):
        known[function] = Buffers(len(arguments))
        return False
    try:
        words = [WORDS[type(one)](one) if type(one) in WORDS else one.data.ptr for one in arguments]
    except AttributeError:  # something else that CuPy takes
        return False
    buffers.words[:] = words
    import cupy

    stream = cupy.cuda.get_current_stream().ptr
    sizes = (*(*grid, 1, 1)[:3], *(*block, 1, 1)[:3])
    cupy.cuda.driver.launchKernel(function, *sizes, shared_mem, stream, buffers.address, 0)
    return True
