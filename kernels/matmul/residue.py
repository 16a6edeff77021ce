"""Exact matrix products on a GPU: the door to the kernels of `residue.cu`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from kernels.common import nvrtc
from kernels.common.arrays import converted
from kernels.common.checks import check_array
from kernels.matmul import small, small_k
from kernels.matmul.formats import FORMATS, bits_of, moduli_for, multiplied, result_dtype
from kernels.matmul.memory import INNER, WORDS, ceil_div, empty, matrices_of, numbered
from kernels.matmul.rounding import too_large
from kernels.matmul.small import ProductOfSmall
from kernels.matmul.small_k import ProductOfShort
from kernels.matmul.tiles import HOPPER, LARGE, MOST_STAGES, SMALL, Tile, Warps, choose_tile

SOURCE = Path(__file__).with_suffix(".cu")

C_TYPES = {
    "int8": "Integer<i8>", "uint8": "Integer<u8>", "int16": "Integer<i16>", "uint16": "Integer<u16>",
    "int32": "Integer<int>", "uint32": "Integer<u32>", "int64": "Integer<i64>", "uint64": "Integer<u64>",
    "float16": "Float16", "float32": "Float32", "float64": "Float64",
}  # fmt: skip
MOST_BLOCKS = 4096  # of a kernel that mostly has nothing to do
RESULTS = {"int32": "int", "int64": "i64"}
THREADS, ROWS_AT_A_TIME, SIDE, LINES, SPLIT = 256, 64, 64, 32, 64  # of residue.cu


class ProductOnDevice:
    """The product of two stacks of matrices, whose columns and rows come in parts one after another.

    Parameters
    ----------
    dtypes
        Of both factors: integers, or one float dtype.
    result
        Of the product: int64 or int32 for integers, else the same as of the factors.
    inner
        Products in a sum, in all parts together.
    """

    def __init__(self, dtypes: tuple[np.dtype[Any], np.dtype[Any]], result: np.dtype[Any], inner: int) -> None:
        self.dtypes, self.result = dtypes, result
        self.scaled = result.name in FORMATS
        self.inner, self.moduli = inner, moduli_for(sum(map(bits_of, dtypes)), inner)
        self.started = self.added = self.again = self.rounds = 0
        self.lacking: Any = None  # of each tile whether its magnitudes were not enough; what multiplies keeps it

    def measure(self, a: Any, b: Any) -> None:
        """See the next part for the largest magnitudes of rows of A and columns of B.

        Parameters
        ----------
        a, b : CuPy arrays, shapes (..., rows, part) and (..., part, columns), C-contiguous
            Where floats are asked for, of any dtype that NumPy converts to them.
        """
        a, b = self._checked(a, b)
        self._start(a, b)
        if not self.scaled or not self._some(a):
            return
        of_a, of_b = (C_TYPES[dtype.name] for dtype in self.dtypes)
        inner = np.int64(a.shape[-1])
        of_rows = (a, np.int64(self.lines_a), inner, self.largest_a, self.some_wild)
        _launch(f"largest_in_rows<{of_a}>", (ceil_div(self.lines_a * 32, THREADS),), of_rows)
        grid = (ceil_div(self.lines_b, THREADS), ceil_div(a.shape[-1], ROWS_AT_A_TIME))
        of_columns = (b, np.int64(self.lines_b), inner, np.int64(self.columns), self.largest_b, self.some_wild)
        _launch(f"largest_in_columns<{of_b}>", grid, of_columns)

    def add(self, a: Any, b: Any) -> None:
        """Add the products of the next part; every part was measured before."""
        a, b = self._checked(a, b)
        if not self._some(a):
            return
        for first in range(0, a.shape[-1], INNER):
            length = min(INNER, a.shape[-1] - first)
            self.multiply(self.planes(a, b, first, length), length, self.added + first > 0)
        if self.scaled:
            sizes = (self.size, self.rows, a.shape[-1], self.columns)
            lines = (self.largest_a, self.largest_b, self.a_of, self.b_of, self.some_wild)
            arguments = (a, b, *lines, *map(np.int64, sizes), np.int32(self.added > 0), self.terms)
            blocks = min(ceil_div(self.size, THREADS), MOST_BLOCKS)
            _launch(f"wild_terms<{C_TYPES[self.result.name]}>", (blocks,), arguments)
        self.added += a.shape[-1]

    def finish(self) -> Any:
        """The product, rounded once, on the current stream; its doubtful elements change with `redo`.

        Raises
        ------
        OverflowError
            If an integer does not fit.
        """
        import cupy

        shape = (*self.batch, self.rows, self.columns)
        if not self.added:
            return cupy.zeros(shape, self.result)
        bits = f"u{self.result.itemsize}" if self.scaled else self.result
        product = empty((self.size,), bits)
        grid, planes = (ceil_div(self.size, 4 * THREADS),), (self.products, np.int64(self.stride), np.int64(self.size))
        if self.scaled:
            lines = (np.int64(self.rows), np.int64(self.columns), self.a_of, self.b_of, self.largest_a, self.largest_b)
            kernel = f"finish_floats<{C_TYPES[self.result.name]}, {self.moduli}>"
            _launch(kernel, grid, (*planes, *lines, self.terms, product))
            self.product = product
            self._find_doubtful()
        else:
            some_too_large = cupy.zeros(1, np.int32)
            kernel = f"finish_integers<{RESULTS[self.result.name]}, {self.moduli}>"
            _launch(kernel, grid, (*planes, product, some_too_large))
            if int(some_too_large.get()[0]):
                raise OverflowError(too_large(None, self.result))
        return product.view(self.result).reshape(shape)

    def _lines(self) -> tuple[Any, ...]:
        return self.a_of, self.b_of, self.largest_a, self.largest_b, self.seen_a, self.seen_b

    def _find_doubtful(self) -> None:
        import cupy

        self.doubts = cupy.zeros(2, np.uint64)  # elements that are doubtful, and those whose sums overflow
        sizes = map(np.int64, (self.matrices, self.rows, self.inner, self.columns))
        format = FORMATS[self.result.name]
        share, enough = np.float64(format.share(self.inner)), np.uint32(format.enough(self.inner))
        grid = (ceil_div(self.matrices * self.columns, THREADS), ceil_div(self.rows, ROWS_AT_A_TIME))
        arguments = (*sizes, share, enough, *self._lines(), self.totals, self.terms, self.doubts)
        _launch(f"find_doubtful<{C_TYPES[self.result.name]}>", grid, arguments)

    @property
    def doubtful(self) -> int:
        """Elements that the exact product of scaled integers may not be near enough to, once it is finished."""
        return int(self.doubts.get()[0]) if self.scaled and self.added else 0

    def unsettled(self) -> bool:
        """Whether every part is to be seen again, by `redo`, before the product is what it should be."""
        if not self.scaled or not self.added or self.rounds == 2:
            return False
        return int(self.doubts.get()[self.rounds]) > 0

    def redo(self, a: Any, b: Any) -> None:
        """Compute the doubtful elements term by term: the next part, from the first one on."""
        a, b = self._checked(a, b)
        inner = a.shape[-1]
        last = self.again + inner == self.inner
        numbers = map(np.int64, (self.rows, inner, self.columns, self.again))
        squares = ceil_div(self.rows, SIDE) * ceil_div(self.columns, SIDE) * self.matrices
        # Residues have done their work: in their place are sums, one for every element.
        state = (self.terms, self.products.view(np.float64), self.product, self.doubts[1:])
        arguments = (a, b, *self._lines(), *numbers, np.int32(last), np.int32(self.rounds), *state)
        _launch(f"dot_products<{C_TYPES[self.result.name]}>", (squares,), arguments)
        self.again = 0 if last else self.again + inner
        self.rounds += last

    def _checked(self, a: Any, b: Any) -> tuple[Any, Any]:
        """The matrices in the dtypes that kernels read, once they are two that can be multiplied."""
        if self.scaled:
            a, b = converted(a, self.result), converted(b, self.result)
        for what, array, dtype in zip(("first", "second"), (a, b), self.dtypes, strict=True):
            check_array(f"matmul, {what} matrix", array, (dtype.name,), max(2, array.ndim))
        if a.shape[-1] != b.shape[-2]:
            raise ValueError(f"matmul: expected as many rows in the second matrix as columns in the first, got shapes "
                             f"{a.shape} and {b.shape}")  # fmt: skip
        return a, b

    def _some(self, a: Any) -> bool:
        """Whether there is anything to multiply."""
        return bool(self.size and a.shape[-1])

    def _start(self, a: Any, b: Any) -> None:
        """Room for what is kept from part to part."""
        if self.started:
            return
        import cupy

        self.started = 1
        self.rows, self.columns = a.shape[-2], b.shape[-1]
        self.batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        self.stacks = (matrices_of(a), matrices_of(b))
        self.lines_a, self.lines_b = self.stacks[0] * self.rows, self.stacks[1] * self.columns
        self.matrices = int(np.prod(self.batch, dtype=np.int64))
        self.size = self.matrices * self.rows * self.columns
        self.a_of, self.b_of = (
            cupy.asarray(np.ascontiguousarray(numbered(stack, array.shape[:-2], self.batch)))
            for stack, array in zip(self.stacks, (a, b), strict=True)
        )
        self.tile: Tile = choose_tile(self.rows, self.columns, self.matrices, self.moduli)
        # A plane of residues of C for each modulus, each from a multiple of 16 bytes on.
        self.stride = ceil_div(self.size, 16) * 16
        self.products = empty((self.moduli * self.stride,), np.uint8)
        if self.scaled:
            magnitude = np.uint64 if self.result.itemsize == 8 else np.uint32
            self.largest_a, self.largest_b = cupy.zeros(self.lines_a, magnitude), cupy.zeros(self.lines_b, magnitude)
            self.terms, self.some_wild = cupy.zeros(self.size, np.uint8), cupy.zeros(1, np.int32)
            self.seen_a, self.seen_b = (cupy.zeros(WORDS * lines, np.uint64) for lines in (self.lines_a, self.lines_b))
            self.totals = empty((self.size,), np.uint32)
        else:
            self.seen_a = self.seen_b = cupy.zeros(1, np.uint64)
            self.totals = cupy.zeros(1, np.uint32)
            self.largest_a = cupy.zeros(self.lines_a, np.uint32)
            self.largest_b = cupy.zeros(self.lines_b, np.uint32)

    def planes(self, a: Any, b: Any, first: int, length: int) -> list[Any]:
        """Residues of so many columns of A and rows of B, a plane for each modulus, and of floats one of magnitudes;
        filled up with zeros as tiles want it."""
        padded, room = self._padded(length), self.tile.room(self.rows, self.columns)
        planes = []
        for number, (array, largest, seen, own) in enumerate(
            ((a, self.largest_a, self.seen_a, self.rows), (b, self.largest_b, self.seen_b, self.columns))
        ):
            lines = self.stacks[number] * room[number]
            planes.append(empty(((self.moduli + self.scaled) * lines * padded,), np.int8))
            counts = (np.int64(self.stacks[number]), *map(np.int32, (own, room[number])))
            places = (*map(np.int64, (a.shape[-1], self.added, first)), *map(np.int32, (length, padded)))
            layout = ", ".join(str(is_so).lower() for is_so in (number > 0, self.tile.in_pieces))
            kernel = f"split<{C_TYPES[self.dtypes[number].name]}, {self.moduli}, {layout}>"
            grid = (ceil_div(lines, LINES), padded // SPLIT)
            _launch(kernel, grid, (array, largest, *counts, *places, planes[-1], seen))
        return planes

    def multiply(self, planes: list[Any], length: int, add: bool) -> None:
        """Multiply planes; `add` to the products of earlier ones."""
        self.tile.multiply(self, planes, self._padded(length), add)

    def _padded(self, length: int) -> int:
        return ceil_div(length, self.tile.depth) * self.tile.depth


def exact_matmul(a: Any, b: Any) -> Any:
    """Product of matrices, or of stacks of them, on the device that holds them: the same bits on every one.

    Parameters
    ----------
    a, b : CuPy arrays, shapes (..., rows, inner) and (..., inner, columns), C-contiguous

    Returns
    -------
    CuPy array
        int64 for integers, else of NumPy's dtype; on the current stream.

    Raises
    ------
    TypeError, ValueError
        If they cannot be multiplied.
    OverflowError
        If an integer does not fit.
    MemoryError
        If the device has no room.
    """
    result = result_dtype((a.dtype, b.dtype))
    dtypes = (result, result) if result.kind == "f" else (a.dtype, b.dtype)
    return multiplied(product_for(dtypes, result, a.shape[-1], a, b), lambda: [(a, b)])


def product_for(
    dtypes: tuple[np.dtype[Any], np.dtype[Any]], result: np.dtype[Any], inner: int, a: Any, b: Any
) -> ProductOnDevice | ProductOfSmall:
    """What multiplies two stacks of which these are the first part, the fastest way that there is for them."""
    if small.suits(result, inner, a, b):
        return ProductOfSmall(result)
    if small_k.suits(result, inner, a, b):
        return ProductOfShort(result)
    return ProductOnDevice(dtypes, result, inner)


def _launch(kernel: str, grid: tuple[int, ...], arguments: tuple[Any, ...]) -> None:
    nvrtc.load(SOURCE, kernel)(grid, (THREADS,), arguments)


# One of each kernel and kind, for those who look at machine code.
INSTANCES = (
    *(f"largest_in_{lines}<Float{bits}>" for lines in ("rows", "columns") for bits in (16, 32, 64)),
    *(f"split<{c_type}, {10 if size < 8 else 19}, {columns}, false>"
      for c_type, size in ((C_TYPES[name], np.dtype(name).itemsize) for name in ("int8", "int32", "uint64", "float32"))
      for columns in ("true", "false")),
    *(f"split<Float64, 16, {columns}, {pieces}>" for columns in ("true", "false") for pieces in ("true", "false")),
    *(Warps(*tile, stages).kernel for tile in (LARGE, SMALL) for stages in (2, MOST_STAGES)),
    *(f"{kernel}<Float{bits}>" for kernel in ("wild_terms", "find_doubtful", "dot_products") for bits in (16, 32, 64)),
    *(f"finish_floats<Float{bits}, {moduli}>" for bits, moduli in ((16, 9), (32, 10), (64, 16))),
    "finish_integers<int, 10>", "finish_integers<i64, 19>",
)  # fmt: skip
HOPPER_INSTANCES = (HOPPER.kernel,)  # that compile for sm_90a alone
