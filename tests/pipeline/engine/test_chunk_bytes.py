"""How large the chunks of a run are."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.cluster.workers import Workers
from pipeline.engine.aggregate import _chunk_bytes
from pipeline.engine.run_loop import Run
from pipeline.gpu.blocks import CHUNKS
from pipeline.settings import Settings
from pipeline.storage.pieces import BlockPiece, Piece


@pytest.mark.parametrize(
    ("device", "computing", "nbytes", "raw", "encoded"),
    [
        ("gpu", 1, 2**33, 2**30, 2**31),  # two lanes, with two chunks each
        ("gpu", 1, 2**35, 2**32, 2**33),
        ("gpu", 1, 2**40, 2**32, 2**33),
        ("gpu", 4, 2**35, 2**30, 2**30),
        ("gpu", 4, 2**40, 2**32, 2**33),
        ("gpu", 1, 2**20, 2**24, 2**24),
        ("cpu", 2, 2**33, 2**30, 2**30),
        ("cpu", 2, 2**40, 2**31, 2**31),
    ],
)
def test_chunks_of_encoded_blocks_are_larger_on_a_gpu(
    device: str, computing: int, nbytes: int, raw: int, encoded: int
) -> None:
    """Each starts with a batch of blocks that nothing overlaps."""
    run = Run(Settings(), CHUNKS)
    run.workers = Workers(None, device, computing, computing, None, {}, device, None)
    block: Any = None
    for piece, expected in (
        (Piece("a", 0, nbytes, None), raw), (BlockPiece(block, "a", nbytes, 0, nbytes), encoded)
    ):  # fmt: skip
        source: Any = SimpleNamespace(nbytes=nbytes, pieces=partial(iter, [piece]))
        assert _chunk_bytes(source, run) == expected
