"""Instances of the kernel that decompresses Zstandard, and how many lanes a chunk gets."""

from __future__ import annotations

from pathlib import Path

from kernels.common import device
from kernels.common.constants import constant

SOURCE = Path(__file__).with_suffix(".cu")

THREADS = constant(SOURCE, "THREADS")
LANES = (8, 16, 32)  # of a chunk
THREADS_AT_ONCE = 320  # of a multiprocessor; with fewer threads of more chunks it decompresses faster
FRAMINGS = ("Zstd",)


def lanes_for(chunks: int) -> int:
    """Lanes of each of so many chunks, at least one."""
    most = THREADS_AT_ONCE * device.limits().multiprocessors // chunks
    return max([LANES[0], *(lanes for lanes in LANES if lanes <= most)])


def instance(lanes: int) -> str:
    """Of one of `LANES`."""
    return f"zstd<{lanes}>"


INSTANCES = tuple(map(instance, LANES))
