"""Launches the kernels of `gpu_powers.cu`: partials with sums of powers, on the device that holds the samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from kernels.common import device, nvrtc
from kernels.common.constants import constant
from kernels.common.dtypes import C_TYPES
from kernels.reduce import powers
from kernels.reduce.gpu import combine_on_device, reduce_on_device
from kernels.reduce.powers import CUBE_WORDS, FOURTH_WORDS, POWERS

SOURCE = Path(__file__).with_suffix(".cu")

THREADS = constant(SOURCE, "POWERS_THREADS")
MOST_SAMPLES = 2**28  # per launch: no digit of a block overflows
INSTANCES = (*(f"powers<{c_type}>" for c_type in C_TYPES.values()), "extend", "combine_powers")


def reduce_on_device_with_powers(samples: Any, parts: int) -> Any:
    """`kernels.reduce.gpu.reduce_on_device`, with sums of powers if the parts include POWERS."""
    import cupy

    moments = reduce_on_device(samples, parts & ~POWERS)
    if not parts & POWERS:
        return moments
    kernel = nvrtc.load(SOURCE, f"powers<{C_TYPES[str(samples.dtype)]}>")
    resident = device.limits().resident_blocks(THREADS, kernel.registers, kernel.static_shared)
    totals = cupy.zeros(2 * (CUBE_WORDS + FOURTH_WORDS), np.uint64)
    for start in range(0, samples.size, MOST_SAMPLES):
        part = samples[start : start + MOST_SAMPLES]
        kernel((min(resident, -(-part.size // THREADS)),), (THREADS,), (part, np.int64(part.size), totals))
    partial = cupy.empty(powers.SIZE, cupy.int64)
    nvrtc.load(SOURCE, "extend")((1,), (64,), (moments, totals, partial))
    return partial


def combine_on_device_with_powers(a: Any, b: Any) -> Any:
    """`kernels.reduce.powers.combine` of two partials on the current device."""
    import cupy

    combined = combine_on_device(a, b)
    if a.size < powers.SIZE:
        return combined
    total = cupy.empty(powers.SIZE, cupy.int64)
    nvrtc.load(SOURCE, "combine_powers")((1,), (64,), (a, b, combined, total))
    return total
