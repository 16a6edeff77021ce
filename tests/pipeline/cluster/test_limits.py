"""Memory and open files that are too few for the processes of a cluster, or for any run."""

from __future__ import annotations

import errno
import math
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import pipeline.cluster.limits
import pipeline.cluster.placement
import pipeline.threads
from pipeline.cluster.limits import FILES, FILES_OF_GPU, FILES_OF_PROCESS, LEAST_SPACE, check_files, processes_within
from pipeline.cluster.placement import Placement, open_workers
from pipeline.errors import PipelineError
from pipeline.gpu.devices import Devices, Gpu

# The command, with two processes for a small file.
COMMAND = """
if __name__ == "__main__":
    import pipeline.__main__, pipeline.cluster.placement as placement

    placement.PROCESSES_FROM_BYTES, placement.processes = 0, lambda compiled: 2
    pipeline.__main__.main()
"""


@pytest.mark.parametrize(
    ("number_of_cores", "limit", "compiled", "number"),
    [
        (64, 2**40, False, 32), (64, 2**30, False, 4), (64, 2**28, False, 1), (64, 2**27, False, 0),
        (3, 2**40, False, 2), (2, 2**40, False, 2), (1, 2**40, False, 1), (64, 2**40, True, 16),
        (64, 2**30, True, 4), (5, 2**40, True, 2), (4, 2**40, True, 1), (2, 2**40, True, 1), (1, 2**40, True, 1),
    ],
)  # fmt: skip
def test_processes_are_as_many_as_cores_and_memory_take(
    number_of_cores: int, limit: int, compiled: bool, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline.threads, "cores", lambda: number_of_cores)
    monkeypatch.setattr("distributed.system.MEMORY_LIMIT", limit)
    monkeypatch.setattr(pipeline.cluster.limits, "_left", lambda: math.inf)
    assert processes_within(pipeline.threads.processes(compiled)) == number


@pytest.mark.parametrize("number", [1, 2, 5])
def test_processes_are_as_many_as_open_files_take(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distributed.system.MEMORY_LIMIT", 2**50)
    for left, expected in ((0, number), (-1, number - 1)):
        files = FILES + FILES_OF_PROCESS * number + left
        monkeypatch.setattr(pipeline.cluster.limits, "_left", lambda files=files: files)
        assert processes_within(64) == expected


@pytest.mark.parametrize(("space", "number"), [(LEAST_SPACE - 1, 1), (LEAST_SPACE, 3), (resource.RLIM_INFINITY, 3)])
def test_processes_have_addresses(space: int, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distributed.system.MEMORY_LIMIT", 2**50)
    monkeypatch.setattr(resource, "getrlimit", lambda which: (space if which == resource.RLIMIT_AS else 2**20, -1))
    assert processes_within(3) == number


def test_files_that_are_open_count() -> None:
    limit, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(limit, 900), hard))
        before = pipeline.cluster.limits._left()
        with open("/dev/null"), open("/dev/null"):
            assert pipeline.cluster.limits._left() == before - 2
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


@pytest.mark.parametrize(("error", "left"), [(errno.ENOENT, math.inf), (errno.EMFILE, 0)])
def test_files_that_cannot_be_counted(error: int, left: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without /proc, and if not even its folder can be opened."""

    def refused(path: str) -> list[str]:
        raise OSError(error, "refused")

    monkeypatch.setattr(resource, "getrlimit", lambda which: (1024, 1024))
    monkeypatch.setattr(os, "listdir", refused)
    assert pipeline.cluster.limits._left() == left


@pytest.mark.parametrize(
    ("gpus", "processes", "needed"), [(0, 0, FILES), (1, 0, FILES_OF_GPU), (4, 4, FILES + 4 * FILES_OF_PROCESS)]
)
def test_too_few_open_files_are_refused(
    gpus: int, processes: int, needed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline.cluster.limits, "_left", lambda: needed)
    check_files(gpus, processes)
    monkeypatch.setattr(pipeline.cluster.limits, "_left", lambda: needed - 1)
    with pytest.raises(PipelineError, match=f"expected to open {needed} files, got a limit .* {needed - 1}; raise it"):
        check_files(gpus, processes)


@pytest.mark.parametrize("gpus", [0, 1, 2])
def test_they_are_refused_before_a_cluster_starts(gpus: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would wait for connections that its scheduler cannot accept."""
    found = Devices(tuple(Gpu(i, "planted", f"GPU-{i}", 2**37, 2**37) for i in range(gpus)), "1", "1", None)
    monkeypatch.setattr(pipeline.cluster.placement, "find_devices", lambda: found)
    monkeypatch.setattr(pipeline.cluster.limits, "_left", lambda: FILES - 1)
    where = Placement("auto" if gpus else "cpu", own_process=True, gpus="all" if gpus else None)
    with pytest.raises(PipelineError, match="raise it: ulimit -n"), open_workers(where, 0):
        pass


@pytest.mark.parametrize(("limit", "status"), [("-n 24", 1), ("-n 44", 0), ("-v 400000", 0)])
def test_command_under_a_limit(limit: str, status: int, folder: Path, tmp_path: Path) -> None:
    """Its own process computes where files or addresses are too few for others, or it says what to do."""
    (tmp_path / "baru").write_text(COMMAND)
    words = [sys.executable, str(tmp_path / "baru"), "histogram", "samples.bin", "-q", "--device", "cpu"]
    limited = ["sh", "-c", f'ulimit {limit}; exec "$@"', "sh", *words]
    done = subprocess.run(limited, capture_output=True, text=True, timeout=60)
    assert done.returncode == status
    assert (done.stdout.count("\n"), done.stderr.count("\n")) == (1 - status, status)
    assert status == 0 or "raise it: ulimit -n " in done.stderr
