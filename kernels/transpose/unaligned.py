"""Transpose matrices whose rows begin anywhere, of elements of 4 or 8 bytes: the door to the CUDA kernel."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from kernels.common import nvrtc
from kernels.common.dtypes import UINT_OF_SIZE
from kernels.transpose.axes import Matrices

SOURCE = Path(__file__).with_suffix(".cu")

# Rows, columns and threads of a tile, by bytes of an element.
SHAPES = {4: (64, 128, 256), 8: (64, 64, 256)}
SECTOR = 32  # unaligned.cu


def turn_ragged(array: Any, out: Any, found: Matrices) -> None:
    """Launch the kernel: transpose matrices of an array into another one, on the current stream.

    Parameters
    ----------
    array, out : CuPy arrays of one dtype of 4 or 8 bytes, C-contiguous
    found
        The matrices; `blocks` of them are not more than a grid has.
    """
    itemsize = array.dtype.itemsize
    height, width, threads = SHAPES[itemsize]
    joined, span, out_span = in_spans(found)
    sizes = (joined.rows, joined.columns, joined.pitch_in, joined.pitch_out, span, out_span,
             joined.inner, joined.in_inner, joined.in_outer, joined.out_inner, joined.out_outer)  # fmt: skip
    nvrtc.load(SOURCE, instance(itemsize))(
        (blocks(found, itemsize),), (threads,), (array, out, *map(np.int64, sizes)),
        shared_mem=(height + SECTOR // itemsize) * (width + 1) * itemsize,
    )  # fmt: skip


def in_spans(found: Matrices) -> tuple[Matrices, int, int]:
    """Matrices of as many columns as lie behind each other in the first array; how many of them go on in each column of
    the second, and how far the next ones are from those."""
    if found.inner == 1 or found.in_inner != found.columns:
        return found, found.columns, 0
    joined = replace(found, columns=found.columns * found.inner, inner=1, in_inner=0, out_inner=0)
    return joined, found.columns, found.out_inner


def blocks(found: Matrices, itemsize: int) -> int:
    """Blocks of the grid."""
    height, width, _ = SHAPES[itemsize]
    joined, _, _ = in_spans(found)
    return -(-joined.rows // height) * -(-joined.columns // width) * joined.outer * joined.inner


def instance(itemsize: int) -> str:
    """Instance of the kernel for elements of so many bytes."""
    return f"ragged<{UINT_OF_SIZE[itemsize]}, {', '.join(map(str, SHAPES[itemsize]))}>"


INSTANCES = tuple(map(instance, SHAPES))
