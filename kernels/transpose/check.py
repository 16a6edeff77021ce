"""Whether one array is the transpose of another: every bit compared, in calls that release Python's lock."""

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

# Elements, and bytes, compared at a time at most: with what is copied of them they stay in the second-level cache, and
# they are enough for a thread to spend its time in NumPy's loops, which hold no lock.
TILE = 2**17
TILE_BYTES = 2**19
# A tile is compared down its columns. Where these are a power of two apart, all elements of a row would drive each
# other out of the cache; so it is first copied to where a line of the cache lies between its rows.
PADDING = 64


def is_transpose(found: NDArray[Any], array: NDArray[Any]) -> bool:
    """Compare two arrays, one of which has all axes the other way round.

    Parameters
    ----------
    found : array of any dtype without Python objects, C-contiguous
    array : array of the same dtype, of the shape from behind, C-contiguous
        The bits of elements count, not their values: NaN equals the same NaN.
    """
    if not array.size:
        return True
    shape = tuple(length for length in array.shape if length > 1)  # an axis of one element is the same either way
    array, found = array.reshape(shape or 1), found.reshape(shape[::-1] or 1)
    lengths = balanced(array.shape, max(1, min(TILE, TILE_BYTES // array.itemsize)))
    compared = _compared_natively(found, array, lengths)
    return (_compared(found, array, lengths) if compared is None else compared) == array.size


def _compared_natively(found: NDArray[Any], array: NDArray[Any], lengths: tuple[int, ...]) -> int | None:
    """Elements that are equal, up to a tile with one that is not; None where nothing can be compiled."""
    functions = cxx.library(SOURCE)
    if functions is None:
        return None
    function, size, address = functions.equal_elements, ctypes.c_size_t, ctypes.c_void_p
    function.argtypes, function.restype = (address, address, size, size, address, address), size
    sizes = size * array.ndim
    where = array.ctypes.data, found.ctypes.data
    return int(function(*where, array.itemsize, array.ndim, sizes(*array.shape), sizes(*lengths)))


def _compared(found: NDArray[Any], array: NDArray[Any], lengths: tuple[int, ...]) -> int:
    """The same with NumPy."""
    words, mirrored = _words(array), _words(found)
    per = words.shape[-1]
    turned = (*lengths[:0:-1], lengths[0] * per)
    room = np.empty((*turned[:-1], turned[-1] + PADDING // words.itemsize), words.dtype)
    # The longer of both last axes is the one that NumPy's innermost loop runs along.
    along_array = lengths[-1] >= lengths[0]
    differ = np.empty(prod(lengths), np.bool_)
    compared = 0
    for box in boxes(array.shape, lengths):
        left, right = words[box], mirrored[box[::-1]]
        shape = right.shape
        copied = room[tuple(slice(length) for length in (*shape[:-2], shape[-2] * per))].reshape(shape)
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
    """The bytes of each element as the widest unsigned integers that it is made of, along one more axis."""
    size = next(size for size in (8, 4, 2, 1) if array.dtype.itemsize % size == 0)
    return array.reshape(-1).view(f"u{size}").reshape(*array.shape, -1)
