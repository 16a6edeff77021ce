"""Exact products of stacks of matrices of floats whose sums are short, on Hopper: the door to `small_k.cu`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kernels.common import device, nvrtc
from kernels.matmul.formats import FORMATS, multiplied
from kernels.matmul.memory import MOST_SHORT, MOST_SMALL, WIDE, ceil_div, fits, is_small
from kernels.matmul.small import C_TYPES, ProductOfSmall

SOURCE = Path(__file__).with_suffix(".cu")

if TYPE_CHECKING:
    from kernels.matmul.residue import ProductOnDevice

MOST_COLUMNS = 2**22
ROWS, COLUMNS, GROUP, ROOM = 64, 16, 128, 4096  # of small_k.cuh, and so are these:
WARPGROUPS = {"float16": 4, "float32": 4, "float64": 2}


def suits(result: np.dtype[Any], inner: int, a: Any, b: Any) -> bool:
    """Whether a part is the whole of two stacks that the kernel is made for, and the device has what it needs."""
    if not device.limits().hopper or min(a.ndim, b.ndim) < 2 or not a.shape[-1] == b.shape[-2] == inner:
        return False
    rows, columns = a.shape[-2], b.shape[-1]
    if result.name not in FORMATS or not MOST_SMALL <= inner <= MOST_SHORT or not 0 < columns <= MOST_COLUMNS:
        return False
    return fits(rows, columns, (ROWS, COLUMNS)) and not is_small(result, rows, inner, columns)


class ProductOfShort(ProductOfSmall):
    """The product of two stacks of matrices with at most MOST_SHORT products in a sum, in one part.

    Where the kernel is not certain of an element, all are computed by `ProductOnDevice`.
    """

    kind = "short"
    again: ProductOnDevice | None = None

    def _fits(self, rows: int, inner: int, columns: int) -> bool:
        return rows > 0 and 0 < inner <= MOST_SHORT and 0 < columns <= MOST_COLUMNS

    def _launch(self, a: Any, b: Any, lists: tuple[Any, ...], matrices: int) -> None:
        (rows, inner), columns = a.shape[-2:], b.shape[-1]
        digits, pieces = (FORMATS[self.result.name].kept + 8) // 8, ceil_div(inner, WIDE)
        warpgroups = WARPGROUPS[self.result.name]
        whole = not (rows % ROWS or columns % COLUMNS or inner % WIDE or any(x.data.ptr % 16 for x in (a, b)))
        down, groups = ceil_div(rows, ROWS) * matrices, ceil_div(columns, COLUMNS)
        # All groups of columns, so that rows are cut once, or fewer where too many multiprocessors would be idle.
        of_block = min(groups, max(warpgroups, ceil_div(down * groups, device.limits().multiprocessors)))
        kernel = f"multiply_short<{C_TYPES[self.result.name]}, {pieces}, {str(whole).lower()}>"
        nvrtc.load(SOURCE, kernel)(
            (down * ceil_div(groups, of_block),),
            (warpgroups * GROUP,),
            (a, b, *lists, *map(np.int32, (rows, inner, columns, of_block)), self.product, self.doubts),
            shared_mem=(digits * pieces + 1) * (ROWS + warpgroups * COLUMNS) * WIDE + ROOM,
        )

    @property
    def doubtful(self) -> int:
        """Elements that were computed term by term."""
        return self.again.doubtful if self.again else 0

    def unsettled(self) -> bool:
        """Whether the stacks are to be seen again, by `redo`, before the product is what it should be."""
        return self.again is None and int(self.doubts.get()[0]) > 0

    def redo(self, a: Any, b: Any) -> None:
        """Compute all elements in the other way."""
        from kernels.matmul.residue import ProductOnDevice

        self.again = ProductOnDevice((self.result, self.result), self.result, a.shape[-1])
        self.product[...] = multiplied(self.again, lambda: [(a, b)]).view(self.product.dtype)


# They compile for sm_90a alone.
HOPPER_INSTANCES = tuple(
    f"multiply_short<Float{bits}, {pieces}, {whole}>"
    for bits in (16, 32, 64) for pieces in (1, 2) for whole in ("true", "false")
)  # fmt: skip
