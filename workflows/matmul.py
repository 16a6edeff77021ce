"""Matrix products: exact products of scaled integers, rounded once, so the same bits everywhere and however cut."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernels.matmul.cpu_narrow import product_on_cpu
from kernels.matmul.formats import FORMATS, MOST_PRODUCTS, bits_of, moduli_for, result_dtype
from kernels.matmul.memory import is_small, room_for
from workflows.array_job import ArrayJob, Counted, Read
from workflows.matmul_check import check
from workflows.matmul_shapes import Matrices, matrices
from workflows.regions import Bounds, Spec, in_rows, sizes

# Columns of A and rows of B that are read at a time. For a tile of C no more than `SLAB_OF_TILE` times its side: then
# what is read of its rows and columns takes no more room than a few tiles, and tiles can be larger, and fewer.
SLAB, SLAB_OF_TILE = 8192, 2
LINE = 8  # elements of C that a row of A or a column of B counts as: short ones take more room than they need
# What a task may take of a GPU, as a multiple of its inputs and output: pipeline.engine.array counts on it. Of small
# tasks, as a limit of memory asks for, less: allocations of different sizes leave gaps.
COPIES, COPIES_OF_SMALL, SMALL = 4, 2, 2**25
TERM_BY_TERM = "elements computed term by term"
TILE = 128  # tiles of C are of so many rows and columns, or a multiple of it, where they are as large as that


@dataclass(frozen=True)
class MatmulOptions:
    """Which integers to return; raises ValueError for a dtype that cannot be."""

    output_dtype: str = field(
        default="auto",
        metadata={
            "metavar": "DTYPE",
            "help": "Of a product of integers: int64 or int32, an error where a number does not fit. auto: int64, and "
            "for floats that of the matrices, as NumPy has it.",
        },
    )

    def __post_init__(self) -> None:
        if self.output_dtype not in ("auto", "int64", "int32"):
            raise ValueError(f"--output-dtype: expected auto, int64 or int32, got {self.output_dtype!r}")


def outline(specs: Sequence[Spec], options: MatmulOptions) -> Spec:
    """Shape as of `numpy.matmul`."""
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
    """Whole matrices, several at a time; of larger ones tiles as square as can be. With all that is computed on the way
    they take no more of a GPU than `COPIES` times what so many elements of all arrays do."""
    if not output.size:
        return
    found = matrices(specs)
    itemsizes = output.dtype.itemsize + sum(spec.dtype.itemsize for spec in specs)
    copies = COPIES_OF_SMALL if elements * itemsizes < SMALL else COPIES

    def taken(rows: int, columns: int) -> int:
        return -(-_room(specs, output.dtype, found, rows, columns) // (copies * itemsizes))

    each = max(found.rows * found.columns, taken(found.rows, found.columns))
    if each <= elements:
        for batch in in_rows(Spec(found.batch, output.dtype), elements // each):
            yield found.region(batch, (0, found.rows), (0, found.columns))
        return
    side, most = math.isqrt(elements), max(1, elements // LINE)
    height = _tile(elements // found.columns if found.columns < side else side, min(found.rows, most))
    width = _tile(elements // height, min(found.columns, most))
    while height * width > 1 and taken(height, width) > elements:
        if height > width:
            height = _tile(height * 7 // 8, height)
        else:
            width = _tile(width * 7 // 8, width)
    for index in np.ndindex(found.batch):
        for row in range(0, found.rows, height):
            for column in range(0, found.columns, width):
                yield found.region(
                    tuple((i, i + 1) for i in index),
                    (row, min(row + height, found.rows)),
                    (column, min(column + width, found.columns)),
                )


def _room(specs: Sequence[Spec], result: np.dtype[Any], found: Matrices, rows: int, columns: int) -> int:
    """Bytes of a GPU that a matrix of so many rows and columns takes."""
    given = (specs[0].dtype, specs[1].dtype)
    dtypes = (result, result) if result.kind == "f" else given
    return room_for(dtypes, result, (1, rows, _slab(found, rows, columns), columns), found.inner, given)


def _slab(found: Matrices, rows: int, columns: int) -> int:
    """Products of a sum that are read at a time for so many rows and columns of C."""
    whole = (rows, columns) == (found.rows, found.columns)
    return min(found.inner, SLAB if whole else min(SLAB, SLAB_OF_TILE * max(TILE, rows, columns)))


def _tile(length: int, limit: int) -> int:
    return max(1, min(limit, length - length % TILE if length > TILE else length))


def needs(region: Bounds, specs: Sequence[Spec], options: MatmulOptions) -> tuple[Bounds, ...]:
    """The first columns of its rows of A, the first rows of its columns of B."""
    found = matrices(specs)
    return found.needs(region, (0, _slab_of(found, region)))


def _slab_of(found: Matrices, region: Bounds) -> int:
    _, rows, columns = found.parts(region)
    return _slab(found, rows[1] - rows[0], columns[1] - columns[0])


def compute(read: Read, region: Bounds, specs: Sequence[Spec], options: MatmulOptions) -> Counted:
    """Multiply, slab by slab. Scales come from whole rows and columns, so what does not fit in a slab is read twice,
    and once more where elements are computed term by term."""
    found = matrices(specs)
    step = max(1, _slab_of(found, region))
    parts = [(first, min(first + step, found.inner)) for first in range(0, found.inner, step)] or [(0, 0)]

    kept: list[tuple[Any, Any]] = []  # where it is all there is

    def slab(part: tuple[int, int]) -> tuple[Any, Any]:
        if kept:
            return kept[0]
        bounds = found.needs(region, part)
        blocks = found.as_matrices([read(number, bounds[number]) for number in (0, 1)])
        if len(parts) == 1:
            kept.append(blocks)
        return blocks

    with np.errstate(all="ignore"):  # infinities and NaN are as welcome as other numbers
        first = slab(parts[0])
        product = _product(first, specs, options)
        product.measure(*first)
        del first  # the device has room for one slab at a time
        for part in parts[1:] if product.scaled else ():
            product.measure(*slab(part))
        for part in parts:
            product.add(*slab(part))
        result = product.finish()
        while product.unsettled():
            for part in parts:
                product.redo(*slab(part))
        counts = {TERM_BY_TERM: product.doubtful} if product.scaled else {}
        return Counted(result.reshape(sizes(region)), counts)


def _product(first: tuple[Any, Any], specs: Sequence[Spec], options: MatmulOptions) -> Any:
    """What multiplies the slabs of which that is the first."""
    result, inner = outline(specs, options).dtype, matrices(specs).inner
    dtypes = tuple(result if result.kind == "f" else spec.dtype for spec in specs)
    if isinstance(first[0], np.ndarray):
        return product_on_cpu((dtypes[0], dtypes[1]), result)
    from kernels.matmul.residue import product_for

    return product_for((dtypes[0], dtypes[1]), result, inner, *first)


def notes(specs: Sequence[Spec], options: MatmulOptions) -> dict[str, str]:
    """What arithmetic that is."""
    dtype = result_dtype([spec.dtype for spec in specs])
    dtypes = [dtype if dtype.kind == "f" else spec.dtype for spec in specs]
    bits = [bits_of(dtype) for dtype in dtypes]
    found = matrices(specs)
    small = is_small(dtype, found.rows, found.inner, found.columns)
    on_gpu = "in digits" if small else f"modulo {moduli_for(sum(bits), found.inner)} numbers"
    narrow = dtype.kind == "f" and dtype.itemsize < 8
    on_cpu = "in float64 where that is certain, else " * narrow + "in pieces of 19 bits"
    how = f"on a GPU {on_gpu} of 8 bits, on a CPU {on_cpu}"
    if dtype.kind != "f":
        return {"arithmetic": f"exact, of integers; {how}"}
    kept = FORMATS[dtype.name].kept
    return {"arithmetic": f"exact products of rows and columns scaled to integers of {kept} bits, rounded once to "
                          f"{dtype}, or dot products where those could be too far off; {how}; no TF32"}  # fmt: skip


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
    files="FILES are the two factors: arrays of matrices, .npy; what lies before the last two axes is broadcast.",
    whole=True,
    streams=True,
    notes=notes,
)
