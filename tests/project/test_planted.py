"""Errors are planted where they should be, once; what becomes of them is told; on a GPU's path, too."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import pipeline
import pipeline.engine.aggregate_task
import pipeline.engine.array_regions
import pipeline.engine.array_task
import pipeline.gpu.devices
import workflows.selection
from pipeline.cluster.workers import Workers
from pipeline.compare import compare
from pipeline.engine.aggregate import run
from pipeline.engine.aggregate_plan import Job
from pipeline.engine.array_task import check_regions
from pipeline.errors import VerificationError
from pipeline.settings import Settings
from pipeline.storage.output_array import OutputFile
from pipeline.storage.sources import open_source
from tests.benchmarks import planted_errors
from tests.benchmarks.planted import patches, places, sample_jobs
from tests.benchmarks.planted.faults import CHANGES, STORED, Fault
from tests.benchmarks.planted.injector import INJECTOR
from tests.benchmarks.planted.jobs import JOBS, scenario
from tests.benchmarks.planted.trials import CAUGHT, HARMLESS, Trials, pass_of
from tests.emulator.kvikio import install
from workflows.histogram import HISTOGRAM, HistogramOptions
from workflows.reduce import REDUCE, ReduceOptions


@pytest.mark.parametrize("kind", CHANGES)
def test_every_kind_changes_bytes(kind: str) -> None:
    data = np.random.default_rng(0).integers(0, 256, 800).astype(np.uint8)
    changed = data.copy()
    fault = Fault(kind, np.random.default_rng(1))
    fault.spoil(changed, 8)
    assert fault.changed and not np.array_equal(data, changed)


def test_swapping_equal_elements_changes_nothing() -> None:
    fault = Fault("swapped elements", np.random.default_rng(1))
    array = np.ones(100)
    fault.spoil_array(array)
    assert fault.changed is False and (array == 1).all()


def test_an_error_happens_in_one_call() -> None:
    with INJECTOR.recording(), INJECTOR.computing("a"):
        assert [INJECTOR.reached("here", ("single bit",)) for _ in range(3)] == [None] * 3
    call, kinds = INJECTOR.calls[1]
    assert call == ("here", "compute", "a", None, 1) and kinds == ("single bit",)
    with INJECTOR.planting(call, "single bit", np.random.default_rng(0)), INJECTOR.computing("a"):
        reached = [INJECTOR.reached("here", kinds) for _ in range(3)]
    assert [fault is not None for fault in reached] == [False, True, False]
    assert INJECTOR.reached("here", kinds) is None


def test_what_was_replaced_is_put_back() -> None:
    kept, relocated = workflows.selection.kept, REDUCE.relocate
    replaced = places.install()
    assert workflows.selection.kept is not kept and REDUCE.relocate is not relocated
    replaced.undo()
    assert workflows.selection.kept is kept and REDUCE.relocate is relocated


OWN_PLACES = {"rows": patches.ROWS, "selection": patches.KEPT, "calibration": patches.CALIBRATED}


@pytest.mark.parametrize("job", JOBS)
def test_errors_in_runs_on_the_cpu(job: str, workers: Workers, tmp_path: Path) -> None:
    trials = Trials(workers, tmp_path)
    with trials.installed():
        outcomes = list(trials.of_scenario(JOBS.index(job) + len(JOBS), 3))
    assert {outcome.job for outcome in outcomes} == {job} and len(outcomes) >= 3
    reached = {call[0] for call, _ in INJECTOR.calls}  # a function that has moved would be missing without a word
    assert {patches.KERNEL, OWN_PLACES.get(job, patches.TASK)} <= reached


def test_a_wrong_element_of_a_file_is_caught(workers: Workers, tmp_path: Path) -> None:
    """Whatever the kind: an error in the written file that no check found would be a miss."""
    trials = Trials(workers, tmp_path)
    with trials.installed():
        chosen = trials._chosen
        trials._chosen = lambda calls, random: chosen(  # type: ignore[method-assign]
            [call for call in calls if call[0][0] == patches.WRITTEN], random
        )
        outcomes = list(trials.of_scenario(3, 4))
    assert {outcome.outcome for outcome in outcomes if outcome.trial >= 0} <= {CAUGHT, HARMLESS}
    assert any(outcome.outcome == CAUGHT for outcome in outcomes)


def test_numbers_are_counted_and_a_crash_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import sys; print('{\"begins\": ' + sys.argv[3] + '}'); sys.exit('broken')"
    run = planted_errors.subprocess.Popen
    monkeypatch.setattr(
        planted_errors.subprocess, "Popen",
        lambda words, **options: run([sys.executable, "-c", code, *words[1:]], **options),
    )  # fmt: skip
    rows = list(planted_errors.outcomes(3, 5, 1, "cpu", float("inf")))
    assert [(row["scenario"], row["outcome"]) for row in rows] == [(3, "unclear"), (4, "unclear")]
    (row,) = planted_errors.counted(rows)
    assert row["unclear"] == 2 and row["missed"] == 0
    assert "| process | 0 | 0 | 0 | 0 | 2 |" in planted_errors.summary(rows, "place")


def test_the_pass_of_an_error_is_told() -> None:
    calls: list[Any] = [
        ("kernel", "compute", ("quantile survey", 0), None, 3),
        ("merge", "client", None, "histogram", 0),
        ("written file", "compute", (((0, 4), (0, 5)),), None, 0),
        ("reader", "check", None, ("0.npy", 128, 40), 0),
    ]
    assert list(map(pass_of, calls)) == ["quantile survey", "histogram", "", ""]
    rows = [{"in_pass": "a", "outcome": "caught"}, {"in_pass": "", "outcome": "missed"}, {"outcome": "unclear"}]
    assert planted_errors.by_pass(rows)["a"]["caught"] == 1 and len(planted_errors.by_pass(rows)) == 1


def test_scenarios_of_some_jobs_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other numbers are skipped, so that each keeps its scenario."""
    code = "import sys; print('{\"trial\": ' + str(sys.argv.index('--job')) + ', \"job\": \"' + sys.argv[-1] + '\"}')"
    run = planted_errors.subprocess.Popen
    monkeypatch.setattr(
        planted_errors.subprocess, "Popen",
        lambda words, **options: run([sys.executable, "-c", code, *words[3:]], **options),
    )  # fmt: skip
    (row,) = planted_errors.outcomes(0, 14, 1, "cpu", float("inf"), ("rows",))
    assert row["job"] == "rows" and scenario(JOBS.index("rows") + len(JOBS)).job == "rows"


MERGES: list[bool] = []  # of each sum in the client, the next last, whether it is wrong


def moving(a: Any, b: Any) -> Any:
    """Moves a count from one bin to another where that is planned; found by its name, so that it can be pickled."""
    total = a + b
    if INJECTOR.role == "client" and MERGES.pop():
        total[1:3] += (-1, 1)
    return total


@pytest.mark.parametrize("which", range(6))
@pytest.mark.usefixtures("shared")
def test_a_wrong_merge_of_partials_is_caught(tmp_path: Path, which: int) -> None:
    """A count that moves from one bin to another, once, while the client adds up chunks."""
    samples = np.arange(40_000, dtype=np.int32) % 8
    samples.tofile(tmp_path / "a.bin")
    MERGES[:] = [number == which for number in range(6)]
    options = HistogramOptions(bins=8, range=(0.0, 8.0))
    workflow = replace(HISTOGRAM, combine=moving)
    with pytest.raises(VerificationError, match="differs between two orders of adding them up: bin 0"):
        run(workflow, options, open_source((str(tmp_path / "a.bin"),)), Settings(verify="full", chunk_bytes=40_000))


@pytest.mark.parametrize("chunks", [1, 3])
@pytest.mark.parametrize(("name", "where"), [("resolved", -3), ("resolved", 1), ("finalized", -3)])
@pytest.mark.usefixtures("shared")
def test_a_sum_that_changes_before_it_is_used_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, where: int, chunks: int
) -> None:
    """After the two sums were compared: the moments that bins depend on, the code of their dtype, or the counts."""
    real = getattr(Job, name)

    def late(self: Job, total: Any) -> Any:
        total[where] += 1
        return real(self, total)

    monkeypatch.setattr(Job, name, late)
    np.arange(4000, dtype=np.float32).tofile(tmp_path / "a.bin")
    options = HistogramOptions(bins="scott", range="auto")
    source = open_source((str(tmp_path / "a.bin"),), "float32")
    with pytest.raises(VerificationError, match=r"the sum of all chunks (differs|is wrong)"):
        run(HISTOGRAM, options, source, Settings(verify="full", chunk_bytes=-(-16_000 // chunks)))


@pytest.mark.parametrize("kind", STORED)
@pytest.mark.parametrize("seed", range(3))
def test_compare_reports_every_planted_difference(tmp_path: Path, kind: str, seed: int) -> None:
    """How many samples differ, and the first of them."""
    right = np.random.default_rng(seed).normal(size=(60, 70)).astype([np.float32, np.float64, np.float16][seed])
    wrong = right.copy()
    Fault(kind, np.random.default_rng(seed)).spoil_array(wrong)
    differ = np.flatnonzero((right.view(f"u{right.itemsize}") != wrong.view(f"u{right.itemsize}")).reshape(-1))
    for name, array in (("right", right), ("wrong", wrong)):
        np.save(tmp_path / f"{name}.npy", array)
    a, b = (open_source((str(tmp_path / f"{name}.npy"),)) for name in ("right", "wrong"))
    found = compare(a, b, as_values=False)
    assert len(differ) and not found.equal and found.difference.differing == len(differ)
    assert found.difference.first == differ[0]


@pytest.mark.usefixtures("shared")
def test_a_sum_that_cannot_be_read_is_no_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first number of such a partial says where counts begin."""
    real = Job.finalized

    def late(self: Job, total: Any) -> Any:
        total[...] = 0
        return real(self, total)

    monkeypatch.setattr(Job, "finalized", late)
    np.arange(4000, dtype=np.float32).tofile(tmp_path / "a.bin")
    source = open_source((str(tmp_path / "a.bin"),), "float32")
    with pytest.raises(VerificationError, match="the sum of all chunks is wrong: expected one that can be read"):
        run(REDUCE, ReduceOptions("median,sum"), source, Settings(verify="full", chunk_bytes=8000))


# --- outside of the promise, as docs/verification.md says -------------------------------------------------------------


class MissedError(Exception):
    """An error was planted, and the run ended as if there were none."""


@pytest.mark.xfail(raises=MissedError, reason="a region that was checked is not read again", strict=True)
@pytest.mark.usefixtures("shared")
def test_a_write_to_a_region_that_was_checked_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer of the last region also writes to the first, after that was checked."""
    np.save(tmp_path / "a.npy", np.ones((40, 1000)))
    write = OutputFile.write
    CHECKED.clear()

    def straying(self: OutputFile, region: Any, block: Any, *others: Any) -> None:
        write(self, region, block, *others)
        if region[0][1] == 40:
            assert CHECKED.wait(20)
            with open(self.path, "r+b") as file:
                file.seek(self.offset)
                file.write(b"stray")

    monkeypatch.setattr(OutputFile, "write", straying)
    monkeypatch.setattr(pipeline.engine.array_regions, "check_regions", check_and_tell)
    with suppress(VerificationError):
        pipeline.run("map", tmp_path / "a.npy", tmp_path / "a.npy", operation="add", output=tmp_path / "out.npy",
                     verify="full", chunk_bytes=240_000, device="cpu")  # fmt: skip
        assert b"stray" in (tmp_path / "out.npy").read_bytes()
        raise MissedError


CHECKED = threading.Event()


def check_and_tell(plan: Any, regions: Any, result: Any) -> Any:
    checked = check_regions(plan, regions, result)
    if regions[0][0][0] == 0:
        CHECKED.set()
    return checked


# --- the path of a GPU ------------------------------------------------------------------------------------------------


@pytest.fixture
def gpu_workers(cp: Any, workers: Workers, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workers]:
    """The same cluster, as if it had a GPU; kernels run in the emulator."""
    if not hasattr(cp.cuda, "Stream"):
        install(cp, monkeypatch)
    for module in (pipeline.engine.aggregate_task, pipeline.engine.array_task):
        monkeypatch.setattr(module, "device_name", lambda device: device)
    for module in (pipeline.engine.aggregate_task, pipeline.gpu.devices):
        monkeypatch.setattr(module, "find_devices", lambda: SimpleNamespace(usable=0))  # nothing to warm up
    for name in ("real_compute_chunks", "real_compute_regions"):  # the emulator runs one kernel at a time
        monkeypatch.setattr(places, name, alone(getattr(places, name)))
    yield replace(workers, device="gpu", resources={})


def alone(work: Any) -> Any:
    lock = threading.Lock()

    def one_at_a_time(*arguments: Any) -> Any:
        with lock:
            return work(*arguments)

    return one_at_a_time


@pytest.mark.gpu
@pytest.mark.parametrize("job", JOBS)
def test_errors_in_runs_on_a_gpu(
    job: str, gpu_workers: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if job in ("digest", "selection"):  # the emulator takes a minute for more
        monkeypatch.setattr(sample_jobs, "sample_count", lambda random: int(random.integers(9000, 10000)))
    trials = Trials(gpu_workers, tmp_path)
    with trials.installed():
        outcomes = list(trials.of_scenario(JOBS.index(job) + len(JOBS), 3))
    assert {outcome.job for outcome in outcomes} == {job} and len(outcomes) >= 3
    reached = {call[0] for call, _ in INJECTOR.calls}  # a function that has moved would be missing without a word
    assert {patches.KERNEL, OWN_PLACES.get(job, patches.TASK)} <= reached
