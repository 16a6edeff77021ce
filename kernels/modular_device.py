"""Exact matrix products on a GPU: the door to the kernels of `modular.cu`."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels import build
from kernels.modular import FORMATS, bits_of, moduli_for, result_dtype
from kernels.modular_round import too_large
from kernels.promotion import converted
from kernels.variant import check_array, check_shared

C_TYPES = {
    "int8": "Integer<i8>", "uint8": "Integer<u8>", "int16": "Integer<short>", "uint16": "Integer<u16>",
    "int32": "Integer<int>", "uint32": "Integer<u32>", "int64": "Integer<i64>", "uint64": "Integer<u64>",
    "float16": "Float16", "float32": "Float32", "float64": "Float64",
}  # fmt: skip
RESULTS = {"int32": "int", "int64": "i64"}
THREADS, ROWS_AT_A_TIME = 256, 64  # of modular.cu
DEPTH = 64  # bytes of a line in a stage, of modular_tile.cuh
INNER = 4096  # products of a sum at a time: a sum of residues stays below 2**26
# Rows and columns of C by a block of threads, and by each of its warps.
LARGE, SMALL = (128, 256, 64, 64), (64, 64, 32, 32)
MOST_STAGES = 4
MAX_MATRICES = 65535  # blocks along y on every device


def stages_of(tile: tuple[int, int, int, int]) -> int:
    """How many stages of a tile fit into the shared memory of the current device, at most MOST_STAGES."""
    return min(MOST_STAGES, build.limits().shared_per_block // ((tile[0] + tile[1]) * DEPTH))


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
        self.moduli = moduli_for(sum(map(bits_of, dtypes)), inner)
        self.started = self.parts = 0

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
        build.load("modular", f"largest_in_rows<{of_a}>")(
            (_ceil_div(self.lines_a * 32, THREADS),),
            (THREADS,),
            (a, np.int64(self.lines_a), inner, self.largest_a, self.some_wild),
        )
        grid = (_ceil_div(self.lines_b, THREADS), _ceil_div(a.shape[-1], ROWS_AT_A_TIME))
        arguments = (b, np.int64(self.lines_b), inner, np.int64(self.columns), self.largest_b, self.some_wild)
        build.load("modular", f"largest_in_columns<{of_b}>")(grid, (THREADS,), arguments)

    def add(self, a: Any, b: Any) -> None:
        """Add the products of the next part; every part was measured before."""
        a, b = self._checked(a, b)
        if not self._some(a):
            return
        for first in range(0, a.shape[-1], INNER):
            length = min(INNER, a.shape[-1] - first)
            self.multiply(self.planes(a, b, first, length), length, self.parts > 0 or first > 0)
        if self.scaled:
            sizes = (self.size, self.rows, a.shape[-1], self.columns)
            lines = (self.largest_a, self.largest_b, self.a_of, self.b_of, self.some_wild)
            build.load("modular", f"wild_terms<{C_TYPES[self.result.name]}>")(
                (_ceil_div(self.size, THREADS),),
                (THREADS,),
                (a, b, *lines, *map(np.int64, sizes), np.int32(self.parts > 0), self.terms),
            )
        self.parts += 1

    def finish(self) -> Any:
        """The product, rounded once, on the current stream.

        Raises
        ------
        OverflowError
            If an integer does not fit.
        """
        import cupy

        shape = (*self.batch, self.rows, self.columns)
        if not self.parts:
            return cupy.zeros(shape, self.result)
        bits = f"u{self.result.itemsize}" if self.scaled else self.result
        product = _empty((self.size,), np.dtype(bits))
        grid, planes = (_ceil_div(self.size, 4 * THREADS),), (self.products, np.int64(self.stride), np.int64(self.size))
        if self.scaled:
            lines = (np.int64(self.rows), np.int64(self.columns), self.a_of, self.b_of, self.largest_a, self.largest_b)
            kernel = build.load("modular", f"finish_floats<{C_TYPES[self.result.name]}, {self.moduli}>")
            kernel(grid, (THREADS,), (*planes, *lines, self.terms, product))
        else:
            some_too_large = cupy.zeros(1, np.int32)
            kernel = build.load("modular", f"finish_integers<{RESULTS[self.result.name]}, {self.moduli}>")
            kernel(grid, (THREADS,), (*planes, product, some_too_large))
            if int(some_too_large.get()[0]):
                raise OverflowError(too_large(None, self.result))
        return product.view(self.result).reshape(shape)

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
        stacks = (_matrices(a), _matrices(b))
        self.lines_a, self.lines_b = stacks[0] * self.rows, stacks[1] * self.columns
        matrices = int(np.prod(self.batch, dtype=np.int64))
        self.size = matrices * self.rows * self.columns
        self.a_of, self.b_of = (
            cupy.asarray(np.ascontiguousarray(_numbered(stack, array.shape[:-2], self.batch)))
            for stack, array in zip(stacks, (a, b), strict=True)
        )
        # A plane of residues of C for each modulus, each from a multiple of 16 bytes on.
        self.stride = _ceil_div(self.size, 16) * 16
        self.products = _empty((self.moduli * self.stride,), np.dtype(np.uint8))
        if self.scaled:
            magnitude = np.uint64 if self.result.itemsize == 8 else np.uint32
            self.largest_a, self.largest_b = cupy.zeros(self.lines_a, magnitude), cupy.zeros(self.lines_b, magnitude)
            self.terms, self.some_wild = _empty((self.size,), np.dtype(np.uint8)), cupy.zeros(1, np.int32)
        else:
            self.largest_a = cupy.zeros(self.lines_a, np.uint32)
            self.largest_b = cupy.zeros(self.lines_b, np.uint32)

    def planes(self, a: Any, b: Any, first: int, length: int) -> list[Any]:
        """Residues of so many columns of A and rows of B, a plane for each modulus, lines filled up with zeros."""
        padded = _ceil_div(length, DEPTH) * DEPTH
        planes = []
        for array, dtype, lines, largest, columns in (
            (a, self.dtypes[0], self.lines_a, self.largest_a, 0),
            (b, self.dtypes[1], self.lines_b, self.largest_b, self.columns),
        ):
            planes.append(_empty((self.moduli * lines * padded,), np.dtype(np.int8)))
            sizes = map(np.int64, (lines, columns, a.shape[-1], first))
            kernel = build.load("modular", f"split<{C_TYPES[dtype.name]}, {self.moduli}, {str(columns > 0).lower()}>")
            grid = (_ceil_div(lines * (padded // 16), THREADS),)
            kernel(grid, (THREADS,), (array, largest, *sizes, np.int32(length), np.int32(padded), planes[-1]))
        return planes

    def multiply(self, planes: list[Any], length: int, add: bool) -> None:
        """Multiply planes; `add` to the products of earlier ones."""
        matrices = self.size // (self.rows * self.columns)
        tile, stages = self._tile(matrices)
        blocks = _ceil_div(self.rows, tile[0]) * _ceil_div(self.columns, tile[1])
        shared = (tile[0] + tile[1]) * DEPTH * stages
        check_shared(f"{stages} stages of {tile[0]} rows and {tile[1]} columns", shared)
        kernel = build.load("modular", f"multiply<{', '.join(map(str, (*tile, stages)))}>")
        lines = (self.a_of, self.b_of, np.int64(self.lines_a), np.int64(self.lines_b))
        sizes = map(np.int32, (self.rows, self.columns, _ceil_div(length, DEPTH) * DEPTH))
        arguments = (*planes, *lines, *sizes)
        for start in range(0, matrices, MAX_MATRICES):
            kernel(
                (blocks, min(MAX_MATRICES, matrices - start), self.moduli),
                (32 * (tile[0] // tile[2]) * (tile[1] // tile[3]),),
                (*arguments, np.int64(start), np.int64(self.stride), np.int32(add), self.products),
                shared_mem=shared,
            )

    def _tile(self, matrices: int) -> tuple[tuple[int, int, int, int], int]:
        """Large tiles where they leave no multiprocessor idle and do not reach far beyond the edges."""
        blocks = _ceil_div(self.rows, LARGE[0]) * _ceil_div(self.columns, LARGE[1])
        covered = blocks * LARGE[0] * LARGE[1]
        busy = blocks * matrices * self.moduli >= build.limits().multiprocessors
        tile = LARGE if busy and covered <= 2 * self.rows * self.columns else SMALL
        return tile, stages_of(tile)


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
    product = ProductOnDevice(dtypes, result, a.shape[-1])
    product.measure(a, b)
    product.add(a, b)
    return product.finish()


def _matrices(stack: Any) -> int:
    return int(np.prod(stack.shape[:-2], dtype=np.int64))


def _numbered(matrices: int, own: tuple[int, ...], batch: tuple[int, ...]) -> Any:
    """Of each matrix of the product, which of a stack it comes from."""
    return np.broadcast_to(np.arange(matrices, dtype=np.int32).reshape(own), batch).reshape(-1)


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def _empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """Room on the device, or how much was missing."""
    import cupy

    try:
        return cupy.empty(shape, dtype)
    except cupy.cuda.memory.OutOfMemoryError as error:
        nbytes = int(np.prod(shape, dtype=object)) * dtype.itemsize
        free, _ = cupy.cuda.runtime.memGetInfo()
        raise MemoryError(f"matmul: needs {nbytes} bytes of device memory, {free} are free") from error


# One of each kernel and kind, for those who look at machine code.
INSTANCES = (
    *(f"largest_in_{lines}<Float{bits}>" for lines in ("rows", "columns") for bits in (16, 32, 64)),
    *(f"split<{c_type}, {10 if size < 8 else 19}, {columns}>"
      for c_type, size in ((C_TYPES[name], np.dtype(name).itemsize) for name in ("int8", "int32", "uint64", "float32"))
      for columns in ("true", "false")),
    *(f"split<Float64, 16, {columns}>" for columns in ("true", "false")),
    *(f"multiply<{', '.join(map(str, (*tile, stages)))}>" for tile in (LARGE, SMALL) for stages in (2, MOST_STAGES)),
    *(f"wild_terms<Float{bits}>" for bits in (16, 32, 64)),
    *(f"finish_floats<Float{bits}, {moduli}>" for bits, moduli in ((16, 9), (32, 10), (64, 16))),
    "finish_integers<int, 10>", "finish_integers<i64, 19>",
)  # fmt: skip
