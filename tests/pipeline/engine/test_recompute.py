"""Tasks that recompute parts of chunks: in order, in time, on all threads beside a GPU; checks that are checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import pipeline.engine.aggregate_task
from pipeline.engine.aggregate_plan import Job, Pass
from pipeline.engine.aggregate_reference import COMPARED
from pipeline.engine.aggregate_task import recompute_parts
from pipeline.errors import PipelineError
from pipeline.storage.chunks import Chunk, plan
from pipeline.storage.sources import open_source
from tests.cases.aggregation_checks import plainly
from workflows.histogram import HISTOGRAM, HistogramOptions

SAMPLES, CHUNK, PART = 4000, 1000, 100
OPTIONS = HistogramOptions(bins=SAMPLES, range=(0.0, SAMPLES))


@pytest.fixture
def parts(tmp_path: Path) -> list[Chunk]:
    """Ten of each of four chunks; the samples are their positions."""
    np.arange(SAMPLES, dtype=np.int32).tofile(tmp_path / "samples.bin")
    source = open_source((str(tmp_path / "samples.bin"),))
    return [chunk.part(region) for chunk in plan(source, 4 * CHUNK, "full", 0, 4 * PART) for region in chunk.always]


@pytest.fixture
def four_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline.engine.aggregate_task, "worker_threads", lambda: 4)
    pipeline.engine.aggregate_task._checking_threads.cache_clear()


def pass_of(device: str = "cpu", seed: int = 0, **changes: Any) -> Pass:
    return Pass((Job(replace(HISTOGRAM, **changes), OPTIONS),), device, seed=seed)


def noting(seen: list[int]) -> Callable[[NDArray[Any], HistogramOptions], NDArray[np.int64]]:
    def count(samples: NDArray[Any], options: HistogramOptions) -> NDArray[np.int64]:
        seen.append(int(samples[0]))
        return HISTOGRAM.reference(samples, options)

    return count


@pytest.mark.usefixtures("four_threads")
@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_references_are_in_order(parts: list[Chunk], device: str) -> None:
    references = recompute_parts(pass_of(device), parts, False)
    assert len(references) == 40
    for number, reference in enumerate(references):
        assert np.flatnonzero(reference.partials[0]).tolist() == list(range(1 + PART * number, 1 + PART * (number + 1)))


@pytest.mark.usefixtures("four_threads")
def test_beside_a_gpu_all_threads_share_the_parts(parts: list[Chunk]) -> None:
    """Four at a time: each waits for three others."""
    others = Barrier(4)

    def waiting(samples: NDArray[Any], options: HistogramOptions) -> NDArray[np.int64]:
        others.wait(30)
        return HISTOGRAM.reference(samples, options)

    assert len(recompute_parts(pass_of("gpu", check=plainly(waiting)), parts, False)) == 40


@pytest.mark.usefixtures("four_threads")
@pytest.mark.parametrize(("device", "fewest"), [("cpu", 1), ("gpu", 1)])
def test_none_begins_when_time_is_up(parts: list[Chunk], device: str, fewest: int) -> None:
    """One is recomputed in any case, and none is left out before one that is not."""
    seen: list[int] = []
    references = recompute_parts(pass_of(device, check=plainly(noting(seen))), parts, False, -1.0)
    assert len(references) == fewest and seen == [0]
    clock = iter([0.0, *[1.0] * 5, *[3.0] * 100])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline.engine.aggregate_task, "perf_counter", lambda: next(clock))
        assert 1 < len(recompute_parts(pass_of(device), parts, False, 2.0)) < 10


@pytest.mark.usefixtures("four_threads")
@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_a_random_part_of_each_chunk_is_compared(parts: list[Chunk], device: str) -> None:
    compared = set()
    for seed in range(30):
        seen: list[int] = []
        recompute_parts(pass_of(device, seed, reference=noting(seen), check=plainly(HISTOGRAM.reference)), parts, True)
        assert sorted(start // CHUNK for start in seen) == [0, 1, 2, 3]
        compared |= {start // PART for start in seen}
        seen.clear()
        recompute_parts(pass_of(device, seed, reference=noting(seen), check=plainly(HISTOGRAM.reference)), parts, False)
        assert not seen
    assert len(compared) > 30 and PART < COMPARED


@pytest.mark.usefixtures("four_threads")
@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_a_failure_names_its_chunk(parts: list[Chunk], device: str) -> None:
    def failing(samples: NDArray[Any], options: HistogramOptions) -> NDArray[np.int64]:
        if 2345 in samples:
            raise RuntimeError("planted")
        return HISTOGRAM.reference(samples, options)

    with pytest.raises(PipelineError, match=r"^histogram: chunk 2 \(.*bytes 9200-9599\) failed: RuntimeError: planted"):
        recompute_parts(pass_of(device, check=plainly(failing)), parts, False)
