"""What check_sums.cpp has: its functions, and the structures that they take."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kernels.common import cxx
from kernels.matmul.check_lines import Array

SOURCE = Path(__file__).with_name("check_sums.cpp")

LANES, JOINED = 4, 8  # as in check_compared.hpp
CACHE_LINE = 64  # bytes

_pointer, _size = ctypes.c_void_p, ctypes.c_size_t


class Matrix(ctypes.Structure):
    """Some rows and columns, and the powers of two that scale them."""

    _fields_ = (
        ("numbers", _pointer), *((name, _size) for name in ("rows", "columns", "stride")),
        ("by_row", _pointer * 3), ("by_column", _pointer * 3),
    )  # fmt: skip


class GroupsOf(ctypes.Structure):
    """`Groups.members`, and the columns of a block."""

    _fields_ = (("columns", _pointer), ("starts", _pointer), ("sums", _size), ("width", _size))


class LimitsOf(ctypes.Structure):
    """Parts of the bounds of a tile, from `Limits`."""

    _fields_ = (
        *((name, _pointer) for name in ("norms", "halves", "own", "likely", "of_halves", "own_bounds")),
        *((name, ctypes.c_double) for name in ("powers", "roundings", "underflow", "upwards")),
    )


class RoundsOf(ctypes.Structure):
    """The sum of each column in each round, and its sign."""

    _fields_ = (("sums", _pointer), ("signs", _pointer), ("rounds", _size), ("sums_of_all", _size))


def functions() -> ctypes.CDLL | None:
    """What is compiled; None without a C++ compiler."""
    library = cxx.library(SOURCE)
    if library is None:
        return None
    matrix, number = ctypes.POINTER(Matrix), ctypes.c_int
    groups, rounds = ctypes.POINTER(GroupsOf), ctypes.POINTER(RoundsOf)
    types: dict[str, tuple[Any, ...]] = {
        "measure": (None, _pointer, _size, _size, _size, number, _pointer, _pointer),
        "group_sums": (None, matrix, number, groups, *[_pointer] * 3, _size),
        "products": (None, matrix, number, _pointer, _size, _size, _pointer, _pointer),
        "compare": (None, matrix, groups, ctypes.POINTER(LimitsOf), *[_pointer] * 7),
        "judge": (_size, _size, _size, *[_pointer] * 6),
        "suspects": (_size, matrix, rounds, _pointer, _pointer, ctypes.c_double, _pointer, _pointer, _size),
        "small": (None, matrix, rounds, *[_pointer] * 5, _size, _pointer, _size, _pointer),
        "dots": (None, matrix, matrix, _pointer, _size, _pointer, _pointer),
    }
    for name, (result, *arguments) in types.items():
        function = getattr(library, name)
        function.argtypes, function.restype = (number, *arguments), result
    return library


def matrix_of(block: Array, by_row: Sequence[Array] = (), by_column: Sequence[Array] = ()) -> Matrix:
    """What functions take, which keeps its arrays."""
    if block.strides[1] != block.itemsize:
        block = np.ascontiguousarray(block)
    pointers = [(_pointer * 3)(*(powers.ctypes.data for powers in by)) for by in (by_row, by_column)]
    matrix = Matrix(block.ctypes.data, *block.shape, block.strides[0] // block.itemsize, *pointers)
    matrix.arrays = block, by_row, by_column
    return matrix


def aligned(shape: tuple[int, ...], dtype: np.dtype[Any], make: Callable[..., Array] = np.zeros) -> Array:
    """Numbers from the start of a cache line on: a vector that crosses two would be two loads."""
    nbytes = math.prod(shape) * dtype.itemsize
    memory = make(nbytes + CACHE_LINE, np.uint8)
    start = -memory.ctypes.data % CACHE_LINE
    return memory[start : start + nbytes].view(dtype).reshape(shape)


def depth_of(starts: Array) -> int:
    """Additions until a number is part of the sum of its group, at most, from `starts` of `Groups.members`."""
    of_lanes, blocks = -(-np.diff(starts) // LANES), len(starts)
    of_block = int(of_lanes.reshape(blocks, -1, 2).sum(-1).max(initial=0)) + LANES.bit_length() - 1
    return of_block + min(blocks, JOINED) + -(-blocks // JOINED)
