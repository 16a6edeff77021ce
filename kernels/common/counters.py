"""How many counters a block keeps in shared memory, of how many copies: counters.cuh and windows.cuh."""

from __future__ import annotations

SPREAD = 2**27 + 2**22  # SPREAD in counters.cuh
# Copies of a block's counters, by bytes per sample: narrower samples mean more increments per byte read.
COPIES = {1: 32, 2: 16, 4: 2, 8: 2}


def counter_layout(counters: int, itemsize: int, shared_per_block: int) -> tuple[int, int]:
    """How many copies of how many counters a block keeps in shared memory.

    Parameters
    ----------
    counters
        Total number of counters.
    itemsize
        Bytes per sample.
    shared_per_block
        Bytes of shared memory that a block may use.
    """
    copies = COPIES[itemsize]
    while copies > 1 and counter_bytes(counters, copies) > shared_per_block * 2 // 3:
        copies //= 2
    if counter_bytes(counters, copies) <= shared_per_block:
        return copies, counters
    if counter_bytes(counters, copies, 2) <= shared_per_block:
        return copies, -(-counters // 2)
    fits = shared_per_block // 5  # a counter takes a little more than 4 bytes
    # Windows of equal size: each reads all samples, whatever its size.
    return copies, -(-counters // -(-counters // fits))


def counter_bytes(counters: int, copies: int, windows: int = 1) -> int:
    """Shared memory of a window and of the counter after it: `spread` and `spread_pairs` in counters.cuh."""
    last = counters - 1
    if windows == 2:
        last = last * (2**31 + SPREAD // 2) >> 32
    elif copies < 16:
        last += last * SPREAD >> 32
    return 4 * copies * (last + 2)
