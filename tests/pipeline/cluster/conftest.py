"""Fixtures of all tests of clusters."""

from __future__ import annotations

import glob
import multiprocessing.util
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline.cluster.client
import pipeline.cluster.existing
import pipeline.cluster.placement
import pipeline.cluster.workers
import pipeline.engine.run_loop
import pipeline.engine.submit
from pipeline.cluster.placement import Placement, open_workers
from pipeline.cluster.workers import Workers
from pipeline.gpu.devices import Devices, Gpu
from tests.pipeline.cluster.local_processes import processes


@pytest.fixture
def path(tmp_path: Path) -> str:
    np.random.default_rng(0).integers(-10, 1100, 40000, dtype=np.int32).tofile(tmp_path / "samples.bin")
    return str(tmp_path / "samples.bin")


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with a small file, and for scratch files. Its name is short: a socket path has at most 107
    bytes."""
    folder = tmp_path_factory.mktemp("f")
    np.arange(1000, dtype=np.int32).tofile(folder / "samples.bin")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def _shorten(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (pipeline.cluster.existing, pipeline.cluster.workers, pipeline.engine.submit):
        monkeypatch.setattr(module, "ANSWER_SECONDS", 1)
    monkeypatch.setattr(pipeline.engine.submit, "TICK_SECONDS", 0.1)
    monkeypatch.setattr(pipeline.cluster.client, "CALL_SECONDS", 1)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits of a second."""
    _shorten(monkeypatch)


@pytest.fixture
def impatient_once_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits of a second from when a cluster is open: a busy machine takes its time to start."""
    opened = pipeline.cluster.existing.existing_workers

    @contextmanager
    def existing_workers(*arguments: Any) -> Iterator[Workers]:
        with opened(*arguments) as workers:
            _shorten(monkeypatch)
            yield workers

    monkeypatch.setattr(pipeline.cluster.existing, "existing_workers", existing_workers)


@pytest.fixture
def local_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    multiprocessing.util.get_temp_dir()  # shared by the whole process, which removes it at exit
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield str(tmp_path)
    assert glob.glob(f"{tmp_path}/baru-*") == []
    assert processes()[1:] == []


@pytest.fixture(params=[False, True], ids=["spawned", "forked"])
def placement(request: pytest.FixtureRequest) -> Placement:
    """Placement of a run from Python, and of the command, whose workers are forked from a server."""
    return Placement(own_process=request.param)


@pytest.fixture
def per_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes for a small file, whatever the machine."""
    monkeypatch.setattr(pipeline.cluster.placement, "PROCESSES_FROM_BYTES", 0)
    monkeypatch.setattr(pipeline.cluster.placement, "processes", lambda compiled: 2)
    monkeypatch.setattr(pipeline.cluster.placement, "cores", lambda: 2)


@pytest.fixture
def per_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """dask-cuda's cluster for two absent GPUs; their tasks run on the CPU."""
    gpus = tuple(Gpu(i, "planted", f"GPU-{i}", 2**37, 2**37) for i in range(2))
    monkeypatch.setenv("DASK_CUDA_TEST_DISABLE_DEVICE_SPECIFIC", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,-1,0")  # CUDA stops at -1
    monkeypatch.setattr(pipeline.cluster.placement, "find_devices", lambda: Devices(gpus, "1", "1", None))
    monkeypatch.setattr(pipeline.cluster.placement, "best_number", lambda load, usable, *_: usable)

    @contextmanager
    def on_cpu(*arguments: Any) -> Iterator[Workers]:
        with open_workers(*arguments) as workers:
            assert workers.device == "gpu"
            yield replace(workers, device="cpu")

    monkeypatch.setattr(pipeline.engine.run_loop, "open_workers", on_cpu)
