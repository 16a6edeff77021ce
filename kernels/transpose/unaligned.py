"""Transpose matrices with unaligned rows, of elements of 4 or 8 bytes: the launch of the CUDA kernel."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from kernels.common import nvrtc
from kernels.common.constants import constant
from kernels.common.dtypes import UINT_OF_SIZE
from kernels.transpose.axes import Matrices

SOURCE = Path(__file__).with_suffix(".cu")

# Rows, columns and threads of a tile, by bytes of an element.
SHAPES = {4: (64, 128, 256), 8: (64, 64, 256)}
SECTOR = constant(SOURCE, "SECTOR")


def transpose_unaligned(array: Any, out: Any, batch: Matrices) -> None:
    """Transpose matrices of an array into another one, on the current stream.

    Parameters
    ----------
    array, out : CuPy arrays of one dtype of 4 or 8 bytes, C-contiguous
    batch
        The matrices; they take no more `blocks` than a grid can have.
    """
    itemsize = array.dtype.itemsize
    height, width, threads = SHAPES[itemsize]
    joined, span, out_span = in_spans(batch)
    sizes = (joined.rows, joined.columns, joined.pitch_in, joined.pitch_out, span, out_span,
             joined.inner, joined.in_inner, joined.in_outer, joined.out_inner, joined.out_outer)  # fmt: skip
    nvrtc.load(SOURCE, instance(itemsize))(
        (blocks(batch, itemsize),), (threads,), (array, out, *map(np.int64, sizes)),
        shared_mem=(height + SECTOR // itemsize) * (width + 1) * itemsize,
    )  # fmt: skip


def in_spans(batch: Matrices) -> tuple[Matrices, int, int]:
    """The same with matrices joined whose columns are contiguous in the input; the columns of a span, which keep their
    distances in the output, and the distance there from one span to the next."""
    if batch.inner == 1 or batch.in_inner != batch.columns:
        return batch, batch.columns, 0
    joined = replace(batch, columns=batch.columns * batch.inner, inner=1, in_inner=0, out_inner=0)
    return joined, batch.columns, batch.out_inner


def blocks(batch: Matrices, itemsize: int) -> int:
    """Blocks of the grid."""
    height, width, _ = SHAPES[itemsize]
    joined, _, _ = in_spans(batch)
    return -(-joined.rows // height) * -(-joined.columns // width) * joined.outer * joined.inner


def instance(itemsize: int) -> str:
    """Instance of the kernel for elements of this many bytes."""
    return f"unaligned<{UINT_OF_SIZE[itemsize]}, {', '.join(map(str, SHAPES[itemsize]))}>"


INSTANCES = tuple(map(instance, SHAPES))
