"""Transpose a matrix: the plain reference, the door to the CUDA kernels."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common import nvrtc
from kernels.common.checks import check_address, check_array
from kernels.common.dtypes import UINT_OF_SIZE
from kernels.common.memory import empty
from kernels.transpose.axes import Matrices, matrices, merged, runs
from kernels.transpose.cpu import STAND_INS
from kernels.transpose.strided_copy import copy_runs
from kernels.transpose.unaligned import turn_ragged

SOURCE = Path(__file__).with_suffix(".cu")

# C type that carries an element, by its bytes: bits are moved, whatever they stand for.
DTYPES = (
    "bool", "int8", "uint8", "int16", "uint16", "float16", "int32", "uint32", "float32",
    "int64", "uint64", "float64", "complex64", "complex128",
)  # fmt: skip
# Rows, columns and threads of the production kernel's tile, by bytes of an element: where rows of both arrays begin and
# end on 16 bytes, where those of the second one do, and where they do not. Elements of 4 and 8 bytes are for
# `transpose_ragged` then.
SHAPES = {1: (128, 256, 512), 2: (128, 128, 512), 4: (64, 64, 512), 8: (32, 32, 256), 16: (32, 32, 512)}
RAGGED_IN = {1: (128, 128, 256), 2: (256, 64, 256)}
RAGGED = {1: (128, 128, 160), 2: (128, 128, 288)}
SECTOR = 32  # tile.cuh
MAX_GRID = 2**31 - 1
NARROW = 8  # parts of a tile; a matrix in less than one would leave most of it empty
_empty = partial(empty, "transpose")


def transpose_reference(array: NDArray[Any]) -> NDArray[Any]:
    """Transpose with NumPy.

    Parameters
    ----------
    array : array of any dtype, shape (rows, columns)

    Returns
    -------
    array of the same dtype, shape (columns, rows), C-contiguous
    """
    return np.ascontiguousarray(array.T)


def transpose(array: Any) -> Any:
    """Transpose on the device that holds the array.

    Parameters
    ----------
    array : CuPy array, shape (rows, columns), C-contiguous, elements of 1, 2, 4, 8 or 16 bytes
        rows * columns may exceed 2**31. It may begin at any element; rows that begin and end on 16 bytes are faster.

    Returns
    -------
    CuPy array of the same dtype, shape (columns, rows), C-contiguous
        The same bits, on the current stream.

    Raises
    ------
    TypeError, ValueError
        If the array is of another dtype, is not a matrix, has gaps, or begins within an element's boundaries.
    MemoryError
        If the device has no room for the result.
    """
    checked(array)
    rows, columns = array.shape
    found = Matrices(rows, columns, columns, rows)
    _blocks(found, RAGGED.get(array.dtype.itemsize, SHAPES[16]))
    check_address(array)
    out = _empty((columns, rows), array.dtype)
    if 1 in array.shape:  # the elements are in order already
        out[...] = array.reshape(columns, rows)
    elif array.size and _fills(found, array.dtype.itemsize):
        _turn(array, out, found)
    elif array.size:
        out[...] = array.T
    return out


def permute_axes(array: Any, axes: Sequence[int]) -> Any:
    """Put the axes of an array into another order on the device that holds it.

    Parameters
    ----------
    array : CuPy array, C-contiguous, not empty
    axes
        Of the array, in the order that they shall have.

    Returns
    -------
    CuPy array of the same dtype, C-contiguous
        On the current stream: by transposing matrices, or by copying runs, where that is what it amounts to, else by
        CuPy's copy.
    """
    import cupy

    shape = tuple(array.shape[axis] for axis in axes)
    lengths, order = merged(array.shape, axes)
    itemsize = array.dtype.itemsize
    if itemsize in SHAPES and len(order) > 1:
        check_address(array)
        nbytes = lengths[-1] * itemsize
        if order[-1] == len(order) - 1 and nbytes in SHAPES and array.data.ptr % nbytes == 0:
            # Runs that are as long as an element can be are elements.
            items = array.reshape(-1).view(STAND_INS[nbytes]).reshape(lengths[:-1])
            return permute_axes(items, order[:-1]).reshape(-1).view(array.dtype).reshape(shape)
        found, kept = matrices(array.shape, axes), runs(lengths, order)
        if found is not None and _fills(found, itemsize):
            out = _empty(shape, array.dtype)
            _turn(array, out, found)
            return out
        if kept is not None and copy_runs(array, out := _empty(shape, array.dtype), kept):
            return out
    return cupy.ascontiguousarray(array.transpose(axes)).reshape(shape)  # also where there is no axis


def reverse_axes(array: Any, as_bytes: bool = False) -> Any:
    """Transpose an array of any number of dimensions on the device that holds it.

    Parameters
    ----------
    array : CuPy array, C-contiguous, not empty
    as_bytes
        Its last axis is the bytes of its elements, and stays.

    Returns
    -------
    CuPy array of the same dtype with the other axes the other way round, C-contiguous
    """
    if array.ndim == 2 and not as_bytes:
        return transpose(array)
    axes = range(array.ndim - as_bytes)
    return permute_axes(array, (*axes[::-1], *range(len(axes), array.ndim)))


def _turn(array: Any, out: Any, found: Matrices) -> None:
    """Launch the kernel for rows that begin where these do."""
    itemsize = array.dtype.itemsize
    places_in = [array.data.ptr, *(step * itemsize for step in found.steps_in)]
    places_out = [out.data.ptr, *(step * itemsize for step in found.steps_out)]
    aligned_in, aligned_out = (all(place % 16 == 0 for place in places) for places in (places_in, places_out))
    if itemsize > 2 and not (aligned_in and aligned_out):
        turn_ragged(array, out, found)
        return
    shape = _shape(itemsize, aligned_in, aligned_out)
    kernel = nvrtc.load(SOURCE, production(itemsize, aligned_in, aligned_out))
    sizes = (found.rows, found.columns, found.pitch_in, found.pitch_out,
             found.inner, found.in_inner, found.in_outer, found.out_inner, found.out_outer)  # fmt: skip
    kernel((_blocks(found, shape),), (shape[2],), (array, out, *map(np.int64, sizes)),
           shared_mem=stage_bytes(itemsize, aligned_in, aligned_out))  # fmt: skip


def production(itemsize: int, aligned_in: bool, aligned_out: bool) -> str:
    """Instance of the production kernel; elements of more than 2 bytes are aligned."""
    sizes = ", ".join(map(str, _shape(itemsize, aligned_in, aligned_out)))
    return f"production<{UINT_OF_SIZE[itemsize]}, {sizes}, {str(aligned_in).lower()}, {str(aligned_out).lower()}>"


def stage_bytes(itemsize: int, aligned_in: bool, aligned_out: bool) -> int:
    """Shared memory of a block: Stage in tile.cuh."""
    rows, columns, _ = _shape(itemsize, aligned_in, aligned_out)
    per_word = max(1, 4 // itemsize)
    more = 0 if aligned_out else SECTOR // itemsize
    return (columns * ((rows + more) // per_word + 1) + columns // 32 * 4) * itemsize * per_word


def _shape(itemsize: int, aligned_in: bool, aligned_out: bool) -> tuple[int, int, int]:
    if not aligned_out:
        return RAGGED[itemsize]
    return (SHAPES if aligned_in else RAGGED_IN)[itemsize]


def _fills(found: Matrices, itemsize: int) -> bool:
    rows, columns, _ = SHAPES[itemsize]
    return NARROW * found.rows >= rows and NARROW * found.columns >= columns


def _blocks(found: Matrices, shape: tuple[int, int, int]) -> int:
    return tiles_for(found.rows, found.columns, *shape[:2], found.outer * found.inner)


def checked(array: Any) -> int:
    """Bytes of an element, once the array is one that can be transposed."""
    check_array("transpose", array, DTYPES, 2)
    return int(array.dtype.itemsize)


def tiles_for(rows: int, columns: int, height: int, width: int, count: int = 1) -> int:
    """Tiles that cover so many matrices: the blocks of the grid."""
    tiles = -(-rows // height) * -(-columns // width) * count
    if tiles > MAX_GRID:
        raise ValueError(f"transpose: {rows} x {columns} takes {tiles} blocks of {height} x {width}, the limit of a "
                         f"grid is {MAX_GRID}; transpose it in parts")  # fmt: skip
    return tiles


# Of each kernel the instance whose machine code is looked at.
INSTANCES = {"production": production(4, True, True)}
