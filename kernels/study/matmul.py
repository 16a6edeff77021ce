"""The ladder of matrix products: the plain reference with its error bound, and a launch wrapper for each kernel."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common import dtypes, nvrtc
from kernels.common.checks import check_array, check_block, check_shared
from kernels.common.memory import empty
from kernels.matmul.gpu import exact_matmul
from kernels.study.variant import Variant, by_name

SOURCE = Path(__file__).with_suffix(".cu")

C_TYPES = {name: dtypes.C_TYPES[name] for name in ("float32", "float64")}
WIDTHS = (8, 16, 32)  # of a shared tile
MICROS = (4, 8)  # elements of C per thread along each side of a register tile
TILED_THREADS = 256  # TILED_THREADS in matmul_register.cuh
MAX_GRID = (2**31 - 1, 65535)  # blocks along x and y on every device
_empty = partial(empty, "matmul")


def matmul_reference(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.float64]:
    """Matrix product in float64 with NumPy, in any order of the sums.

    Parameters
    ----------
    a, b : float32 or float64 arrays, shapes (rows, inner) and (inner, columns)

    Returns
    -------
    float64 array, shape (rows, columns)
        Not rounded to float32 where `a` and `b` are.
    """
    with np.errstate(all="ignore"):
        return a.astype(np.float64) @ b.astype(np.float64)


def error_bound(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.float64]:
    """How far a product in the arithmetic of `a` and `b` may be from `matmul_reference`, in any order of its sums.

    A sum of K products, each rounded once or fused with its addition, is off by at most gamma(K) |a| |b|, where
    gamma(K) = K u / (1 - K u) and u is half the distance from 1 to the next number; besides, each of the K roundings
    may be off by half the smallest number where it is subnormal. That holds for the kernel with its u, for the
    reference with that of float64, and for |a| |b| itself, which is also computed in float64. The bound is the sum of
    all three, with the smallest number counted whole.

    Parameters
    ----------
    a, b : arrays of one dtype, float32 or float64, shapes (rows, inner) and (inner, columns)

    Returns
    -------
    float64 array, shape (rows, columns)
        Rounded up. Not finite where the magnitudes are not; invalid where |a| |b| overflows the dtype.

    Raises
    ------
    ValueError
        If `inner` is too large for a bound.
    """
    inner = a.shape[1]
    kernel, reference = np.finfo(a.dtype), np.finfo(np.float64)
    gammas = [Fraction(inner) * Fraction(float(info.eps)) / 2 for info in (kernel, reference)]
    if max(gammas) >= 1:
        raise ValueError(f"error bound: expected fewer than {2 / kernel.eps:.0f} products in a sum, got {inner}")
    of_kernel, of_reference = (gamma / (1 - gamma) for gamma in gammas)
    subnormal = float(kernel.smallest_subnormal) + float(reference.smallest_subnormal)
    with np.errstate(all="ignore"):
        magnitudes = matmul_reference(np.abs(a), np.abs(b)) + inner * float(reference.smallest_subnormal)
        bound = magnitudes * float((of_kernel + of_reference) / (1 - of_reference)) + inner * subnormal
        return np.asarray(bound * (1 + 2.0**-48))  # more than the roundings of these two lines


def _checked(a: Any, b: Any) -> tuple[int, int, int]:
    """Check that the arrays can be multiplied; return rows, inner and columns."""
    check_array("matmul, first matrix", a, tuple(C_TYPES), 2)
    check_array("matmul, second matrix", b, tuple(C_TYPES), 2)
    if a.dtype != b.dtype:
        raise TypeError(f"matmul: expected matrices of one dtype, got {a.dtype} and {b.dtype}; convert one with astype")
    if a.shape[1] != b.shape[0]:
        raise ValueError(f"matmul: expected as many rows in the second matrix as columns in the first, {a.shape[1]}, "
                         f"got shapes {a.shape} and {b.shape}")  # fmt: skip
    return a.shape[0], a.shape[1], b.shape[1]


def _launch(
    kernel: str,
    template: tuple[Any, ...],
    a: Any,
    b: Any,
    sizes: tuple[int, int, int],
    grid: tuple[int, int],
    block: tuple[int, int],
    shared_mem: int = 0,
) -> Any:
    """The product by one kernel: `template` is what follows the type, `sizes` are rows, inner and columns."""
    rows, _, columns = sizes
    for side, blocks, limit in zip("xy", grid, MAX_GRID, strict=True):
        if blocks > limit:
            raise ValueError(f"matmul: {rows} x {columns} takes {blocks} blocks along {side}, the limit of a grid is "
                             f"{limit}; choose a larger block")  # fmt: skip
    c = _empty((rows, columns), a.dtype)
    if c.size:
        instance = f"{kernel}<{', '.join((C_TYPES[str(a.dtype)], *map(str, template)))}>"
        arguments = (a, b, c, *(np.int64(size) for size in sizes))
        nvrtc.load(SOURCE, instance)(grid, block, arguments, shared_mem=shared_mem)
    return c


def _in_blocks(kernel: str, template: tuple[Any, ...], a: Any, b: Any, x: int, y: int, shared_mem: int = 0) -> Any:
    """Run a kernel that has a thread for each element of C, in blocks of x columns by y rows."""
    rows, inner, columns = _checked(a, b)
    check_block(x, y)
    grid = (_ceil_div(columns, x), _ceil_div(rows, y))
    return _launch(kernel, template, a, b, (rows, inner, columns), grid, (x, y), shared_mem)


def _blocks_1d(a: Any, b: Any, x: int = 64) -> Any:
    rows, inner, columns = _checked(a, b)
    check_block(x)
    return _launch("blocks_1d", (), a, b, (rows, inner, columns), (_ceil_div(rows * columns, x), 1), (x, 1))


def _blocks_2d(a: Any, b: Any, x: int = 32, y: int = 32) -> Any:
    return _in_blocks("blocks_2d", (), a, b, x, y)


def _uncoalesced(a: Any, b: Any, x: int = 32, y: int = 32) -> Any:
    rows, inner, columns = _checked(a, b)
    check_block(x, y)
    grid = (_ceil_div(rows, x), _ceil_div(columns, y))
    return _launch("uncoalesced", (), a, b, (rows, inner, columns), grid, (x, y))


def _rolled(a: Any, b: Any, x: int = 32, y: int = 32) -> Any:
    return _in_blocks("rolled", (), a, b, x, y)


def _unrolled(a: Any, b: Any, x: int = 32, y: int = 32) -> Any:
    return _in_blocks("unrolled", (), a, b, x, y)


def _by_rows(kernel: str, a: Any, b: Any, x: int = 32, y: int = 32) -> Any:
    _, inner, _ = _checked(a, b)
    check_block(x, y)
    shared_mem = (x + y) * inner * a.dtype.itemsize
    check_shared(f"{y} whole rows and {x} whole columns of {inner} {a.dtype}", shared_mem)
    return _in_blocks(kernel, (), a, b, x, y, shared_mem)


def _in_tiles(kernel: str, a: Any, b: Any, x: int) -> Any:
    """Run a kernel whose blocks are square tiles of C, x wide."""
    if x not in WIDTHS:
        raise ValueError(f"x: expected a tile {', '.join(map(str, WIDTHS))} wide, got {x}")
    return _in_blocks(kernel, (x,), a, b, x, x)


def _shared_tile(a: Any, b: Any, x: int = 32) -> Any:
    return _in_tiles("shared_tile", a, b, x)


def _shared_sums(a: Any, b: Any, x: int = 32) -> Any:
    return _in_tiles("shared_sums", a, b, x)


def _register_tiled(a: Any, b: Any, micro: int = 8) -> Any:
    rows, inner, columns = _checked(a, b)
    if micro not in MICROS:
        raise ValueError(f"micro: expected {' or '.join(map(str, MICROS))} elements a side, got {micro}")
    check_block(TILED_THREADS)
    pack, tile = 16 // a.dtype.itemsize, 16 * micro
    aligned = inner % pack == 0 and columns % pack == 0 and a.data.ptr % 16 == 0 and b.data.ptr % 16 == 0
    template, grid = (micro, str(aligned).lower()), (_ceil_div(columns, tile), _ceil_div(rows, tile))
    return _launch("register_tiled", template, a, b, (rows, inner, columns), grid, (TILED_THREADS, 1))


def _production(a: Any, b: Any) -> Any:
    _checked(a, b)
    return exact_matmul(a, b)


def _cublas(a: Any, b: Any) -> Any:
    rows, _, columns = _checked(a, b)
    import cupy
    from cupy._core import _routines_linalg as linalg

    c = _empty((rows, columns), a.dtype)
    chosen = linalg.get_compute_type(a.dtype)
    linalg.set_compute_type(a.dtype, linalg.COMPUTE_TYPE_DEFAULT)  # whatever CUPY_TF32 says
    try:
        return cupy.matmul(a, b, out=c)
    finally:
        linalg.set_compute_type(a.dtype, chosen)


def _past_the_end(a: Any, b: Any, x: int = 32, y: int = 32) -> Any:
    """Works on copies padded with NaN: reads past the end stay in memory of our own and always show in the result."""
    return _past_the_end_launch(a, b, x, y)()


def _past_the_end_launch(a: Any, b: Any, x: int, y: int) -> Callable[[], Any]:
    rows, inner, columns = _checked(a, b)
    check_block(x, y)
    grid = (_ceil_div(columns, x), _ceil_div(rows, y))
    longer_a, longer_b = _longer(a, 1), _longer(b, columns)
    return partial(_launch, "past_the_end", (), longer_a, longer_b, (rows, inner, columns), grid, (x, y))


def _longer(array: Any, beyond: int) -> Any:
    """The elements in one dimension, padded with NaN."""
    copy = _empty((array.size + beyond,), array.dtype)
    copy[: array.size] = array.ravel()
    copy[array.size :] = np.nan
    return copy


def _missing_barrier(a: Any, b: Any, x: int = 32) -> Any:
    return _in_tiles("missing_barrier", a, b, x)


def _stale_tile(a: Any, b: Any, x: int = 32) -> Any:
    return _in_tiles("stale_tile", a, b, x)


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)


VARIANTS = by_name(
    Variant("blocks_1d", "one thread per element of C, in blocks along its rows", _blocks_1d, {"x": 64}),
    Variant("blocks_2d", "blocks of x by y, x along the columns: a warp reads B and writes C side by side",
            _blocks_2d, {"x": 32, "y": 32}),
    Variant("uncoalesced", "blocks_2d with x and y exchanged: neighbours in a warp are whole rows apart in memory",
            _uncoalesced, {"x": 32, "y": 32}),
    Variant("rolled", "blocks_2d with the loop over k as written: the compiler unrolls no part of it",
            _rolled, {"x": 32, "y": 32}),
    Variant("unrolled", "blocks_2d with the loop over k unrolled", _unrolled, {"x": 32, "y": 32}),
    Variant("whole_rows", "the rows of A and the columns of B that a block needs, whole, in shared memory",
            partial(_by_rows, "whole_rows"), {"x": 32, "y": 32}),
    Variant("unrolled_rows", "whole_rows with the loop over k unrolled",
            partial(_by_rows, "unrolled_rows"), {"x": 32, "y": 32}),
    Variant("shared_tile", "square tiles of A and B in shared memory, x wide, one after the other",
            _shared_tile, {"x": 32}),
    Variant("shared_sums", "shared_tile with the sums of C in shared memory, too, instead of a register per thread",
            _shared_sums, {"x": 32}),
    Variant("register_tiled", "micro x micro elements per thread, 16-byte loads, the next tile in flight during this "
                              "one", _register_tiled, {"micro": 8}),
    Variant("production", "the kernels of the job, in kernels/matmul: exact sums by residues, rounded once",
            _production),
    Variant("cublas", "cuBLAS with TF32 off, in an order of its own: the yardstick, no kernel of this file", _cublas),
    Variant("past_the_end", "blocks_2d with k up to inner", _past_the_end, {"x": 32, "y": 32},
            broken="reads one element past the end of each row and column", timed=_past_the_end_launch),
    Variant("missing_barrier", "shared_tile without its second barrier", _missing_barrier, {"x": 32},
            broken="a tile is replaced while others still read it"),
    Variant("stale_tile", "shared_tile that fills only what exists", _stale_tile, {"x": 32},
            broken="past a ragged edge the tile before is multiplied"),
)  # fmt: skip

# One kernel of each variant, to inspect.
INSTANCES = {name: f"{name}<float>" for name in VARIANTS if name not in ("production", "cublas")} | {
    "shared_tile": "shared_tile<float, 32>",
    "register_tiled": "register_tiled<float, 8, true>",
    "shared_sums": "shared_sums<float, 32>",
    "missing_barrier": "missing_barrier<float, 32>",
    "stale_tile": "stale_tile<float, 32>",
}
