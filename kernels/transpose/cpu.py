"""Transpose on the CPU, box by box; boxes whose rows are long in an array and in its transpose."""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common import cxx

SOURCE = Path(__file__).with_suffix(".cpp")

# By bytes of an element, a dtype that carries its bits: NumPy copies numbers faster than bytes.
DTYPE_OF_SIZE: dict[int, Any] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64, 16: np.complex128}
BOX = 2**15  # elements that NumPy transposes at a time, in the L2 cache
COMPILED_BOX = 2**17  # elements that cpu.cpp transposes at a time, to stay within few pages
PADDING = 64  # bytes: a cache line


def transpose_cpu(array: NDArray[Any]) -> NDArray[Any]:
    """Reverse all axes of an array on the CPU, C-contiguous, box by box."""
    out = np.empty(array.shape[::-1], array.dtype)
    if array.size and not _compiled(array, out):
        _transpose(array, out)
    return out


def _compiled(array: NDArray[Any], out: NDArray[Any]) -> bool:
    """By cpu.cpp; False on a machine without a C++ compiler."""
    functions = cxx.library(SOURCE)
    if functions is None:
        return False
    array = np.ascontiguousarray(array)
    shape = tuple(length for length in array.shape if length > 1)  # axes of length 1 change nothing
    if len(shape) < 2:
        out.reshape(-1)[...] = array.reshape(-1)
        return True
    sizes, function, size, address = ctypes.c_size_t * len(shape), functions.transpose, ctypes.c_size_t, ctypes.c_void_p
    function.argtypes, function.restype = (address, address, size, size, address, address), None
    lengths = balanced(shape, COMPILED_BOX)
    function(array.ctypes.data, out.ctypes.data, array.itemsize, len(shape), sizes(*shape), sizes(*lengths))
    return True


def _transpose(array: NDArray[Any], out: NDArray[Any]) -> None:
    """With NumPy. A box is first copied to padded rows: a power of two apart, they would map to the same cache set and
    evict each other along a column."""
    dtype = DTYPE_OF_SIZE.get(array.dtype.itemsize, array.dtype)
    array, result = array.view(dtype), out.view(dtype)
    lengths = balanced(array.shape, BOX)
    padded = bool(lengths) and lengths[-1] * array.itemsize >= 4 * PADDING
    buffer = np.empty((*lengths[:-1], lengths[-1] + -(-PADDING // array.itemsize)) if padded else (), array.dtype)
    for box in boxes(array.shape, lengths):
        part = array[box]
        if padded:
            part = buffer[tuple(slice(length) for length in part.shape)]
            part[...] = array[box]
        result[box[::-1]] = part.T


@lru_cache(maxsize=64)
def balanced(shape: tuple[int, ...], elements: int) -> tuple[int, ...]:
    """Lengths of a box of at most this many elements with long rows in a nonempty array and in its transpose."""

    def lengths(run: int) -> list[int]:
        rows, columns = _one_run(shape, run), _one_run(shape[::-1], run)
        return [max(pair) for pair in zip(rows, columns[::-1], strict=True)]

    runs = range(1, prod(shape) + 1)
    return tuple(lengths(max(1, bisect_right(runs, elements, key=lambda run: prod(lengths(run))))))


def _one_run(shape: tuple[int, ...], run: int) -> list[int]:
    """Lengths of a box of at most `run` consecutive elements."""
    return [min(length, max(1, run // prod(shape[axis + 1 :]))) for axis, length in enumerate(shape)]


def boxes(shape: tuple[int, ...], lengths: tuple[int, ...]) -> Iterator[tuple[slice, ...]]:
    """Boxes that cover a shape, in C order."""
    return product(
        *([slice(start, min(start + step, length)) for start in range(0, length, step)]
          for length, step in zip(shape, lengths, strict=True))
    )  # fmt: skip
