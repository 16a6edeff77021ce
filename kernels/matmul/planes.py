"""Layout of residue planes in memory, and the two kernels that multiply them: by warps, or on Hopper by warpgroups."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kernels.common import device, nvrtc
from kernels.common.checks import check_shared
from kernels.common.constants import constant
from kernels.matmul.memory import DEPTH, WHOLE, WIDE, ceil_div, empty, fits

SOURCE = Path(__file__).with_name("gpu.cu")

MOST_STAGES = 4
MAX_MATRICES = 65535  # blocks along y on every device
FEW = constant(SOURCE.with_name("multiply_wgmma.cuh"), "FEW")
CONSUMERS = constant(SOURCE.with_name("multiply_wgmma.cuh"), "CONSUMERS")


@dataclass(frozen=True)
class Sizes:
    """Sizes of a product.

    Attributes
    ----------
    stacks
        Matrices in both factors.
    matrices, rows, columns
        Matrices of the product, and the size of each.
    moduli
        Planes of residues.
    scaled
        The factors are floats: after the planes of residues comes one of magnitudes.
    enough
        The sum of magnitudes from which an element is certain, whatever its row and column.
    """

    stacks: tuple[int, int]
    matrices: int
    rows: int
    columns: int
    moduli: int
    scaled: bool
    enough: int

    @property
    def elements(self) -> int:
        """Of the product."""
        return self.matrices * self.rows * self.columns

    @property
    def stride(self) -> int:
        """Bytes from one plane of the product to the next: each begins at a multiple of 16."""
        return ceil_div(self.elements, 16) * 16


@dataclass(frozen=True)
class Planes:
    """Some columns of A and rows of B as planes of bytes.

    Attributes
    ----------
    a, b
        Planes of both stacks.
    a_of, b_of
        For each matrix of the product, which matrix of A and of B it comes from.
    padded
        Bytes of a line.
    """

    a: Any
    b: Any
    a_of: Any
    b_of: Any
    padded: int


@dataclass(frozen=True)
class Totals:
    """Sums of products of planes, over all parts so far.

    Attributes
    ----------
    residues
        A plane for each modulus.
    magnitudes
        Of each element; of floats only.
    lacking
        Tiles whose sums of magnitudes were not enough after a few stages; used by `Warpgroups` only.
    """

    residues: Any
    magnitudes: Any
    lacking: Any


@dataclass(frozen=True)
class Warps:
    """Tiles of `multiply`: rows and columns of C per block, and per warp; stages of copies in shared memory.

    In planes a line has a multiple of DEPTH bytes, and lines are contiguous.
    """

    rows: int
    columns: int
    of_warp: int
    across: int
    stages: int

    in_pieces = False
    depth = DEPTH

    @property
    def kernel(self) -> str:
        """Instance."""
        return f"multiply<{self.rows}, {self.columns}, {self.of_warp}, {self.across}, {self.stages}>"

    @property
    def shared(self) -> int:
        """Bytes of shared memory per block."""
        return (self.rows + self.columns) * DEPTH * self.stages

    def plane_lines(self, rows: int, columns: int) -> tuple[int, int]:
        """Lines of planes for matrices of this size."""
        return rows, columns

    def multiply(self, planes: Planes, sizes: Sizes, totals: Totals | None = None) -> Totals:
        """Multiply planes and add the products to `totals`; without them, start anew."""
        check_shared(f"{self.stages} stages of {self.rows} rows and {self.columns} columns", self.shared)
        add, totals = totals is not None, totals or _allocated(sizes, 0)
        kernel = nvrtc.load(SOURCE, self.kernel)
        blocks = ceil_div(sizes.rows, self.rows) * ceil_div(sizes.columns, self.columns)
        lines = (np.int64(sizes.stacks[0] * sizes.rows), np.int64(sizes.stacks[1] * sizes.columns))
        lengths = map(np.int32, (sizes.rows, sizes.columns, planes.padded))
        arguments = (planes.a, planes.b, planes.a_of, planes.b_of, *lines, *lengths)
        results = (*map(np.int32, (add, sizes.moduli)), totals.residues, totals.magnitudes)
        for start in range(0, sizes.matrices, MAX_MATRICES):
            kernel(
                (blocks, min(MAX_MATRICES, sizes.matrices - start), sizes.moduli + sizes.scaled),
                (32 * (self.rows // self.of_warp) * (self.columns // self.across),),
                (*arguments, *map(np.int64, (start, sizes.stride)), *results),
                shared_mem=self.shared,
            )
        return totals


@dataclass(frozen=True)
class Warpgroups:
    """Tiles of `multiply_warpgroups`: 128 rows of C and `columns` per block; stages of copies in shared memory.

    In planes a line has a multiple of WIDE bytes, cut into pieces of WIDE bytes; all lines of a piece lie together.
    """

    columns: int
    stages: int

    rows = WHOLE[0]
    in_pieces = True
    depth = WIDE

    @property
    def kernel(self) -> str:
        """Instance."""
        return f"multiply_warpgroups<{self.columns}, {self.stages}>"

    @property
    def shared(self) -> int:
        """Bytes of shared memory per block, with two barriers of eight bytes for each stage."""
        return ((self.rows + self.columns) * WIDE + 16) * self.stages

    def plane_lines(self, rows: int, columns: int) -> tuple[int, int]:
        """Lines of planes for matrices of this size: padded to whole tiles."""
        return ceil_div(rows, self.rows) * self.rows, ceil_div(columns, self.columns) * self.columns

    def multiply(self, planes: Planes, sizes: Sizes, totals: Totals | None = None) -> Totals:
        """Multiply planes and add the products to `totals`; without them, start anew.

        Of magnitudes only a few stages, usually enough to be certain; tiles that need more are multiplied again, whole.
        """
        add = totals is not None
        tiles = ceil_div(sizes.rows, self.rows) * ceil_div(sizes.columns, self.columns) * sizes.matrices
        totals = totals or _allocated(sizes, tiles)
        self._launch(planes, sizes, totals, (0, sizes.moduli + (sizes.scaled and not add)), sizes.enough, add)
        if sizes.scaled and (add or planes.padded > FEW * WIDE):
            self._launch(planes, sizes, totals, (sizes.moduli, 1), 0, add)
        return totals

    def _launch(
        self, planes: Planes, sizes: Sizes, totals: Totals, chosen: tuple[int, int], enough: int, add: bool
    ) -> None:
        """Multiply some planes: the first one, and how many."""
        lines = self.plane_lines(sizes.rows, sizes.columns)
        counts = (*sizes.stacks, sizes.rows, sizes.columns, *lines, planes.padded // WIDE, sizes.matrices)
        nvrtc.load(SOURCE, self.kernel)(
            (device.limits().multiprocessors,),
            (CONSUMERS + 32,),
            (
                planes.a, planes.b, planes.a_of, planes.b_of, *map(np.int32, (*counts, *chosen, sizes.moduli)),
                np.uint32(enough), np.int64(sizes.stride), np.int32(add), totals.lacking, totals.residues,
                totals.magnitudes,
            ),
            shared_mem=self.shared,
        )  # fmt: skip


def _allocated(sizes: Sizes, tiles: int) -> Totals:
    import cupy

    residues = empty((sizes.moduli * sizes.stride,), np.uint8)
    magnitudes = empty((sizes.elements,), np.uint32) if sizes.scaled else cupy.zeros(1, np.uint32)
    return Totals(residues, magnitudes, cupy.zeros(tiles, np.int32) if tiles else None)


Tile = Warps | Warpgroups
# Rows and columns of C per block, and per warp.
LARGE, SMALL = (128, 256, 64, 64), (64, 64, 32, 32)
HOPPER = Warpgroups(WHOLE[1], 4)


def stages_of(tile: tuple[int, int, int, int]) -> int:
    """How many stages of a tile fit into the shared memory of the current device, at most MOST_STAGES."""
    return min(MOST_STAGES, device.limits().shared_per_block // ((tile[0] + tile[1]) * DEPTH))


def choose_tile(rows: int, columns: int, matrices: int, moduli: int) -> Tile:
    """Large tiles where they occupy every multiprocessor and are at least half full."""
    hopper = device.limits().hopper
    large = WHOLE if hopper else LARGE[:2]
    blocks = ceil_div(rows, large[0]) * ceil_div(columns, large[1]) * matrices * moduli
    if blocks < device.limits().multiprocessors or not fits(rows, columns, large):
        return Warps(*SMALL, stages_of(SMALL))
    return HOPPER if hopper else Warps(*LARGE, stages_of(LARGE))
