"""Add, multiply, compare arrays element by element: the plain reference, the door to the CUDA kernels."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common import nvrtc
from kernels.common.checks import check_array, check_block
from kernels.common.dtypes import C_TYPES, COURSE_TYPES
from kernels.common.memory import empty
from kernels.study.variant import Variant, by_name

SOURCE = Path(__file__).with_suffix(".cu")

# float16 is computed in float, rounded after each operation as NumPy does.
PRODUCTION_TYPES = {name: c_type for name, c_type in C_TYPES.items() if name != "float16"}
OPERATIONS = {  # functor in gpu.cu, operands
    "add": ("Add", 2), "subtract": ("Subtract", 2), "multiply": ("Multiply", 2),
    "multiply_add": ("MultiplyAdd", 3), "minimum": ("Minimum", 2), "maximum": ("Maximum", 2),
}  # fmt: skip
THREADS = 256  # as in gpu.cu
MAX_GRID, MAX_GRID_Y = 2**31 - 1, 65535
_empty = partial(empty, "elementwise")


def elementwise_reference(*arrays: NDArray[Any], operation: str = "add") -> NDArray[Any]:
    """Apply an operation with NumPy, quietly where it overflows or meets NaN.

    Parameters
    ----------
    arrays : two arrays (three for ``"multiply_add"``: a * b + c) of one dtype and shape
        int32 wraps modulo 2**32.
    operation
        A name in `OPERATIONS`.

    Returns
    -------
    array of the same dtype and shape
        Of two zeros, -0.0 is the minimum and 0.0 the maximum; NumPy leaves that to the machine.
    """
    a, b = arrays[:2]
    with np.errstate(all="ignore"):
        if operation == "multiply_add":
            return np.asarray(np.add(np.multiply(a, b), arrays[2]))
        result = np.asarray(getattr(np, operation)(a, b))
    if operation in ("minimum", "maximum") and a.dtype.kind == "f":
        zeros = (a == 0) & (b == 0)
        either = np.logical_or if operation == "minimum" else np.logical_and
        negative = either(np.signbit(a[zeros]), np.signbit(b[zeros]))
        result[zeros] = np.where(negative, a.dtype.type(-0.0), a.dtype.type(0.0))
    return result


def elementwise_cpu(*arrays: NDArray[Any], operation: str = "add") -> NDArray[Any]:
    """Apply an operation on the CPU, with the bits of `elementwise`.

    Parameters
    ----------
    arrays : two arrays (three for ``"multiply_add"``) of one integer or float dtype and shape
    operation
        A name in `OPERATIONS`.

    Returns
    -------
    array of the same dtype and shape
    """
    a, b = arrays[:2]
    with np.errstate(all="ignore"):
        if operation in ("minimum", "maximum"):
            first = a < b if operation == "minimum" else a > b
            if a.dtype.kind == "f":
                first |= (a == b) & (np.signbit(a) == (operation == "minimum"))
                first |= a != a
            result: NDArray[Any] = np.where(first, a, b)
        else:
            result = getattr(np, "multiply" if operation == "multiply_add" else operation)(a, b)
            if operation == "multiply_add":
                np.add(result, arrays[2], out=result)
    if result.dtype.kind == "f" and np.isnan(result.max(initial=-np.inf)):
        result[np.isnan(result)] = np.nan
    return result


def elementwise(*arrays: Any, operation: str = "add") -> Any:
    """Apply an operation to arrays, element by element, on the device that holds them.

    Parameters
    ----------
    arrays : two CuPy arrays (three for ``"multiply_add"``: a * b + c) of one dtype and shape, C-contiguous
        Integers of any size, which wrap, or floats; one dimension or two, and more than 2**31 elements, if need be.
    operation
        ``"add"``, ``"subtract"``, ``"multiply"``, ``"multiply_add"``, ``"minimum"`` or ``"maximum"``.

    Returns
    -------
    CuPy array of the same dtype and shape
        On the current stream, bit for bit what NumPy gives: each operation rounded by itself, subnormal numbers kept;
        NaN where NumPy has NaN, always the same one. Of two zeros, -0.0 is the minimum and 0.0 the maximum.

    Raises
    ------
    TypeError, ValueError
        If the operation is unknown or takes another number of arrays; if an array is of another dtype, has gaps, or
        differs from the first in dtype or shape.
    MemoryError
        If the device has no room for the result.
    """
    if operation not in OPERATIONS:
        raise ValueError(f"operation: expected one of {', '.join(OPERATIONS)}, got {operation!r}")
    functor, operands = OPERATIONS[operation]
    if len(arrays) != operands:
        raise TypeError(f"{operation}: expected {operands} arrays, got {len(arrays)}")
    _check(arrays, 2 if arrays[0].ndim == 2 else 1, ("float16", *PRODUCTION_TYPES))
    if arrays[0].dtype == np.float16:
        steps = ("multiply", "add") if operation == "multiply_add" else (operation,)
        result = arrays[0]
        for step, other in zip(steps, arrays[1:], strict=True):
            result = elementwise(result.astype(np.float32), other.astype(np.float32), operation=step).astype(np.float16)
        bits = result.view(np.uint16)
        bits[(bits & 0x7FFF) > 0x7C00] = 0x7E00  # the one NaN: conversion makes another
        return result
    first = arrays[0]
    n, itemsize = int(first.size), int(first.dtype.itemsize)
    out = _empty(first.shape, first.dtype)
    if not n:
        return out
    _check_addresses(arrays)
    skew = {int(array.data.ptr) % 16 for array in (*arrays, out)}
    head = min(n, -min(skew) % 16 // itemsize) if len(skew) == 1 else n
    tile = THREADS * 16 // itemsize
    tiles = (n - head) // tile
    blocks = _blocks(n - tiles * tile, THREADS)
    kernel = nvrtc.load(SOURCE, f"production<{PRODUCTION_TYPES[str(first.dtype)]}, {functor}>")
    arguments = (*arrays[:2], arrays[-1], out, np.int64(n), np.int64(head))
    kernel((max(tiles, blocks),), (THREADS,), arguments)
    return out


def _check(arrays: tuple[Any, ...], ndim: int, dtypes: tuple[str, ...] = tuple(COURSE_TYPES)) -> None:
    """Refuse arrays that a kernel would misread, or that do not belong together."""
    first = arrays[0]
    for name, array in zip("abc", arrays, strict=False):
        check_array(name, array, dtypes, ndim)
        if array.dtype != first.dtype:
            raise TypeError(f"{name}: expected {first.dtype} as in a, got {array.dtype}; convert one of them first")
        if array.shape != first.shape:
            raise ValueError(f"{name}: expected shape {first.shape} as in a, got {array.shape}")


def _check_addresses(arrays: tuple[Any, ...]) -> None:
    """Refuse elements across the boundaries that they are loaded on: no kernel survives it."""
    for array in arrays:
        if array.data.ptr % array.dtype.itemsize:
            raise ValueError(f"expected elements on multiples of {array.dtype.itemsize} bytes, the first is at "
                             f"{array.data.ptr:#x}; pass a copy")  # fmt: skip


def _blocks(n: int, block: int, limit: int = MAX_GRID) -> int:
    """Blocks that cover n elements: one side of the grid."""
    blocks = -(-n // block)
    if blocks > limit:
        raise ValueError(f"{n} elements take {blocks} blocks of {block}, the limit of the grid is {limit}; "
                         "choose larger blocks")  # fmt: skip
    return blocks


def _launch(name: str, grid: tuple[int, ...], block: tuple[int, ...], arrays: tuple[Any, ...], *sizes: int) -> None:
    """Launch unless there is nothing to do."""
    if 0 not in grid:
        kernel = nvrtc.load(SOURCE, f"{name}<{COURSE_TYPES[str(arrays[0].dtype)]}>")
        kernel(grid, block, (*arrays, *map(np.int64, sizes)))


def _vector(name: str, a: Any, b: Any, blocks: int, block: int) -> Any:
    """Launch a variant that takes two vectors, already checked."""
    _check_addresses((a, b))
    out = _empty(a.shape, a.dtype)
    _launch(name, (blocks if a.size else 0,), (block,), (a, b, out), a.size)
    return out


def _one_thread(a: Any, b: Any) -> Any:
    _check((a, b), 1)
    return _vector("one_thread", a, b, 1, 1)


def _one_block(a: Any, b: Any, block: int = 256) -> Any:
    _check((a, b), 1)
    check_block(block)
    return _vector("one_block", a, b, 1, block)


def _grid(a: Any, b: Any, block: int = 1024) -> Any:
    _check((a, b), 1)
    check_block(block)
    return _vector("grid", a, b, _blocks(a.size, block), block)


def _product(a: Any, b: Any) -> Any:
    """The block is as large as the vectors: more elements than a block may have threads are refused."""
    _check((a, b), 1)
    check_block(max(1, a.size))
    return _vector("product", a, b, 1, a.size)


def _matrix_2d(a: Any, b: Any, block_x: int = 32, block_y: int = 32) -> Any:
    _check((a, b), 2)
    check_block(block_x, block_y)
    rows, columns = a.shape
    blocks = _blocks(columns, block_x), _blocks(rows, block_y, MAX_GRID_Y)
    _check_addresses((a, b))
    out = _empty(a.shape, a.dtype)
    _launch("matrix_2d", blocks, (block_x, block_y), (a, b, out), rows, columns)
    return out


def _no_index(a: Any, b: Any, block: int = 256) -> Any:
    """Adds a to a copy of b, in place as in the course."""
    _check((a, b), 1)
    check_block(block)
    _check_addresses((a, b))
    out = _empty(b.shape, b.dtype)
    out[...] = b
    _launch("no_index", (1 if a.size else 0,), (block,), (a, out), a.size)
    return out


def _past_the_end(a: Any, b: Any, block: int = 1024) -> Any:
    """Adds the vectors in two halves, the second first: what the first half's last block writes past its end falls
    on the second. Nothing goes wrong where half of n is a multiple of the block. The operands are copied with zeros
    behind them, so that everything read and written is memory of our own."""
    _check((a, b), 1)
    check_block(block)
    _check_addresses((a, b))
    n, half = int(a.size), int(a.size) // 2
    out = _empty((n + block,), a.dtype)
    for start, size in ((half, n - half), (0, half)):
        blocks = _blocks(size, block)
        operands = []
        for array in (a, b):
            padded = _empty((blocks * block,), a.dtype)
            padded[:size], padded[size:] = array[start : start + size], 0
            operands.append(padded)
        _launch("past_the_end", (blocks,), (block,), (*operands, out[start:]))
    return out[:n]


VARIANTS = by_name(
    Variant("one_thread", "one thread adds all elements, one after the other", _one_thread),
    Variant("one_block", "one block: thread i adds elements i, i + blockDim, ...", _one_block, {"block": 256}),
    Variant("grid", "many blocks: one element per thread", _grid, {"block": 1024}),
    Variant("matrix_2d", "blocks and grid in two dimensions: thread (x, y) adds element (row y, column x)",
            _matrix_2d, {"block_x": 32, "block_y": 32}),
    Variant("product", "element by element product in one block with as many threads as elements", _product),
    Variant("production", "any operation; 16-byte loads and stores, one of each array per thread",
            elementwise, {"operation": "add"}),
    Variant("no_index", "one_block without an index", _no_index, {"block": 256},
            broken="every thread adds every element, in place, over the others"),
    Variant("past_the_end", "grid without its guard", _past_the_end, {"block": 1024},
            broken="threads beyond the last element write into what lies behind it"),
)  # fmt: skip

# Of each kernel the instance whose machine code is looked at: the float of the courses.
INSTANCES = {name: f"{name}<float, Add>" if name == "production" else f"{name}<float>" for name in VARIANTS}
