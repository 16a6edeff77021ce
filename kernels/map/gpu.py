"""Elementwise operations on a GPU: the launch of the CUDA kernel."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from kernels.common import nvrtc
from kernels.common.checks import blocks_for, check_address, check_array
from kernels.common.constants import constant
from kernels.common.dtypes import C_TYPES
from kernels.common.memory import empty

SOURCE = Path(__file__).with_suffix(".cu")

# float16 is computed in float and rounded after each operation, as NumPy does.
KERNEL_TYPES = {name: c_type for name, c_type in C_TYPES.items() if name != "float16"}
OPERATIONS = {  # functor in operations.cuh, number of operands
    "add": ("Add", 2), "subtract": ("Subtract", 2), "multiply": ("Multiply", 2),
    "multiply_add": ("MultiplyAdd", 3), "minimum": ("Minimum", 2), "maximum": ("Maximum", 2),
}  # fmt: skip
THREADS = constant(SOURCE, "THREADS")
_empty = partial(empty, "map")


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
        If the operation is unknown or takes another number of arrays; if an array has another dtype, is not contiguous,
        or differs from the first in dtype or shape.
    MemoryError
        If the result does not fit into device memory.
    """
    if operation not in OPERATIONS:
        raise ValueError(f"operation: expected one of {', '.join(OPERATIONS)}, got {operation!r}")
    functor, operands = OPERATIONS[operation]
    if len(arrays) != operands:
        raise TypeError(f"{operation}: expected {operands} arrays, got {len(arrays)}")
    check_operands(arrays, 2 if arrays[0].ndim == 2 else 1, ("float16", *KERNEL_TYPES))
    if arrays[0].dtype == np.float16:
        steps = ("multiply", "add") if operation == "multiply_add" else (operation,)
        result = arrays[0]
        for step, other in zip(steps, arrays[1:], strict=True):
            result = elementwise(result.astype(np.float32), other.astype(np.float32), operation=step).astype(np.float16)
        bits = result.view(np.uint16)
        bits[(bits & 0x7FFF) > 0x7C00] = 0x7E00  # the same bits for every NaN: conversion makes others
        return result
    first = arrays[0]
    n, itemsize = int(first.size), int(first.dtype.itemsize)
    out = _empty(first.shape, first.dtype)
    if not n:
        return out
    check_address(*arrays)
    skew = {int(array.data.ptr) % 16 for array in (*arrays, out)}
    head = min(n, -min(skew) % 16 // itemsize) if len(skew) == 1 else n
    tile = THREADS * 16 // itemsize
    tiles = (n - head) // tile
    blocks = blocks_for(n - tiles * tile, THREADS)
    kernel = nvrtc.load(SOURCE, f"elementwise<{KERNEL_TYPES[str(first.dtype)]}, {functor}>")
    arguments = (*arrays[:2], arrays[-1], out, np.int64(n), np.int64(head))
    kernel((max(tiles, blocks),), (THREADS,), arguments)
    return out


def check_operands(arrays: tuple[Any, ...], ndim: int, dtypes: tuple[str, ...]) -> None:
    """Refuse arrays that a kernel would misread, or that differ in dtype or shape."""
    first = arrays[0]
    for name, array in zip("abc", arrays, strict=False):
        check_array(name, array, dtypes, ndim)
        if array.dtype != first.dtype:
            raise TypeError(f"{name}: expected {first.dtype} as in a, got {array.dtype}; convert one of them first")
        if array.shape != first.shape:
            raise ValueError(f"{name}: expected shape {first.shape} as in a, got {array.shape}")


INSTANCES = tuple(
    f"elementwise<{c_type}, {functor}>" for c_type in KERNEL_TYPES.values() for functor, _ in OPERATIONS.values()
)
