"""Checks right after a CPU has computed the same: what they see, what they decide; no error of a read reaches both."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline.engine.aggregate_beside
import pipeline.engine.aggregate_reference
import pipeline.engine.aggregate_task
import pipeline.engine.pace
import pipeline.storage.blocks
import pipeline.storage.feed
from pipeline.engine.aggregate import run
from pipeline.engine.aggregate_plan import Job, Pass
from pipeline.engine.aggregate_task import compute_chunk
from pipeline.engine.pace import LEAST_SECONDS, Check, EvenPace, Pace
from pipeline.errors import PipelineError, VerificationError
from pipeline.settings import Settings
from pipeline.storage.blocks import read_blocks
from pipeline.storage.chunks import Chunk, plan
from pipeline.storage.feed import SOURCE as SOURCE
from pipeline.storage.planned_file import fill
from pipeline.storage.sources import Byteorder, open_source
from tests.cases.aggregation_checks import plainly
from tests.pipeline.engine.checked_parts import ask_pace, compared
from workflows.by_rows import by_rows
from workflows.digest import DIGEST, DigestOptions
from workflows.histogram import HISTOGRAM, HistogramOptions
from workflows.reduce import REDUCE, ReduceOptions
from workflows.rows import Rows, RowsOptions

pytestmark = pytest.mark.usefixtures("compiled")

SAMPLES = np.random.default_rng(0).integers(0, 1000, 50_000).astype(np.int32)
OPTIONS = HistogramOptions(bins=100, range=(0.0, 1000.0))
COUNTED = Job(HISTOGRAM, OPTIONS)
BLOCK = 4000  # bytes


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short blocks, and tasks without a worker."""
    monkeypatch.setattr(pipeline.storage.blocks, "BLOCK_BYTES", BLOCK)
    monkeypatch.setattr(pipeline.engine.aggregate_task, "FRAMES", 1)  # blocks at the end of a file wait for no others
    monkeypatch.setattr(pipeline.engine.pace, "_paces", OrderedDict())
    monkeypatch.setitem(pipeline.storage.chunks.LEAST_BYTES, "auto", 1)
    for name in ("unit_name", "worker_address"):
        monkeypatch.setattr(pipeline.engine.aggregate_task, name, lambda *_: "here")


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    """Files of different lengths."""
    for number, part in enumerate(np.split(SAMPLES, [7, 12_345, 30_000])):
        part.tofile(tmp_path / f"{number}.bin")
    return [str(tmp_path / f"{number}.bin") for number in range(4)]


def chunk_of(paths: list[str], verify: str, part: int = 6000, byteorder: Byteorder = "little") -> Chunk:
    (chunk,) = plan(open_source(tuple(paths), "int32", byteorder), 2**30, verify, 1, part)
    return chunk


def pass_of(verify: str, *jobs: Job) -> Pass:
    return Pass(jobs or (COUNTED,), "cpu", verify=verify)


@pytest.mark.parametrize("byteorder", ["little", "big"])
@pytest.mark.parametrize("part", [400, 6000, 2**30])
def test_all_parts_are_checked(paths: list[str], part: int, byteorder: Byteorder) -> None:
    """Of all jobs, with the places of extremes, however files, blocks and parts are cut."""
    pass_ = pass_of("full", COUNTED, Job(REDUCE, ReduceOptions("sum,std,argmin,argmax")))
    chunk = chunk_of(paths, "full", part, byteorder)
    result = compute_chunk(pass_, chunk)
    assert result.checks == (Check.BESIDE,) * len(chunk.parts)
    assert result.reference is not None and result.reference.timeline.nbytes["verify"] == SAMPLES.nbytes
    expected = np.histogram(SAMPLES if byteorder == "little" else SAMPLES.byteswap(), 100, (0, 1000))[0]
    np.testing.assert_array_equal(result.reference.partials[0][1:-2], expected)
    assert compared(pass_, chunk, result) == (len(SAMPLES), [region.samples for region in chunk.parts])


def test_a_chunk_that_begins_later(paths: list[str]) -> None:
    """Places of extremes, and of what is digested, count from the start of the source; so do rows that take turns."""
    rows = RowsOptions(Rows("channel", (16,), None, 16), np.dtype("int32"), (OPTIONS,))
    pass_ = pass_of("full", Job(REDUCE, ReduceOptions("argmin,argmax")), Job(DIGEST, DigestOptions()),
                    Job(by_rows(HISTOGRAM), rows))  # fmt: skip
    chunks = plan(open_source(tuple(paths), "int32"), 50_000, "full", 1)
    assert len(chunks) == 4
    for chunk in chunks:
        result = compute_chunk(pass_, chunk)
        assert compared(pass_, chunk, result)[0] == chunk.samples and set(result.checks) == {Check.BESIDE}


def test_a_block_is_checked_once_it_is_computed(paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its bytes are in the core's cache then; the next block would take their place."""
    done: list[tuple[str, int]] = []
    real = pipeline.storage.feed._library()

    class Library:
        def feed(self, fd: int, offset: int, nbytes: int, *more: Any) -> int:
            done.append(("check", nbytes))
            return int(real.feed(fd, offset, nbytes, *more))

    def compute(block: Any, options: Any) -> Any:
        done.append(("compute", block.nbytes))
        return HISTOGRAM.compute(block, options)

    monkeypatch.setattr(pipeline.storage.feed, "_library", Library)
    compute_chunk(pass_of("full", Job(replace(HISTOGRAM, compute=compute), OPTIONS)), chunk_of(paths, "full", 2**30))
    assert done[::2] == [("compute", nbytes) for _, nbytes in done[1::2]]
    assert {what for what, _ in done[1::2]} == {"check"} and sum(nbytes for _, nbytes in done[1::2]) == SAMPLES.nbytes


@pytest.mark.parametrize("verify", ["sample", "auto"])
@pytest.mark.parametrize("when", [Check.BESIDE, Check.PERHAPS])
def test_what_is_always_checked_and_what_the_pace_allows(
    paths: list[str], verify: str, when: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask_pace(EvenPace, when, pass_of(verify), chunk_of(paths, verify), monkeypatch)


def test_the_pace() -> None:
    """Half a second in any case; then checking takes no longer than computing."""
    pace = EvenPace()
    assert pace.check(1) is Check.BESIDE
    pace.add(0.0, 0.9 * LEAST_SECONDS)
    assert pace.check(1) is Check.BESIDE
    pace.add(0.0, 9.1 * LEAST_SECONDS)
    assert pace.check(1) is Check.PERHAPS
    pace.add(9.9 * LEAST_SECONDS, 0.0)
    assert pace.check(1) is Check.PERHAPS
    pace.add(0.2 * LEAST_SECONDS, 0.0)
    assert pace.check(1) is Check.BESIDE


def test_each_kind_of_pace_is_known_by_the_same_key() -> None:
    of_gpu, of_cpu = Pace.of("key"), EvenPace.of("key")
    assert (type(of_gpu), type(of_cpu)) == (Pace, EvenPace)
    assert (Pace.of("key"), EvenPace.of("key")) == (of_gpu, of_cpu)


def test_the_pace_is_told_what_was_spent(paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock stands still but for computing, a second a call, and checking, ten seconds a call."""
    clock, calls, spent = [0.0], [0, 0], list[tuple[float, float]]()
    real, read = EvenPace.add, pipeline.storage.feed._library()

    class Library:
        def feed(self, *arguments: Any) -> int:
            clock[0] += 10
            calls[1] += 1
            return int(read.feed(*arguments))

    def compute(block: Any, options: Any) -> Any:
        clock[0] += 1
        calls[0] += 1
        return HISTOGRAM.compute(block, options)

    monkeypatch.setattr(pipeline.storage.feed, "_library", Library)
    monkeypatch.setattr(pipeline.engine.aggregate_beside, "perf_counter", lambda: clock[0])

    def add(self: EvenPace, computing: float, checking: float) -> None:
        spent.append((computing, checking))
        real(self, computing, checking)

    monkeypatch.setattr(EvenPace, "add", add)
    path = Path(paths[0]).with_name("short.bin")
    SAMPLES[:6000].tofile(path)
    pass_, chunk = pass_of("auto", Job(replace(HISTOGRAM, compute=compute), OPTIONS)), chunk_of([str(path)], "auto")
    result = compute_chunk(pass_, chunk)
    assert [sum(seconds) for seconds in zip(*spent, strict=True)] == [calls[0], 10 * calls[1]]
    left_out = [part.samples for part, when in zip(chunk.parts, result.checks, strict=True) if when is Check.PERHAPS]
    assert left_out and compared(pass_, chunk, result)[0] == 6000 - sum(left_out)


def test_nothing_is_checked_where_nobody_asks(paths: list[str]) -> None:
    result = compute_chunk(pass_of("off"), chunk_of(paths, "off"))
    assert result.checks == () and result.reference is None


@pytest.mark.parametrize("which", ["check", "feed"])
def test_what_is_not_compiled_is_left_to_others(paths: list[str], which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if which == "feed":
        monkeypatch.setattr(pipeline.storage.feed, "_library", lambda: None)
    job = Job(replace(HISTOGRAM, check=plainly(HISTOGRAM.reference)), OPTIONS) if which == "check" else COUNTED
    result = compute_chunk(pass_of("full", job), chunk_of(paths, "full"))
    assert result.checks == () and result.reference is None


def moved(real: Any) -> Callable[..., None]:
    """A read that brings the bytes before those that were asked for."""
    return lambda fd, block, piece, start: real(fd, block, piece, max(start - 4, 0))


def stale(real: Any) -> Callable[..., None]:
    """A buffer that keeps what it had."""
    return lambda fd, block, piece, start: None if start else real(fd, block, piece, start)


@pytest.mark.parametrize("wrong", [moved, stale])
@pytest.mark.parametrize("verify", ["full", "auto"])
def test_a_wrong_read_is_seen(paths: list[str], wrong: Any, verify: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline.storage.blocks, "fill", wrong(fill))
    pass_, chunk = pass_of(verify), chunk_of(paths, verify)
    result = compute_chunk(pass_, chunk)
    with pytest.raises(VerificationError, match=r"^histogram: a number is wrong in chunk 0 \(.*expected \d+, got \d+"):
        compared(pass_, chunk, result)


@pytest.mark.parametrize("again", [False, True])
def test_a_block_lost_or_read_twice_is_seen(paths: list[str], again: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks follow their own count of samples."""
    module = pipeline.engine.aggregate_task

    def read(*arguments: Any) -> Any:
        for number, block in enumerate(read_blocks(*arguments)):
            if number != 5:
                yield block
            if again and number in (4, 5):
                yield block

    monkeypatch.setattr(module, "read_blocks", read)
    pass_, chunk = pass_of("full"), chunk_of(paths, "full")
    with pytest.raises((PipelineError, ValueError)):
        compared(pass_, chunk, compute_chunk(pass_, chunk))


def test_a_check_that_is_wrong_is_seen(paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference counts some samples of every chunk, too."""
    monkeypatch.setattr(pipeline.engine.aggregate_reference, "COMPARED", 7)
    seen: list[int] = []

    def reference(samples: Any, options: Any) -> Any:
        seen.append(len(samples))
        return HISTOGRAM.reference(samples, options) + 1

    with pytest.raises(VerificationError, match="the check and the reference disagree in chunk 0"):
        compute_chunk(pass_of("full", Job(replace(HISTOGRAM, reference=reference), OPTIONS)), chunk_of(paths, "full"))
    assert seen == [7]


@pytest.mark.parametrize("change", ["truncated", "replaced"])
def test_a_file_that_changes_before_its_check_ends_the_run(
    tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the last of it was computed."""
    path = tmp_path / "x.bin"
    SAMPLES[:900].tofile(path)
    chunk = chunk_of([str(path)], "full", 2**30)

    def compute(block: Any, options: Any) -> Any:
        counts = HISTOGRAM.compute(block, options)
        if change == "truncated":
            with path.open("r+b") as file:
                file.truncate(1000)
        else:
            SAMPLES[900:1800].tofile(tmp_path / "y.bin")
            (tmp_path / "y.bin").replace(path)
        return counts

    with pytest.raises(PipelineError, match=r"x.bin: (shrank|was replaced by another file) while it was read"):
        compute_chunk(pass_of("full", Job(replace(HISTOGRAM, compute=compute), OPTIONS)), chunk)


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("verify", ["auto", "full", "sample"])
def test_no_task_checks_what_has_been_checked(paths: list[str], verify: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(pipeline.engine.aggregate, "recompute_parts", lambda *of: asked.append(of))
    monkeypatch.setattr(pipeline.engine.aggregate_parts, "recompute_parts", lambda *of: asked.append(of))
    verdict = run(
        HISTOGRAM, OPTIONS, open_source(tuple(paths), "int32"), Settings(verify=verify, chunk_bytes=30_000)
    ).verdict
    assert not asked
    assert verdict.checked == len(SAMPLES) if verify != "sample" else 0 < verdict.checked < len(SAMPLES) / 100
