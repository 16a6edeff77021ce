"""Runs whose checks are made by a process of their own: whatever becomes of it, checks are made, and nothing hangs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from itertools import count
from pathlib import Path
from threading import Thread, Timer
from typing import Any

import numpy as np
import psutil
import pytest

import pipeline.engine.array
import pipeline.engine.array_check_ahead
import pipeline.engine.array_check_process as module
from pipeline.cluster import helper_process
from pipeline.cluster.workers import Workers
from pipeline.engine.array_check_process import ChecksApart
from pipeline.errors import PipelineError, VerificationError
from pipeline.storage.output_array import OutputFile
from tests.cases.matmul import on_cpu
from tests.pipeline.engine.test_array_check_ahead import (
    changed,
    changed_input_is_found,
    multiplied,
    ordinary,
    wrong_product_is_found,
)
from tests.pipeline.engine.test_input_changes import CHANGES
from workflows.matmul import MATMUL

WAIT = 30.0  # seconds, for what takes milliseconds
HERE: list[Any] = []  # regions that were checked in this process


@pytest.fixture
def apart(tmp_path: Path, workers: Workers, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[ChecksApart]]:
    """Every product is checked apart; the list gets what does it."""
    made: list[ChecksApart] = []
    start = ChecksApart._start

    def starting(self: ChecksApart, regions: Any) -> None:
        start(self, regions)
        made.append(self)

    def opened(placement: Any, nbytes: int, compiled: Any, load: Any, here: Any) -> Any:
        here("gpu")
        return nullcontext(workers)

    def checked_here(*arguments: Any) -> Any:
        HERE.append(arguments)
        return pipeline.engine.array_check_ahead.check_here(*arguments)

    HERE.clear()
    monkeypatch.setattr(ChecksApart, "_start", starting)
    monkeypatch.setattr(module, "check_here", checked_here)
    monkeypatch.setattr(pipeline.engine.array, "APART", 0)
    monkeypatch.setattr("pipeline.engine.run_loop.open_workers", opened)
    for name, shape in (("a", (60, 50)), ("b", (50, 40))):
        np.save(tmp_path / f"{name}.npy", ordinary(*shape))
    monkeypatch.chdir(tmp_path)
    yield made
    for each in made:
        assert each._process
        each._process.wait(WAIT)


def process_of(apart: list[ChecksApart]) -> subprocess.Popen[bytes]:
    (one,) = apart
    assert one._process
    return one._process


def test_another_process_checks(apart: list[ChecksApart]) -> None:
    outcome = multiplied()
    assert outcome.verdict.checked == 60 * 40 and len(apart) == 1 and not HERE
    assert outcome.stages.seconds["verify"] > 0
    np.testing.assert_array_equal(np.load("c.npy"), on_cpu(np.load("a.npy"), np.load("b.npy")))


def test_wrong_product_is_found_there(apart: list[ChecksApart]) -> None:
    wrong_product_is_found()
    assert not HERE


@pytest.mark.parametrize(("change", "text"), CHANGES)
def test_input_that_changes_meanwhile(apart: list[ChecksApart], change: Any, text: str) -> None:
    changed_input_is_found(change, text)


def test_it_gives_way_and_gets_no_signal_of_the_terminal(apart: list[ChecksApart]) -> None:
    """In another session it might not give way: Linux shares cores out between sessions first."""

    def looking(*arguments: Any) -> Any:
        pid = process_of(apart).pid
        assert os.getsid(pid) == os.getsid(0) and os.getpgid(pid) != os.getpgid(0)
        return MATMUL.compute(*arguments)

    multiplied(changed(looking))


def test_files_in_the_current_folder_are_not_run(apart: list[ChecksApart], monkeypatch: pytest.MonkeyPatch) -> None:
    """As in an interactive session, which looks there first for modules that it has not imported yet."""
    for name in ("pipeline", "pickle", "queue", "numpy"):
        Path(f"{name}.py").write_text("open('ran', 'w')")
    monkeypatch.setattr(sys, "path", ["", *(path for path in sys.path if path != helper_process.PROJECT)])
    assert multiplied().verdict.checked == 60 * 40 and not HERE and not Path("ran").exists()


def test_waiting_for_it_is_no_standstill_while_it_works(
    apart: list[ChecksApart], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody ends a run whose check takes long; `stopped` below has one that does nothing."""
    works, steps = count(), list[None]()

    def work_of(pid: int) -> int:
        if (work := next(works)) == 4:
            process_of(apart).send_signal(signal.SIGCONT)
        return work

    def ending(*arguments: Any) -> Any:
        process_of(apart).send_signal(signal.SIGSTOP)
        return MATMUL.compute(*arguments)

    changes = {"LOOK_SECONDS": 0.05, "work_of": work_of, "step": lambda: steps.append(None)}
    for name, value in changes.items():
        monkeypatch.setattr(helper_process, name, value)
    assert multiplied(changed(ending), 0.1).verdict.checked == 60 * 40 and not HERE and len(steps) >= 4


@pytest.mark.parametrize("how", ["killed", "stopped", "killed while it is asked"])
def test_this_process_checks_if_the_other_fails(
    apart: list[ChecksApart], how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ending(*arguments: Any) -> Any:
        os.kill(process_of(apart).pid, signal.SIGKILL if how == "killed" else signal.SIGSTOP)
        return MATMUL.compute(*arguments)

    if how == "stopped":
        monkeypatch.setattr(helper_process, "LOOK_SECONDS", 0.05)
    asked = ChecksApart._answer

    def asking(self: ChecksApart, *question: Any) -> Any:
        if how == "killed while it is asked":
            Timer(0.1, process_of(apart).kill).start()  # it is stopped
        return asked(self, *question)

    monkeypatch.setattr(ChecksApart, "_answer", asking)
    outcome = multiplied(changed(ending), 0.2 if how == "stopped" else WAIT)
    assert outcome.verdict.checked == 60 * 40 and len(HERE) == 1
    np.testing.assert_array_equal(np.load("c.npy"), on_cpu(np.load("a.npy"), np.load("b.npy")))


@pytest.mark.parametrize("why", ["no such interpreter", "it fails"])
def test_this_process_checks_if_there_is_no_other(
    apart: list[ChecksApart], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if why == "it fails":
        monkeypatch.setattr(helper_process, "COMMAND", "raise MemoryError")
    else:
        monkeypatch.setattr(sys, "executable", "/no/such/python")
    assert multiplied().verdict.checked == 60 * 40 and len(HERE) == 1


def test_one_that_was_started_early_checks(apart: list[ChecksApart]) -> None:
    helper_process.start_early()
    ((early, *_),) = helper_process._early
    assert multiplied().verdict.checked == 60 * 40 and not HERE and process_of(apart) is early
    assert not helper_process._early and multiplied().verdict.checked == 60 * 40 and not HERE


def test_one_that_died_early_is_replaced_by_this_process(apart: list[ChecksApart]) -> None:
    helper_process.start_early()
    helper_process._early[0].process.kill()
    helper_process._early[0].process.wait(WAIT)
    assert multiplied().verdict.checked == 60 * 40 and len(HERE) == 1


def test_another_check_stays_here(apart: list[ChecksApart]) -> None:
    def prepare(*arguments: Any) -> Any:
        assert MATMUL.prepare
        return MATMUL.prepare(*arguments)

    assert multiplied(replace(MATMUL, prepare=prepare)).verdict.checked == 60 * 40 and not apart


def test_a_failing_run_does_not_wait_for_it(apart: list[ChecksApart]) -> None:
    def failing(*arguments: Any) -> Any:
        process_of(apart).send_signal(signal.SIGSTOP)
        raise PipelineError("no product")

    with pytest.raises(PipelineError, match="no product"):
        multiplied(changed(failing))


def test_a_run_does_not_wait_for_one_that_cannot_be_killed(
    apart: list[ChecksApart], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as one that reads storage which does not answer."""

    def hanging(*arguments: Any) -> Any:
        process = process_of(apart)
        process.send_signal(signal.SIGSTOP)
        monkeypatch.setattr(process, "kill", lambda: None)
        raise PipelineError("no product")

    try:
        with pytest.raises(PipelineError, match="no product"):
            multiplied(changed(hanging))
    finally:
        os.kill(process_of(apart).pid, signal.SIGKILL)
        process_of(apart).wait(WAIT)


def test_it_is_ended_once(apart: list[ChecksApart], monkeypatch: pytest.MonkeyPatch) -> None:
    """By the run and by a thread that waits for its answer: one number must not be closed twice."""
    multiplied()
    inside, twice = list[None](), list[None]()

    class Slow:
        closed = False

        def close(self) -> None:
            twice.extend(inside)
            inside.append(None)
            time.sleep(0.1)
            inside.pop()

    monkeypatch.setattr(apart[0], "_connection", Slow())
    threads = [Thread(target=apart[0].close) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    assert not twice


def test_it_ends_with_the_first_process(tmp_path: Path) -> None:
    """However that ends, and whatever it was doing."""
    np.save(tmp_path / "a.npy", ordinary(60, 60))
    source = """
import os, time
from pipeline.engine.array_check_process import ChecksApart
from pipeline.engine.array_plan import ArrayPlan
from pipeline.storage.array_file import join
from pipeline.storage.output_array import OutputFile
from pipeline.storage.sources import open_source
from workflows.matmul import MATMUL, MatmulOptions
from workflows.regions import Spec
inputs = tuple(join(open_source(("a.npy",), samples=False)) for _ in "ab")
output = OutputFile("c", 0, Spec((60, 60), inputs[0].spec.dtype), False)
plan = ArrayPlan(MATMUL, MatmulOptions(), inputs, output, "full", 1)
apart = ChecksApart(plan, 600)
apart.begin([((0, 60), (0, 60))])
print(apart._process.pid, flush=True)
time.sleep(60)
"""
    first = subprocess.Popen([sys.executable, "-c", source], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    assert first.stdout
    other = int(first.stdout.readline())
    os.kill(other, 0)
    first.kill()
    first.wait()
    first.stdout.close()
    until = time.monotonic() + WAIT
    while psutil.pid_exists(other) and psutil.Process(other).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < until
        time.sleep(0.05)


def test_output_is_what_is_read(apart: list[ChecksApart], monkeypatch: pytest.MonkeyPatch) -> None:
    """A product that was written wrong, though computed right."""
    write = OutputFile.write

    def wrong(self: OutputFile, region: Any, elements: Any) -> None:
        elements = elements.copy()
        elements[7, 7] *= 2
        write(self, region, elements)

    monkeypatch.setattr(OutputFile, "write", wrong)
    with pytest.raises(VerificationError, match="a number is wrong"):
        multiplied()
