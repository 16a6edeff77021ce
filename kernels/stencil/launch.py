"""What the launches of all stencil kernels share: block size, argument checks, spans of a row, memory for results."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from kernels.common import memory
from kernels.common.checks import check_array
from kernels.common.constants import constant
from kernels.common.dtypes import C_TYPES
from kernels.stencil.windows import OUTSIDE

SOURCE = Path(__file__).with_name("gpu.cu")
THREADS = constant(SOURCE, "BLOCK")
MAX_GRID, MAX_STEP = 2**31 - 1, 2**30
WINDOWS_PER_SUM = 32  # windows that a block slides over, at least, for each first window that it sums in full
empty = partial(memory.empty, "stencil")


def check(x: Any, width: int, before: int, after: int, outside: str) -> tuple[int, int, int]:
    """Number of rows, their length, windows per row; raises for arguments that the kernels do not take."""
    check_array("x", x, tuple(C_TYPES), 2)
    rows, length = map(int, x.shape)
    if outside not in OUTSIDE:
        raise ValueError(f"outside: expected one of {', '.join(OUTSIDE)}, got {outside!r}")
    if min(before, after) < 0 or (outside == "reflect" and max(before, after) > length):
        raise ValueError(f"expected from 0 to {length} elements before and after a row, got {before} and {after}")
    if width > before + length + after or (before + after and not length):
        raise ValueError(f"expected windows of at most {before + length + after} elements, got {width}")
    return rows, length, before + length + after - width + 1


def step_of(outputs: int, radius: int, resident: int, tile: int, waves: int) -> int:
    """Outputs per block: enough to amortise its first window, few enough to give every resident block its share."""
    if radius:
        waves = max(1, min(waves, outputs // (resident * WINDOWS_PER_SUM * 2 * radius)))
    tiles = max(1, 2 * radius // tile, -(-outputs // (resident * waves * tile)))
    return tile * min(tiles, MAX_STEP // tile)


def checked_blocks(blocks: int) -> int:
    """The number of blocks, if a grid can have as many."""
    if blocks > MAX_GRID:
        raise ValueError(f"expected rows that take at most {MAX_GRID} blocks, got {blocks}; pass fewer at a time")
    return blocks
