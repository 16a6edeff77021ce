"""Matrix products: exact products of scaled integers, rounded once, with the same bits however they are computed."""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernels.matmul.cpu_narrow import cpu_bytes, product_on_cpu
from kernels.matmul.formats import FORMATS, MOST_PRODUCTS, bits_of, moduli_for, result_dtype
from kernels.matmul.library import LibraryProduct
from kernels.matmul.memory import device_bytes, is_small
from workflows.array_job import ArrayJob, Counted, Read
from workflows.matmul_check import ProductCheck, check
from workflows.matmul_shapes import Matrices, matrices
from workflows.regions import Bounds, Spec, in_rows, sizes

TILE = 128  # sides of tiles of C are multiples of this, unless smaller
# Columns of A and rows of B that are read at a time. For a tile of C at most `SLAB_OF_TILE` times its side: the slabs
# then take no more memory than a few tiles, and tiles can be larger and fewer.
SLAB, SLAB_OF_TILE = 8192, 2
# Memory that a task may take, as a multiple of its inputs and output (for `pipeline.engine.task_memory`). Less of a
# device for small tasks under a memory limit, because allocations of different sizes leave gaps.
COPIES, COPIES_OF_SMALL, SMALL = 4, 2, 2**25
# Tasks of at least so many bytes count what they take of a device, and nothing else. All are so large without limits of
# memory and small chunks; what a CPU takes would make their tiles smaller, and each reads its rows and columns again.
AMPLE = 2**27
# Sides of tiles of small tasks, and least lengths of their slabs, are multiples of these.
SMALL_TILE, SMALL_SLAB = 32, 128
BY_LIBRARY = "rounded by the library; bits differ between machines"
TERM_BY_TERM = "elements computed term by term"


@dataclass(frozen=True)
class MatmulOptions:
    """Arithmetic, and the dtype of integer products; raises ValueError for an unsupported one."""

    output_dtype: str = field(
        default="auto",
        metadata={
            "metavar": "DTYPE",
            "help": "Dtype of a product of integers: int64 or int32; a number that does not fit is an error. auto: "
            "int64 for integers, NumPy's dtype for floats.",
        },
    )
    arithmetic: str = field(
        default="exact",
        metadata={
            "metavar": "exact|float",
            "help": "For floats. exact: the same bits everywhere. float: by cuBLAS or the CPU's BLAS, rounded by the "
            "library; bits differ between machines. Integers are multiplied exactly in any case.",
        },
    )

    def __post_init__(self) -> None:
        if self.output_dtype not in ("auto", "int64", "int32"):
            raise ValueError(f"--output-dtype: expected auto, int64 or int32, got {self.output_dtype!r}")
        if self.arithmetic not in ("exact", "float"):
            raise ValueError(f"--arithmetic: expected exact or float, got {self.arithmetic!r}")


def outline(specs: Sequence[Spec], options: MatmulOptions) -> Spec:
    """Shape as in `numpy.matmul`."""
    try:
        dtype = result_dtype([spec.dtype for spec in specs])
    except TypeError as error:
        raise ValueError(str(error)) from None
    if options.output_dtype != "auto" and dtype.kind == "f":
        raise ValueError(
            f"expected matrices of integers for a product of {options.output_dtype}, got {specs[0]} and {specs[1]}"
        )
    shape = matrices(specs).shape
    products = specs[0].shape[-1]
    if products > MOST_PRODUCTS:
        raise ValueError(f"expected at most {MOST_PRODUCTS} products in a sum, got {products} from {specs[0]} and "
                         f"{specs[1]}")  # fmt: skip
    return Spec(shape, dtype if options.output_dtype == "auto" else np.dtype(options.output_dtype))


def regions(specs: Sequence[Spec], output: Spec, options: MatmulOptions, elements: int) -> Iterator[Bounds]:
    """Whole matrices, several at a time; larger ones in tiles that are as large and as square as possible. They take
    the memory of this many elements of all arrays, and including workspace at most `COPIES` times as much."""
    if not output.size:
        return
    factors = matrices(specs)
    nbytes = elements * (output.dtype.itemsize + sum(spec.dtype.itemsize for spec in specs))
    size = _sizes(specs, output.dtype, factors)
    each = size(1, factors.rows, min(factors.inner, SLAB), factors.columns, nbytes)
    if each <= nbytes:
        for batch in in_rows(Spec(factors.batch, output.dtype), nbytes // each):
            yield factors.region(batch, (0, factors.rows), (0, factors.columns))
        return

    def fits(rows: int, columns: int) -> bool:
        return size(1, rows, _least_slab(factors, rows, columns, nbytes), columns, nbytes) <= nbytes

    side = _most(max(factors.rows, factors.columns), lambda n: fits(min(n, factors.rows), min(n, factors.columns)))
    height = _even(side, factors.rows)
    width = _even(_most(factors.columns, lambda n: fits(height, n)), factors.columns)
    for index in np.ndindex(factors.batch):
        for row in range(0, factors.rows, height):
            for column in range(0, factors.columns, width):
                yield factors.region(
                    tuple((i, i + 1) for i in index),
                    (row, min(row + height, factors.rows)),
                    (column, min(column + width, factors.columns)),
                )


def _sizes(specs: Sequence[Spec], result: np.dtype[Any], factors: Matrices) -> Callable[[int, int, int, int, int], int]:
    """(matrices, rows, products given at a time, columns, bytes of a task) -> bytes that the task of a region of this
    size has to have, so that its workspace is within so many times as much."""
    given = (specs[0].dtype, specs[1].dtype)
    dtypes = (result, result) if result.kind == "f" else given

    def size(number: int, rows: int, part: int, columns: int, nbytes: int) -> int:
        own = rows * columns * result.itemsize + part * (rows * given[0].itemsize + columns * given[1].itemsize)
        sizes = (number, rows, part, columns)
        on_device = device_bytes(dtypes, result, sizes, factors.inner, given)
        if nbytes >= AMPLE:
            return -(-on_device // COPIES)
        on_cpu = number * own + cpu_bytes(dtypes, result, sizes)
        return max(number * own, -(-on_device // (COPIES_OF_SMALL if nbytes < SMALL else COPIES)), -(-on_cpu // COPIES))

    return size


def _most(most: int, fits: Callable[[int], bool]) -> int:
    """The largest length that fits, at least 1 and at most `most`."""
    return bisect(range(2, most + 1), False, key=lambda n: not fits(n)) + 1


def _least_slab(factors: Matrices, rows: int, columns: int, nbytes: float) -> int:
    """Least length of a slab along `inner`, for these numbers of rows and columns of C in a task of so many bytes.

    Of a small task half as long as the side of the tile: larger tiles read less, until they have more slabs than that.
    """
    if nbytes < SMALL:
        half = rows * columns // (rows + columns)
        return min(factors.inner, SLAB, max(SMALL_SLAB, half - half % SMALL_SLAB))
    whole = (rows, columns) == (factors.rows, factors.columns)
    return min(factors.inner, SLAB if whole else min(SLAB, SLAB_OF_TILE * max(TILE, rows, columns)))


def _even(length: int, limit: int) -> int:
    """At most so long, so that as few tiles are about equal: threads end together, and nothing is read for a narrow
    one."""
    if length >= limit:
        return limit
    step = TILE if length >= 4 * TILE else min(SMALL_TILE, length)
    length -= length % step
    tiles = -(-limit // length)
    return min(length, -(-limit // (tiles * step)) * step)


def needs(region: Bounds, specs: Sequence[Spec], options: MatmulOptions) -> tuple[Bounds, ...]:
    """Its least slab: the first columns of its rows of A, the first rows of its columns of B."""
    factors = matrices(specs)
    _, rows, columns = factors.parts(region)
    return factors.needs(region, (0, _least_slab(factors, rows[1] - rows[0], columns[1] - columns[0], 0)))


def shares(region: Bounds, specs: Sequence[Spec], options: MatmulOptions) -> tuple[bool, bool]:
    """Rows of A are those of all tiles beside this one, columns of B those of all above and below."""
    factors = matrices(specs)
    _, rows, columns = factors.parts(region)
    return columns[1] - columns[0] < factors.columns, rows[1] - rows[0] < factors.rows


def slabs(
    region: Bounds, specs: Sequence[Spec], options: MatmulOptions, nbytes: float, most: int = SLAB
) -> list[tuple[int, int]]:  # fmt: skip
    """Ends of the slabs of a region's sums, each of at most so many products, for a task of so many bytes; at least
    one slab, which may be empty. Those of small tasks are as long as these bytes allow."""
    factors = matrices(specs)
    batch, *ends = factors.parts(region)
    rows, columns = sizes(tuple(ends))
    longest = factors.inner if nbytes < SMALL else _least_slab(factors, rows, columns, nbytes)
    step = max(1, min(most, longest))
    if nbytes < math.inf:
        size, number = _sizes(specs, outline(specs, options).dtype, factors), math.prod(sizes(batch))
        fitting = _most(step, lambda n: size(number, rows, n, columns, int(nbytes)) <= nbytes)
        if fitting < step:
            step = max(min(step, SMALL_SLAB), fitting - fitting % SMALL_SLAB)
    return [(first, min(first + step, factors.inner)) for first in range(0, factors.inner, step)] or [(0, 0)]


def compute(read: Read, region: Bounds, specs: Sequence[Spec], options: MatmulOptions) -> Counted:
    """Multiply, slab by slab. Scales come from whole rows and columns, so several slabs are read twice, and again
    if elements are computed term by term."""
    factors, out = matrices(specs), getattr(read, "out", None)
    parts = slabs(region, specs, options, getattr(read, "nbytes", math.inf))
    kept: list[tuple[Any, Any]] = []  # the only slab

    def slab(part: tuple[int, int]) -> tuple[Any, Any]:
        if kept:
            return kept[0]
        bounds = factors.needs(region, part)
        blocks = factors.as_matrices([read(number, bounds[number]) for number in (0, 1)])
        if len(parts) == 1:
            kept.append(blocks)
        return blocks

    with np.errstate(all="ignore"):  # infinities and NaN are ordinary inputs
        first = slab(parts[0])
        product = _product(first, len(parts) == 1, specs, options, out)
        product.measure(*first)
        del first  # device memory holds one slab at a time
        for part in parts[1:] if product.scaled else ():
            product.measure(*slab(part))
        for part in parts:
            product.add(*slab(part))
        result = product.finish()
        while product.needs_recompute():
            for part in parts:
                product.recompute(*slab(part))
        counts = {TERM_BY_TERM: product.uncertain} if product.scaled else {}
        return Counted(result if result is out else result.reshape(sizes(region)), counts)


def _product(first: tuple[Any, Any], whole: bool, specs: Sequence[Spec], options: MatmulOptions, out: Any) -> Any:
    """The product for the device that holds the first slab, which may be the whole of both factors."""
    if out is not None and out.shape != (*first[0].shape[:-1], first[1].shape[-1]):  # of vectors, or of stacks
        out = None
    result, inner = outline(specs, options).dtype, matrices(specs).inner
    if options.arithmetic == "float" and result.kind == "f":
        return LibraryProduct(result, whole, out)
    dtypes = tuple(result if result.kind == "f" else spec.dtype for spec in specs)
    if isinstance(first[0], np.ndarray):
        return product_on_cpu((dtypes[0], dtypes[1]), result, first if whole else None, out)
    from kernels.matmul.gpu import product_for

    return product_for((dtypes[0], dtypes[1]), result, inner, *first)


def rounding(specs: Sequence[Spec], options: MatmulOptions) -> str:
    """The bound that elements keep, if a library rounds them."""
    if options.arithmetic == "exact" or result_dtype([spec.dtype for spec in specs]).kind != "f":
        return ""
    return f"within γ({matrices(specs).inner:,}) Σ|a||b|, {BY_LIBRARY}"


def notes(specs: Sequence[Spec], options: MatmulOptions) -> dict[str, str]:
    """The arithmetic."""
    dtype = result_dtype([spec.dtype for spec in specs])
    if rounding(specs, options):
        sums = np.dtype(np.float32) if dtype == np.float16 else dtype
        return {"arithmetic": f"{BY_LIBRARY}: cuBLAS on a GPU, BLAS on a CPU, sums in {sums}; no TF32"}
    dtypes = [dtype if dtype.kind == "f" else spec.dtype for spec in specs]
    bits = [bits_of(dtype) for dtype in dtypes]
    factors = matrices(specs)
    small = is_small(dtype, factors.rows, factors.inner, factors.columns)
    on_gpu = "in digits" if small else f"modulo {moduli_for(sum(bits), factors.inner)} numbers"
    narrow = dtype.kind == "f" and dtype.itemsize < 8
    on_cpu = "in float64 where that is certain, else " * narrow + "in 128 bits or pieces of 19 bits"
    how = f"on a GPU {on_gpu} of 8 bits, on a CPU {on_cpu}"
    if dtype.kind != "f":
        given = " (--arithmetic float is for floats)" if options.arithmetic == "float" else ""
        return {"arithmetic": f"exact, of integers{given}; {how}"}
    kept = FORMATS[dtype.name].kept
    return {"arithmetic": f"exact products of rows and columns scaled to integers of {kept} bits, rounded once to "
                          f"{dtype}, or dot products where the error could be too large; {how}; no TF32"}  # fmt: skip


MATMUL: ArrayJob[MatmulOptions] = ArrayJob(
    name="matmul",
    summary="Multiply matrices, or stacks of them.",
    example="a.npy b.npy -o product.npy",
    options=MatmulOptions,
    operands=lambda options: 2,
    outline=outline,
    regions=regions,
    needs=needs,
    compute=compute,
    check=check,
    prepare=ProductCheck,
    files="FILES are the two factors, .npy: matrices, or stacks of them; axes before the last two are broadcast.",
    whole=True,
    streams=True,
    shares=shares,
    operations=lambda specs, options: 2.0 * math.prod(matrices(specs).shape) * specs[0].shape[-1],
    reads=lambda region, specs, options: matrices(specs).needs(region, (0, matrices(specs).inner)),
    notes=notes,
    rounding=rounding,
)
