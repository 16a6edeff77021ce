"""The steps of a read that finds order statistics on a device: the launch wrappers for the kernels in `bracket.cu`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.common import device, nvrtc
from kernels.common.constants import constant
from kernels.common.dtypes import C_TYPES, instance
from kernels.common.launch import Launch
from kernels.common.memory import Stream, current_stream, empty, pooled_zeros
from kernels.quantile.gpu import MOST, THREADS, TILE_BYTES, WIDE
from kernels.quantile.keys import bits_of
from kernels.quantile.ranges import Picked

SOURCE = Path(__file__).with_name("bracket.cu")

DESCENT = SOURCE.with_name("descent.cuh")

TARGETS, DIGIT = constant(DESCENT, "MOST_TARGETS"), constant(DESCENT, "DIGIT")
LEVELS = 5  # of the search for the group of a sample, at most
MOST_GROUPS = 2**LEVELS - 1
LANES = 32  # of a warp
COUNTERS = 2**DIGIT + LANES  # of a rank in a step of a search, with gaps, so that banks differ
BLOCKS_PER_SM = 2  # at most, of a kernel
STAGED_BYTES: int = TILE_BYTES  # of shared memory: all of a tile may be kept
TABLES_ROW = 4 * constant(SOURCE, "TABLE_ROW")  # of shared memory that each group takes beside that, in four tables
AROUND_BYTES = 2**24  # of samples that are counted like those that were read, at most: all of them may be kept
# A proof: the number of blocks that have arrived, counts of what is kept, how much that is, the counts of all.
KEPT = 2 + 2 * TARGETS
PROOF = KEPT + 1 + 2 * TARGETS + 2

# Arguments of each kernel.
OWN = {"quantile_sample": 7, "quantile_pick": 12, "quantile_ends": 6, "quantile_bracket": 9, "quantile_prove": 10}

INSTANCES = (
    *(f"{kernel}<{C_TYPES[name]}>" for name in WIDE for kernel in OWN if kernel != "quantile_bracket"),
    *(f"quantile_bracket<{C_TYPES[name]}, {levels}>" for name in WIDE for levels in range(1, LEVELS + 1)),
)  # fmt: skip


class Kept(NamedTuple):
    """Samples that blocks have: of the part of each, `room` long, the first ones; `held`: how many."""

    items: Any
    held: Any
    room: int


class OfRead(NamedTuple):
    """What a read counted, of how many groups, and of which of them it gathered the ranges, as bits."""

    sums: Any
    groups: int
    gathered: int


class Search:
    """The search for some ranks among what blocks have, on the device.

    Attributes
    ----------
    ranks
        How many there are, at most `most_ranks()`.
    state : CuPy uint64 array
        As `quantile_pick` describes it.
    """

    def __init__(self, dtype: np.dtype[Any], ranks: int, state: Any) -> None:
        self.ranks, self.state, self._dtype = ranks, state, dtype
        self._counters = pooled_zeros(ranks * COUNTERS // 2).view(np.uint32)

    @staticmethod
    def words(ranks: Sequence[int]) -> list[int]:
        """The state before the first step."""
        none = [0] * len(ranks)
        return [0, *none, *ranks, *none]

    def queue(self, kept: Kept, range_: Any, ranges: int, stream: Stream, of_read: OfRead | None = None) -> None:
        """All steps; those that are not needed end at once.

        Parameters
        ----------
        kept
        range_, ranges
            In which all keys are, as `quantile_ends` describes it, and how many ranges these are.
        stream
            The current one.
        of_read
            The read that kept them, among whose numbers are the ranks; by default they are those among what is kept.
        """
        sums, *groups = of_read or OfRead(self.state, 0, 0)
        arguments = (
            *kept[:2], np.uint32(kept.room), np.uint32(self.ranks), self.state, self._counters, sums,
            *map(np.uint32, groups), range_, np.uint32(ranges),
        )  # fmt: skip
        launch = _launch("quantile_pick", self._dtype, 4 * self.ranks * COUNTERS)
        for step in range(-(-bits_of(self._dtype) // DIGIT)):
            launch(kept.held.size, (*arguments, np.int32(step)), stream[1])


def picked_of(state: NDArray[np.uint64]) -> Picked:
    """What a search found, of its state on the host."""
    return Picked(*state[1:].reshape(3, -1).tolist())


class Around:
    """Counts around the keys that a read found: of all that it read, and of other samples in the same way.

    Parameters
    ----------
    samples
        What was read.
    keys
        Ascending.
    counts
        Of the samples around them, as `kernels.quantile.gpu.count_around_on_device` counts.
    range_, ranges, state, ranks
        As `quantile_prove` takes them; how many keys `state` has.
    """

    def __init__(
        self, samples: Any, keys: list[int], counts: NDArray[np.int64], range_: Any, ranges: int, state: Any, ranks: int
    ) -> None:
        self._read, self._keys, self._counts = (samples.data.ptr, samples.size), keys, counts
        self._range, self._ranges, self._state, self._ranks = range_, ranges, state, ranks

    def count(self, samples: Any, keys: NDArray[Any]) -> Any:
        """The counts of samples around keys, ascending: of what was read those that are known, else a CuPy array.

        None of other keys, and of samples that would take too much memory.
        """
        if keys.tolist() != self._keys:
            return None
        if (samples.data.ptr, samples.size) == self._read:
            return self._counts
        if samples.nbytes > AROUND_BYTES:
            return None
        levels = levels_of(self._ranges)
        blocks, of_sums = blocks_of(samples, levels), sums_of(levels)
        of_held, room = -(-blocks // 2), -(-samples.size // blocks) + 2 * TILE_BYTES // samples.dtype.itemsize
        words = pooled_zeros(of_sums + of_held + PROOF)
        sums, proof = words[:of_sums], words[of_sums + of_held :]
        kept = Kept(empty("quantile", blocks * room, samples.dtype), words[of_sums:].view(np.uint32)[:blocks], room)
        stream = current_stream()
        queue_read(samples, sums, kept, self._range, self._ranges, self._ranges, stream)
        queue_proof(samples, kept, self._range, self._ranges, self._state, self._ranks, proof, sums, stream)
        return proof[KEPT + 1 : KEPT + 1 + len(self._counts)].view(np.int64)


@cache
def layout_of(blocks: int, drawn: int, targets: int, ranks: int) -> dict[str, slice]:
    """Where the words of a read are; those that another attempt writes again are the last ones."""
    sizes = {"sums": sums_of(LEVELS), "held": -(-blocks // 2), "proof": PROOF, "drawn": 2 + 2 * targets,
             "picked": 1 + 3 * targets, "every": 3, "held drawn": -(-drawn // THREADS // 2), "state": 1 + 3 * ranks,
             "range": 1 + 2 * TARGETS, "groups": 1 + 2 * MOST_GROUPS}  # fmt: skip
    ends = accumulate(sizes.values())
    return {name: slice(end - size, end) for (name, size), end in zip(sizes.items(), ends, strict=True)}


def levels_of(groups: int) -> int:
    """Of the kernel that reads samples of so many groups, and of one more, above them."""
    return groups.bit_length()


def sums_of(levels: int) -> int:
    """Counters of a read: two of each group, and NaN."""
    return (2 << levels) + 1


def most_ranks() -> int:
    """Ranks that a search takes: no more than there is shared memory for."""
    return int(min(TARGETS, device.limits().shared_per_block // (4 * COUNTERS)))


def blocks_of(samples: Any, levels: int) -> int:
    """Blocks that read samples; none where these have too little shared memory."""
    kernel, limits = nvrtc.load(SOURCE, instance("quantile_bracket", samples.dtype, levels)), device.limits()
    if kernel.static_shared + _shared(levels) > limits.shared_per_block:
        return 0
    resident: int = limits.resident_blocks(THREADS, kernel.registers, kernel.static_shared + _shared(levels))
    nbytes = min(int(samples.size), MOST) * samples.dtype.itemsize
    most: int = min(resident, BLOCKS_PER_SM * limits.multiprocessors, -(-nbytes // TILE_BYTES))
    return most


def _shared(levels: int) -> int:
    return STAGED_BYTES + (TABLES_ROW << levels)


def queue_sample(samples: Any, drawn: Kept, targets: int, state: Any, picked: Any, stream: Stream) -> None:
    """What is drawn, the places of targets in it, and their ranks for a search: `quantile_sample`."""
    where = samples, np.int64(samples.size), *drawn[:2], np.uint32(targets), state, picked
    _launch("quantile_sample", samples.dtype)(drawn.held.size, where, stream[1])


def queue_ends(
    dtype: np.dtype[Any], drawn: int, targets: int, state: Any, picked: Any, omit: bool, range_: Any, stream: Stream
) -> None:  # fmt: skip
    """The ends of ranges that follow from so many samples that were drawn, once they were searched."""
    arguments = np.uint32(drawn), np.uint32(targets), state, picked, np.uint32(omit), range_
    _launch("quantile_ends", dtype)(1, arguments, stream[1])


def queue_read(samples: Any, sums: Any, kept: Kept, range_: Any, groups: int, gathered: int, stream: Stream) -> None:
    """One read: counts of samples in groups, and those in the ranges of the first `gathered` ones, which are kept."""
    levels = levels_of(groups)
    launch = _launch("quantile_bracket", samples.dtype, _shared(levels), levels)
    for start in range(0, samples.size, MOST):
        part = samples if samples.size <= MOST else samples[start : start + MOST]
        blocks = min(kept.held.size, -(-part.nbytes // TILE_BYTES))
        arguments = part, np.int64(part.size), sums, *kept[:2], np.uint32(kept.room), range_, np.uint32(groups)
        launch(blocks, (*arguments, np.uint32(gathered)), stream[1])


def queue_proof(
    samples: Any, kept: Kept, range_: Any, ranges: int, state: Any, ranks: int, proof: Any, sums: Any, stream: Stream
) -> None:  # fmt: skip
    """How much is kept, at `KEPT`, and counts around the keys of `state`, behind it."""
    where = *kept[:2], np.uint32(kept.room), np.uint32(ranks), state, range_, np.uint32(ranges)
    groups = np.uint32(1 << levels_of(ranges))
    arguments = *where, proof, sums, groups
    _launch("quantile_prove", samples.dtype)(kept.held.size, arguments, stream[1])


_launches: dict[tuple[int, int], Launch] = {}  # by the identity of a kernel, which its launches keep, and shared memory
MOST_LAUNCHES = 256


def _launch(kernel: str, dtype: np.dtype[Any], shared_mem: int = 0, *arguments: int) -> Launch:
    """Launches of a kernel on the current device, kept for the next ones."""
    loaded = nvrtc.load(SOURCE, instance(kernel, dtype, *arguments))
    launch = _launches.get((id(loaded), shared_mem))
    if launch is None:
        if len(_launches) >= MOST_LAUNCHES:
            _launches.clear()
        threads = LANES if kernel == "quantile_ends" else THREADS
        launch = _launches[id(loaded), shared_mem] = Launch(loaded, (threads,), OWN[kernel], shared_mem)
    return launch
