"""Of samples that are decoded on a CPU a task holds one block: none is alive any more when the next one is decoded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from weakref import ref

import numpy as np
import pytest
from numpy.typing import NDArray

from pipeline.engine.aggregate_plan import Job, Pass
from pipeline.engine.aggregate_reference import recompute_part
from pipeline.engine.aggregate_task import _streamed
from pipeline.storage.chunks import Chunk, Region
from pipeline.storage.pieces import BlockPiece
from workflows.histogram import HISTOGRAM, HistogramOptions

LENGTH, BLOCKS = 4096, 5


@dataclass
class Seen:
    """A block that counts, whenever one is read, which of all are alive."""

    made: list[ref[NDArray[np.int16]]] = field(default_factory=list)
    alive: list[int] = field(default_factory=list)

    def read(self) -> NDArray[np.int16]:
        self.alive.append(sum(one() is not None for one in self.made))
        samples = np.arange(LENGTH, dtype=np.int16)
        self.made.append(ref(samples))
        return samples


def computed(pass_: Pass, chunk: Chunk) -> None:
    _streamed(pass_, chunk, None)


def checked(pass_: Pass, chunk: Chunk) -> None:
    recompute_part(pass_, chunk, compared=False)


@pytest.mark.parametrize("work", [computed, checked])
def test_one_block_at_a_time(work: Callable[[Pass, Chunk], None]) -> None:
    seen, nbytes = Seen(), 2 * LENGTH
    pieces = tuple(BlockPiece(seen, f"block {number}", nbytes, 0, nbytes) for number in range(BLOCKS))
    whole = (Region(0, BLOCKS * LENGTH),)
    job = Job(HISTOGRAM, HistogramOptions(bins=16, range=(0.0, LENGTH)))
    work(Pass((job,), "cpu"), Chunk(0, pieces, np.dtype(np.int16), parts=whole))
    assert seen.alive == [0] * BLOCKS
