"""What the watch over a cluster's processes says and does, from what their files show."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pipeline.cluster.watch
from pipeline.cluster.watch import Watch
from pipeline.errors import PipelineError, PipelineWarning
from pipeline.process.beat import Beat, _stat


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline.cluster.watch, "LOOK_SECONDS", 0)


KEPT: list[Any] = []  # tasks, which would end if nothing referred to them


class Process:
    """A process that does nothing, with a file as if it computed."""

    def __init__(self, folder: Path, device: str, *tasks: str, error: str = "") -> None:
        self.process = subprocess.Popen(["sleep", "300"])
        beat = Beat(str(folder), device)
        for task in map(beat.task, tasks):
            task.__enter__()
            KEPT.append(task)
        beat.fail(error)
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


def dead(folder: Path, device: str, *tasks: str, error: str = "") -> None:
    Process(folder, device, *tasks, error=error).end()


def test_process_that_was_killed_while_idle_is_nobodys_fault(tmp_path: Path) -> None:
    retired: list[str] = []
    watch = Watch(str(tmp_path), 600, lambda device: len(retired.append(device) or retired))
    for _ in range(5):
        dead(tmp_path, "GPU-0")
        watch(0)
    assert retired == [] and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("first", "second", "blamed"), [("a b", "c d", True), ("a b", "a c", False)])
def test_gpu_is_blamed_if_no_task_can_be(tmp_path: Path, first: str, second: str, blamed: bool) -> None:
    retired: list[str] = []

    def retire(device: str) -> int:
        retired.append(device)
        return 3

    watch = Watch(str(tmp_path), 600, retire)
    for tasks in (first, second):
        dead(tmp_path, "GPU-7", *tasks.split(), error="CUDA error 700")
        with pytest.warns(PipelineWarning) as caught:
            watch(0)
        assert (
            str(caught[0].message) == f"{', '.join(reversed(tasks.split()))}: GPU-7: CUDA error 700; it is done again"
        )
    assert retired == ["GPU-7"] * blamed
    texts = [str(warning.message) for warning in caught]
    assert (
        any("GPU-7 failed 2 times and is not used any more; the run goes on with 3 GPUs" in t for t in texts) == blamed
    )


@pytest.mark.filterwarnings("ignore::pipeline.errors.PipelineWarning")
def test_last_gpu_that_fails_ends_the_run(tmp_path: Path) -> None:
    watch = Watch(str(tmp_path), 600, lambda device: 0)
    dead(tmp_path, "GPU-7", "a", error="CUDA error 214")
    watch(0)
    dead(tmp_path, "GPU-7", "b", error="CUDA error 214")
    with pytest.raises(PipelineError, match=r"^GPU-7: CUDA error 214; expected another GPU to go on with, got none"):
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


def test_process_without_progress_is_killed_and_told(tmp_path: Path, processes: list[Process]) -> None:
    watch = Watch(str(tmp_path), 0.2, lambda device: 8)
    processes += [Process(tmp_path, "cpu", "a task"), Process(tmp_path, "cpu")]
    watch(0)
    assert processes[0].process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        processes[0].process.wait(0.4)
    watch(0)
    assert processes[0].process.wait(5) == -9
    with pytest.warns(PipelineWarning, match="^a task: no progress within 0 s; it is done again$"):
        watch(0)
    assert processes[1].process.poll() is None  # in no task


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
