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


class Launch:
    """Launches of a kernel on the current device that differ in their grids and first arguments, sooner than by CuPy.

    Parameters
    ----------
    kernel
    block
        Of one to three dimensions.
    own
        Number of arguments that each launch has of its own.
    shared_mem
        Dynamic, in bytes.
    others
        The arguments that follow: device arrays and NumPy scalars of the exact C type, as all arguments are. If there
        is anything else among them, CuPy launches the kernel.
    """

    def __init__(
        self, kernel: Kernel, block: tuple[int, ...], own: int, shared_mem: int = 0, others: Sequence[Any] = ()
    ) -> None:
        self._kernel, self._block, self._shared_mem, self._others = kernel, block, shared_mem, tuple(others)
        self._sizes = (*(*block, 1, 1)[:3], shared_mem)
        self._function, words = getattr(kernel.function, "ptr", None), _words_of(others)
        self._of_thread = None if self._function is None or words is None else _OfThread(own, words)

    def __call__(self, grid: int, arguments: Sequence[Any], stream: int) -> None:
        """Launch so many blocks on the current stream, which has this handle."""
        of_thread = self._of_thread
        words = None if of_thread is None else _words_of(arguments)
        if of_thread is None or words is None or not of_thread.known:
            self._kernel((grid,), self._block, (*arguments, *self._others), shared_mem=self._shared_mem)
            if of_thread is not None:
                of_thread.known = True
            return
        import cupy

        of_thread.words[: len(words)] = words
        cupy.cuda.driver.launchKernel(self._function, grid, 1, 1, *self._sizes, stream, of_thread.address, 0)


class _OfThread(local):
    """Words of the arguments, and the addresses of these words, of each thread: the driver copies what they are.

    `known`: whether the thread has launched the kernel, through CuPy, which binds a context to the thread.
    """

    def __init__(self, own: int, others: Sequence[int]) -> None:
        number = own + len(others)
        self.words: Any = (ctypes.c_uint64 * number)(*[0] * own, *others)
        first = ctypes.addressof(self.words)
        self._addresses = (ctypes.c_uint64 * number)(*range(first, first + 8 * number, 8))
        self.address, self.known = ctypes.addressof(self._addresses), False


def _words_of(arguments: Sequence[Any]) -> list[int] | None:
    try:
        return [WORDS[type(one)](one) if type(one) in WORDS else one.data.ptr for one in arguments]
    except AttributeError:  # something else that CuPy takes
        return None
