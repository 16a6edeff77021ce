"""Checks products of floats with short sums, and stacks of them, element by element: compiled."""

from __future__ import annotations

import ctypes
import math
from pathlib import Path

import numpy as np

from kernels.common import cxx
from kernels.common.row_tiles import on_tiles, tiles
from kernels.matmul.check_defined import Definition
from kernels.matmul.check_floats import FloatCheck, Side
from kernels.matmul.check_limits import SMALL
from kernels.matmul.check_lines import LEAST_EXPONENT, TYPES, UNDERFLOW, UPWARDS, Array, gamma_of
from kernels.matmul.factors import Factors
from kernels.matmul.formats import Format

SOURCE = Path(__file__).with_suffix(".cpp")

SHORT, SHORT_IN_STACKS = 8, 64  # products in a sum up to which this is faster than sums of groups
ELEMENTS, ROWS = 2**15, 32  # of a call, about; rows of one matrix, at least
WIDEST = 2**16  # columns: some numbers are kept for each
TOLD = 3  # wrong elements of a call, at most
COMPILED = 2**16  # numbers, or elements, that make it worth compiling


class Stack(ctypes.Structure):
    """A stack of matrices, as check_each.cpp has it."""

    _fields_ = (
        ("numbers", ctypes.c_void_p), ("matrix", ctypes.c_int64), ("row", ctypes.c_int64), ("of", ctypes.c_void_p),
    )  # fmt: skip


class Bounds(ctypes.Structure):
    """What bounds are made of, likewise."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("kept", "least", "least_scale")),
        *((name, ctypes.c_double) for name in ("half", "own", "conventional", "underflow", "upwards", "small")),
    )  # fmt: skip


class EachCheck:
    """Checks a stack of products C of factors A and B, which are in memory.

    Elements that do not fit their bound, or are so small that it could hide them, have to equal the definition.

    Parameters
    ----------
    library
        Of `functions`.
    factors, shape, format
        As of `FloatCheck`; so are the attributes.
    """

    escape, undetected, side = 0.0, 0.0, None

    def __init__(self, library: ctypes.CDLL, factors: Factors, shape: tuple[int, ...], format: Format) -> None:
        self._library, self._factors, self._shape, self._format = library, factors, shape, format

    def wrong(self, product: Array) -> list[str]:
        """Errors in a product, shape (..., M, N); sets `undetected`."""
        (*batch, rows, columns), ((a, b),) = self._shape, self._factors.slabs()
        stacks, numbers = [], []
        for factor in (a, b, product):
            own = math.prod(factor.shape[:-2])
            stack = np.ascontiguousarray(factor) if batch or factor.strides[-1] != factor.itemsize else factor
            stacks.append(stack.reshape(own, *factor.shape[-2:]))
            of = np.broadcast_to(np.arange(own).reshape(factor.shape[:-2]), batch)
            numbers.append(np.ascontiguousarray(of.reshape(-1)))
        bounds, definition = self._bounds(), Definition.of(self._format, self._factors.inner)

        def compare(part: slice) -> tuple[float, Array]:
            some, of_rows = (part, slice(None)) if batch else (slice(None), part)
            places = (of_rows, slice(None), of_rows)
            parts = [stack[:, lines] for stack, lines in zip(stacks, places, strict=True)]
            given = [_stack(lines, of[some]) for lines, of in zip(parts, numbers, strict=True)]
            share, wrong = ctypes.c_double(), np.empty((TOLD, 3), np.int64)
            sizes = (len(numbers[0][some]), parts[0].shape[1], self._factors.inner, columns)
            off = self._library.compare(TYPES.index(self._format.dtype), *map(ctypes.byref, given), *sizes,
                                        *map(ctypes.byref, (bounds, definition, share)), wrong.ctypes.data,
                                        TOLD)  # fmt: skip
            return share.value, wrong[:off] + (np.array([part.start, 0, 0]) if batch else [0, part.start, 0])

        number, each, least = (math.prod(batch), rows * columns, 1) if batch else (rows, columns, ROWS)
        shares, wrong = zip(*on_tiles(compare, tiles(number, max(least, ELEMENTS // each))), strict=True)
        self.undetected = max(shares)
        which, *places = np.concatenate(wrong)[:TOLD].T
        of_batch = np.unravel_index(which, batch) if batch else ()
        return [
            f"element {list(map(int, place))} of the region: got {product[place]}, which is not the sum of its products"
            for place in zip(*of_batch, *places, strict=True)
        ]

    def _bounds(self) -> Bounds:
        format, inner = self._format, self._factors.inner
        half = 2.0**-format.precision
        return Bounds(
            format.kept, format.least, LEAST_EXPONENT, half, gamma_of(inner + 1),
            gamma_of(format.gamma_terms(inner), half), UNDERFLOW * (inner + 1), UPWARDS, SMALL,
        )  # fmt: skip


def float_check(
    factors: Factors, shape: tuple[int, ...], format: Format, random: np.random.Generator, side: Side | None = None
) -> FloatCheck | EachCheck:
    """The fastest check of these products; parameters as of `FloatCheck`."""
    short = SHORT_IN_STACKS if len(shape) > 2 else SHORT
    suits = factors.inner <= short and factors.columns <= WIDEST and len(factors.slices) == 1
    if suits and math.prod(shape) >= COMPILED and (library := functions()):
        return EachCheck(library, factors, shape, format)
    return FloatCheck(factors, shape, format, random, side)


def _stack(part: Array, of: Array) -> Stack:
    matrix, row, _ = (stride // part.itemsize for stride in part.strides)
    return Stack(part.ctypes.data, matrix, row, of.ctypes.data)


def functions() -> ctypes.CDLL | None:
    """What is compiled; None without a C++ compiler."""
    library = cxx.library(SOURCE)
    if library is not None:
        pointer, size = ctypes.c_void_p, ctypes.c_size_t
        library.compare.argtypes = ctypes.c_int, *[pointer] * 3, *[size] * 4, *[pointer] * 4, size
        library.compare.restype = size
    return library
