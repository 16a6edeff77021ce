"""`--verify auto` on aggregations: everything where there is time, never less than 1 % of a chunk, counted exactly."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import pipeline.engine.aggregate
import pipeline.engine.aggregate_parts
import pipeline.engine.aggregate_reference
import pipeline.engine.aggregate_task
import pipeline.engine.run_loop
import pipeline.storage.chunks
from pipeline.engine.aggregate import run
from pipeline.engine.outcome import Outcome
from pipeline.errors import PipelineError, VerificationError
from pipeline.settings import Settings
from pipeline.storage.sources import open_source
from tests.cases.aggregation_checks import plainly, unchecked
from tests.cases.formats import PIPE, Writer
from tests.project.test_documents import ROOT
from workflows.histogram import FINITE_RANGE, HISTOGRAM, HistogramOptions
from workflows.reduce import REDUCE, ReduceOptions

pytestmark = pytest.mark.usefixtures("shared")
SAMPLES, CHUNK, PART = 20_000, 2000, 100  # of ten chunks; at least 20 samples of each are always checked
ALWAYS = CHUNK // 100
OPTIONS = HistogramOptions(bins=50, range=(0, SAMPLES))
CHECKED: list[tuple[int, int]] = []  # first and number of the samples of each checked block; the cluster is here


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts, and what is always checked, for small files; only what a test says takes time."""
    CHECKED.clear()
    monkeypatch.setattr(pipeline.engine.aggregate, "PART_BYTES", {"cpu": 4 * PART})
    monkeypatch.setattr(pipeline.engine.aggregate, "PARTS", CHUNK // PART)
    monkeypatch.setattr(pipeline.engine.aggregate, "PART_OF_PARTIAL", 0)
    monkeypatch.setitem(pipeline.storage.chunks.LEAST_BYTES, "auto", 1)


@pytest.fixture
def plenty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any check is in time."""
    monkeypatch.setattr(pipeline.engine.run_loop, "LEAST_SECONDS", 1e6)


@pytest.fixture
def none_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time is up as soon as computing has ended, and a task checks one part."""
    monkeypatch.setattr(pipeline.engine.run_loop, "LEAST_SECONDS", -1.0)
    monkeypatch.setattr(pipeline.engine.run_loop, "perf_counter", lambda: 0.0)
    monkeypatch.setattr(pipeline.engine.aggregate_parts, "CHECK_SECONDS", -1.0)


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Every sample says where it is."""
    np.arange(SAMPLES, dtype=np.int32).tofile(tmp_path / "samples.bin")
    return str(tmp_path / "samples.bin")


def counted(*paths: str, options: Any = OPTIONS, verify: str = "auto", **changes: Any) -> Outcome:
    settings = Settings(verify=verify, chunk_bytes=4 * CHUNK)
    return run(replace(HISTOGRAM, **({"check": unchecked} | changes)), options, open_source(paths), settings)


def recording(block: NDArray[Any], options: HistogramOptions) -> NDArray[np.int64]:
    if threading.current_thread() is not threading.main_thread():  # which asks how large a partial is
        CHECKED.append((int(block[0]), len(block)))
    return HISTOGRAM.reference(block, options)


def slow(block: NDArray[Any], options: HistogramOptions) -> NDArray[np.int64]:
    time.sleep(0.05)
    return recording(block, options)


def of_chunks() -> list[int]:
    """Samples checked of each chunk, none of them twice."""
    found = [0] * (SAMPLES // CHUNK)
    seen = np.zeros(SAMPLES, int)
    for start, samples in CHECKED:
        found[start // CHUNK] += samples
        seen[start : start + samples] += 1
    assert seen.max() <= 1
    return found


@pytest.mark.usefixtures("plenty")
def test_a_check_that_keeps_up_checks_everything(path: str) -> None:
    verdict = counted(path, reference=recording).verdict
    assert (verdict.mode, verdict.samples, verdict.checked, verdict.chunks) == ("auto", SAMPLES, SAMPLES, 10)
    assert of_chunks() == [CHUNK] * 10


@pytest.mark.usefixtures("none_left")
def test_a_slow_check_ends_with_the_run_and_one_percent_of_each_chunk(path: str, workers: Any) -> None:
    """Beyond what is always checked, no more than what began before computing ended."""
    outcome = counted(path, check=plainly(slow))
    assert 10 * ALWAYS <= outcome.verdict.checked <= 10 * ALWAYS + 2 * workers.threads * PART
    assert outcome.result.counts.tolist() == [SAMPLES // 50] * 50


@pytest.mark.usefixtures("none_left")
def test_verdict_counts_what_was_checked(path: str) -> None:
    verdict = counted(path, reference=slow).verdict
    assert verdict.checked == sum(of_chunks())
    assert min(of_chunks()) >= ALWAYS


@pytest.mark.parametrize(
    ("device", "asked"),
    [
        # Time, number of tasks under way, and whether another check begins. On a CPU one waits for a free thread.
        ("cpu", [(1, 2, False), (2, 1, True), (10, 0, True), (19.9, 0, True), (20, 0, False), (30, 0, False)]),
        ("gpu", [(1, 2, True), (2, 1, True), (10, 0, False), (11, 0, False)]),
        ("cpu", [(0.1, 0, True), (0.4, 0, True), (0.5, 0, False)]),
        ("gpu", [(0.1, 0, True), (0.4, 0, True), (0.5, 0, False)]),
    ],
)
def test_checks_get_as_long_as_computing(
    workers: Any, device: str, asked: list[tuple[float, int, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside it on a GPU, after it on a CPU; half a second in any case."""
    clock, begun = [0.0], []

    def results(items: Any, submit: Any, workers: Any, name_of: Any, extra: Any, most: int) -> Iterator[Any]:
        for at, needed, _ in asked:
            clock[0] = at
            begun.append((at, needed, extra(needed) is not None))
        yield from ()

    run_loop = pipeline.engine.run_loop
    loop = run_loop.Run(Settings(), 1)
    loop.workers = replace(workers, device=device, threads=2)
    monkeypatch.setattr(run_loop, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(run_loop, "results", results)
    check = run_loop.Extra((), "a check", lambda result: iter(()))
    loop.complete(run_loop.Work([], 0, str, lambda items: (), lambda *_: (), lambda *_: iter(()),
                                extra=lambda in_time: check if in_time else None))  # fmt: skip
    assert begun == asked


@pytest.mark.usefixtures("none_left")
@pytest.mark.parametrize("room", [0, 3000])
def test_parts_that_find_no_room_stay_unchecked(path: str, room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even with time for all of them."""
    monkeypatch.setattr(pipeline.engine.run_loop, "LEAST_SECONDS", 1e6)
    monkeypatch.setattr(pipeline.engine.aggregate_parts, "WAITING_BYTES", room)
    verdict = counted(path, reference=recording).verdict
    assert verdict.checked == sum(of_chunks())
    assert verdict.checked == 10 * ALWAYS if room == 0 else 10 * ALWAYS < verdict.checked < SAMPLES


def wrong_at(place: int) -> Any:
    """A compute that counts this sample one bin too high."""

    def compute(block: NDArray[Any], options: HistogramOptions) -> NDArray[np.int64]:
        block = block.copy()
        block[block == place] += SAMPLES // 50
        return HISTOGRAM.compute(block, options)

    return compute


@pytest.mark.usefixtures("plenty")
@pytest.mark.parametrize("place", [0, 6150, SAMPLES - SAMPLES // 50 - 1])
def test_an_error_anywhere_is_found_in_its_part(path: str, place: int) -> None:
    text = rf"a number is wrong in chunk {place // CHUNK} \(\S+ bytes (\d+)-(\d+)\) on .*: bin {place // 400} .*got "
    with pytest.raises(VerificationError, match=text) as caught:
        counted(path, compute=wrong_at(place))
    found = re.search(text, str(caught.value))
    assert found, caught.value
    assert int(found[1]) <= 4 * place <= int(found[2]) < int(found[1]) + 4 * PART


@pytest.mark.usefixtures("none_left")
def test_another_chunk_is_found_without_any_time(path: str) -> None:
    """As from a buffer that was not filled again: every chunk is checked in part, from a second read."""

    def stale(block: NDArray[Any], options: HistogramOptions) -> NDArray[np.int64]:
        return HISTOGRAM.compute(block - CHUNK if block[0] // CHUNK == 5 else block, options)

    with pytest.raises(VerificationError, match=r"^histogram: a number is wrong in chunk 5 "):
        counted(path, compute=stale)


@pytest.mark.parametrize("verify", ["auto", "full", "sample"])
def test_a_check_that_shares_an_error_with_compute_is_found(path: str, verify: str) -> None:
    """By the reference, on some samples of every part."""

    def wrong(block: NDArray[Any], options: HistogramOptions) -> NDArray[np.int64]:
        return np.roll(HISTOGRAM.reference(block, options), 1)

    text = r"^histogram: the check and the reference disagree in chunk \d+ \(.* bytes .*\): .*expected .*; nothing was"
    with pytest.raises(VerificationError, match=text):
        counted(path, compute=wrong, check=plainly(wrong), verify=verify)


@pytest.mark.parametrize("verify", ["auto", "full", "sample"])
def test_the_reference_sees_few_samples_where_there_is_a_check(
    path: str, verify: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline.engine.aggregate_reference, "COMPARED", 7)
    verdict = counted(path, check=plainly(HISTOGRAM.reference), reference=recording, verify=verify).verdict
    assert max(samples for _, samples in CHECKED) == 7
    assert verdict.checked >= SAMPLES / 256


@pytest.mark.usefixtures("plenty")
def test_a_check_that_fails_ends_the_run(path: str) -> None:
    def failing(block: NDArray[Any], options: HistogramOptions) -> NDArray[np.int64]:
        if 5050 in block:
            raise RuntimeError("first line\nsecond line")
        return HISTOGRAM.reference(block, options)

    with pytest.raises(PipelineError, match=r"^histogram: chunk 2 \(.* RuntimeError: first line \(.*, line \d+\)$"):
        counted(path, check=plainly(failing))


def test_small_files_are_checked_whole_with_nothing_left_over(
    path: str, none_left: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of small files share chunks."""
    monkeypatch.setitem(pipeline.storage.chunks.LEAST_BYTES, "auto", 2**18)
    verdict = counted(*[path] * 30).verdict
    assert (verdict.samples, verdict.checked) == (30 * SAMPLES, 30 * SAMPLES)


@pytest.mark.usefixtures("none_left")
def test_a_result_is_checked_as_far_as_its_survey(path: str) -> None:
    def slow_range(block: NDArray[Any], options: HistogramOptions) -> NDArray[np.float64]:
        time.sleep(0.05)
        return FINITE_RANGE.reference(block, options)

    assert HISTOGRAM.survey
    survey = replace(HISTOGRAM.survey, workflow=replace(FINITE_RANGE, reference=slow_range, check=unchecked))
    outcome = counted(path, options=HistogramOptions(bins=5, range="auto"), survey=survey)
    assert outcome.options.range == (0.0, SAMPLES - 1.0)
    assert SAMPLES / 100 <= outcome.verdict.checked < SAMPLES / 2


@pytest.mark.usefixtures("plenty")
def test_positions_of_parts_are_those_in_the_file(path: str) -> None:
    source = open_source((path,))
    outcome = run(REDUCE, ReduceOptions("sum,argmin,argmax"), source, Settings(chunk_bytes=4 * CHUNK))
    assert outcome.result.values == {"sum": sum(range(SAMPLES)), "argmin": 0, "argmax": SAMPLES - 1}
    assert outcome.verdict.checked == SAMPLES


@pytest.mark.usefixtures("plenty")
@pytest.mark.parametrize("room", [2**27, 20_000])
def test_what_can_be_read_once_waits_in_memory(tmp_path: Path, room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline.storage.sources, "FORMATS", [PIPE, *pipeline.storage.sources.FORMATS])
    monkeypatch.setattr(pipeline.engine.aggregate_parts, "WAITING_BYTES", room)
    Writer(tmp_path / "pipe", np.arange(SAMPLES, dtype=np.int32).tobytes())
    verdict = counted(str(tmp_path / "pipe")).verdict
    assert (verdict.samples, verdict.read_once) == (SAMPLES, True)
    assert verdict.checked == SAMPLES if room > SAMPLES * 4 else verdict.checked >= SAMPLES / 100


def test_compilers_do_not_use_the_time_of_checks_up(tmp_path: Path) -> None:
    """The first run on a machine checks as much as the second one."""
    slow = tmp_path / "slow-c++"
    slow.write_text('#!/bin/sh\nsleep 1.5\nexec c++ "$@"\n')
    slow.chmod(0o755)
    np.random.default_rng(0).normal(size=300_000).astype("<f4").tofile(tmp_path / "x.f4")
    settings = dict(os.environ) | {"CXX": str(slow), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    words = "-m", "pipeline", "histogram", "x.f4", "--dtype", "float32", "--range", "auto", "--json"
    done = subprocess.run([sys.executable, *words], cwd=tmp_path, env=settings | {"PYTHONPATH": str(ROOT)},
                          capture_output=True, text=True, timeout=100, check=True)  # fmt: skip
    assert json.loads(done.stdout)["verification"]["checked"] == 300_000
