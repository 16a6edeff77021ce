"""How planes of residues lie in memory, and what multiplies them: by warps on any device, by warpgroups on Hopper."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kernels.common import device, nvrtc
from kernels.common.checks import check_shared
from kernels.matmul.formats import FORMATS
from kernels.matmul.memory import DEPTH, WHOLE, WIDE, ceil_div, fits

SOURCE = Path(__file__).with_name("residue.cu")

if TYPE_CHECKING:
    from kernels.matmul.residue import ProductOnDevice

MOST_STAGES = 4
MAX_MATRICES = 65535  # blocks along y on every device
FEW = 4  # of multiply_wgmma.cuh


@dataclass(frozen=True)
class Warps:
    """Tiles of `multiply`: rows and columns of C by a block of threads, and by each of its warps; stages of its copies.

    In planes a line has a multiple of DEPTH bytes, one after another.
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
        """Bytes of shared memory of a block."""
        return (self.rows + self.columns) * DEPTH * self.stages

    def room(self, rows: int, columns: int) -> tuple[int, int]:
        """Lines that matrices with so many rows and columns have in planes."""
        return rows, columns

    def multiply(self, work: ProductOnDevice, planes: list[Any], padded: int, add: bool) -> None:
        """Multiply planes; `add` to the products of earlier ones."""
        check_shared(f"{self.stages} stages of {self.rows} rows and {self.columns} columns", self.shared)
        kernel = nvrtc.load(SOURCE, self.kernel)
        blocks = ceil_div(work.rows, self.rows) * ceil_div(work.columns, self.columns)
        lines = (work.a_of, work.b_of, np.int64(work.stacks[0] * work.rows), np.int64(work.stacks[1] * work.columns))
        arguments = (*planes, *lines, *map(np.int32, (work.rows, work.columns, padded)))
        results = (*map(np.int32, (add, work.moduli)), work.products, work.totals)
        for start in range(0, work.matrices, MAX_MATRICES):
            kernel(
                (blocks, min(MAX_MATRICES, work.matrices - start), work.moduli + work.scaled),
                (32 * (self.rows // self.of_warp) * (self.columns // self.across),),
                (*arguments, *map(np.int64, (start, work.stride)), *results),
                shared_mem=self.shared,
            )


@dataclass(frozen=True)
class Warpgroups:
    """Tiles of `multiply_warpgroups`: 128 rows of C and so many columns by a block of threads; stages of its copies.

    In planes a line has a multiple of WIDE bytes, in pieces of WIDE bytes: of a piece all lines lie together.
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
        """Bytes of shared memory of a block, with two barriers of eight for each stage."""
        return ((self.rows + self.columns) * WIDE + 16) * self.stages

    def room(self, rows: int, columns: int) -> tuple[int, int]:
        """Lines that matrices with so many rows and columns have in planes: those of whole tiles."""
        return ceil_div(rows, self.rows) * self.rows, ceil_div(columns, self.columns) * self.columns

    def multiply(self, work: ProductOnDevice, planes: list[Any], padded: int, add: bool) -> None:
        """Multiply planes; `add` to the products of earlier ones.

        Magnitudes only until sums are large enough for sure; those that need more are multiplied once more, as a whole.
        """
        import cupy

        tiles = ceil_div(work.rows, self.rows) * ceil_div(work.columns, self.columns) * work.matrices
        if not add:
            work.lacking = cupy.zeros(tiles, np.int32)
        pieces, moduli = padded // WIDE, work.moduli
        enough = FORMATS[work.result.name].enough(work.inner) if work.scaled else 0
        self._launch(work, planes, pieces, (0, moduli + (work.scaled and not add)), enough, add)
        if work.scaled and (add or pieces > FEW):
            self._launch(work, planes, pieces, (moduli, 1), 0, add)

    def _launch(
        self, work: ProductOnDevice, planes: list[Any], pieces: int, chosen: tuple[int, int], enough: int, add: bool
    ) -> None:
        sizes = (*work.stacks, work.rows, work.columns, *self.room(work.rows, work.columns), pieces, work.matrices)
        nvrtc.load(SOURCE, self.kernel)(
            (device.limits().multiprocessors,),
            (288,),
            (
                *planes, work.a_of, work.b_of, *map(np.int32, (*sizes, *chosen, work.moduli)), np.uint32(enough),
                np.int64(work.stride), np.int32(add), work.lacking, work.products, work.totals,
            ),
            shared_mem=self.shared,
        )  # fmt: skip


Tile = Warps | Warpgroups
# Rows and columns of C by a block of threads, and by each of its warps.
LARGE, SMALL = (128, 256, 64, 64), (64, 64, 32, 32)
HOPPER = Warpgroups(WHOLE[1], 4)


def stages_of(tile: tuple[int, int, int, int]) -> int:
    """How many stages of a tile fit into the shared memory of the current device, at most MOST_STAGES."""
    return min(MOST_STAGES, device.limits().shared_per_block // ((tile[0] + tile[1]) * DEPTH))


def choose_tile(rows: int, columns: int, matrices: int, moduli: int) -> Tile:
    """Large tiles where they leave no multiprocessor idle and do not reach far beyond the edges."""
    hopper = device.limits().hopper
    large = WHOLE if hopper else LARGE[:2]
    blocks = ceil_div(rows, large[0]) * ceil_div(columns, large[1]) * matrices * moduli
    if blocks < device.limits().multiprocessors or not fits(rows, columns, large):
        return Warps(*SMALL, stages_of(SMALL))
    return HOPPER if hopper else Warps(*LARGE, stages_of(LARGE))
