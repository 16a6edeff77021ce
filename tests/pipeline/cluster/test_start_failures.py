"""Clusters of processes that fail to start: one line with the reason, at whatever stage."""

from __future__ import annotations

import errno
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline.cluster.placement
from pipeline.cli.main import main
from pipeline.gpu.devices import Devices, Gpu


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A small file; signals are not this process's business."""
    monkeypatch.setattr("signal.signal", lambda *_: None)
    np.arange(1000, dtype=np.int32).tofile(tmp_path / "samples.bin")
    return str(tmp_path / "samples.bin")


@pytest.fixture
def per_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes for a small file, whatever the machine."""
    monkeypatch.setattr(pipeline.cluster.placement, "PROCESSES_FROM_BYTES", 0)
    monkeypatch.setattr(pipeline.cluster.placement, "processes", lambda compiled: 2)


@pytest.fixture
def per_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """dask-cuda's cluster for two absent GPUs."""
    gpus = tuple(Gpu(i, "planted", f"GPU-{i}", 2**37, 2**37) for i in range(2))
    monkeypatch.setenv("DASK_CUDA_TEST_DISABLE_DEVICE_SPECIFIC", "1")
    monkeypatch.setattr(pipeline.cluster.placement, "find_devices", lambda: Devices(gpus, "1", "1", None))
    monkeypatch.setattr(pipeline.cluster.placement, "best_number", lambda load, usable, *_: usable)


def missing_package(*_: Any, **__: Any) -> None:
    raise ImportError("Using `Security.temporary` requires `cryptography`, please install it")


def no_space(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("cluster", ["per_core", "per_gpu"])
@pytest.mark.parametrize(
    ("broken", "failure", "message"),
    [
        ("distributed.Security.temporary", missing_package, "got ImportError: Using `Security.temporary` requires "
         "`cryptography`, please install it; install what is missing"),
        ("distributed.deploy.spec.SpecCluster._start", no_space, "got OSError: [Errno 28] No space left on device; "),
        ("distributed.nanny.Nanny.__init__", no_space, "got OSError: [Errno 28] No space left on device; "),
    ],
    ids=["first step", "scheduler", "workers"],
)  # fmt: skip
def test_error_while_a_cluster_is_built_is_one_line(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    capfd: pytest.CaptureFixture[str], path: str, cluster: str, broken: str, failure: Any, message: str,
) -> None:  # fmt: skip
    """At whatever stage of the constructor: on the command line, with status 1 and no traceback."""
    request.getfixturevalue(cluster)
    monkeypatch.setattr(broken, failure)
    with pytest.raises(SystemExit) as caught:
        main(["histogram", path, "-q", "-o", f"{tmp_path}/result.json"])
    out, err = capfd.readouterr()
    assert (caught.value.code, out) == (1, "")
    assert err.startswith("error: expected a process for every worker to start, ") and err.count("\n") == 1
    assert message in err
    assert not (tmp_path / "result.json").exists()


@pytest.mark.parametrize("where", ["process", "processes"])
def test_no_space_for_the_scratch_folder_is_one_line(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
    path: str, where: str,
) -> None:  # fmt: skip
    if where == "processes":
        request.getfixturevalue("per_core")
    monkeypatch.setattr(tempfile, "mkdtemp", no_space)
    with pytest.raises(SystemExit) as caught:
        main(["histogram", path, "-q"])
    assert caught.value.code == 1
    assert capfd.readouterr() == (
        "", "error: expected to create a scratch folder, got No space left on device; free some space, or name another "
        "place with TMPDIR\n")  # fmt: skip
