"""Runs whose checks are prepared while workers start: nothing else changes, and nothing new can hang."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import pipeline.engine.array_check_ahead as module
from pipeline.cluster.placement import Placement
from pipeline.cluster.workers import Workers
from pipeline.engine.array import run_array
from pipeline.engine.array_check_ahead import ChecksAhead
from pipeline.engine.journal import Journal
from pipeline.engine.outcome import Outcome
from pipeline.errors import PipelineError, VerificationError
from pipeline.settings import Settings
from pipeline.storage.sources import open_source
from tests.cases.matmul import on_cpu
from tests.pipeline.engine.test_input_changes import CHANGES
from workflows.matmul import MATMUL, MatmulOptions
from workflows.regions import Bounds

WAIT = 30.0  # seconds, for what takes milliseconds
GO = threading.Event()  # until then preparations hang


def ordinary(rows: int, columns: int) -> NDArray[Any]:
    return np.random.default_rng(rows).standard_normal((rows, columns))


@pytest.fixture
def here(tmp_path: Path, workers: Workers, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Runs whose worker is in this process, and starts once this is set: by the first preparation that has ended."""
    ready, made = threading.Event(), module.ChecksAhead._prepared

    def opened(placement: Any, nbytes: int, compiled: Any, load: Any, here: Any) -> Any:
        here("cpu")
        assert ready.wait(WAIT)
        return nullcontext(workers)

    def noting(ahead: ChecksAhead, region: Bounds) -> Any:
        check = made(ahead, region)
        ready.set()
        return check

    monkeypatch.setattr("pipeline.engine.run_loop.open_workers", opened)
    monkeypatch.setattr(module.ChecksAhead, "_prepared", noting)
    for name, shape in (("a", (60, 50)), ("b", (50, 40))):
        np.save(tmp_path / f"{name}.npy", ordinary(*shape))
    monkeypatch.chdir(tmp_path)
    yield ready
    assert not [thread for thread in threading.enumerate() if thread.name == "ahead"]


def multiplied(
    workflow: Any = MATMUL, stall_seconds: float = 600, journal: Journal | None = None, **settings: Any
) -> Outcome:
    sources = [open_source((f"{name}.npy",), samples=False) for name in "ab"]
    placement = Placement("cpu", stall_seconds=stall_seconds)
    return run_array(workflow, MatmulOptions(), sources, "c.npy", Settings(placement, **settings), journal)


def hanging(*arguments: Any) -> Any:
    assert GO.wait(WAIT)


def changed(compute: Any) -> Any:
    return replace(MATMUL, compute=compute)


def test_preparation_begins_before_there_are_workers_and_is_used(
    here: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a worker that starts only then, and a check that cannot prepare anything itself."""
    whole = module._Check.__init__

    def only_ahead(check: Any, *arguments: Any) -> None:
        assert threading.current_thread().name == "ahead"
        whole(check, *arguments)

    monkeypatch.setattr(module._Check, "__init__", only_ahead)
    outcome = multiplied()
    assert here.is_set() and outcome.verdict.checked == 60 * 40
    np.testing.assert_array_equal(np.load("c.npy"), on_cpu(np.load("a.npy"), np.load("b.npy")))


def wrong_product_is_found() -> None:
    def wrong(*arguments: Any) -> Any:
        counted = MATMUL.compute(*arguments)
        counted.elements[3, 5] += 1
        return counted

    with pytest.raises(VerificationError, match=r"a number is wrong in region \[\(0, 60\), \(0, 40\)\]"):
        multiplied(changed(wrong))
    assert not Path("c.npy").exists()


def changed_input_is_found(change: Any, text: str) -> None:
    """That of a.npy, once the product is computed."""
    path = Path("a.npy").resolve()
    if path.stat().st_size < 80_000:
        np.save(path, ordinary(200, 50))

    def changing(*arguments: Any) -> Any:
        counted = MATMUL.compute(*arguments)
        change(path)
        return counted

    with pytest.raises(PipelineError, match=f"a.npy: {text}") as caught:
        multiplied(changed(changing))
    assert "\n" not in str(caught.value) and not Path("c.npy").exists()


def test_wrong_product_is_found(here: threading.Event) -> None:
    wrong_product_is_found()


@pytest.mark.parametrize(("change", "text"), CHANGES)
def test_input_that_changes_after_the_preparation(here: threading.Event, change: Any, text: str) -> None:
    changed_input_is_found(change, text)


@pytest.mark.parametrize("often", [1, 2])
def test_failed_preparation_is_made_again(here: threading.Event, often: int) -> None:
    """By the check, whose error it is if it comes back: once, in one line."""
    left, prepare = [often], MATMUL.prepare

    def failing(*arguments: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise PipelineError("a.npy: reading at byte 128 failed: Input/output error; check the disk")
        assert prepare
        return prepare(*arguments)

    workflow = replace(MATMUL, prepare=failing)
    if often == 1:
        assert multiplied(workflow).verdict.checked == 60 * 40
        return
    with pytest.raises(PipelineError, match=r"^a.npy: reading at byte 128 failed: Input/output error; check the disk$"):
        multiplied(workflow)
    assert not Path("c.npy").exists()


def test_preparation_that_hangs_does_not_keep_a_failing_run(
    here: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    GO.clear()

    def failing(*arguments: Any) -> Any:
        raise PipelineError("no product")

    here.set()
    monkeypatch.setattr(module, "LEAVE_SECONDS", 0.1)
    with pytest.raises(PipelineError, match="no product"):
        multiplied(replace(MATMUL, prepare=hanging, compute=failing))
    (thread,) = (thread for thread in threading.enumerate() if thread.name == "ahead")
    assert thread.daemon  # so that it keeps no process either
    GO.set()
    thread.join(WAIT)


def test_nothing_is_prepared_that_is_not_checked(here: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    here.set()
    monkeypatch.setattr(module._Check, "__init__", None)
    for settings in ({"verify": "off"}, {"memory_limit": 2**30}):
        multiplied(**settings)
        assert np.load("c.npy").shape == (60, 40)
