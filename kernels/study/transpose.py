"""The ladder of transposes, through a tile in shared memory with and without a column of padding; launch wrappers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from kernels.common import nvrtc
from kernels.common.checks import check_address, check_block
from kernels.common.dtypes import UINT_OF_SIZE
from kernels.common.memory import empty
from kernels.study.variant import Variant, by_name
from kernels.transpose.gpu import checked, tiles_for, transpose

SOURCE = Path(__file__).with_suffix(".cu")

TILES = (8, 16, 32)
_empty = partial(empty, "transpose")


def _launch(kernel: str, tile: int, array: Any, out: Any) -> None:
    rows, columns = array.shape
    if not rows * columns:
        return
    loaded = nvrtc.load(SOURCE, f"{kernel}<{UINT_OF_SIZE[array.dtype.itemsize]}, {tile}>")
    grid = tiles_for(rows, columns, tile, tile)
    loaded((grid,), (tile, tile), (array, out, np.int64(rows), np.int64(columns)))


def _intiles_for(kernel: str, array: Any, tile: int) -> Any:
    """Run a variant that has a thread for each element of a square tile, 8, 16 or 32 wide."""
    checked(array)
    check_block(tile, tile)
    if tile not in TILES:
        raise ValueError(f"tile: expected one of {TILES}, got {tile}")
    rows, columns = array.shape
    tiles_for(rows, columns, tile, tile)
    check_address(array)
    out = _empty((columns, rows), array.dtype)
    _launch(kernel, tile, array, out)
    return out


def _naive(array: Any, tile: int = 32) -> Any:
    return _intiles_for("naive", array, tile)


def _shared_tile(array: Any, tile: int = 32) -> Any:
    return _intiles_for("shared_tile", array, tile)


def _padded_tile(array: Any, tile: int = 32) -> Any:
    return _intiles_for("padded_tile", array, tile)


def _missing_barrier(array: Any) -> Any:
    return _intiles_for("missing_barrier", array, 32)


def _past_the_end(array: Any) -> Any:
    """Both arrays are copied to longer ones, so that out-of-bounds accesses stay in memory of our own.

    A thread below the last row reads zeros there and writes them into the next row of the result.
    """
    return _past_the_end_launch(array)()


def _past_the_end_launch(array: Any) -> Callable[[], Any]:
    checked(array)
    check_block(32, 32)
    rows, columns = array.shape
    tiles_for(rows, columns, 32, 32)
    check_address(array)
    last_row, last_column = -(-rows // 32) * 32 - 1, -(-columns // 32) * 32 - 1
    source = _empty((last_row * columns + last_column + 1,), array.dtype)
    source[rows * columns :] = 0
    source[: rows * columns] = array.ravel()

    def launch() -> Any:
        out = _empty((last_column * rows + last_row + 1,), array.dtype)
        _launch("past_the_end", 32, source[: rows * columns].reshape(rows, columns), out)
        return out[: rows * columns].reshape(columns, rows)

    return launch


VARIANTS = by_name(
    Variant("naive", "one thread per element: reads along a row, writes down a column",
            _naive, {"tile": 32}),
    Variant("shared_tile", "through a tile in shared memory: reads and writes global memory along rows",
            _shared_tile, {"tile": 32}),
    Variant("padded_tile", "one more column in the tile: a column of it lies in as many banks as it has elements",
            _padded_tile, {"tile": 32}),
    Variant("production", "the kernels of the job, in kernels/transpose: 16-byte loads and stores, several in flight",
            transpose),
    Variant("missing_barrier", "padded_tile without its barrier", _missing_barrier,
            broken="a thread reads its element before another has stored it"),
    Variant("past_the_end", "naive without its guard", _past_the_end,
            broken="threads of a ragged tile read and write past the end", timed=_past_the_end_launch),
)  # fmt: skip

# The instance of each kernel to inspect: float on tiles of 32, as in the course.
INSTANCES = {name: f"{name}<{UINT_OF_SIZE[4]}, 32>" for name in VARIANTS if name != "production"}
