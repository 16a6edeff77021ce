"""Packs the arguments of a launch into words, as the driver takes them; CuPy takes a microsecond for each scalar."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from threading import local
from typing import Any

import numpy as np

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
    function: Any, grid: tuple[int, ...], block: tuple[int, ...], arguments: Sequence[Any], shared_mem: int
) -> bool:
    """Launch a function of CuPy's on the current stream, unless it has to be launched by CuPy.

    Parameters
    ----------
    function
    grid, block
        Of one to three dimensions.
    arguments
        Device arrays and NumPy scalars.
    shared_mem

    Returns
    -------
    Whether it was launched. The first time in a thread it is not: CuPy then binds a context to the thread.
    """
    known: dict[int, Buffers] = vars(_threads).setdefault("buffers", {})
    buffers = known.get(function.ptr)
    if buffers is None or len(buffers.words) != len(arguments):
        known[function.ptr] = Buffers(len(arguments))
        return False
    try:
        words = [WORDS[type(one)](one) if type(one) in WORDS else one.data.ptr for one in arguments]
    except AttributeError:  # something else that CuPy takes
        return False
    buffers.words[:] = words
    import cupy

    stream = cupy.cuda.get_current_stream().ptr
    sizes = (*(*grid, 1, 1)[:3], *(*block, 1, 1)[:3])
    cupy.cuda.driver.launchKernel(function.ptr, *sizes, shared_mem, stream, buffers.address, 0)
    return True
