"""Latency of memory, and divergence within a warp: references and launch wrappers."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common import nvrtc
from kernels.common.checks import blocks_for, check_array, check_shared
from kernels.common.memory import empty
from kernels.study.variant import Variant, by_name

SOURCE = Path(__file__).with_suffix(".cu")

THREADS = 256
_empty = partial(empty, "architecture")


def chain_of(n: int) -> NDArray[np.int32]:
    """Indices that lead through all places and back to the first, far apart: a congruential generator of full period.

    Source: T. E. Hull, A. R. Dobell, Random number generators, SIAM Review 4 (1962), theorem 1.

    Parameters
    ----------
    n
        A power of two from 8 to 2**30.
    """
    places = np.arange(n, dtype=np.uint64)
    return ((places * np.uint64(1664525) + np.uint64(1013904223)) % np.uint64(n)).astype(np.int32)


def chain_reference(following: NDArray[np.int32], steps: int) -> NDArray[np.int32]:
    """Where so many steps from the first place lead, shape (1,)."""
    place = 0
    for _ in range(steps):
        place = int(following[place])
    return np.array([place], np.int32)


def ways_reference(numbers: NDArray[np.uint32], steps: int, divergent: bool) -> NDArray[np.uint32]:
    """Each number after so many steps of its own way, which its index or its warp chooses."""
    index = np.arange(len(numbers))
    odd = (index if divergent else index // 32) % 2 == 1
    one, other = numbers.copy(), numbers.copy()
    for _ in range(steps):
        one = one * np.uint32(1664525) + np.uint32(1013904223)
        other = (other ^ other >> np.uint32(15)) * np.uint32(22695477)
    return np.where(odd, one, other)


def _chain(shared: bool, following: Any, steps: int = 2**16) -> Any:
    """Places outside of the array would be read: the wrapper looks at all of them first."""
    check_array("chain", following, ("int32",), 1)
    if not 1 <= following.size < 2**31 or not 0 <= steps < 2**31:
        raise ValueError(f"chain: expected 1 to 2**31 - 1 places and 0 to 2**31 - 1 steps, got {following.size}, "
                         f"{steps}")  # fmt: skip
    if shared:
        check_shared(f"a chain of {following.size} places", 4 * following.size)
    return _chain_launch(shared, following, steps)()


def _chain_launch(shared: bool, following: Any, steps: int) -> Any:
    if int(following.min()) < 0 or int(following.max()) >= following.size:
        raise ValueError(f"chain: expected places from 0 to {following.size - 1}, got {int(following.min())} to "
                         f"{int(following.max())}")  # fmt: skip

    def launch() -> Any:
        end = _empty(1, np.dtype(np.int32))
        kernel = nvrtc.load(SOURCE, f"chain<{str(shared).lower()}>")
        arguments = (following, np.int32(following.size), np.int32(steps), end)
        kernel((1,), (THREADS,), arguments, shared_mem=4 * int(following.size) if shared else 0)
        return end

    return launch


def _ways(divergent: str, numbers: Any, steps: int = 64) -> Any:
    check_array("ways", numbers, ("uint32",), 1)
    if not 0 <= steps < 2**31:
        raise ValueError(f"ways: expected 0 to 2**31 - 1 steps, got {steps}")
    blocks = blocks_for(int(numbers.size), THREADS)
    results = _empty(numbers.shape, numbers.dtype)
    if blocks:
        arguments = (numbers, results, np.int64(numbers.size), np.int32(steps))
        nvrtc.load(SOURCE, f"ways<{divergent}>")((blocks,), (THREADS,), arguments)
    return results


VARIANTS = by_name(
    Variant("global_chain", "one thread follows a chain of indices through global memory, more than any cache holds",
            partial(_chain, False), {"steps": 2**16}, timed=partial(_chain_launch, False)),
    Variant("shared_chain", "global_chain through the block's shared memory",
            partial(_chain, True), {"steps": 2**16}, timed=partial(_chain_launch, True)),
    Variant("uniform_warps", "every thread takes one of two ways, all lanes of a warp the same",
            partial(_ways, "false"), {"steps": 64}),
    Variant("divergent", "uniform_warps with neighbouring lanes on different ways: a warp walks both",
            partial(_ways, "true"), {"steps": 64}),
)  # fmt: skip
INSTANCES = {
    "global_chain": "chain<false>", "shared_chain": "chain<true>",
    "uniform_warps": "ways<false>", "divergent": "ways<true>",
}  # fmt: skip
