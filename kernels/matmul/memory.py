"""How much device memory an exact product needs, and the sizes of tiles and stacks that this depends on."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from kernels.common import memory
from kernels.common.constants import constant
from kernels.matmul.formats import FORMATS, bits_of, moduli_for

FOLDER = Path(__file__).parent
DEPTH = constant(FOLDER / "multiply_mma.cuh", "DEPTH")  # bytes of a line in a stage
WIDE = constant(FOLDER / "wgmma.cuh", "WIDE")  # the same on Hopper
# Rows and columns of C per block of `multiply_warpgroups`, whose planes are padded to whole tiles.
WHOLE = (constant(FOLDER / "multiply_wgmma.cuh", "BM"), 256)
INNER = 8192  # products of a sum at a time: a sum of residues stays below 2**27
WORDS = constant(FOLDER / "certificate.cuh", "WORDS")  # that describe a line
MOST_SMALL = 64  # rows, columns and products in a sum of matrices for small.cu
MOST_SMALL_K = 2 * WIDE  # products in a sum for small_k.cu
empty, zeros = partial(memory.empty, "matmul"), partial(memory.zeros, "matmul")


def is_small(result: np.dtype[Any], rows: int, inner: int, columns: int) -> bool:
    """Whether one kernel multiplies these matrices of floats, without a workspace."""
    return result.name in FORMATS and max(rows, inner, columns) <= MOST_SMALL and min(rows, inner, columns) > 0


def device_bytes(
    dtypes: tuple[np.dtype[Any], np.dtype[Any]],
    result: np.dtype[Any],
    sizes: tuple[int, int, int, int],
    inner: int,
    given: tuple[np.dtype[Any], np.dtype[Any]],
) -> int:
    """Upper bound on the device memory of a product: result, given parts of the factors, and workspace.

    Not included: what the allocator adds when it rounds each of the few arrays up.

    Parameters
    ----------
    dtypes, result
        Of the factors as they are multiplied, and of the product.
    sizes
        Matrices, rows, products given at a time, columns.
    inner
        Products in a sum.
    given
        Dtypes of the factors as given; floats of another dtype are converted.
    """
    matrices, rows, part, columns = sizes
    nbytes = matrices * (8 + rows * columns * result.itemsize)  # with the two matrices that each comes from
    for lines, own, dtype in zip((rows, columns), given, dtypes, strict=True):
        nbytes += matrices * lines * part * (own.itemsize + (dtype.itemsize + 8 if own != dtype else 0))  # converted
    if is_small(result, rows, inner, columns):
        return nbytes
    floats = result.name in FORMATS
    if floats and inner <= MOST_SMALL_K:  # the result of small_k.cu, beside the one that may replace it
        nbytes += matrices * rows * columns * result.itemsize
    moduli = moduli_for(sum(map(bits_of, dtypes)), inner)
    padded = ceil_div(min(part, INNER), WIDE) * WIDE
    lines_of = whole_tiles(rows, columns) if fits(rows, columns, WHOLE) else (rows, columns)
    nbytes += matrices * sum(lines_of) * (moduli + floats) * padded
    nbytes += matrices * (rows + columns) * 8 * (1 + WORDS * floats)
    nbytes += 4 * matrices * ceil_div(rows, WHOLE[0]) * ceil_div(columns, WHOLE[1])  # a mark for each tile
    return nbytes + matrices * rows * columns * (moduli + 5 * floats)


def fits(rows: int, columns: int, tile: tuple[int, int]) -> bool:
    """Whether tiles of this size are at least half full on average."""
    return ceil_div(rows, tile[0]) * tile[0] * ceil_div(columns, tile[1]) * tile[1] <= 2 * rows * columns


def whole_tiles(rows: int, columns: int) -> tuple[int, int]:
    """Rows and columns, rounded up to whole tiles."""
    return ceil_div(rows, WHOLE[0]) * WHOLE[0], ceil_div(columns, WHOLE[1]) * WHOLE[1]


def matrices_of(stack: Any) -> int:
    """Number of matrices in a stack."""
    return int(np.prod(stack.shape[:-2], dtype=np.int64))


def numbered(matrices: int, own: tuple[int, ...], batch: tuple[int, ...]) -> Any:
    """For each matrix of the product, the number of the matrix in a stack that it comes from."""
    return np.broadcast_to(np.arange(matrices, dtype=np.int32).reshape(own), batch).reshape(-1)


def ceil_div(a: int, b: int) -> int:
    """Quotient, rounded up."""
    return -(-a // b)
