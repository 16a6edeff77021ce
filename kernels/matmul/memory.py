"""How much room an exact product takes on a device."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from kernels.common import memory
from kernels.matmul.formats import FORMATS, bits_of, moduli_for

DEPTH = 64  # bytes of a line in a stage, of multiply_mma.cuh
WIDE = 128  # the same of wgmma.cuh
WHOLE = (128, 256)  # rows and columns of C that a block of `multiply_warpgroups` has, in planes filled up with zeros
INNER = 8192  # products of a sum at a time: a sum of residues stays below 2**27
WORDS = 4  # that a line is described in, of certificate.cuh
MOST_SMALL = 64  # rows, columns and products in a sum of matrices that small.cu multiplies
MOST_SHORT = 256  # products in a sum that small_k.cu adds up
empty = partial(memory.empty, "matmul")


def is_small(result: np.dtype[Any], rows: int, inner: int, columns: int) -> bool:
    """Whether matrices of floats are multiplied by one kernel, which needs no room besides."""
    return result.name in FORMATS and max(rows, inner, columns) <= MOST_SMALL and min(rows, inner, columns) > 0


def room_for(
    dtypes: tuple[np.dtype[Any], np.dtype[Any]],
    result: np.dtype[Any],
    sizes: tuple[int, int, int, int],
    inner: int,
    given: tuple[np.dtype[Any], np.dtype[Any]],
) -> int:
    """Bytes that a product takes on a device at most, its result and what is given of its factors included; each of its
    few arrays is allocated in multiples of something besides.

    Parameters
    ----------
    dtypes, result
        That are multiplied, and of the product.
    sizes
        Matrices, rows, products that are given at a time, columns.
    inner
        Products in a sum.
    given
        Dtypes of the factors; floats of another one are converted.
    """
    matrices, rows, part, columns = sizes
    nbytes = matrices * (8 + rows * columns * result.itemsize)  # and which matrices of the stacks
    for lines, own, dtype in zip((rows, columns), given, dtypes, strict=True):
        nbytes += matrices * lines * part * (own.itemsize + (dtype.itemsize + 8 if own != dtype else 0))  # converted
    if is_small(result, rows, inner, columns):
        return nbytes
    floats = result.name in FORMATS
    if floats and inner <= MOST_SHORT:  # a result that may not do, beside the one that takes its place
        nbytes += matrices * rows * columns * result.itemsize
    moduli = moduli_for(sum(map(bits_of, dtypes)), inner)
    padded = ceil_div(min(part, INNER), WIDE) * WIDE
    lines_of = whole_tiles(rows, columns) if fits(rows, columns, WHOLE) else (rows, columns)
    nbytes += matrices * sum(lines_of) * (moduli + floats) * padded
    nbytes += matrices * (rows + columns) * 8 * (1 + WORDS * floats)
    nbytes += 4 * matrices * ceil_div(rows, WHOLE[0]) * ceil_div(columns, WHOLE[1])  # a mark for each tile
    return nbytes + matrices * rows * columns * (moduli + 5 * floats)


def fits(rows: int, columns: int, tile: tuple[int, int]) -> bool:
    """Whether such tiles do not reach far beyond the edges."""
    return ceil_div(rows, tile[0]) * tile[0] * ceil_div(columns, tile[1]) * tile[1] <= 2 * rows * columns


def whole_tiles(rows: int, columns: int) -> tuple[int, int]:
    """As many of both as whole tiles have."""
    return ceil_div(rows, WHOLE[0]) * WHOLE[0], ceil_div(columns, WHOLE[1]) * WHOLE[1]


def matrices_of(stack: Any) -> int:
    """How many a stack holds."""
    return int(np.prod(stack.shape[:-2], dtype=np.int64))


def numbered(matrices: int, own: tuple[int, ...], batch: tuple[int, ...]) -> Any:
    """Of each matrix of the product, which of a stack it comes from."""
    return np.broadcast_to(np.arange(matrices, dtype=np.int32).reshape(own), batch).reshape(-1)


def ceil_div(a: int, b: int) -> int:
    """Their quotient, rounded up."""
    return -(-a // b)
