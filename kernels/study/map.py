"""The ladder of elementwise kernels: one thread, one block, a grid; and a launch wrapper for each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from kernels.common import nvrtc
from kernels.common.checks import blocks_for, check_address, check_block
from kernels.common.dtypes import COURSE_TYPES
from kernels.common.memory import empty
from kernels.map.gpu import check_operands, elementwise
from kernels.study.variant import Variant, by_name

SOURCE = Path(__file__).with_suffix(".cu")

MAX_GRID_Y = 65535
COURSE_DTYPES = tuple(COURSE_TYPES)
_empty = partial(empty, "map")


def _launch(name: str, grid: tuple[int, ...], block: tuple[int, ...], arrays: tuple[Any, ...], *sizes: int) -> None:
    """Launch unless there is nothing to do."""
    if 0 not in grid:
        kernel = nvrtc.load(SOURCE, f"{name}<{COURSE_TYPES[str(arrays[0].dtype)]}>")
        kernel(grid, block, (*arrays, *map(np.int64, sizes)))


def _vector(name: str, a: Any, b: Any, blocks: int, block: int) -> Any:
    """Launch a variant that takes two vectors, already checked."""
    check_address(a, b)
    out = _empty(a.shape, a.dtype)
    _launch(name, (blocks if a.size else 0,), (block,), (a, b, out), a.size)
    return out


def _one_thread(a: Any, b: Any) -> Any:
    check_operands((a, b), 1, COURSE_DTYPES)
    return _vector("one_thread", a, b, 1, 1)


def _one_block(a: Any, b: Any, block: int = 256) -> Any:
    check_operands((a, b), 1, COURSE_DTYPES)
    check_block(block)
    return _vector("one_block", a, b, 1, block)


def _grid(a: Any, b: Any, block: int = 1024) -> Any:
    check_operands((a, b), 1, COURSE_DTYPES)
    check_block(block)
    return _vector("grid", a, b, blocks_for(a.size, block), block)


def _product(a: Any, b: Any) -> Any:
    """The block has a thread for each element, so vectors longer than the largest block are refused."""
    check_operands((a, b), 1, COURSE_DTYPES)
    check_block(max(1, a.size))
    return _vector("product", a, b, 1, a.size)


def _matrix_2d(a: Any, b: Any, block_x: int = 32, block_y: int = 32) -> Any:
    check_operands((a, b), 2, COURSE_DTYPES)
    check_block(block_x, block_y)
    rows, columns = a.shape
    blocks = blocks_for(columns, block_x), blocks_for(rows, block_y, MAX_GRID_Y)
    check_address(a, b)
    out = _empty(a.shape, a.dtype)
    _launch("matrix_2d", blocks, (block_x, block_y), (a, b, out), rows, columns)
    return out


def _no_index(a: Any, b: Any, block: int = 256) -> Any:
    """Adds a to a copy of b, in place as in the course."""
    check_operands((a, b), 1, COURSE_DTYPES)
    check_block(block)
    check_address(a, b)
    out = _empty(b.shape, b.dtype)
    out[...] = b
    _launch("no_index", (1 if a.size else 0,), (block,), (a, out), a.size)
    return out


def _past_the_end(a: Any, b: Any, block: int = 1024) -> Any:
    """Adds the vectors in two halves, the second first: what the first half's last block writes past its end falls
    on the second. Nothing goes wrong where half of n is a multiple of the block. The operands are copied with zeros
    behind them, so that everything read and written is memory of our own."""
    return _past_the_end_launch(a, b, block)()


def _past_the_end_launch(a: Any, b: Any, block: int) -> Callable[[], Any]:
    check_operands((a, b), 1, COURSE_DTYPES)
    check_block(block)
    check_address(a, b)
    n, half = int(a.size), int(a.size) // 2
    halves = []
    for start, size in ((half, n - half), (0, half)):
        blocks = blocks_for(size, block)
        operands = []
        for array in (a, b):
            padded = _empty((blocks * block,), a.dtype)
            padded[:size], padded[size:] = array[start : start + size], 0
            operands.append(padded)
        halves.append((start, blocks, operands))

    def launch() -> Any:
        out = _empty((n + block,), a.dtype)
        for start, blocks, operands in halves:
            _launch("past_the_end", (blocks,), (block,), (*operands, out[start:]))
        return out[:n]

    return launch


VARIANTS = by_name(
    Variant("one_thread", "one thread adds all elements, one after the other", _one_thread),
    Variant("one_block", "one block: thread i adds elements i, i + blockDim, ...", _one_block, {"block": 256}),
    Variant("grid", "many blocks: one element per thread", _grid, {"block": 1024}),
    Variant("matrix_2d", "blocks and grid in two dimensions: thread (x, y) adds element (row y, column x)",
            _matrix_2d, {"block_x": 32, "block_y": 32}),
    Variant("product", "element by element product in one block with as many threads as elements", _product),
    Variant("production", "the kernel of the job, in map/gpu.cu: any operation; 16-byte loads and stores",
            elementwise, {"operation": "add"}),
    Variant("no_index", "one_block without an index", _no_index, {"block": 256},
            broken="every thread adds every element, in place, over the others"),
    Variant("past_the_end", "grid without its guard", _past_the_end, {"block": 1024},
            broken="threads beyond the last element write into what lies behind it", timed=_past_the_end_launch),
)  # fmt: skip

# The instance of each kernel to inspect: float, as in the courses.
INSTANCES = {name: f"{name}<float>" for name in VARIANTS if name != "production"}
