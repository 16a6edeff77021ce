"""When a journal is committed: before anything that may hang, as soon as it can be again, never without its head."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.engine import journal as module
from pipeline.engine import journal_file
from pipeline.engine.aggregate_plan import Job
from tests.pipeline.engine.journaled import InterruptedError, Runner
from workflows.histogram import HISTOGRAM, HistogramOptions

pytestmark = pytest.mark.usefixtures("shared")
CHUNKS = 24
SAMPLES = np.random.default_rng(0).integers(-500, 1500, CHUNKS * 1000).astype("<i4")
PLAIN = [Job(HISTOGRAM, HistogramOptions())]


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Runner:
    return Runner(monkeypatch, tmp_path / "state")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    SAMPLES.tofile(tmp_path / "data.bin")
    return tmp_path / "data.bin"


def committed() -> int:
    """Chunks in the journal, if there is one."""
    keys = journal_file.journals()
    return sum(row.header["done"] for key in keys for row in journal_file.read(key) or [] if row.kind == "pass")


def test_signal_while_inputs_are_hashed(runner: Runner, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first commit: the one that follows says all the same whose journal it is."""
    with monkeypatch.context() as patch:
        patch.setattr(module, "identities", _interrupt_once(module.identities))
        assert runner.aggregate(PLAIN, path, verify="off") is None
    assert committed() == len(runner.logged) == 1
    assert runner.aggregate(PLAIN, path, resume=True, verify="off") is not None


def _interrupt_once(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    calls = 0

    def interrupted(files: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise InterruptedError
        return function(files)

    return interrupted
