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
from pipeline.storage.sources import open_source
from workflows.histogram import HISTOGRAM, HistogramOptions


def changed_on_the_way(pass_: Pass, chunks: Sequence[Chunk]) -> tuple[ChunkResult, ...]:
    """One bit of the last result."""
    *results, last = compute_chunks(pass_, chunks)
    partial = last.partials[-1][-1].copy()
    partial.view(np.uint8)[-1] ^= 128
    return *results, replace(last, partials=(*last.partials[:-1], (partial,)))


@pytest.mark.parametrize("mode", ["off", "full"])
def test_partial_that_changes_on_its_way_is_found(tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    np.arange(3000, dtype=np.int32).tofile(tmp_path / "samples.bin")
    monkeypatch.setattr(pipeline.engine.aggregate, "compute_chunks", changed_on_the_way)
    how = Settings(placement=Placement(device="cpu"), verify=mode)
    with pytest.raises(VerificationError, match=r"^histogram: chunk 0 \(.*\): what worker inproc.* arrived changed; "):
        run(HISTOGRAM, HistogramOptions(), open_source((str(tmp_path / "samples.bin"),)), how)


@pytest.mark.parametrize("other", [np.zeros(3, np.int32), np.zeros((1, 3)), np.array([0.0, 0.0, -0.0]), np.zeros(2)])
def test_digest_depends_on_every_bit_and_on_what_they_mean(other: Any) -> None:
    partial = np.zeros(3)
    assert digest_of([(partial,)]) == digest_of([(np.zeros(6)[::2],)])
    assert digest_of([(partial,)]) != digest_of([(other,)])
    assert digest_of([(partial,), (other,)]) != digest_of([(other,), (partial,)])
