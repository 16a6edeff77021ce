"""Checks that die with their worker are done again, and counted once."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import pipeline.cluster.placement
import pipeline.engine.aggregate
import pipeline.engine.run_loop
import pipeline.storage.chunks
from pipeline.cluster.placement import Placement
from pipeline.engine.aggregate import run
from pipeline.settings import Settings
from pipeline.storage.sources import open_source
from tests.cases.aggregation_checks import plainly
from workflows.histogram import HISTOGRAM, HistogramOptions

SAMPLES, PART = 20_000, 100


def check(block: NDArray[Any], options: HistogramOptions) -> NDArray[np.int64]:
    """The first of the parts that could be left out ends its process."""
    if len(block) == PART:
        try:
            os.close(os.open(os.environ["BARU_TEST_MARKER"], os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            pass
        else:
            os._exit(9)
    return HISTOGRAM.reference(block, options)


# Dask leaves the connection to the dead process open, and its end is told.
@pytest.mark.filterwarnings("ignore:histogram. chunk.*is done again:pipeline.errors.PipelineWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_parts_whose_check_died_are_checked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARU_TEST_MARKER", f"{tmp_path}/marker")
    monkeypatch.setattr(pipeline.cluster.placement, "PROCESSES_FROM_BYTES", 0)
    monkeypatch.setattr(pipeline.cluster.placement, "processes", lambda compiled: 2)
    monkeypatch.setattr(pipeline.cluster.placement, "cores", lambda: 2)
    monkeypatch.setattr(pipeline.engine.aggregate, "PART_BYTES", {"cpu": 4 * PART})
    monkeypatch.setattr(pipeline.engine.aggregate, "PARTS", 20)
    monkeypatch.setattr(pipeline.engine.aggregate, "PART_OF_PARTIAL", 0)
    monkeypatch.setattr(pipeline.engine.run_loop, "LEAST_SECONDS", 1e6)
    monkeypatch.setitem(pipeline.storage.chunks.LEAST_BYTES, "auto", 1)
    np.arange(SAMPLES, dtype=np.int32).tofile(tmp_path / "samples.bin")
    source, options = open_source((str(tmp_path / "samples.bin"),)), HistogramOptions(bins=50, range=(0, SAMPLES))
    how = Settings(Placement(device="cpu"), chunk_bytes=8000)
    outcome = run(replace(HISTOGRAM, check=plainly(check)), options, source, how)
    assert outcome.where == "2 processes on this machine"
    assert (tmp_path / "marker").exists()  # one did die
    assert outcome.verdict.checked == SAMPLES
    assert outcome.result.counts.tolist() == [SAMPLES // 50] * 50
