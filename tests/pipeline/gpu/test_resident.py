"""What stays on the device in a run: read once, given again, freed."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Barrier, Event
from typing import Any

import numpy as np
import pytest

from pipeline.engine.aggregate_plan import Job, Pass
from pipeline.engine.aggregate_task import compute_chunk
from pipeline.gpu import blocks, resident
from pipeline.gpu.blocks import RESIDENT, resident_blocks, shrink
from pipeline.storage.chunks import Chunk, plan
from pipeline.storage.sources import open_source
from pipeline.timeline import Timeline
from tests.emulator.kvikio import install
from workflows.quantile import QUANTILE, QuantileOptions

pytestmark = pytest.mark.gpu

SAMPLES = np.random.default_rng(0).standard_normal(3001).astype(np.float32)


@pytest.fixture
def gpu(cp: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    if not hasattr(cp.cuda, "Stream"):
        install(cp, monkeypatch)
    for name in ("device_name", "unit_name", "worker_address"):
        monkeypatch.setattr(f"pipeline.engine.aggregate_task.{name}", lambda *_: "planted")
    resident.forget()
    monkeypatch.setattr(resident, "_run", "")
    yield cp
    resident.forget()


@pytest.fixture
def chunks(tmp_path: Path) -> tuple[Chunk, ...]:
    SAMPLES.tofile(tmp_path / "a.bin")
    planned = plan(open_source((str(tmp_path / "a.bin"),), "float32"), 5000, "off", 0)
    assert isinstance(planned, tuple) and len(planned) > 1
    return planned


def got(run: str, chunk: Chunk) -> tuple[Any, bool]:
    """Samples of a chunk in blocks of 1,000 bytes, and whether they were there."""
    timeline = Timeline()
    parts = [block.get() for block in resident_blocks(run, chunk, timeline, 1000)]
    return np.concatenate(parts), timeline.transfer_paths == {RESIDENT}


def test_later_passes_of_a_run_read_nothing(gpu: Any, chunks: tuple[Chunk, ...]) -> None:
    for was in (False, True, True):
        for chunk in chunks:
            samples, there = got("run", chunk)
            assert there == was
            np.testing.assert_array_equal(samples, SAMPLES[chunk.start : chunk.start + chunk.samples])


def test_another_run_finds_nothing_and_frees_it(gpu: Any, chunks: tuple[Chunk, ...]) -> None:
    assert [got(run, chunks[0])[1] for run in ("one", "other", "one")] == [False] * 3


def test_without_room_nothing_is_kept(gpu: Any, chunks: tuple[Chunk, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    room = iter([True, False] * 10)
    monkeypatch.setattr(resident, "_room", lambda nbytes: next(room))
    assert [got("run", chunks[0])[1] for _ in range(3)] == [False] * 3
    assert not resident.forget()


@pytest.mark.parametrize(("free", "fits"), [(26_000, True), (25_999, False)])
def test_a_quarter_of_the_memory_stays_free(gpu: Any, monkeypatch: pytest.MonkeyPatch, free: int, fits: bool) -> None:
    monkeypatch.setattr(gpu.cuda.runtime, "memGetInfo", lambda: (free, 100_000))
    assert resident._room(1000) == fits


def test_a_job_that_does_not_stream_frees_it(gpu: Any, chunks: tuple[Chunk, ...]) -> None:
    got("run", chunks[0])
    blocks.release()
    assert not got("run", chunks[0])[1]


def test_a_chunk_that_was_not_read_to_its_end_is_not_kept(gpu: Any, chunks: tuple[Chunk, ...]) -> None:
    with closing(resident_blocks("run", chunks[0], Timeline(), 1000)) as some:
        next(some)
    samples, there = got("run", chunks[0])
    assert not there and len(samples) == chunks[0].samples


def test_memory_is_freed_before_blocks_shrink(
    gpu: Any, chunks: tuple[Chunk, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "_most", blocks.BLOCK_BYTES)
    got("run", chunks[0])
    assert shrink() and blocks._most == blocks.BLOCK_BYTES and not got("run", chunks[0])[1]
    assert shrink() and shrink() and blocks._most == blocks.BLOCK_BYTES // 2


def test_surveys_keep_their_blocks_and_the_pass_that_proves_them_reads(gpu: Any, chunks: tuple[Chunk, ...]) -> None:
    job = Job(QUANTILE, QuantileOptions("0.5")).prepared(SAMPLES.dtype)
    paths = []
    while job.surveyed:
        surveys = Pass((job.survey(),), "gpu", 1000, run="run", proven=True)
        assert surveys.resident and not Pass((job,), "gpu", spare_bytes=2**20, proven=True).resident
        results = [compute_chunk(surveys, chunk) for chunk in chunks]
        paths.append({path for result in results for path in result.timeline.transfer_paths})
        total = results[0].partials[0][0]
        for result in results[1:]:
            total = surveys.jobs[0].workflow.combine(total, result.partials[0][0])
        job = job.resolved(total)
    assert len(paths) > 1 and RESIDENT not in paths[0] and all(path == {RESIDENT} for path in paths[1:])
    proof = compute_chunk(Pass((job,), "gpu", 1000, run="run"), chunks[0])
    assert RESIDENT not in proof.timeline.transfer_paths and not resident.forget()


def test_a_part_is_loaded_once_by_however_many_ask(gpu: Any) -> None:
    asked, loads, begun = Barrier(4), [], Event()

    def load() -> list[int]:
        loads.append(1)
        begun.wait(10)
        return [7]

    def ask() -> Any:
        asked.wait(10)
        return resident.part("run", "place", 8, load)

    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(ask) for _ in range(4)]
        while not loads:
            pass
        assert not any(future.done() for future in futures)
        begun.set()
        assert [future.result(10) for future in futures] == [([7], True)] * 4
    assert len(loads) == 1 and all(future.result()[0] is futures[0].result()[0] for future in futures)
    assert resident.part("run", "elsewhere", 8, lambda: 8) == (8, True)


def test_a_part_that_could_not_be_loaded_is_loaded_again_by_who_waits(gpu: Any) -> None:
    waiting, tries = Event(), []

    def load() -> int:
        tries.append(1)
        if len(tries) > 1:
            return 7
        waiting.wait(10)
        raise OSError("planted")

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(resident.part, "run", "place", 8, load)
        while not tries:
            pass
        second = pool.submit(resident.part, "run", "place", 8, load)
        waiting.set()
        assert isinstance(first.exception(10), OSError) and second.result(10) == (7, False)
    assert len(tries) == 2


def test_parts_of_another_run_are_freed(gpu: Any) -> None:
    values = iter(range(9))
    assert [resident.part(run, "place", 8, lambda: next(values))[0] for run in "aab"] == [0, 0, 1]
    assert resident.forget() and resident.part("b", "place", 8, lambda: 3) == (3, True)


def test_parts_without_room_are_not_kept(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu.cuda.runtime, "memGetInfo", lambda: (26_000, 100_000))
    values = iter(range(4))
    for nbytes, expected in ((1001, (0, False)), (1001, (1, False)), (1000, (2, True)), (1000, (2, True))):
        assert resident.part("run", nbytes, nbytes, lambda: next(values)) == expected


def test_parts_whose_memory_was_needed_are_not_kept_again(gpu: Any) -> None:
    values = iter(range(9))

    def ask(run: str) -> Any:
        return resident.part(run, "place", 8, lambda: next(values))

    assert [ask("one"), ask("one")] == [(0, True)] * 2
    assert resident.make_room() and not resident.make_room()
    assert [ask("one"), ask("one"), ask("other"), ask("other")] == [(1, False), (2, False), (3, True), (3, True)]
