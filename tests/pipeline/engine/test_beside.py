"""Checks beside the read for a GPU: what they see, what they decide, and that no error of the read reaches them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from distributed import Client
from numpy.typing import NDArray

import pipeline.cluster.worker
import pipeline.engine.aggregate_beside
import pipeline.engine.aggregate_reference
import pipeline.engine.aggregate_task
import pipeline.engine.pace
import pipeline.gpu.pinned
from pipeline.engine.aggregate_plan import Job, Pass
from pipeline.engine.aggregate_task import compute_chunk, warm_up
from pipeline.engine.pace import LEAST_SECONDS, Check, Pace
from pipeline.engine.replay import Replays
from pipeline.errors import PipelineError, VerificationError
from pipeline.gpu import blocks, loads
from pipeline.gpu.pinned import SOURCE as SOURCE
from pipeline.storage.chunks import Chunk, plan
from pipeline.storage.sources import open_source
from tests.cases.aggregation_checks import plainly
from tests.emulator.kvikio import install
from tests.pipeline.engine.checked_parts import ask_pace, compared
from workflows.by_rows import by_rows
from workflows.digest import DIGEST, DigestOptions
from workflows.histogram import HISTOGRAM, HistogramOptions
from workflows.reduce import REDUCE, ReduceOptions
from workflows.rows import Rows, RowsOptions

pytestmark = [pytest.mark.usefixtures("compiled"), pytest.mark.gpu]

SAMPLES = np.random.default_rng(0).integers(0, 1000, 50_000).astype(np.int32)
OPTIONS = HistogramOptions(bins=100, range=(0.0, 1000.0))
BLOCK = 4000


@pytest.fixture(autouse=True)
def gpu(cp: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The GPU, or the host in its place."""
    if not hasattr(cp.cuda, "Stream"):
        install(cp, monkeypatch)
    monkeypatch.setattr(pipeline.engine.pace, "_paces", OrderedDict())
    for name in ("device_name", "unit_name", "worker_address"):
        monkeypatch.setattr(pipeline.engine.aggregate_task, name, lambda *_: "here")
    return cp


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    """Files of different lengths."""
    for number, part in enumerate(np.split(SAMPLES, [7, 12_345, 30_000])):
        part.tofile(tmp_path / f"{number}.bin")
    return [str(tmp_path / f"{number}.bin") for number in range(4)]


def on_host(job: Any) -> Any:
    """The job, which computes on the host what was copied to the device."""
    return replace(job, compute=lambda block, options: job.reference(block.get(), options))


def chunk_of(paths: list[str], verify: str, part: int = 6000, dtype: str = "int32") -> Chunk:
    (chunk,) = plan(open_source(tuple(paths), dtype), 2**30, verify, 1, part)
    return chunk


def pass_of(verify: str, *jobs: Job) -> Pass:
    return Pass(jobs or (Job(on_host(HISTOGRAM), OPTIONS),), "gpu", BLOCK, verify=verify)


@pytest.mark.parametrize("part", [400, 6000, 2**30])
def test_all_parts_are_checked(paths: list[str], part: int) -> None:
    """Of all jobs, with the places of extremes, however files, blocks and parts are cut."""
    jobs = Job(on_host(HISTOGRAM), OPTIONS), Job(on_host(REDUCE), ReduceOptions("sum,std,argmin,argmax"))
    pass_, chunk = pass_of("full", *jobs), chunk_of(paths, "full", part)
    result = compute_chunk(pass_, chunk)
    assert result.checks == (Check.BESIDE,) * len(chunk.parts)
    assert result.reference is not None and result.reference.timeline.nbytes["verify"] == SAMPLES.nbytes
    np.testing.assert_array_equal(result.reference.partials[0][1:-2], np.histogram(SAMPLES, 100, (0, 1000))[0])
    assert compared(pass_, chunk, result) == (len(SAMPLES), [region.samples for region in chunk.parts])


def located(job: Any) -> Any:
    """As `on_host`, of a job that is told where samples are."""
    return replace(job, compute=lambda block, options, indices: job.reference(block.get(), options, indices))


def test_a_chunk_that_begins_later(paths: list[str]) -> None:
    """Places of extremes, and of what is digested, count from the start of the source; so do rows that take turns."""
    rows = RowsOptions(Rows("channel", (16,), None, 16), np.dtype("int32"), (OPTIONS,))
    pass_ = pass_of("full", Job(on_host(REDUCE), ReduceOptions("argmin,argmax")), Job(located(DIGEST), DigestOptions()),
                    Job(located(by_rows(HISTOGRAM)), rows))  # fmt: skip
    chunks = plan(open_source(tuple(paths), "int32"), 50_000, "full", 1)
    assert len(chunks) == 4
    for chunk in chunks:
        result = compute_chunk(pass_, chunk)
        assert compared(pass_, chunk, result)[0] == chunk.samples and Check.BESIDE in result.checks


@pytest.mark.parametrize("verify", ["sample", "auto"])
@pytest.mark.parametrize("when", Check)
def test_what_is_always_checked_and_what_the_pace_allows(
    paths: list[str], verify: str, when: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(pipeline.storage.chunks.LEAST_BYTES, "auto", 1)
    ask_pace(Pace, when, pass_of(verify), chunk_of(paths, verify), monkeypatch)


def test_checks_take_no_more_memory_than_the_chunk(paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []  # however many threads there are
    module = pipeline.engine.aggregate_beside
    monkeypatch.setattr(module, "threads", lambda: 100)
    monkeypatch.setattr(module, "SET_BYTES", 1)
    check: Any = HISTOGRAM.check(OPTIONS, np.dtype("int32"))

    def counted(sets: Any, itemsize: int) -> Any:
        made.append(len(sets))
        return pipeline.gpu.pinned.Checks(sets, itemsize)

    monkeypatch.setattr(module, "Checks", counted)
    chunk = chunk_of(paths, "full")
    assert compared(pass_of("full"), chunk, compute_chunk(pass_of("full"), chunk))[0] == len(SAMPLES)
    assert made == [chunk.nbytes // check.nbytes] and 1 < made[0] < 100


def test_nothing_is_checked_where_nobody_asks(paths: list[str]) -> None:
    result = compute_chunk(pass_of("off"), chunk_of(paths, "off"))
    assert result.checks == () and result.reference is None


@pytest.mark.parametrize("why", ["another byte order", "not compiled", "not through pinned memory"])
def test_what_cannot_be_checked_beside_its_read(paths: list[str], why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is left to others."""
    if why == "not through pinned memory":
        monkeypatch.setattr(blocks, "transfer_path", lambda: "another way")
    job = Job(replace(on_host(HISTOGRAM), check=plainly(HISTOGRAM.reference)), OPTIONS)
    dtype = ">i4" if why == "another byte order" else "int32"
    chunk = chunk_of(paths, "full")
    chunk = replace(chunk, dtype=np.dtype(dtype))
    result = compute_chunk(pass_of("full", *[job] * (why == "not compiled")), chunk)
    assert result.checks == () and result.reference is None


def moved(real: Any) -> Callable[..., Any]:
    """A read that brings the bytes before those that were asked for."""
    return lambda reading, piece, first, runs, target, checked: real(
        reading, piece, first, runs - [[4 * (first > 0), 0]], target, checked
    )


def stale(real: Any) -> Callable[..., Any]:
    """A buffer that keeps what it had."""
    return lambda reading, piece, first, runs, target, checked: real(reading, piece, 0, runs, target, checked)


@pytest.mark.parametrize("wrong", [moved, stale])
@pytest.mark.parametrize("verify", ["full", "auto"])
def test_a_wrong_read_for_the_device_is_seen(
    paths: list[str], wrong: Any, verify: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loads, "transfer", wrong(loads.transfer))
    pass_, chunk = pass_of(verify), chunk_of(paths, verify)
    result = compute_chunk(pass_, chunk)
    with pytest.raises(VerificationError, match=r"^histogram: a number is wrong in chunk 0 \(.*expected \d+, got \d+"):
        compared(pass_, chunk, result)


def test_blocks_that_are_miscounted_are_seen(paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The checks were asked for other samples than those of the parts."""
    real = pipeline.engine.aggregate_beside.Beside.runs
    monkeypatch.setattr(
        pipeline.engine.aggregate_beside.Beside,
        "runs",
        lambda self, start, samples: real(self, start, min(samples, 49_999 - start)),
    )
    with pytest.raises(PipelineError, match=r"expected to check 50000 samples beside their read, got 49999; run again"):
        compute_chunk(pass_of("full"), chunk_of(paths, "full"))


def test_a_block_in_place_of_another_is_seen(paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The device gets it twice, and so would the checks, which count as many samples."""
    blocks_, real = list[Any](), cast(Any, loads.partial)

    def first_again(begin: Any, parts: Any, *more: Any) -> Any:
        blocks_.append(parts)
        return real(begin, blocks_[0] if len(blocks_) == 2 else parts, *more)

    monkeypatch.setattr(loads, "partial", first_again)
    with pytest.raises(PipelineError, match=r"expected to check from sample [1-9]\d* on, got \d+; report this"):
        compute_chunk(pass_of("full"), chunk_of(paths, "full"))
    assert len(blocks_) > 1


def test_a_file_in_place_of_another_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the same length, of which the loop over them would tell the device and the checks alike."""
    names = [str(tmp_path / f"{number}.bin") for number in range(2)]
    for name, part in zip(names, np.split(SAMPLES, 2), strict=True):
        part.tofile(name)
    pass_, chunk, real = pass_of("full"), chunk_of(names, "full"), blocks.loads_of
    monkeypatch.setattr(blocks, "loads_of", lambda pieces, *more: real([chunk.pieces[0] for _ in pieces], *more))
    result = compute_chunk(pass_, chunk)
    with pytest.raises(VerificationError, match="a number is wrong"):
        compared(pass_, chunk, result)


def test_a_check_that_is_wrong_is_seen(paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference counts some samples of every chunk, too."""
    monkeypatch.setattr(pipeline.engine.aggregate_reference, "COMPARED", 7)
    seen: list[NDArray[Any]] = []

    def reference(samples: NDArray[Any], options: Any) -> NDArray[np.int64]:
        seen.append(samples)
        return HISTOGRAM.reference(samples, options) + 1

    job = Job(replace(on_host(HISTOGRAM), reference=reference), OPTIONS)
    with pytest.raises(VerificationError, match="the check and the reference disagree in chunk 0"):
        compute_chunk(pass_of("full", job), chunk_of(paths, "full"))
    assert [len(samples) for samples in seen] == [7]


def test_a_failure_leaves_no_checks(paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """They are freed once, after the last read."""
    ended: list[Any] = []
    real = pipeline.gpu.pinned.Checks.end
    monkeypatch.setattr(pipeline.gpu.pinned.Checks, "end", lambda self: ended.append(self) or real(self))

    def failing(block: Any, options: Any) -> Any:
        raise RuntimeError("planted")

    for compute in (failing, on_host(HISTOGRAM).compute):
        try:
            compute_chunk(pass_of("full", Job(replace(HISTOGRAM, compute=compute), OPTIONS)), chunk_of(paths, "full"))
        except RuntimeError as error:
            assert str(error) == "planted"
    assert len(ended) == len(set(map(id, ended))) == 2


@pytest.mark.parametrize("verify", ["full", "auto", "off"])
def test_warming_up_checks_a_little(paths: list[str], verify: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the mode, without starting the pace, and in no task, as Dask calls it."""
    module, results = pipeline.engine.aggregate_task, list[Any]()
    real = module._streamed
    monkeypatch.setattr(module, "_streamed", lambda *given: results.append(real(*given)))
    monkeypatch.setattr(module, "find_devices", lambda: type("", (), {"usable": 1}))
    monkeypatch.setattr(module, "worker_address", pipeline.cluster.worker.worker_address)
    monkeypatch.setattr(Pace, "check", lambda *_: pytest.fail("asked"))
    with Client(processes=False, n_workers=1, dashboard_address=None) as client:
        client.run(warm_up, pass_of(verify), chunk_of(paths, verify))
    assert [checks for _, _, checks, _ in results] == [() if verify == "off" else (Check.BESIDE, Check.NOT)]


def test_the_pace_begins_with_the_first_part(paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """However long warming up takes: small inputs are checked whole."""
    clock = [0.0]
    monkeypatch.setattr(pipeline.engine.pace, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(pipeline.engine.aggregate_task, "find_devices", lambda: type("", (), {"usable": 1}))
    monkeypatch.setitem(pipeline.storage.chunks.LEAST_BYTES, "auto", 1)
    pass_, chunk = pass_of("auto"), chunk_of(paths, "auto")
    warm_up(pass_, chunk)
    clock[0] = 2 * LEAST_SECONDS
    assert set(compute_chunk(pass_, chunk).checks) == {Check.BESIDE}
    clock[0] = 4 * LEAST_SECONDS
    assert compute_chunk(pass_, chunk).checks.count(Check.BESIDE) == len(chunk.always)
    assert set(compute_chunk(replace(pass_, run="another"), chunk).checks) == {Check.BESIDE}
    assert compute_chunk(pass_, chunk).checks.count(Check.BESIDE) == len(chunk.always)


def test_what_is_computed_again_is_not_checked_again(paths: list[str]) -> None:
    """Nobody would look at that; the bits are compared."""
    pass_, chunk = pass_of("full"), chunk_of(paths, "full")
    replays = Replays(cast(Any, SimpleNamespace(settings=SimpleNamespace(replay=1.0), seed=0)))
    replays.chunk(pass_, chunk, first := compute_chunk(pass_, chunk))
    task = cast(Any, replays.extra()).task
    again = task[0](*task[1:])
    assert set(first.checks) == {Check.BESIDE} and again.reference is None and again.digest == first.digest
