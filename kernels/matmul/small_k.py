"""Exact products of stacks of matrices of floats with few products in a sum, on Hopper: launches `small_k.cu`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from kernels.common import device, nvrtc
from kernels.common.constants import constant
from kernels.matmul.formats import FORMATS, multiplied
from kernels.matmul.memory import MOST_SMALL, MOST_SMALL_K, WIDE, ceil_div, fits, is_small
from kernels.matmul.residue import ResidueProduct
from kernels.matmul.small import C_TYPES, SmallProduct

SOURCE = Path(__file__).with_suffix(".cu")
LINES = SOURCE.with_name("small_k_lines.cuh")

MOST_COLUMNS = 2**22
ROWS, COLUMNS, GROUP, CONSUMERS, PRODUCERS, STAGES, STATE_BYTES = (
    constant(LINES, name) for name in ("ROWS", "COLUMNS", "GROUP", "CONSUMERS", "PRODUCERS", "STAGES", "STATE_BYTES")
)


def suits(result: np.dtype[Any], inner: int, a: Any, b: Any) -> bool:
    """Whether these are two whole stacks that the kernel is made for, and the device has its instructions."""
    if not device.limits().hopper or min(a.ndim, b.ndim) < 2 or not a.shape[-1] == b.shape[-2] == inner:
        return False
    rows, columns = a.shape[-2], b.shape[-1]
    if result.name not in FORMATS or not MOST_SMALL <= inner <= MOST_SMALL_K or not 0 < columns <= MOST_COLUMNS:
        return False
    return fits(rows, columns, (ROWS, COLUMNS)) and not is_small(result, rows, inner, columns)


class SmallKProduct(SmallProduct):
    """The product of two stacks of matrices with at most MOST_SMALL_K products in a sum, in one part.

    If the kernel is uncertain of an element, `ResidueProduct` computes all of them.
    """

    kind = "small-K"
    replacement: ResidueProduct | None = None

    def _fits(self, rows: int, inner: int, columns: int) -> bool:
        return rows > 0 and 0 < inner <= MOST_SMALL_K and 0 < columns <= MOST_COLUMNS

    def _launch(self, a: Any, b: Any, lists: tuple[Any, ...], matrices: int) -> None:
        (rows, inner), columns = a.shape[-2:], b.shape[-1]
        digits, pieces = (FORMATS[self.result.name].kept + 8) // 8, ceil_div(inner, WIDE)
        whole = not (rows % ROWS or columns % COLUMNS or inner % WIDE or any(x.data.ptr % 16 for x in (a, b)))
        down, groups = ceil_div(rows, ROWS) * matrices, ceil_div(columns, COLUMNS)
        # All groups of columns per block, so that rows are cut into digits once; fewer if multiprocessors would idle.
        of_block = min(groups, max(CONSUMERS, ceil_div(down * groups, device.limits().multiprocessors)))
        kernel = f"multiply_small_k<{C_TYPES[self.result.name]}, {pieces}, {str(whole).lower()}>"
        nvrtc.load(SOURCE, kernel)(
            (down * ceil_div(groups, of_block),),
            ((CONSUMERS + PRODUCERS) * GROUP,),
            (a, b, *lists, *map(np.int32, (rows, inner, columns, of_block)), self.product, self.counter),
            shared_mem=(digits * pieces + 1) * (ROWS + STAGES * COLUMNS) * WIDE + STATE_BYTES,
        )

    @property
    def uncertain(self) -> int:
        """Elements computed term by term."""
        return self.replacement.uncertain if self.replacement else 0

    def needs_recompute(self) -> bool:
        """Whether `recompute` has to see the stacks again before the product is final."""
        return self.replacement is None and int(self.counter.get()[0]) > 0

    def recompute(self, a: Any, b: Any) -> None:
        """Compute all elements from residues."""
        self.replacement = ResidueProduct((self.result, self.result), self.result, a.shape[-1])
        self.product[...] = multiplied(self.replacement, lambda: [(a, b)]).view(self.product.dtype)


# They compile for sm_90a alone.
HOPPER_INSTANCES = tuple(
    f"multiply_small_k<Float{bits}, {pieces}, {whole}>"
    for bits in (16, 32, 64) for pieces in (1, 2) for whole in ("true", "false")
)  # fmt: skip
