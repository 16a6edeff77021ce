"""A GPU for whole runs, or the emulator in its place: the engine believes that its threads have one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import pipeline.engine.run_loop
from pipeline.by_kernel import by_kernel
from pipeline.cluster.placement import Placement
from pipeline.cluster.workers import Workers
from pipeline.engine.aggregate import run
from pipeline.engine.array import run_array
from pipeline.engine.array_gpu import _lanes
from pipeline.engine.outcome import Outcome
from pipeline.settings import Settings
from pipeline.storage.sources import open_source
from tests.emulator.device import HostFunction
from tests.emulator.kvikio import install
from workflows import WORKFLOWS
from workflows.array_job import ArrayJob

Run = Callable[..., Outcome]


@pytest.fixture
def run_by(cp: Any, workers: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """(job, options, files, kernel, settings) -> outcome, computed by the kernel on a GPU or in the emulator."""
    _lanes.cache_clear()
    if not hasattr(cp.cuda, "Stream"):
        install(cp, monkeypatch)
        one_at_a_time(monkeypatch)
        monkeypatch.setattr(cp.cuda.runtime, "getDeviceProperties", lambda _: {"name": b"emulator"}, raising=False)
        emulated = replace(workers, device="gpu", computing=1, resources={})
        monkeypatch.setattr(pipeline.engine.run_loop, "open_workers", lambda *_: nullcontext(emulated))
        monkeypatch.setattr(pipeline.engine.run_loop.Run, "on_workers", lambda *_: None)

    def run_by(job: str, options: Any, files: list[Any], kernel: str | None = None, **keywords: Any) -> Outcome:
        workflow = by_kernel(WORKFLOWS[job], options, kernel)
        settings = Settings(Placement(kernel=workflow.kernel), **{"verify": "full", **keywords})
        if not isinstance(workflow, ArrayJob):
            return run(workflow, options, open_source([str(file) for file in files]), settings)
        groups = [files] if workflow.operands(options) is None else [[file] for file in files]
        sources = [open_source([str(file) for file in group], samples=False) for group in groups]
        return run_array(workflow, options, sources, str(tmp_path / f"by {kernel}.npy"), settings)

    yield run_by
    _lanes.cache_clear()


def one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The emulator runs one kernel at a time; workers have several threads."""
    lock, launch = threading.Lock(), HostFunction.__call__

    def launch_alone(*arguments: Any, **keywords: Any) -> None:
        with lock:
            launch(*arguments, **keywords)

    monkeypatch.setattr(HostFunction, "__call__", launch_alone)
