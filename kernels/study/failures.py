"""Failures of the courses that no ladder shows, each beside the right way: references and launch wrappers."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common import nvrtc
from kernels.common.checks import MAX_GRID, check_array
from kernels.common.memory import empty, zeros
from kernels.study.variant import Variant, by_name

SOURCE = Path(__file__).with_suffix(".cu")

THREADS, BLOCKS = 256, 512  # of the sums
LEFT_BEHIND = 0x5EAF00D  # what an earlier program left in memory
_empty, _zeros = partial(empty, "failures"), partial(zeros, "failures")


def pairs_reference(before: NDArray[np.int32]) -> NDArray[np.int32]:
    """A and B of each pair, shape (2 n,): 1 and 2, whatever A was before."""
    return np.tile(np.array([1, 2], np.int32), len(before))


def sum_reference(samples: NDArray[np.int32]) -> NDArray[np.int64]:
    """The sum in 64 bits, shape (1,)."""
    return np.array([samples.sum(dtype=np.int64)])


def _check(samples: Any, most: int = 2**62) -> None:
    check_array("failures", samples, ("int32",), 1)
    if not 1 <= samples.size <= most:
        raise ValueError(f"failures: expected 1 to {most} samples, got {samples.size}")


def _ordered_pair(before: Any) -> Any:
    _check(before, MAX_GRID)
    results = _empty(2 * before.size, np.dtype(np.int32))
    nvrtc.load(SOURCE, "ordered_pair")((int(before.size),), (64,), (before, results))
    return results


def _racing_pair(before: Any, cycles: int = 2000) -> Any:
    """`cycles` between the steps of a pair, which nothing orders."""
    _check(before, MAX_GRID)
    results = _empty(2 * before.size, np.dtype(np.int32))
    nvrtc.load(SOURCE, "racing_pair")((int(before.size),), (64,), (before, results, np.int64(cycles)))
    return results


def _sum(dtype: str, samples: Any) -> Any:
    _check(samples)
    total = _zeros(1, np.dtype(dtype))
    blocks = min(BLOCKS, -(-int(samples.size) // THREADS))
    instance = {"uint64": "add_up<u64>", "uint32": "add_up<u32>"}[dtype]
    nvrtc.load(SOURCE, instance)((blocks,), (THREADS,), (samples, np.int64(samples.size), total))
    return total.view(np.dtype(dtype.removeprefix("u"))).astype(np.int64)


def _uninitialised(samples: Any) -> Any:
    """The memory is our own, and what it holds is known: so the failure shows every time, and in no other's data."""
    _check(samples)
    buffer = _empty(samples.size, np.dtype(np.int32))
    buffer.fill(np.int32(LEFT_BEHIND))
    half = int(samples.size) // 2
    buffer[:half] = samples[:half]
    return _sum("uint64", buffer)


def _one_by_one(samples: Any, piece: int, cycles: int) -> Any:
    """Launches of `piece` samples, each of which is ended after `cycles`."""
    _check(samples)
    if piece < 1:
        raise ValueError(f"piece: expected at least 1 sample, got {piece}")
    total = _zeros(1, np.dtype(np.uint64))
    kernel = nvrtc.load(SOURCE, "one_by_one")
    for start in range(0, int(samples.size), piece):
        own = samples[start : start + piece]
        kernel((1,), (1,), (own, np.int64(own.size), total, np.int64(cycles)))
    return total.view(np.dtype(np.int64))


def _short_launches(samples: Any, piece: int = 4096, cycles: int = 10_000_000) -> Any:
    return _one_by_one(samples, piece, cycles)


def _too_long(samples: Any, cycles: int = 10_000_000) -> Any:
    return _one_by_one(samples, max(1, int(samples.size)), cycles)


VARIANTS = by_name(
    Variant("ordered_pair", "one warp computes A = 0, A = A + 1; behind a barrier another one B = A, B = B + 1",
            _ordered_pair),
    Variant("racing_pair", "ordered_pair without the barrier", _racing_pair, {"cycles": 2000},
            broken="B begins with whatever A is at that moment"),
    Variant("wide_sum", "integers added up in 64 bits", partial(_sum, "uint64")),
    Variant("narrow_sum", "wide_sum in 32 bits", partial(_sum, "uint32"), broken="the sum wraps"),
    Variant("uninitialised", "wide_sum of an input that was copied by half", _uninitialised,
            broken="adds what the memory held before"),
    Variant("short_launches", "one thread adds everything up, a piece in each launch, and every launch ends in time",
            _short_launches, {"piece": 4096, "cycles": 10_000_000}),
    Variant("too_long", "one thread adds everything up in one launch", _too_long, {"cycles": 10_000_000},
            broken="a watchdog ends it, and there is no sum"),
)  # fmt: skip
INSTANCES = {
    "ordered_pair": "ordered_pair", "racing_pair": "racing_pair", "wide_sum": "add_up<u64>",
    "narrow_sum": "add_up<u32>", "uninitialised": "add_up<u64>",
    "short_launches": "one_by_one", "too_long": "one_by_one",
}  # fmt: skip
