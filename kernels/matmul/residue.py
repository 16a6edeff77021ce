"""Exact matrix products on a GPU in a residue number system: launches the kernels of `gpu.cu`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from kernels.common import nvrtc
from kernels.common.arrays import converted
from kernels.common.checks import check_array
from kernels.common.constants import constant
from kernels.matmul.formats import FORMATS, bits_of, moduli_for
from kernels.matmul.memory import DEPTH, INNER, WORDS, ceil_div, empty, matrices_of, numbered, zeros
from kernels.matmul.planes import HOPPER, LARGE, MOST_STAGES, SMALL, Planes, Sizes, Tile, Totals, Warps, choose_tile
from kernels.matmul.rounding import too_large

SOURCE = Path(__file__).with_name("gpu.cu")

C_TYPES = {
    "int8": "Integer<i8>", "uint8": "Integer<u8>", "int16": "Integer<i16>", "uint16": "Integer<u16>",
    "int32": "Integer<int>", "uint32": "Integer<u32>", "int64": "Integer<i64>", "uint64": "Integer<u64>",
    "float16": "Float16", "float32": "Float32", "float64": "Float64",
}  # fmt: skip
RESULTS = {"int32": "int", "int64": "i64"}
MOST_BLOCKS = 4096  # of a kernel that usually has nothing to do
THREADS, ROWS_AT_A_TIME, SPLIT_LINES = (constant(SOURCE, name) for name in ("THREADS", "ROWS_AT_A_TIME", "SPLIT_LINES"))
SIDE = constant(SOURCE.with_name("dot_products.cuh"), "SIDE")


class ResidueProduct:
    """The product of two stacks of matrices that come in parts: columns of A and rows of B.

    Parameters
    ----------
    dtypes
        Of both factors: integers, or one float dtype.
    result
        Of the product: int64 or int32 for integers, else that of the factors.
    inner
        Products in a sum, over all parts.
    """

    def __init__(self, dtypes: tuple[np.dtype[Any], np.dtype[Any]], result: np.dtype[Any], inner: int) -> None:
        self.dtypes, self.result = dtypes, result
        self.scaled = result.name in FORMATS
        self.inner, self.moduli = inner, moduli_for(sum(map(bits_of, dtypes)), inner)
        self.added = self.recomputed = self.rounds = 0
        self.sizes: Sizes | None = None  # as soon as a part has been seen
        self.totals: Totals | None = None  # as soon as planes have been multiplied

    def measure(self, a: Any, b: Any) -> None:
        """Find the largest magnitudes of rows of A and columns of B in the next part.

        Parameters
        ----------
        a, b : CuPy arrays, shapes (..., rows, part) and (..., part, columns), C-contiguous
            For a product of floats, of any dtype that NumPy converts to it.
        """
        a, b = self._checked(a, b)
        self._allocate(a, b)
        if not self.scaled or not self._any_products(a):
            return
        of_a, of_b = (C_TYPES[dtype.name] for dtype in self.dtypes)
        inner = np.int64(a.shape[-1])
        of_rows = (a, np.int64(self.lines_a), inner, self.largest_a, self.any_nonfinite)
        _launch(f"largest_in_rows<{of_a}>", (ceil_div(self.lines_a * 32, THREADS),), of_rows)
        grid = (ceil_div(self.lines_b, THREADS), ceil_div(a.shape[-1], ROWS_AT_A_TIME))
        of_columns = (b, np.int64(self.lines_b), inner, np.int64(self.columns), self.largest_b, self.any_nonfinite)
        _launch(f"largest_in_columns<{of_b}>", grid, of_columns)

    def add(self, a: Any, b: Any) -> None:
        """Add the products of the next part; all parts have been measured."""
        a, b = self._checked(a, b)
        if not self._any_products(a):
            return
        assert self.sizes
        for first in range(0, a.shape[-1], INNER):
            planes = self.planes(a, b, first, min(INNER, a.shape[-1] - first))
            self.totals = self.tile.multiply(planes, self.sizes, self.totals)
        if self.scaled:
            sizes = (self.sizes.elements, self.rows, a.shape[-1], self.columns)
            lines = (self.largest_a, self.largest_b, self.a_of, self.b_of, self.any_nonfinite)
            arguments = (a, b, *lines, *map(np.int64, sizes), np.int32(self.added > 0), self.terms)
            blocks = min(ceil_div(self.sizes.elements, THREADS), MOST_BLOCKS)
            _launch(f"nonfinite_terms<{C_TYPES[self.result.name]}>", (blocks,), arguments)
        self.added += a.shape[-1]

    def finish(self) -> Any:
        """The product, rounded once, on the current stream; `recompute` changes its uncertain elements in place.

        Raises
        ------
        OverflowError
            If an integer does not fit.
        """
        import cupy

        shape = (*self.batch, self.rows, self.columns)
        if not self.totals or not self.sizes:
            return cupy.zeros(shape, self.result)
        size, stride = self.sizes.elements, self.sizes.stride
        bits = f"u{self.result.itemsize}" if self.scaled else self.result
        product = empty((size,), bits)
        grid, planes = (ceil_div(size, 4 * THREADS),), (self.totals.residues, np.int64(stride), np.int64(size))
        if self.scaled:
            lines = (np.int64(self.rows), np.int64(self.columns), self.a_of, self.b_of, self.largest_a, self.largest_b)
            kernel = f"finish_floats<{C_TYPES[self.result.name]}, {self.moduli}>"
            _launch(kernel, grid, (*planes, *lines, self.terms, product))
            self.product = product
            self._find_uncertain(self.totals)
        else:
            some_too_large = cupy.zeros(1, np.int32)
            kernel = f"finish_integers<{RESULTS[self.result.name]}, {self.moduli}>"
            _launch(kernel, grid, (*planes, product, some_too_large))
            if int(some_too_large.get()[0]):
                raise OverflowError(too_large(None, self.result))
        return product.view(self.result).reshape(shape)

    def _lines(self) -> tuple[Any, ...]:
        return self.a_of, self.b_of, self.largest_a, self.largest_b, self.seen_a, self.seen_b

    def _find_uncertain(self, totals: Totals) -> None:
        import cupy

        self.counts = cupy.zeros(2, np.uint64)  # uncertain elements; those whose sums overflow when recomputed
        sizes = map(np.int64, (self.matrices, self.rows, self.inner, self.columns))
        format = FORMATS[self.result.name]
        share, enough = np.float64(format.share(self.inner)), np.uint32(format.enough(self.inner))
        grid = (ceil_div(self.matrices * self.columns, THREADS), ceil_div(self.rows, ROWS_AT_A_TIME))
        arguments = (*sizes, share, enough, *self._lines(), totals.magnitudes, self.terms, self.counts)
        _launch(f"find_uncertain<{C_TYPES[self.result.name]}>", grid, arguments)

    @property
    def uncertain(self) -> int:
        """Elements that rounding to integers may have moved too far, once the product is finished."""
        return int(self.counts.get()[0]) if self.scaled and self.added else 0

    def needs_recompute(self) -> bool:
        """Whether `recompute` has to see every part (again) before the product is final."""
        if not self.scaled or not self.added or self.rounds == 2:
            return False
        return int(self.counts.get()[self.rounds]) > 0

    def recompute(self, a: Any, b: Any) -> None:
        """Compute the uncertain elements term by term: the next part, from the first one on."""
        assert self.totals
        a, b = self._checked(a, b)
        inner = a.shape[-1]
        last = self.recomputed + inner == self.inner
        numbers = map(np.int64, (self.rows, inner, self.columns, self.recomputed))
        squares = ceil_div(self.rows, SIDE) * ceil_div(self.columns, SIDE) * self.matrices
        # The residues are no longer needed: their memory holds the sums, a float64 for each element.
        state = (self.terms, self.totals.residues.view(np.float64), self.product, self.counts[1:])
        arguments = (a, b, *self._lines(), *numbers, np.int32(last), np.int32(self.rounds), *state)
        _launch(f"dot_products<{C_TYPES[self.result.name]}>", (squares,), arguments)
        self.recomputed = 0 if last else self.recomputed + inner
        self.rounds += last

    def _checked(self, a: Any, b: Any) -> tuple[Any, Any]:
        """The matrices in the dtypes that kernels read, if they can be multiplied."""
        if self.scaled:
            a, b = converted(a, self.result), converted(b, self.result)
        for what, array, dtype in zip(("first", "second"), (a, b), self.dtypes, strict=True):
            check_array(f"matmul, {what} matrix", array, (dtype.name,), max(2, array.ndim))
        if a.shape[-1] != b.shape[-2]:
            raise ValueError(f"matmul: expected as many rows in the second matrix as columns in the first, got shapes "
                             f"{a.shape} and {b.shape}")  # fmt: skip
        return a, b

    def _any_products(self, a: Any) -> bool:
        return bool(self.sizes and self.sizes.elements and a.shape[-1])

    def _allocate(self, a: Any, b: Any) -> None:
        """What is kept from part to part, at the first part."""
        if self.sizes:
            return
        import cupy

        self.rows, self.columns = a.shape[-2], b.shape[-1]
        self.batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        stacks = (matrices_of(a), matrices_of(b))
        self.lines_a, self.lines_b = stacks[0] * self.rows, stacks[1] * self.columns
        self.matrices = int(np.prod(self.batch, dtype=np.int64))
        enough = FORMATS[self.result.name].enough(self.inner) if self.scaled else 0
        self.sizes = Sizes(stacks, self.matrices, self.rows, self.columns, self.moduli, self.scaled, enough)
        self.a_of, self.b_of = (
            cupy.asarray(np.ascontiguousarray(numbered(stack, array.shape[:-2], self.batch)))
            for stack, array in zip(stacks, (a, b), strict=True)
        )
        self.tile: Tile = choose_tile(self.rows, self.columns, self.matrices, self.moduli)
        if self.scaled:
            magnitude = np.uint64 if self.result.itemsize == 8 else np.uint32
            self.largest_a, self.largest_b = cupy.zeros(self.lines_a, magnitude), cupy.zeros(self.lines_b, magnitude)
            self.terms, self.any_nonfinite = zeros(self.sizes.elements, np.uint8), cupy.zeros(1, np.int32)
            self.seen_a, self.seen_b = (cupy.zeros(WORDS * lines, np.uint64) for lines in (self.lines_a, self.lines_b))
        else:
            self.seen_a = self.seen_b = cupy.zeros(1, np.uint64)
            self.largest_a = cupy.zeros(self.lines_a, np.uint32)
            self.largest_b = cupy.zeros(self.lines_b, np.uint32)

    def planes(self, a: Any, b: Any, first: int, length: int) -> Planes:
        """Residues of some columns of A and rows of B, a plane for each modulus, and for floats one of magnitudes;
        padded with zeros to the layout of the tiles."""
        assert self.sizes
        padded = ceil_div(length, self.tile.depth) * self.tile.depth
        plane_lines = self.tile.plane_lines(self.rows, self.columns)
        planes = []
        for number, (array, largest, seen, own) in enumerate(
            ((a, self.largest_a, self.seen_a, self.rows), (b, self.largest_b, self.seen_b, self.columns))
        ):
            lines = self.sizes.stacks[number] * plane_lines[number]
            planes.append(empty(((self.moduli + self.scaled) * lines * padded,), np.int8))
            counts = (np.int64(self.sizes.stacks[number]), *map(np.int32, (own, plane_lines[number])))
            places = (*map(np.int64, (a.shape[-1], self.added, first)), *map(np.int32, (length, padded)))
            layout = ", ".join(str(is_so).lower() for is_so in (number > 0, self.tile.in_pieces))
            kernel = f"split<{C_TYPES[self.dtypes[number].name]}, {self.moduli}, {layout}>"
            grid = (ceil_div(lines, SPLIT_LINES), padded // DEPTH)
            _launch(kernel, grid, (array, largest, *counts, *places, planes[-1], seen))
        return Planes(planes[0], planes[1], self.a_of, self.b_of, padded)


def _launch(kernel: str, grid: tuple[int, ...], arguments: tuple[Any, ...]) -> None:
    nvrtc.load(SOURCE, kernel)(grid, (THREADS,), arguments)


# One of each kernel and kind, for inspecting machine code.
INSTANCES = (
    *(f"largest_in_{lines}<Float{bits}>" for lines in ("rows", "columns") for bits in (16, 32, 64)),
    *(f"split<{c_type}, {10 if size < 8 else 19}, {columns}, false>"
      for c_type, size in ((C_TYPES[name], np.dtype(name).itemsize) for name in ("int8", "int32", "uint64", "float32"))
      for columns in ("true", "false")),
    *(f"split<Float64, 16, {columns}, {pieces}>" for columns in ("true", "false") for pieces in ("true", "false")),
    *(Warps(*tile, stages).kernel for tile in (LARGE, SMALL) for stages in (2, MOST_STAGES)),
    *(f"{kernel}<Float{bits}>"
      for kernel in ("nonfinite_terms", "find_uncertain", "dot_products") for bits in (16, 32, 64)),
    *(f"finish_floats<Float{bits}, {moduli}>" for bits, moduli in ((16, 9), (32, 10), (64, 16))),
    "finish_integers<int, 10>", "finish_integers<i64, 19>",
)  # fmt: skip
HOPPER_INSTANCES = (HOPPER.kernel,)  # that compile for sm_90a alone
