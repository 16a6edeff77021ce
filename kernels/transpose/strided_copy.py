"""Copy runs of elements that keep their order: the door to the CUDA kernel."""

from __future__ import annotations

from math import gcd, prod
from pathlib import Path
from typing import Any

import numpy as np

from kernels.common import nvrtc
from kernels.common.dtypes import UINT_OF_SIZE
from kernels.transpose.axes import Runs
from kernels.transpose.cpu import STAND_INS

SOURCE = Path(__file__).with_suffix(".cu")

# C type of a unit, by its bytes.
THREADS, IN_FLIGHT = 256, 32  # strided_copy.cu
MOST_RUNS = 2**31
# Bytes that a lane has to move for where it finds them to be worth working out; with less CuPy's copy is as fast.
WORTH = 8
MAX_GRID = 2**31 - 1


def copy_runs(array: Any, out: Any, found: Runs) -> bool:
    """Copy runs of an array to their places in another one, on the current stream.

    Parameters
    ----------
    array, out : CuPy arrays of one dtype and size, C-contiguous
    found
        Which runs there are, in elements of `array`.

    Returns
    -------
    Whether it was done: runs may be too short for it, or more than the kernel counts.
    """
    itemsize = array.dtype.itemsize
    nbytes = found.length * itemsize
    unit = gcd(nbytes, array.data.ptr, out.data.ptr, 16)
    units, runs = nbytes // unit, prod(found.counts)
    shift, pieces = _shared_out(units, unit)
    grid = -(-runs * pieces // (THREADS >> shift))
    if nbytes < WORTH * (pieces << shift) or runs > MOST_RUNS or grid > MAX_GRID:
        return False
    of_units = (each.reshape(-1).view(STAND_INS[unit]) for each in (array, out))
    steps = (np.int64(step * itemsize // unit) for step in found.steps)
    nvrtc.load(SOURCE, instance(unit))(
        (grid,), (THREADS,),
        (*of_units, np.uint32(runs), np.int64(units), *map(np.uint32, found.counts[:2]), *steps, np.uint32(pieces),
         np.uint32(shift)),
    )  # fmt: skip
    return True


def instance(unit: int) -> str:
    """Instance of the kernel for units of so many bytes."""
    return f"copy_runs<{UINT_OF_SIZE[unit]}>"


def _shared_out(units: int, unit: int) -> tuple[int, int]:
    """Lanes of a group, as a power of two, and the groups that share a run: whole warps next to each other first, then
    as many units to a lane as it has in flight."""
    each = min(IN_FLIGHT // unit, 16)
    shift = max((min(units, 32) - 1).bit_length(), (-(-units // each) - 1).bit_length())
    shift = min(shift, THREADS.bit_length() - 1)
    return shift, -(-units // (each << shift))


INSTANCES = tuple(map(instance, UINT_OF_SIZE))
