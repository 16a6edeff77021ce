"""Instances of the kernel that decompresses LZ4, and how many lanes a chunk gets."""

from __future__ import annotations

from pathlib import Path

from kernels.common import device
from kernels.common.constants import constant

SOURCE = Path(__file__).with_suffix(".cu")

THREADS = constant(SOURCE, "THREADS")
LANES = (16, 32)  # of a chunk
THREADS_AT_ONCE = 1024  # of a multiprocessor; with fewer threads of more chunks it decompresses faster
FRAMINGS = ("Sized", "Blocks")


def lanes_for(chunks: int) -> int:
    """Lanes of each of so many chunks, at least one."""
    most = THREADS_AT_ONCE * device.limits().multiprocessors // chunks
    return max([LANES[0], *(lanes for lanes in LANES if lanes <= most)])


def instance(framing: str, lanes: int) -> str:
    """Of one of `FRAMINGS` and `LANES`."""
    return f"lz4<{framing}, {lanes}>"


INSTANCES = tuple(instance(framing, lanes) for framing in FRAMINGS for lanes in LANES)
