"""What the watch over a cluster's processes says and does, from what their files show."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import pipeline.cluster.watch
from pipeline.cluster.watch import Watch
from pipeline.errors import PipelineError, PipelineWarning
from pipeline.process.heartbeat import Beat, _stat


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline.cluster.watch, "LOOK_SECONDS", 0)


KEPT: list[Any] = []  # tasks, which would end if nothing referred to them


class Process:
    """A process that does nothing, with a file as if it computed."""

    def __init__(self, folder: Path, device: str, *tasks: str, error: str = "", of: str = "") -> None:
        self.process = subprocess.Popen(["sleep", "300"])
        beat = Beat(str(folder), device)
        for task in map(beat.task, tasks):
            task.__enter__()
            KEPT.append(task)
        beat.fail(error, of)
        beat._words[2] = _stat(self.process.pid)[1]
        os.rename(folder / str(os.getpid()), folder / str(self.process.pid))

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def processes() -> Iterator[list[Process]]:
    started: list[Process] = []
    yield started
    for process in started:
        process.end()


def dead(folder: Path, device: str, *tasks: str, error: str = "", of: str = "") -> None:
    Process(folder, device, *tasks, error=error, of=of).end()


def test_process_that_was_killed_while_idle_is_nobodys_fault(tmp_path: Path) -> None:
    retired: list[str] = []
    watch = Watch(str(tmp_path), 600, lambda device: len(retired.append(device) or retired))
    for _ in range(5):
        dead(tmp_path, "GPU-0")
        watch(0)
    assert retired == [] and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("failures", "blamed"),
    [
        (["7: a b", "7: c d"], ["GPU-7"]),
        (["7: a b", "7: a c"], ["GPU-7"]),  # which comes back first, and is given the same task
        (["7: a", "6: a", "6: b", "7: c"], ["GPU-6", "GPU-7"]),
        (["7: a", "6: b"], []),
        (["7: a", "6: a b"], []),  # the task's
        (["6: a", "7: a", "7: b a c"], None),
    ],
)
def test_gpu_is_blamed_if_no_task_can_be(tmp_path: Path, failures: list[str], blamed: list[str] | None) -> None:
    retired: list[str] = []

    def retire(device: str) -> int:
        retired.append(device)
        return 4 - len(retired)

    watch = Watch(str(tmp_path), 600, retire)
    for failure in failures:
        gpu, tasks = failure.split(": ")
        dead(tmp_path, f"GPU-{gpu}", *tasks.split(), error="CUDA error 700")
        names, end = ", ".join(reversed(tasks.split())), blamed is None and failure == failures[-1]
        ends = pytest.raises(PipelineError, match=r"^a: expected a result, but 3 processes") if end else nullcontext()
        with pytest.warns(PipelineWarning) as caught, ends:
            watch(0)
        texts = [str(warning.message) for warning in caught]
        assert texts[0] == f"{names}: GPU-{gpu}: CUDA error 700; it is done again"
        more = [f"GPU-{gpu} failed 2 times and is not used any more; the run goes on with {4 - len(retired)} GPUs"]
        assert texts[1:] == (more if retired[-1:] == [f"GPU-{gpu}"] else [])
    assert retired == (blamed or [])


@pytest.mark.filterwarnings("ignore::pipeline.errors.PipelineWarning")
def test_last_gpu_that_fails_ends_the_run(tmp_path: Path) -> None:
    watch = Watch(str(tmp_path), 600, lambda device: 0)
    dead(tmp_path, "GPU-7", "a", error="CUDA error 214")
    watch(0)
    dead(tmp_path, "GPU-7", "b", error="CUDA error 214")
    with pytest.raises(PipelineError, match=r"^GPU-7: CUDA error 214; expected another GPU to go on with, got none"):
        watch(0)


@pytest.mark.filterwarnings("ignore::pipeline.errors.PipelineWarning")
def test_only_gpu_that_fails_in_the_same_task_ends_the_run(tmp_path: Path) -> None:
    """Either may be at fault: both are named."""
    watch = Watch(str(tmp_path), 600, lambda device: 0)
    dead(tmp_path, "GPU-7", "a", "b", error="CUDA error 214")
    watch(0)
    dead(tmp_path, "GPU-7", "b", error="CUDA error 214")
    with pytest.raises(
        PipelineError, match=r"^b: expected a result, but 2 processes ended in this task: GPU-7: .*214; "
    ):
        watch(0)


@pytest.mark.filterwarnings("ignore::pipeline.errors.PipelineWarning")
def test_task_that_fails_three_times_ends_the_run(tmp_path: Path) -> None:
    watch = Watch(str(tmp_path), 600, lambda device: 8)
    for gpu in range(2):
        dead(tmp_path, f"GPU-{gpu}", "chunk 5 (bytes 0-9)", f"chunk {gpu}", error="CUDA error 700")
        watch(0)
    dead(tmp_path, "GPU-2", "chunk 5 (bytes 0-9)")
    text = (r"^chunk 5 \(bytes 0-9\): expected a result, but 3 processes ended in this task: GPU-0: CUDA error 700; "
            r"GPU-1: CUDA error 700; GPU-2: its process ended; ")  # fmt: skip
    with pytest.raises(PipelineError, match=text):
        watch(0)


@pytest.mark.filterwarnings("ignore::pipeline.errors.PipelineWarning")
@pytest.mark.parametrize("tasks", [("a", "b"), ("b", "a")])
@pytest.mark.parametrize("gpus", [3, 1])
def test_of_tasks_that_always_fail_together_the_one_with_the_error_is_named(
    tmp_path: Path, tasks: tuple[str, str], gpus: int
) -> None:
    """On several GPUs, and on the only one."""
    watch = Watch(str(tmp_path), 600, lambda device: gpus - 1)
    with pytest.raises(PipelineError, match=r"^b: expected a result"):
        for gpu in range(3):
            dead(tmp_path, f"GPU-{gpu % gpus}", *tasks, error="CUDA error 700", of="b")
            watch(0)


def test_process_without_progress_is_killed_and_told(tmp_path: Path, processes: list[Process]) -> None:
    watch = Watch(str(tmp_path), 0.2, lambda device: 8)
    processes += [Process(tmp_path, "cpu", "a task"), Process(tmp_path, "cpu")]
    watch(0)
    assert processes[0].process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        processes[0].process.wait(0.4)
    with pytest.warns(PipelineWarning, match="^a task: no progress within 0 s; it is done again$"):
        watch(0)
    assert processes[0].process.wait(5) == -9
    watch(0)  # it is told once
    assert processes[1].process.poll() is None  # in no task


@pytest.mark.filterwarnings("ignore::pipeline.errors.PipelineWarning")
def test_gpus_that_hang_together_are_not_to_blame(tmp_path: Path) -> None:
    """It is their storage; of one that hangs alone it may be the GPU."""
    retired: list[str] = []
    watch = Watch(str(tmp_path), 0.1, lambda device: retired.append(device) or 3)
    for number, gpus in enumerate((["GPU-0"], ["GPU-1", "GPU-0"], ["GPU-2", "GPU-1"])):
        hanging = [Process(tmp_path, gpu, f"chunk {number}") for gpu in gpus]
        watch(0)
        time.sleep(0.12)
        watch(0)
        for process in hanging:
            assert process.process.wait(5) == -9
        watch(0)
    assert retired == []
    for number in range(2):
        time.sleep(0.3)  # longer than two limits
        alone = Process(tmp_path, "GPU-2", f"chunk {number}")
        watch(0)
        time.sleep(0.12)
        watch(0)
        alone.process.wait(5)
        watch(0)
    assert retired == ["GPU-2"]


def test_gpu_that_the_driver_gives_up_is_left_out_at_once(tmp_path: Path, processes: list[Process]) -> None:
    """Its process is killed, which might hang; others go on."""
    retired: list[str] = []
    xids = iter([{}, {"GPU-1": "the driver reported an error of NVLink (Xid 74)"}])
    watch = Watch(str(tmp_path), 600, lambda device: retired.append(device) or 1, lambda: next(xids, {}))
    processes += [Process(tmp_path, f"GPU-{number}", f"chunk {number}") for number in range(2)]
    watch(0)
    assert [process.process.poll() for process in processes] == [None, None]
    with pytest.warns(PipelineWarning) as caught:
        watch(0)
        assert processes[1].process.wait(5) == -9
        watch(0)
    assert [str(warning.message) for warning in caught] == [
        "chunk 1: GPU-1: the driver reported an error of NVLink (Xid 74); it is done again",
        "GPU-1 is not used any more; the run goes on with 1 GPU",
    ]
    assert (retired, processes[0].process.poll()) == (["GPU-1"], None)


def test_process_that_cannot_be_killed_ends_the_run(
    tmp_path: Path, processes: list[Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that waits for a device or a file system that is gone."""
    monkeypatch.setattr(pipeline.cluster.watch, "CLOSE_SECONDS", 0.05)
    watch = Watch(str(tmp_path), 0, lambda device: 8)
    processes += [Process(tmp_path, "GPU-0", "a task")]
    with monkeypatch.context() as patches:
        patches.setattr(os, "kill", lambda pid, number: None)
        watch(0)
        with pytest.warns(PipelineWarning, match="no progress"):
            watch(0)
        time.sleep(0.1)
        with pytest.raises(PipelineError, match=r"^a task: expected progress .*; process \d+ cannot be killed; "):
            watch(0)


def test_a_clock_that_was_set_back_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dask's messages wait by it."""
    monkeypatch.setattr(pipeline.cluster.watch, "IDLE_SECONDS", 0)
    monkeypatch.setattr(pipeline.cluster.watch, "LOOK_SECONDS", 0)
    watch = Watch(str(tmp_path), 600, lambda device: 8)
    with pytest.raises(PipelineError, match="got none; see nvidia-smi"):
        watch(0.1)
    monkeypatch.setattr(pipeline.cluster.watch, "time", lambda: time.time() - 3600)
    with pytest.raises(PipelineError, match="got none; the system's clock was set back by 3600 s; run again"):
        watch(0.1)


def test_tasks_that_nobody_starts_end_the_run(
    tmp_path: Path, processes: list[Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a thread dies for want of memory before it has begun: nothing fails, and nothing comes."""
    monkeypatch.setattr(pipeline.cluster.watch, "IDLE_SECONDS", 0)
    watch = Watch(str(tmp_path), 600, lambda device: 8)
    watch(0)  # results come
    processes += [Process(tmp_path, "cpu", "a task")]
    watch(0.1)
    processes[0].end()
    with pytest.warns(PipelineWarning), pytest.raises(PipelineError, match="expected a process to start a task within"):
        watch(0.1)
