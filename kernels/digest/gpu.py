"""Digests samples on the device that holds them: launches the kernels of `gpu.cu`, level by level."""

from __future__ import annotations

from math import gcd
from pathlib import Path
from typing import Any

import numpy as np

from kernels.common import memory, nvrtc
from kernels.common.checks import blocks_for, check_array
from kernels.common.constants import constant
from kernels.digest.partial import DTYPES, KIB, VALUE_BYTES, Node, Partial, is_subtree, pack, runs_of

SOURCE = Path(__file__).with_suffix(".cu")

THREADS = constant(SOURCE, "THREADS")
LOADS = {16: "uint4", 4: "u32", 1: "u8"}  # by the alignment of the first leaf
MOST_NODES = 128  # subtrees of a run
INSTANCES = (*(f"leaves<{load}>" for load in LOADS.values()), "parents")


def digest_on_device(samples: Any, start: int) -> Partial:
    """Partial of samples on the device that holds them.

    Parameters
    ----------
    samples : CuPy array of any integer or float dtype, shape (n,), n >= 1, C-contiguous
        n may exceed 2**32.
    start
        Index in the content of the first of them.

    Returns
    -------
    NumPy int64 array
        As `kernels.digest.partial` describes it: a few KiB, which the host waits for.

    Raises
    ------
    TypeError, ValueError
        If the array is of another dtype, has another number of dimensions or gaps.
    """
    check_array("digest", samples, DTYPES, 1)
    data = samples.view(np.uint8)
    first = start * samples.dtype.itemsize
    runs = list(runs_of(first, data.size))
    # One array comes back: the ends, then the values, which have to be aligned.
    ends = sum(length for begin, length in runs if not is_subtree(begin, length))
    at = -ends % VALUE_BYTES
    kept = memory.empty("digest", at + ends + MOST_NODES * VALUE_BYTES, np.uint8)
    values = kept[at + ends :].view(np.uint32).reshape(MOST_NODES, -1)
    places: list[tuple[int, int]] = []
    copied = at
    for begin, length in runs:
        run = data[begin - first : begin - first + length]
        if is_subtree(begin, length):
            places = _subtrees(run, begin // KIB, values)
        else:
            kept[copied : copied + length] = run
            copied += length
    content = kept[at : at + ends + len(places) * VALUE_BYTES].get().tobytes()
    nodes: list[Node] = []
    for begin, length in [*(run for run in runs if not is_subtree(*run)), *places]:
        taken = VALUE_BYTES if is_subtree(begin, length) else length
        nodes.append(Node(begin, length, content[:taken]))
        content = content[taken:]
    return pack(str(samples.dtype), sorted(nodes))


def _subtrees(data: Any, first: int, values: Any) -> list[tuple[int, int]]:
    """Start and length of the largest aligned subtrees over whole leaves from leaf `first` on; fills their values."""
    count = data.size // KIB
    alignment = max(size for size in LOADS if gcd(data.data.ptr, size) == size)
    level = memory.empty("digest", (count, VALUE_BYTES // 4), np.uint32)
    kernel = nvrtc.load(SOURCE, f"leaves<{LOADS[alignment]}>")
    kernel((blocks_for(count, THREADS),), (THREADS,), (data, np.int64(count), np.uint64(first), level))
    places: list[tuple[int, int]] = []

    def keep(at: int) -> None:
        values[len(places)] = level[at]
        places.append(((low + at) * length, length))

    low, length = first, KIB
    while count:
        if low % 2:
            keep(0)
            level, low, count = level[1:], low + 1, count - 1
        if count % 2:
            count -= 1
            keep(count)
        low, length, count = low // 2, 2 * length, count // 2
        if count:
            below, level = level, memory.empty("digest", (count, VALUE_BYTES // 4), np.uint32)
            kernel = nvrtc.load(SOURCE, "parents")
            kernel((blocks_for(count, THREADS),), (THREADS,), (below, np.int64(count), level))
    return places
