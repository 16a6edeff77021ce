"""Launch plan of a binning on a device: the kernel, the number of copies of its counters, the kernel's arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common import device, dtypes, nvrtc
from kernels.common.counters import counter_bytes, counter_layout
from kernels.common.launch import Launch
from kernels.histogram.binning import Binning
from kernels.histogram.guess import key_of, steps_of
from kernels.histogram.halves import half_bytes, halves
from kernels.histogram.integer_maps import Clamps, FixedMap, NarrowMap, ShiftMap, fixed_map, narrow_map, shift_map
from kernels.histogram.lookup import NARROW, lookup_table
from kernels.histogram.step_map import StepMap, step_map

SOURCE = Path(__file__).with_name("gpu.cu")

THREADS = 1024  # THREADS in common/stream.cuh
CLAMPED = 3  # counters beside those of the bins: below, on the upper edge, above
AROUND = 3  # rows of a window of histogram_steps beside its own

# C type of the samples in gpu.cu, by NumPy dtype.
C_TYPES = dtypes.C_TYPES | {"int8": "u8"}  # all 256 values are counted by their bits, and binned at the end
# C type of keys, by NumPy type.
KEY_TYPES = {"i4": "int", "u4": "u32", "i8": "i64", "u8": "u64", "f4": "float", "f8": "double"}
CELLS_PER_THRESHOLD = 32
# Shared memory that histogram_steps takes for more copies, bytes.
STEP_BYTES = 200 * 2**10
STEP_COPIES = (32, 16, 8, 4, 2, 1)


@dataclass(frozen=True)
class Plan:
    """Launch of one binning on one device: everything that does not depend on the samples.

    Attributes
    ----------
    kernel, grid, shared_mem
        Launch configuration.
    most
        Limit of samples per launch, because a block counts in 32 bits.
    slots
        Number of slots.
    arguments
        Kernel arguments after the slots.
    """

    kernel: nvrtc.Kernel
    grid: int
    shared_mem: int
    most: int
    slots: int
    arguments: tuple[Any, ...]

    @cached_property
    def launch(self) -> Launch:
        """Launches with three arguments of their own: samples, how many these are, slots."""
        return Launch(self.kernel, (THREADS,), 3, self.shared_mem, self.arguments)


@lru_cache(maxsize=8)
def launch_plan(binning: Binning, index: int) -> Plan:
    """The plan; cached, because a stream counts many blocks, and copying the thresholds of many bins takes time."""
    itemsize, available = binning.dtype.itemsize, device.limits().shared_per_block
    if itemsize == 1:
        return _of_counters(binning, "histogram_bytes", 256, _device(binning.slot_of_pattern), divide=False)
    if binning.dtype.kind in "iu":
        shifted = shift_map(binning)
        of_ones = shifted is not None and not shifted.shift  # takes fewer instructions than any other
        narrow = narrow_map(binning) if itemsize == 2 and not of_ones else None
        if narrow is not None and counter_bytes(len(narrow.slot_of), 1) <= available:
            return _of_counters(binning, "histogram_narrow", len(narrow.slot_of), *_narrow(narrow), divide=False)
        if shifted:
            unit = str(shifted.shift == 0).lower()
            return _of_counters(
                binning, "histogram_shift", binning.bins + CLAMPED, *_shift(binning, shifted), last=[unit]
            )
        if fixed := fixed_map(binning):
            return _of_counters(binning, "histogram_linear", binning.bins + CLAMPED, *_fixed(binning, fixed))
    if binning.regular and (steps := step_map(binning)):
        return _of_steps(binning, steps, available)
    return _of_search(binning, available)


def _of_counters(
    binning: Binning, kernel: str, counters: int, *arguments: Any, divide: bool = True, last: Sequence[str] = ()
) -> Plan:
    copies, window = counter_layout(counters, binning.dtype.itemsize, device.limits().shared_per_block)
    windows = -(-counters // window)
    shared_mem = counter_bytes(window, copies)
    if not divide:
        return _plan(binning, kernel, [copies], shared_mem, counters, window, arguments)
    multiplier = 0
    if windows == 2:
        window, multiplier = halves(counters)
        shared_mem = half_bytes(window)
    instance = [copies, windows if windows <= 2 else 0, *last]
    return _plan(binning, kernel, instance, shared_mem, counters, window, (*arguments, np.uint32(multiplier)))


def _of_steps(binning: Binning, line: StepMap, available: int) -> Plan:
    copies, held, window, shared_mem = steps_in_shared(line.steps, available)
    arguments = *guessed(line.steps, line.least), line.guess.start, line.guess.scale
    return _plan(binning, "histogram_steps", [copies, held], shared_mem, len(line.steps) + 1, window, arguments)


def _of_search(binning: Binning, available: int) -> Plan:
    steps, least = steps_of(binning.thresholds)
    key, most = steps.dtype, len(steps) - 1
    entry = 2 if most < NARROW else 4
    cells = 2 ** max(8, (CELLS_PER_THRESHOLD * most).bit_length() - 1)
    while cells > 256 and entry * cells > available * 3 // 5:
        cells //= 2
    table = lookup_table(binning.thresholds.astype(key), least, cells)
    taken = -(-table.entries.nbytes // 8) * 8
    copies, held, window, shared_mem = steps_in_shared(steps, available - taken)
    of_map = f"{'ByBits' if table.by_bits else 'ByValue'}<{KEY_TYPES[key.str[1:]]}>"
    windowed = str(window < most + 2).lower()
    arguments = (*guessed(steps, least), _device(table.entries), np.int32(len(table.entries)), table.guess.start,
                 table.guess.scale)  # fmt: skip
    return _plan(binning, "histogram_search", [copies, held, windowed, of_map, f"u{8 * entry}"], shared_mem + taken,
                 most + 2, window, arguments)  # fmt: skip


def steps_in_shared(steps: NDArray[Any], available: int) -> tuple[int, int, int, int]:
    """Copies of the counters and of the steps, slots of a window, bytes."""
    copies, held, window = step_layout(len(steps) + 1, steps.itemsize, available)
    return copies, held, window, step_bytes(window, steps.itemsize, copies, held)


def guessed(steps: NDArray[Any], least: int) -> tuple[Any, ...]:
    """Arguments of kernels that guess: the clamps, and the steps on the device."""
    return np.int32(least), np.int32(len(steps) - 1), _device(steps)


def _plan(
    binning: Binning, kernel: str, instance: Sequence[Any], shared_mem: int, counters: int, window: int,
    arguments: Sequence[Any],
) -> Plan:  # fmt: skip
    """The plan of a kernel whose blocks count in windows of so many counters."""
    template = ", ".join(map(str, (C_TYPES[binning.dtype.name], *instance)))
    loaded = nvrtc.load(SOURCE, f"{kernel}<{template}>")
    windows = -(-counters // window)
    shares = max(1, device.limits().resident_blocks(THREADS, loaded.registers, shared_mem) // windows)
    arguments = (np.uint32(counters), np.uint32(window), *arguments)
    return Plan(loaded, shares * windows, shared_mem, shares * 2**31, binning.slots, arguments)


def step_layout(counters: int, keysize: int, shared_per_block: int) -> tuple[int, int, int]:
    """How many copies of the counters and of the thresholds a block of histogram_steps keeps, and of how many slots.

    Lanes of a warp whose copies are the same wait for each other where they meet in a bank: at most 32 / copies times,
    and twice as often for thresholds of 8 bytes.
    """
    choices = [
        (32 // copies + 32 // held * keysize // 4, step_bytes(counters, keysize, copies, held), copies, held)
        for copies in STEP_COPIES for held in STEP_COPIES
    ]  # fmt: skip
    fitting = [choice for choice in choices if choice[1] <= min(STEP_BYTES, shared_per_block)]
    if fitting:
        return *min(fitting)[2:], counters
    fits = (shared_per_block - 16) // (4 + keysize) - AROUND
    return 1, 1, -(-counters // -(-counters // fits))


def step_bytes(window: int, keysize: int, copies: int, held: int) -> int:
    """Shared memory of a window of histogram_steps: Steps in steps.cuh."""
    rows = window + AROUND
    return (rows * copies + 1) // 2 * 8 + rows * held * keysize


def _device(values: NDArray[Any]) -> Any:
    import cupy

    return cupy.asarray(values)


def _clamps(binning: Binning, clamps: Clamps) -> tuple[Any, ...]:
    key = key_of(binning.dtype)
    beyond = min(clamps.beyond, int(np.iinfo(key).max))
    samples = (key.type(value) for value in (clamps.low, clamps.last, beyond))
    return np.uint32(clamps.bins), np.uint32(clamps.skipped), *samples


def _narrow(line: NarrowMap) -> tuple[Any, ...]:
    samples = np.int32(line.low), np.int32(line.last), np.int32(line.beyond)
    return *samples, line.scale, line.offset, np.int32(line.fraction), _device(line.slot_of)


def _shift(binning: Binning, line: ShiftMap) -> tuple[Any, ...]:
    key = key_of(binning.dtype)
    base = np.array(line.base % 2 ** (8 * key.itemsize), f"u{key.itemsize}").view(key)[()]
    return *_clamps(binning, line.clamps), base, np.int32(line.shift)


def _fixed(binning: Binning, line: FixedMap) -> tuple[Any, ...]:
    return *_clamps(binning, line.clamps), np.uint32(line.scale), np.uint64(line.offset), np.int32(line.fraction)
