"""The steps of a read that finds order statistics on a device: the launch wrappers for the kernels in `bracket.cu`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.common import device, nvrtc
from kernels.common.constants import constant
from kernels.common.dtypes import C_TYPES, instance
from kernels.common.memory import empty, pooled_zeros
from kernels.quantile.gpu import MOST, THREADS, TILE_BYTES, WIDE
from kernels.quantile.keys import bits_of
from kernels.quantile.ranges import Picked, Range

SOURCE = Path(__file__).with_name("bracket.cu")

DESCENT = SOURCE.with_name("descent.cuh")

TARGETS, FEW_TARGETS = constant(DESCENT, "MOST_TARGETS"), constant(DESCENT, "FEW_TARGETS")
# Bits of a step of a search, and ranks that it takes at most.
STEPS = ((constant(DESCENT, "LONG"), FEW_TARGETS), (constant(DESCENT, "SHORT"), TARGETS))
MOST_RANGES = 12
# Ranges that are gathered, and that are only counted, of the instances of the kernel; the first is that of one range.
SHAPES = ((1, 0), (1, 2), (2, 0), (3, 0), (2, 2), (1, 5), (5, 0), (3, 3), (3, 5), (5, 3), (8, 0), (1, 11), (5, 6))
BLOCKS_PER_SM = 2  # at most, of a kernel
LANES = 32  # of a warp
AROUND_BYTES = 2**24  # of samples that are counted like those that were read, at most: all of them may be kept
SUMS = 4  # counters of one range
# Where a proof has, behind the number of blocks that have arrived and counts of what is kept: how much that is, the
# keys, and the counts of all.
KEPT = 1 + 2 * FEW_TARGETS
KEYS = KEPT + 1
COUNTS = KEYS + FEW_TARGETS

INSTANCES = (
    *(f"{kernel}<{C_TYPES[name]}, {digit}, {most}>" for name in WIDE
      for kernel in ("quantile_sample", "quantile_pick") for digit, most in STEPS),
    *(f"quantile_bracket<{C_TYPES[name]}, {gathered}, {counted}>" for name in WIDE for gathered, counted in SHAPES),
    *(f"quantile_prove<{C_TYPES[name]}>" for name in WIDE),
)  # fmt: skip


class Kept(NamedTuple):
    """Samples that blocks have: of the part of each, `room` long, the first ones; `held`: how many."""

    items: Any
    held: Any
    room: int


class OfRead(NamedTuple):
    """What a read counted, how many ranges it gathered, and where it counted numbers.

    `range_` is the one that was drawn: its keys, less the least of them, are searched. None if that is not known so.
    """

    sums: Any
    ranges: int
    numbers: int
    range_: Any = None


class Search:
    """The search for some ranks among what blocks have, on the device.

    Attributes
    ----------
    state : CuPy uint64 array
        As `quantile_pick` describes it.
    ranks
        At most `TARGETS`, ascending.
    """

    def __init__(self, dtype: np.dtype[Any], ranks: Sequence[int], state: Any) -> None:
        self.ranks, self.state = ranks, state
        self._key, self._bits, self._least = np.dtype(f"u{dtype.itemsize}").type, bits_of(dtype), 0
        self._digit, most = step_of(len(ranks))
        self._kernel = nvrtc.load(SOURCE, instance("quantile_pick", dtype, self._digit, most))
        self._counters = pooled_zeros(len(ranks) * (2**self._digit + LANES) // 2).view(np.uint32)

    @staticmethod
    def words(ranks: Sequence[int]) -> list[int]:
        """The state before the first step."""
        none = [0] * len(ranks)
        return [0, *none, *ranks, *none]

    def queue(self, kept: Kept, span: Range | None = None, of_read: OfRead | None = None) -> None:
        """All steps.

        Parameters
        ----------
        kept
        span
            All keys are within it; by default any.
        of_read
            The read that kept them, among whose numbers are the ranks.
        """
        self._least, most = span or Range(0, 2**self._bits - 1)
        steps = -(-(most - self._least).bit_length() // self._digit)
        for step in range(steps):
            sums, ranges, numbers = (of_read if of_read and not step else OfRead(self.state, 0, 0))[:3]
            number, range_ = (step, of_read.range_) if of_read and of_read.range_ is not None else (-1, self.state)
            which = np.int32(self._digit * (steps - 1 - step)), self._key(self._least), self.state, self._counters
            self._kernel(
                (kept.held.size,), (THREADS,),
                (kept.items, kept.held, np.uint32(kept.room), np.uint32(len(self.ranks)), *which,
                 sums, np.uint32(ranges), np.uint32(numbers), range_, np.int32(number)),
            )  # fmt: skip

    def picked(self, state: NDArray[np.uint64]) -> Picked:
        """What was found, of the state on the host."""
        keys, before, equal = state[1:].reshape(3, len(self.ranks)).tolist()
        return Picked([key + self._least for key in keys], before, equal)


class Around:
    """Counts around the keys that a read of one range found: of all that it read, and of other samples in the same way.

    Parameters
    ----------
    samples
        What was read.
    proof
        What `quantile_prove` wrote of it: its counts are those of `kernels.quantile.gpu.count_around_on_device`.
    range_, state : CuPy uint64 arrays
    ranks
        As `quantile_bracket` and `quantile_prove` take them, and how many keys `state` has.
    """

    def __init__(self, samples: Any, proof: NDArray[np.uint64], range_: Any, state: Any, ranks: int) -> None:
        self._read, self._range, self._state, self._ranks = (samples.data.ptr, samples.size), range_, state, ranks
        self._proven = sorted(set(proof[KEYS:COUNTS].tolist()))
        self._counts = proof[COUNTS : COUNTS + 2 * len(self._proven) + 2].view(np.int64)

    def count(self, samples: Any, keys: NDArray[Any]) -> Any:
        """The counts of samples around keys, ascending: of what was read those that are known, else a CuPy array.

        None of other keys, and of samples that would take too much memory.
        """
        if keys.tolist() != self._proven:
            return None
        if (samples.data.ptr, samples.size) == self._read:
            return self._counts
        if samples.nbytes > AROUND_BYTES:
            return None
        blocks = blocks_of(samples, SHAPES[0])
        of_held, room = -(-blocks // 2), -(-samples.size // blocks) + 2 * TILE_BYTES // samples.dtype.itemsize
        words = pooled_zeros(SUMS + of_held + COUNTS + len(self._counts))
        proof = words[SUMS + of_held :]
        kept = Kept(empty("quantile", blocks * room, samples.dtype), words[SUMS:].view(np.uint32)[:blocks], room)
        queue_range(samples, words, kept, self._range)
        queue_proof(samples, kept, self._range, self._state, self._ranks, proof, words)
        return proof[COUNTS:].view(np.int64)


def step_of(ranks: int) -> tuple[int, int]:
    """Bits of a step of a search for so many ranks, and ranks of its kernel."""
    return next((digit, most) for digit, most in STEPS if ranks <= most)


def blocks_of(samples: Any, shape: tuple[int, int]) -> int:
    """Blocks that read samples, by the instance of these ranges."""
    kernel, limits = _bracket(samples.dtype, shape), device.limits()
    resident = limits.resident_blocks(THREADS, kernel.registers, kernel.static_shared)
    nbytes = min(samples.size, MOST) * samples.dtype.itemsize
    return int(min(resident, BLOCKS_PER_SM * limits.multiprocessors, -(-nbytes // TILE_BYTES)))


def _bracket(dtype: np.dtype[Any], shape: tuple[int, int]) -> Any:
    return nvrtc.load(SOURCE, instance("quantile_bracket", dtype, *shape))


def queue_ranges(
    samples: Any, sums: Any, kept: Kept, shape: tuple[int, int], range_: Any, ends: Iterable[Any]
) -> None:  # fmt: skip
    """One read: counts of samples at the ends of ranges, and what is kept. Of the first shape `range_` is the range."""
    kernel = _bracket(samples.dtype, shape)
    for start in range(0, samples.size, MOST):
        part = samples[start : start + MOST]
        blocks = min(kept.held.size, -(-part.nbytes // TILE_BYTES))
        arguments = part, np.int64(part.size), sums, *kept[:2], np.uint32(kept.room), range_
        kernel((blocks,), (THREADS,), (*arguments, *ends))


def queue_range(samples: Any, sums: Any, kept: Kept, range_: Any) -> None:
    """The same of the range that was drawn."""
    queue_ranges(samples, sums, kept, SHAPES[0], range_, _no_ends(samples.dtype))


@cache
def _no_ends(dtype: np.dtype[Any]) -> tuple[Any, ...]:
    return tuple(np.zeros(2 * MOST_RANGES, dtype))


def queue_proof(samples: Any, kept: Kept, range_: Any, state: Any, ranks: int, proof: Any, sums: Any) -> None:
    """The keys, from `KEYS` on, and counts around them, from `COUNTS` on."""
    kernel = nvrtc.load(SOURCE, instance("quantile_prove", samples.dtype))
    where = *kept[:2], np.uint32(kept.room), np.uint32(ranks), state, range_
    kernel((kept.held.size,), (THREADS,), (*where, proof, proof[1:], sums, proof[KEYS:]))
