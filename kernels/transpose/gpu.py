"""Transpose a matrix, permute or reverse axes on a GPU: which kernel runs, and how it is launched."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common import nvrtc
from kernels.common.checks import check_address, check_array
from kernels.common.constants import constant
from kernels.common.dtypes import UINT_OF_SIZE
from kernels.common.memory import empty
from kernels.transpose.axes import Matrices, as_rows, matrices, merged
from kernels.transpose.cpu import DTYPE_OF_SIZE
from kernels.transpose.strided_copy import copy_rows
from kernels.transpose.unaligned import transpose_unaligned

SOURCE = Path(__file__).with_suffix(".cu")

DTYPES = (
    "bool", "int8", "uint8", "int16", "uint16", "float16", "int32", "uint32", "float32",
    "int64", "uint64", "float64", "complex64", "complex128",
)  # fmt: skip
# Rows, columns and threads of a tile, by bytes of an element: where rows of both arrays are aligned to 16 bytes, where
# only those of the output are, and where those of the output are not. Larger unaligned elements go to unaligned.cu.
SHAPES = {1: (128, 256, 512), 2: (128, 128, 512), 4: (64, 64, 512), 8: (32, 32, 256), 16: (32, 32, 512)}
UNALIGNED_IN = {1: (128, 128, 256), 2: (256, 64, 256)}
UNALIGNED = {1: (128, 128, 160), 2: (128, 128, 288)}
SECTOR = constant(SOURCE.with_name("tile.cuh"), "SECTOR")
MAX_GRID = 2**31 - 1
NARROW = 8  # matrices shorter or narrower than this fraction of a tile would leave most of it empty
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
        rows * columns may exceed 2**31. It may begin at any element; rows aligned to 16 bytes are faster.

    Returns
    -------
    CuPy array of the same dtype, shape (columns, rows), C-contiguous
        The same bits, on the current stream.

    Raises
    ------
    TypeError, ValueError
        If the array has another dtype, is no matrix, is not contiguous, or is not aligned to its elements.
    MemoryError
        If the result does not fit into device memory.
    """
    checked(array)
    rows, columns = array.shape
    matrix = Matrices(rows, columns, columns, rows)
    _blocks(matrix, UNALIGNED.get(array.dtype.itemsize, SHAPES[16]))
    check_address(array)
    out = _empty((columns, rows), array.dtype)
    if 1 in array.shape:  # the elements keep their order
        out[...] = array.reshape(columns, rows)
    elif array.size and _fills(matrix, array.dtype.itemsize):
        _transpose(array, out, matrix)
    elif array.size:
        out[...] = array.T
    return out


def permute_axes(array: Any, axes: Sequence[int]) -> Any:
    """Permute the axes of an array on the device that holds it.

    Parameters
    ----------
    array : CuPy array, C-contiguous, not empty
    axes
        Of the array, in their new order.

    Returns
    -------
    CuPy array of the same dtype, C-contiguous
        On the current stream: by transposing matrices or by copying rows where the permutation amounts to that,
        otherwise by CuPy's copy.
    """
    import cupy

    shape = tuple(array.shape[axis] for axis in axes)
    lengths, order = merged(array.shape, axes)
    itemsize = array.dtype.itemsize
    if itemsize in SHAPES and len(order) > 1:
        check_address(array)
        nbytes = lengths[-1] * itemsize
        if order[-1] == len(order) - 1 and nbytes in SHAPES and array.data.ptr % nbytes == 0:
            # Rows as long as an element can be are elements.
            items = array.reshape(-1).view(DTYPE_OF_SIZE[nbytes]).reshape(lengths[:-1])
            return permute_axes(items, order[:-1]).reshape(-1).view(array.dtype).reshape(shape)
        batch, rows = matrices(array.shape, axes), as_rows(lengths, order)
        if batch is not None and _fills(batch, itemsize):
            out = _empty(shape, array.dtype)
            _transpose(array, out, batch)
            return out
        if rows is not None and copy_rows(array, out := _empty(shape, array.dtype), rows):
            return out
    return cupy.ascontiguousarray(array.transpose(axes)).reshape(shape)  # also for arrays without axes


def reverse_axes(array: Any, as_bytes: bool = False) -> Any:
    """Reverse the axes of an array, of any number of dimensions, on the device that holds it.

    Parameters
    ----------
    array : CuPy array, C-contiguous, not empty
    as_bytes
        The last axis is the bytes of an element, and stays the last one.

    Returns
    -------
    CuPy array of the same dtype, C-contiguous
    """
    if array.ndim == 2 and not as_bytes:
        return transpose(array)
    axes = range(array.ndim - as_bytes)
    return permute_axes(array, (*axes[::-1], *range(len(axes), array.ndim)))


def _transpose(array: Any, out: Any, batch: Matrices) -> None:
    """Launch the kernel for the alignment of these rows."""
    itemsize = array.dtype.itemsize
    places_in = [array.data.ptr, *(step * itemsize for step in batch.steps_in)]
    places_out = [out.data.ptr, *(step * itemsize for step in batch.steps_out)]
    aligned_in, aligned_out = (all(place % 16 == 0 for place in places) for places in (places_in, places_out))
    if itemsize > 2 and not (aligned_in and aligned_out):
        transpose_unaligned(array, out, batch)
        return
    shape = _shape(itemsize, aligned_in, aligned_out)
    kernel = nvrtc.load(SOURCE, instance(itemsize, aligned_in, aligned_out))
    sizes = (batch.rows, batch.columns, batch.pitch_in, batch.pitch_out,
             batch.inner, batch.in_inner, batch.in_outer, batch.out_inner, batch.out_outer)  # fmt: skip
    kernel((_blocks(batch, shape),), (shape[2],), (array, out, *map(np.int64, sizes)),
           shared_mem=stage_bytes(itemsize, aligned_in, aligned_out))  # fmt: skip


def instance(itemsize: int, aligned_in: bool, aligned_out: bool) -> str:
    """Instance of the kernel; elements of more than 2 bytes have to be aligned."""
    sizes = ", ".join(map(str, _shape(itemsize, aligned_in, aligned_out)))
    return f"tiled<{UINT_OF_SIZE[itemsize]}, {sizes}, {str(aligned_in).lower()}, {str(aligned_out).lower()}>"


def stage_bytes(itemsize: int, aligned_in: bool, aligned_out: bool) -> int:
    """Shared memory of a block: sizeof(Stage) in tile.cuh."""
    rows, columns, _ = _shape(itemsize, aligned_in, aligned_out)
    per_word = max(1, 4 // itemsize)
    more = 0 if aligned_out else SECTOR // itemsize
    return (columns * ((rows + more) // per_word + 1) + columns // 32 * 4) * itemsize * per_word


def _shape(itemsize: int, aligned_in: bool, aligned_out: bool) -> tuple[int, int, int]:
    if not aligned_out:
        return UNALIGNED[itemsize]
    return (SHAPES if aligned_in else UNALIGNED_IN)[itemsize]


def _fills(batch: Matrices, itemsize: int) -> bool:
    rows, columns, _ = SHAPES[itemsize]
    return NARROW * batch.rows >= rows and NARROW * batch.columns >= columns


def _blocks(batch: Matrices, shape: tuple[int, int, int]) -> int:
    return tiles_for(batch.rows, batch.columns, *shape[:2], batch.outer * batch.inner)


def checked(array: Any) -> int:
    """Bytes of an element; raises for an array that the kernels do not take."""
    check_array("transpose", array, DTYPES, 2)
    return int(array.dtype.itemsize)


def tiles_for(rows: int, columns: int, height: int, width: int, count: int = 1) -> int:
    """Tiles that cover `count` matrices: the blocks of the grid."""
    tiles = -(-rows // height) * -(-columns // width) * count
    if tiles > MAX_GRID:
        raise ValueError(f"transpose: {rows} x {columns} takes {tiles} blocks of {height} x {width}, the limit of a "
                         f"grid is {MAX_GRID}; transpose it in parts")  # fmt: skip
    return tiles


INSTANCES = tuple(
    instance(itemsize, aligned_in, aligned_out)
    for itemsize in SHAPES
    for aligned_in in ((True, False) if itemsize in UNALIGNED else (True,))
    for aligned_out in ((True, False) if itemsize in UNALIGNED else (True,))
)
