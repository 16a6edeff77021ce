"""Matrix products on the CPU by their definition, element by element: fast where sums are short, or lines are few."""

from __future__ import annotations

import ctypes
import math
from itertools import product as every
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common import cxx
from kernels.common.row_tiles import on_tiles, tiles
from kernels.matmul.cpu import CpuProduct
from kernels.matmul.formats import (
    BITS,
    FORMATS,
    HALF_WAY,
    INTEGERS,
    LOST,
    MOST_TOTAL,
    Format,
    multiplied,
)
from kernels.matmul.memory import matrices_of, numbered

SOURCE = Path(__file__).with_suffix(".cpp")

TYPES = (*INTEGERS, "float32", "float64")  # as in cpu_direct.cpp
SIDE = 64  # of its tiles
WORK, ELEMENT = 2**20, 8  # multiplications of a call, about; those that take as long as an element does besides
# Products in a sum, and rows or columns, up to which other products of these dtypes take longer.
SHORT, SHORT_NARROW, SHORT_IN_STACKS = 128, 8, 32
THIN = 16
LONGEST = 2**16  # such sums of products of floats fit into 128 bits
COMPILED = 2**16  # numbers, or elements, that make it worth compiling

Array = NDArray[Any]


class Stack(ctypes.Structure):
    """A stack of matrices, as cpu_direct.cpp has it."""

    _fields_ = (
        ("numbers", ctypes.c_void_p), *((name, ctypes.c_int64) for name in ("type", "matrix", "row")),
        ("of", ctypes.c_void_p),
    )  # fmt: skip


class FormatOf(ctypes.Structure):
    """A format, the share of sums of some length, and the bits of an infinity and of the sign."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("precision", "least", "kept", "bits", "lost", "half_way")),
        *((name, ctypes.c_double) for name in ("share", "most_total")),
        *((name, ctypes.c_uint64) for name in ("infinity", "sign")),
    )  # fmt: skip


class DirectProduct:
    """The product of two stacks of matrices in one part; the interface and the bits are those of `CpuProduct`.

    Parameters
    ----------
    library
        Of `functions`.
    dtypes, result
        As of `CpuProduct`.
    out
        Where the product of two matrices may be put.
    """

    def __init__(
        self, library: ctypes.CDLL, dtypes: tuple[np.dtype[Any], np.dtype[Any]], result: np.dtype[Any],
        out: Array | None = None,
    ) -> None:  # fmt: skip
        self._library, self._dtypes, self.result, self._out = library, dtypes, result, out
        self.format = FORMATS.get(result.name)
        self.scaled, self.uncertain = self.format is not None, 0

    def measure(self, a: Array, b: Array) -> None:
        """Do nothing."""

    def add(self, a: Array, b: Array) -> None:
        """Multiply.

        Raises
        ------
        OverflowError
            If an integer does not fit.
        """
        if self.format:
            narrow = np.dtype(np.float32) if self.format.dtype == "float16" else self.result
            a, b = (factor.astype(self.result, copy=False).astype(narrow, copy=False) for factor in (a, b))
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        self.product = np.empty((*batch, a.shape[-2], b.shape[-1]), self.result) if self._out is None else self._out
        if not self._multiplied(a, b, batch):
            # An integer, or a sum on the way, is too large. Whether a product is, too, needs wider sums.
            exact = CpuProduct(self._dtypes, self.result)
            self.product[...] = multiplied(exact, lambda: [(a, b)])
            self.uncertain = exact.uncertain

    def _multiplied(self, a: Array, b: Array, batch: tuple[int, ...]) -> bool:
        """Multiply; whether the result counts."""
        matrices = matrices_of(self.product)
        (rows, inner), columns = a.shape[-2:], b.shape[-1]
        out = self.product.reshape(matrices, rows, columns) if batch else self.product[None]
        stacks = [_lines_of(factor).reshape(matrices_of(factor), *factor.shape[-2:]) for factor in (a, b)]
        numbers = [
            np.ascontiguousarray(numbered(len(stack), factor.shape[:-2], batch))
            for stack, factor in zip(stacks, (a, b), strict=True)
        ]
        format = self.format and _format_of(self.format, inner)

        def multiply(place: tuple[slice, slice, slice]) -> tuple[int, int]:
            some, of_rows, of_columns = place
            parts = stacks[0][:, of_rows], stacks[1][..., of_columns]
            given = [_stack(part, of[some]) for part, of in zip(parts, numbers, strict=True)]
            block, uncertain = out[place], ctypes.c_uint64()
            matrix, row, _ = (stride // out.itemsize for stride in out.strides)
            fits = self._library.multiply(
                *map(ctypes.byref, given), len(block), block.shape[1], inner, block.shape[2],
                format and ctypes.byref(format), out.itemsize, block.ctypes.data, matrix, row, ctypes.byref(uncertain),
            )  # fmt: skip
            return fits, uncertain.value

        done = on_tiles(multiply, _places(matrices, rows, inner, columns))
        self.uncertain = sum(uncertain for _, uncertain in done)
        return all(fits for fits, _ in done)

    def finish(self) -> Array:
        """The product."""
        return self.product

    def needs_recompute(self) -> bool:
        """Never: it is final."""
        return False


def suits(result: np.dtype[Any], a: Array, b: Array) -> bool:
    """Whether two whole stacks are multiplied faster this way than by the other products on the CPU."""
    rows, inner, columns = a.shape[-2], a.shape[-1], b.shape[-1]
    elements = math.prod(np.broadcast_shapes(a.shape[:-2], b.shape[:-2])) * rows * columns
    if max(elements, a.size, b.size) < COMPILED or (result.kind == "f" and inner > LONGEST):
        return False
    short, stacks = SHORT, max(a.ndim, b.ndim) > 2
    if result.kind == "f" and result.itemsize < 8:
        short = SHORT_IN_STACKS if stacks else SHORT_NARROW
    return inner <= short or (min(rows, columns) <= THIN and result != np.float32)


def _places(matrices: int, rows: int, inner: int, columns: int) -> list[tuple[slice, slice, slice]]:
    """Parts of a product, for one call each."""
    line = inner + ELEMENT
    high = min(rows, max(SIDE, WORK // max(1, columns * line) // SIDE * SIDE))
    wide = min(columns, max(SIDE, WORK // max(1, high * line) // SIDE * SIDE))
    some = max(1, WORK // max(1, high * wide * line))
    return list(every(tiles(matrices, some), tiles(rows, max(1, high)), tiles(columns, max(1, wide))))


def _lines_of(stack: Array) -> Array:
    """Rows without gaps between their numbers; those of stacks without any gaps."""
    dense = stack.ndim == 2 and stack.strides[1] == stack.itemsize
    return stack if dense else np.ascontiguousarray(stack)


def _format_of(format: Format, inner: int) -> FormatOf:
    of_bits = f"u{np.dtype(format.dtype).itemsize}"
    bits = (int(np.array(number, format.dtype).view(of_bits)) for number in (np.inf, -0.0))
    numbers = format.precision, format.least, format.kept, BITS, LOST, HALF_WAY
    return FormatOf(*numbers, format.share(inner), MOST_TOTAL, *bits)


def _stack(part: Array, of: Array) -> Stack:
    matrix, row, _ = (stride // part.itemsize for stride in part.strides)
    return Stack(part.ctypes.data, TYPES.index(part.dtype.name), matrix, row, of.ctypes.data)


def functions() -> ctypes.CDLL | None:
    """What is compiled; None without a C++ compiler."""
    library = cxx.library(SOURCE)
    if library is not None:
        pointer, size, step = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64
        library.multiply.argtypes = *[pointer] * 2, *[size] * 4, pointer, size, pointer, step, step, pointer
        library.multiply.restype = ctypes.c_int
    return library
