"""Counts samples by groups of slots on a GPU: the launch wrapper for the kernels in `grouped.cu`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.common import device, nvrtc
from kernels.common.checks import check_address, check_array
from kernels.common.memory import pooled_zeros
from kernels.histogram.binning import Binning
from kernels.histogram.gpu import histogram
from kernels.histogram.guess import key_of
from kernels.histogram.launch import C_TYPES, THREADS, Plan, guessed, steps_in_shared
from kernels.histogram.step_map import step_map

SOURCE = Path(__file__).with_name("grouped.cu")

MOST = 2  # numbers, and ranges of them, with which a kernel compares
INSTANCES = ("regroup", *(f"grouped_steps<{c_type}, {copies}, {moved}>"
                          for c_type in ("float16", "float", "double") for copies in ("16, 16", "1, 1")
                          for moved in ("0, 0", "2, 0", "2, 2")))  # fmt: skip


class Range(NamedTuple):
    """Samples from `low` to `high`, both included, that belong to another group than the slot that they are in."""

    low: Any
    high: Any
    group_of_slot: int
    group: int


@dataclass(frozen=True, eq=False)
class RefinedBinning:
    """Finer bins, or the same and what is to be moved between their groups.

    Attributes
    ----------
    binning
    group : int64 array, shape (slots,)
        For each slot of the binning 0 if its samples are left out, else their slot in the bins that were asked for,
        plus 1.
    groups
    moved
        Of floats: at most as many as a kernel compares with.
    in_one_launch
        Whether one kernel counts and puts together.
    """

    binning: Binning
    group: NDArray[np.int64]
    groups: int
    moved: tuple[Range, ...] = ()
    in_one_launch: bool = False

    @property
    def points(self) -> list[Range]:
        """Those ranges that are a single number."""
        return [one for one in self.moved if one.low == one.high]

    @property
    def ranges(self) -> list[Range]:
        """The others."""
        return [one for one in self.moved if one.low != one.high]

    def count(self, samples: Any) -> Any:
        """Number of samples that are left out, then underflow, the bins, overflow and NaN of the others.

        Parameters
        ----------
        samples : CuPy array, as of `histogram`

        Returns
        -------
        CuPy int64 array, shape (groups,)
            On the current stream.

        Raises
        ------
        TypeError, ValueError
            If the array is of another dtype, has another number of dimensions or gaps, or is not aligned.
        """
        import cupy

        check_array("histogram", samples, (self.binning.dtype.name,), 1)
        check_address(samples)
        index, sums = int(cupy.cuda.runtime.getDevice()), pooled_zeros(self.groups)
        if not self.in_one_launch:
            slots = histogram(samples, self.binning)
            arguments = slots, np.uint32(self.binning.slots), _groups(self, index), sums
            blocks = -(-self.binning.slots // THREADS)
            nvrtc.load(SOURCE, "regroup")((blocks,), (THREADS,), arguments, shared_mem=0)
            return sums.view(np.int64)
        plan = _plan(self, index)
        for start in range(0, len(samples), plan.most):
            part = samples[start : start + plan.most]
            arguments = (part, np.int64(len(part)), sums, *plan.arguments)
            plan.kernel((plan.grid,), (THREADS,), arguments, shared_mem=plan.shared_mem)
        return sums.view(np.int64)


@lru_cache(maxsize=8)
def _groups(refined: RefinedBinning, _device: int) -> Any:
    import cupy

    return cupy.asarray(refined.group.astype(np.uint32))


@lru_cache(maxsize=8)
def _plan(refined: RefinedBinning, index: int) -> Plan:
    """The launch that counts everything."""
    import cupy

    binning = refined.binning
    line, key = step_map(binning), key_of(binning.dtype).type
    assert line is not None
    points, ranges = refined.points, refined.ranges
    values = [key(point.low) for point in points] + [key(0)] * (MOST - len(points))
    values += [key(end) for one in ranges for end in one[:2]] + [key(0)] * 2 * (MOST - len(ranges))
    moved = cupy.asarray(np.array([[one.group_of_slot, one.group] for one in (*points, *ranges)], np.uint32))
    copies, held, _, shared_mem = steps_in_shared(line.steps, device.limits().shared_per_block)
    kernel = nvrtc.load(
        SOURCE, f"grouped_steps<{C_TYPES[binning.dtype.name]}, {copies}, {held}, {len(points)}, {len(ranges)}>"
    )
    blocks = device.limits().resident_blocks(THREADS, kernel.registers, shared_mem + kernel.static_shared)
    arguments = (np.uint32(len(line.steps) + 1), *guessed(line.steps, line.least), line.guess.start, line.guess.scale,
                 _groups(refined, index), moved, *values)  # fmt: skip
    return Plan(kernel, blocks, shared_mem, blocks * 2**31, binning.slots, arguments)
