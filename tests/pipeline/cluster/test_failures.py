"""Processes that die, GPUs that fail and tasks that hang cost a retry; what fails again and again is named."""

from __future__ import annotations

import ctypes
import os
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import pipeline.cluster.placement
import pipeline.cluster.processes
import pipeline.cluster.watch
import pipeline.engine.submit
import pipeline.process.last_words
from pipeline.cluster.placement import Placement
from pipeline.errors import PipelineError, PipelineWarning
from tests.pipeline.cluster.local_processes import counted, in_this_process, text_of
from workflows.histogram import HISTOGRAM, HistogramOptions

pytestmark = pytest.mark.usefixtures("local_directory", "marker", "watchful")


@pytest.fixture
def marker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder in which the processes of a test note what they did."""
    (tmp_path / "marks").mkdir()
    monkeypatch.setenv("BARU_TEST_MARKS", str(tmp_path / "marks"))
    return tmp_path / "marks"


@pytest.fixture
def watchful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks are frequent, so that none is missed in a run of a second."""
    monkeypatch.setattr(pipeline.cluster.watch, "LOOK_SECONDS", 0)
    monkeypatch.setattr(pipeline.engine.submit, "TICK_SECONDS", 0.05)


def mark(name: str) -> bool:
    """Leave a mark; False if it is already there."""
    try:
        os.close(os.open(f"{os.environ['BARU_TEST_MARKS']}/{name}", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


class CudaError(Exception):
    """Stands for CuPy's error after a kernel wrote out of bounds."""

    status = 700


def loses_its_context_once(block: NDArray[Any], options: HistogramOptions) -> NDArray[np.int64]:
    if mark("once"):
        raise CudaError("cudaErrorIllegalAddress: an illegal memory access was encountered")
    return HISTOGRAM.compute(block, options)


def kills_two_workers(block: NDArray[Any], options: HistogramOptions) -> NDArray[np.int64]:
    """Replacement processes have other numbers."""
    if len(os.listdir(os.environ["BARU_TEST_MARKS"])) < 2 and mark(str(os.getpid())):
        os._exit(9)
    return HISTOGRAM.compute(block, options)


def dies(block: NDArray[Any], options: HistogramOptions) -> NDArray[np.int64]:
    os._exit(9)


def poisoned(block: NDArray[Any], options: HistogramOptions) -> NDArray[np.int64]:
    """One of two GPUs fails every task at once; the other waits until that was started again and failed again."""
    if os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-0":
        mark(f"failed-{os.getpid()}-{time.monotonic_ns()}")
        raise CudaError("cudaErrorIllegalAddress: an illegal memory access was encountered")
    until = time.monotonic() + 30
    while len({name.split("-")[1] for name in os.listdir(os.environ["BARU_TEST_MARKS"])}) < 2:
        assert time.monotonic() < until
        time.sleep(0.05)
    time.sleep(0.5)
    return HISTOGRAM.compute(block, options)


def poison(block: NDArray[Any], options: HistogramOptions) -> NDArray[np.int64]:
    """The second chunk fails on every GPU."""
    if block[0] == -1:
        raise CudaError("cudaErrorIllegalAddress: an illegal memory access was encountered")
    return HISTOGRAM.compute(block, options)


def sleeps(block: NDArray[Any], options: HistogramOptions) -> NDArray[np.int64]:
    if mark("once"):
        ctypes.CDLL(None).sleep(300)
    return HISTOGRAM.compute(block, options)


def sleeps_with_the_gil(block: NDArray[Any], options: HistogramOptions) -> NDArray[np.int64]:
    if mark("once"):
        ctypes.PyDLL(None).sleep(300)
    return HISTOGRAM.compute(block, options)


def slow(block: NDArray[Any], options: HistogramOptions) -> NDArray[np.int64]:
    """Slower than the limit on the whole, but never in one step."""
    from pipeline.process.heartbeat import step

    for _ in range(8):
        time.sleep(0.2)
        step()
    return HISTOGRAM.compute(block, options)


@pytest.mark.usefixtures("per_core")
@pytest.mark.parametrize(
    ("placement", "compute", "reason"),
    [(True, loses_its_context_once, "the GPU reported an access to an illegal address (CUDA error 700)"),
     (True, kills_two_workers, "its process ended"), (False, kills_two_workers, "its process ended")],
    indirect=["placement"],
)  # fmt: skip
def test_chunks_of_a_dead_process_are_computed_again(
    path: str, placement: Placement, compute: Any, reason: str, marker: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.warns(PipelineWarning, match=r"histogram: chunk \d .*: " + re.escape(reason) + ".*; it is done again"):
        outcome = counted(path, compute=compute, placement=placement)
    assert os.listdir(marker)  # it did die
    assert text_of(outcome) == in_this_process(path)
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("per_core")
@pytest.mark.filterwarnings("ignore:histogram. chunk:pipeline.errors.PipelineWarning")
def test_process_that_always_dies_fails_the_run(
    path: str, placement: Placement, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Closing ends, although a worker that dies at start-up can make Dask wait forever for the next one."""
    monkeypatch.setattr(pipeline.cluster.processes, "CLOSE_SECONDS", 2)
    text = r"^histogram: chunk \d \(.* bytes \d+-\d+\): expected a result, but 3 processes ended in this task: its pro"
    with pytest.raises(PipelineError, match=text) as caught:
        counted(path, compute=dies, placement=placement)
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("per_gpu")
def test_gpu_that_fails_twice_is_left_out(path: str, placement: Placement, marker: Path) -> None:
    """Alive it would fail every task at once, and so get all: there is one failed attempt for each error."""
    with pytest.warns(PipelineWarning) as caught:
        outcome = counted(path, compute=poisoned, placement=placement)
    text = "GPU-0 failed 2 times and is not used any more; the run goes on with 1 GPU"
    assert [str(warning.message) for warning in caught].count(text) == 1
    processes = {name.split("-")[1] for name in os.listdir(marker)}
    assert len(processes) == 2 and len(os.listdir(marker)) <= 4  # two tasks at a time
    assert text_of(outcome) == in_this_process(path)


@pytest.mark.usefixtures("per_gpu")
@pytest.mark.filterwarnings("ignore::pipeline.errors.PipelineWarning")  # if a GPU is given it twice
def test_chunk_that_fails_everywhere_is_named(tmp_path: Path) -> None:
    """By its bytes, with the errors and the GPUs."""
    samples = np.ones(40000, np.int32)
    samples[5000] = -1
    samples.tofile(tmp_path / "samples.bin")
    with pytest.raises(PipelineError) as caught:
        counted(str(tmp_path / "samples.bin"), compute=poison, placement=Placement(own_process=True))
    gpu = r"GPU-[01]: the GPU reported an access to an illegal address \(CUDA error 700\), after which it .* nothing"
    assert re.fullmatch(rf"histogram: chunk 1 \(\S+ bytes 20000-39999\): expected a result, but 3 processes ended in "
                        rf"this task: {gpu}; {gpu}; {gpu}; the kernel's log .*", str(caught.value))  # fmt: skip


@pytest.mark.usefixtures("per_core")
@pytest.mark.parametrize("compute", [sleeps, sleeps_with_the_gil])
def test_task_that_hangs_is_killed_and_done_again(path: str, placement: Placement, compute: Any) -> None:
    how = Placement(own_process=placement.own_process, stall_seconds=1)
    with pytest.warns(PipelineWarning, match="^histogram: chunk .*: no progress within 1 s; it is done again"):
        outcome = counted(path, compute=compute, placement=how)
    assert text_of(outcome) == in_this_process(path)


@pytest.mark.usefixtures("per_core")
def test_slow_task_is_left_alone(path: str) -> None:
    outcome = counted(path, compute=slow, placement=Placement(own_process=True, stall_seconds=1))
    assert text_of(outcome) == in_this_process(path)


def test_task_that_hangs_in_the_only_process_ends_the_run(path: str) -> None:
    text = r"^histogram: chunk \d .*: expected progress within 1 s, got none: .*--stall-timeout"
    with pytest.raises(PipelineError, match=text):
        counted(path, compute=sleeps, placement=Placement(device="cpu", stall_seconds=1))
    assert pipeline.process.last_words._abandoned  # the command does not wait for it
