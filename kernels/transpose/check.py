"""Whether one array is the transpose of another: every bit compared, in calls that release the GIL."""

from __future__ import annotations

import ctypes
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common import cxx
from kernels.transpose.cpu import balanced, boxes

SOURCE = Path(__file__).with_suffix(".cpp")

# Elements and bytes compared at a time, at most: few enough to stay in the L2 cache with their copy, many enough for a
# thread to spend its time in NumPy's loops, which do not hold the GIL.
TILE = 2**17
TILE_BYTES = 2**19
# A tile is compared down its columns. With rows a power of two apart the elements of a column would evict each other
# from the cache; so it is first copied to rows padded by a cache line.
PADDING = 64


def is_transpose(transposed: NDArray[Any], array: NDArray[Any]) -> bool:
    """Whether the first array is the second with all axes reversed.

    Parameters
    ----------
    transposed : array of any dtype without Python objects, C-contiguous
    array : array of the same dtype, of the reversed shape, C-contiguous
        Bits are compared, not values: a NaN equals the same NaN.
    """
    if not array.size:
        return True
    shape = tuple(length for length in array.shape if length > 1)  # axes of length 1 change nothing
    array, transposed = array.reshape(shape or 1), transposed.reshape(shape[::-1] or 1)
    lengths = balanced(array.shape, max(1, min(TILE, TILE_BYTES // array.itemsize)))
    equal = _compiled(transposed, array, lengths)
    return (_numpy(transposed, array, lengths) if equal is None else equal) == array.size


def _compiled(transposed: NDArray[Any], array: NDArray[Any], lengths: tuple[int, ...]) -> int | None:
    """Number of elements in tiles that are equal, up to the first that is not; None without a C++ compiler."""
    functions = cxx.library(SOURCE)
    if functions is None:
        return None
    function, size, address = functions.equal_elements, ctypes.c_size_t, ctypes.c_void_p
    function.argtypes, function.restype = (address, address, size, size, address, address), size
    sizes = size * array.ndim
    where = array.ctypes.data, transposed.ctypes.data
    return int(function(*where, array.itemsize, array.ndim, sizes(*array.shape), sizes(*lengths)))


def _numpy(transposed: NDArray[Any], array: NDArray[Any], lengths: tuple[int, ...]) -> int:
    """The same with NumPy."""
    words, others = _words(array), _words(transposed)
    per = words.shape[-1]
    reversed_ = (*lengths[:0:-1], lengths[0] * per)
    buffer = np.empty((*reversed_[:-1], reversed_[-1] + PADDING // words.itemsize), words.dtype)
    # NumPy's innermost loop runs along the longer of both last axes.
    along_array = lengths[-1] >= lengths[0]
    differ = np.empty(prod(lengths), np.bool_)
    compared = 0
    for box in boxes(array.shape, lengths):
        left, right = words[box], others[box[::-1]]
        shape = right.shape
        copied = buffer[tuple(slice(length) for length in (*shape[:-2], shape[-2] * per))].reshape(shape)
        np.copyto(copied, right)
        for word in range(per):
            one, other = left[..., word], copied[..., word].T
            if not along_array:
                one, other = one.T, other.T
            if np.not_equal(one, other, out=differ[: one.size].reshape(one.shape)).any():
                return compared
        compared += left[..., 0].size
    return compared


def _words(array: NDArray[Any]) -> NDArray[Any]:
    """Each element as the widest unsigned integers that divide it, along one more axis."""
    size = next(size for size in (8, 4, 2, 1) if array.dtype.itemsize % size == 0)
    return array.reshape(-1).view(f"u{size}").reshape(*array.shape, -1)
