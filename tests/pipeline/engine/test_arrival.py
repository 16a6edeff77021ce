"""Partials that change between a worker and the client are found, whatever is verified."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline.engine.aggregate
from pipeline.cluster.placement import Placement
from pipeline.engine.aggregate import run
from pipeline.engine.aggregate_plan import Pass
from pipeline.engine.aggregate_task import ChunkResult, compute_chunks, digest_of
from pipeline.errors import VerificationError
from pipeline.settings import Settings
from pipeline.storage.chunks import Chunk
from pipeline.storage.pieces import Piece
from pipeline.storage.sources import open_source
from workflows.histogram import HISTOGRAM, HistogramOptions


def changed_on_the_way(pass_: Pass, chunks: Sequence[Chunk]) -> tuple[ChunkResult, ...]:
    """One bit of the last result."""
    *results, last = compute_chunks(pass_, chunks)
    partial = last.partials[-1][-1].copy()
    partial.view(np.uint8)[-1] ^= 128
    return *results, replace(last, partials=(*last.partials[:-1], (partial,)))


def of_another_chunk(pass_: Pass, chunks: Sequence[Chunk]) -> tuple[ChunkResult, ...]:
    """The results of the chunk before: a task beside a GPU would check it against its own samples, too."""
    return compute_chunks(pass_, [OTHERS.setdefault(chunk.index, chunk) and OTHERS[0] for chunk in chunks])


OTHERS: dict[int, Chunk] = {}


@pytest.mark.parametrize("mode", ["off", "full"])
def test_another_chunk_is_found(tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one of equal samples, as in this file."""
    OTHERS.clear()
    np.zeros(3000, np.int32).tofile(tmp_path / "samples.bin")
    monkeypatch.setattr(pipeline.engine.aggregate, "compute_chunks", of_another_chunk)
    how = Settings(placement=Placement(device="cpu"), verify=mode, chunk_bytes=6000)
    with pytest.raises(VerificationError, match=r"^histogram: chunk 1 \(.*\): .* or belongs to another chunk; "):
        run(HISTOGRAM, HistogramOptions(), open_source((str(tmp_path / "samples.bin"),)), how)


@pytest.mark.parametrize("mode", ["off", "full"])
def test_partial_that_changes_on_its_way_is_found(tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    np.arange(3000, dtype=np.int32).tofile(tmp_path / "samples.bin")
    monkeypatch.setattr(pipeline.engine.aggregate, "compute_chunks", changed_on_the_way)
    how = Settings(placement=Placement(device="cpu"), verify=mode)
    with pytest.raises(
        VerificationError,
        match=r"^histogram: chunk 0 \(.*\): the result of worker inproc.* arrived corrupted, ",
    ):
        run(HISTOGRAM, HistogramOptions(), open_source((str(tmp_path / "samples.bin"),)), how)


@pytest.mark.parametrize("other", [np.zeros(3, np.int32), np.zeros((1, 3)), np.array([0.0, 0.0, -0.0]), np.zeros(2)])
def test_digest_depends_on_every_bit_and_on_what_they_mean(other: Any) -> None:
    partial, chunk = np.zeros(3), Chunk(1, (Piece("a", 0, 24, None),), np.dtype(np.float64), start=3)
    assert digest_of(chunk, [(partial,)]) == digest_of(chunk, [(np.zeros(6)[::2],)])
    assert digest_of(chunk, [(partial,)]) != digest_of(chunk, [(other,)])
    assert digest_of(chunk, [(partial,), (other,)]) != digest_of(chunk, [(other,), (partial,)])
    elsewhere = Piece("b", 0, 24, None), Piece("a", 24, 24, None)
    others = [replace(chunk, pieces=(piece,)) for piece in elsewhere]
    others += [replace(chunk, index=2), replace(chunk, start=0), replace(chunk, dtype=np.dtype(np.int64))]
    assert digest_of(chunk, [(partial,)]) not in [digest_of(one, [(partial,)]) for one in others]
