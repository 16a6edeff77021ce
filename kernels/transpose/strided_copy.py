"""Copies rows that stay whole while the axes before them are permuted: the launch of the CUDA kernel."""

from __future__ import annotations

from math import gcd, prod
from pathlib import Path
from typing import Any

import numpy as np

from kernels.common import nvrtc
from kernels.common.constants import constant
from kernels.common.dtypes import UINT_OF_SIZE
from kernels.transpose.axes import Rows
from kernels.transpose.cpu import DTYPE_OF_SIZE

SOURCE = Path(__file__).with_suffix(".cu")

THREADS, IN_FLIGHT = constant(SOURCE, "THREADS"), constant(SOURCE, "IN_FLIGHT")
MAX_ROWS = 2**31
WORTH = 8  # bytes per lane below which CuPy's copy is as fast: computing the addresses takes longer than the copy
MAX_GRID = 2**31 - 1


def copy_rows(array: Any, out: Any, rows: Rows) -> bool:
    """Copy rows of an array to their places in another one, on the current stream.

    Parameters
    ----------
    array, out : CuPy arrays of one dtype and size, C-contiguous
    rows
        In elements of `array`.

    Returns
    -------
    bool
        False if nothing was launched, because rows are too short to be worth it or too many for the kernel.
    """
    itemsize = array.dtype.itemsize
    nbytes = rows.length * itemsize
    unit = gcd(nbytes, array.data.ptr, out.data.ptr, 16)
    units, count = nbytes // unit, prod(rows.counts)
    shift, pieces = _shared_out(units, unit)
    grid = -(-count * pieces // (THREADS >> shift))
    if nbytes < WORTH * (pieces << shift) or count > MAX_ROWS or grid > MAX_GRID:
        return False
    of_units = (each.reshape(-1).view(DTYPE_OF_SIZE[unit]) for each in (array, out))
    steps = (np.int64(step * itemsize // unit) for step in rows.steps)
    nvrtc.load(SOURCE, instance(unit))(
        (grid,), (THREADS,),
        (*of_units, np.uint32(count), np.int64(units), *map(np.uint32, rows.counts[:2]), *steps, np.uint32(pieces),
         np.uint32(shift)),
    )  # fmt: skip
    return True


def instance(unit: int) -> str:
    """Instance of the kernel for units of this many bytes."""
    return f"copy_rows<{UINT_OF_SIZE[unit]}>"


def _shared_out(units: int, unit: int) -> tuple[int, int]:
    """Log2 of the lanes of a group, and the groups that share a row: a row is spread over the lanes of a warp first,
    then over as many units per lane as can be in flight."""
    each = min(IN_FLIGHT // unit, 16)
    shift = max((min(units, 32) - 1).bit_length(), (-(-units // each) - 1).bit_length())
    shift = min(shift, THREADS.bit_length() - 1)
    return shift, -(-units // (each << shift))


INSTANCES = tuple(map(instance, UINT_OF_SIZE))
