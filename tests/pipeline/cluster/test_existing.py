"""Existing clusters: real `dask scheduler` and `dask worker` processes, and schedulers that do not answer."""

from __future__ import annotations

import importlib
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client, LocalCluster

import pipeline
import pipeline.cluster.existing
import pipeline.engine.aggregate
from pipeline.cluster.placement import Placement, open_workers
from pipeline.cluster.workers import Workers
from pipeline.errors import PipelineError, UsageError
from pipeline.packages import code_version
from tests.cases.monitors import Told
from tests.pipeline.cluster.dask_processes import WORKER, address_in, counted, scheduler, started, text_of, worker
from tests.project.test_documents import ROOT
from workflows import WORKFLOWS


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The scheduler file of a cluster with one worker."""
    with scheduler(tmp_path_factory.mktemp("cluster")) as (file, _), worker(file):
        yield file


@pytest.fixture
def second(cluster: str) -> Iterator[subprocess.Popen[bytes]]:
    with worker(cluster) as process:
        yield process


def both_ways(path: str, file: str, number: str) -> None:
    """By address and by file: the same result as in this process, nothing printed, nothing left open."""
    expected = text_of(counted(path, Placement(device="cpu")))
    for placement, name in ((Placement(scheduler=address_in(file)), address_in(file)),
                            (Placement(scheduler_file=file), file)):  # fmt: skip
        outcome = counted(path, placement)
        assert outcome.where == f"{number} at {name}"
        assert text_of(outcome) == expected


def test_one_worker(path: str, cluster: str, capfd: pytest.CaptureFixture[str]) -> None:
    both_ways(path, cluster, "1 worker")
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("second")
def test_two_workers(path: str, cluster: str, capfd: pytest.CaptureFixture[str]) -> None:
    both_ways(path, cluster, "2 workers")
    assert capfd.readouterr() == ("", "")


def test_worker_that_dies_is_done_without(path: str, cluster: str, second: subprocess.Popen[bytes]) -> None:
    outcome = counted(path, Placement(scheduler_file=cluster), monitor=Told(on_start=lambda _: second.kill()))
    assert text_of(outcome) == text_of(counted(path, Placement(device="cpu")))


def test_other_clients_and_their_default_are_left_alone(path: str, cluster: str) -> None:
    with Client(scheduler_file=cluster) as other:
        kept, current = other.submit(sum, [1, 2]), []
        counted(path, Placement(scheduler_file=cluster),
                monitor=Told(on_start=lambda _: current.append(Client.current())))  # fmt: skip
        assert current == [other]
        assert kept.result() == 3


def test_gpu_where_no_worker_has_one_is_refused(path: str, cluster: str) -> None:
    with pytest.raises(UsageError, match=r"--device gpu: expected a worker with a GPU at \S+, got 1 without"):
        counted(path, Placement(device="gpu", scheduler_file=cluster))


def test_worker_without_baru_is_named(path: str, cluster: str, tmp_path: Path) -> None:
    """Importing a module fails where `sys.modules` has None for it."""
    (tmp_path / "hide.py").write_text("import sys\nsys.modules['pipeline'] = None\n")
    with (
        worker(cluster, "--preload", str(tmp_path / "hide.py")),
        pytest.raises(PipelineError, match=r"expected workers that can run baru, got ModuleNotFoundError"),
    ):
        counted(path, Placement(scheduler_file=cluster))


def test_scheduler_that_dies_ends_the_run(path: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with (
        scheduler(tmp_path) as (file, process),
        started("worker", *WORKER, "--scheduler-file", file),
        pytest.raises(PipelineError, match=r"^1 worker at \S+: expected a scheduler that stays, got ") as caught,
    ):
        counted(path, Placement(scheduler_file=file),
                    monitor=Told(lambda done, total: process.kill()))  # fmt: skip
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("impatient")
def test_scheduler_without_workers_is_named(path: str) -> None:
    with (
        LocalCluster(n_workers=0, processes=False, protocol="tcp", dashboard_address="127.0.0.1:0") as empty,
        pytest.raises(PipelineError) as caught,
    ):
        counted(path, Placement(scheduler=empty.scheduler_address))
    assert str(caught.value).startswith(
        f"scheduler {empty.scheduler_address}: expected a worker within 1 s, got none; start `dask worker`"
    )
    assert caught.value.exit_code == 1


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"tcp://127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def closed() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("kind", ["silent", "closed"])
def test_scheduler_that_does_not_answer_is_named(path: str, kind: str, request: pytest.FixtureRequest) -> None:
    address = request.getfixturevalue(kind)
    with pytest.raises(PipelineError) as caught:
        counted(path, Placement(scheduler=address))
    assert str(caught.value) == (f"scheduler {address}: expected an answer within 1 s, got none; "
                                 "is it running, and is the address right?")  # fmt: skip
    assert caught.value.exit_code == 1


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("address", "reason"),
    [("127.0.0.1", "missing port number"), ("ftp://127.0.0.1:1", "unknown address scheme 'ftp'"),
     ("tcp://127.0.0.1:port", "invalid literal"), ("tls://127.0.0.1:1", "TLS expects a `ssl_context`")],
)  # fmt: skip
def test_address_that_cannot_be_is_named(path: str, address: str, reason: str) -> None:
    with pytest.raises(PipelineError, match=f"scheduler {address}: expected an answer within 1 s, got {reason}"):
        counted(path, Placement(scheduler=address))


@pytest.mark.parametrize("address", ["nonsense", "tcp://no.such.host.invalid:1", "ws://8.8.8.8:80/a:1"])
def test_host_that_cannot_be_found_is_named(path: str, address: str) -> None:
    """It might be found a moment later, without having been checked."""
    with pytest.raises(PipelineError, match=f"^scheduler {address}: expected a host that can be found, got "):
        counted(path, Placement(scheduler=address))


@pytest.mark.parametrize(
    ("content", "text"),
    [(None, "expected the file that a scheduler wrote, found none; start `dask scheduler"),
     ("{", "expected JSON with an address in it"), ("{}", "expected JSON with an address in it"),
     ("[]", "expected JSON with an address in it"), ("\0", "expected JSON with an address in it")],
)  # fmt: skip
def test_scheduler_file_that_cannot_be(path: str, content: str | None, text: str, tmp_path: Path) -> None:
    file = tmp_path / "scheduler.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(UsageError, match=text) as caught:
        counted(path, Placement(scheduler_file=str(file)))
    assert str(caught.value).startswith(f"--scheduler-file {file}: ")
    assert caught.value.exit_code == 2


def test_worker_with_other_sources_is_refused(path: str, cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline.cluster.existing, "code_version", lambda: "0.2.0")
    text = rf"expected the sources of baru that run here \(0\.2\.0\) on every worker, got {code_version()} on tcp://"
    with pytest.raises(PipelineError, match=text):
        counted(path, Placement(scheduler_file=cluster))


class StubClient:
    """A client of a cluster with 4 threads per worker; `gpus` by worker; workers that declared theirs to Dask."""

    dashboard_link = ""

    def __init__(self, gpus: dict[str, int], declared: str) -> None:
        self.gpus, self.declared = gpus, declared

    def run(self, function: Any) -> dict[str, tuple[str, int]]:
        return {name: (code_version(), gpus) for name, gpus in self.gpus.items()}

    scheduler = property(lambda self: self)

    def sync(self, function: Any, n_workers: int, callback_timeout: float) -> Any:
        return function(n_workers)

    def identity(self, n_workers: int) -> Any:
        resources = {name: {"GPU": 1.0} if name in self.declared else {} for name in self.gpus}
        return {"workers": {name: {"nthreads": 4, "resources": resources[name]} for name in self.gpus}}


def test_workers_that_leave_after_they_answered_are_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    client = StubClient({"a": 0}, "")
    answers = [client.identity(-1), {"workers": {}}]
    monkeypatch.setattr(client, "identity", lambda n_workers: answers.pop(0))
    with pytest.raises(PipelineError, match=r"^scheduler there: expected its workers to stay, got none"):
        pipeline.cluster.existing._inspect(client, "there", "auto")


@pytest.mark.parametrize(
    ("gpus", "declared", "device", "expected"),
    [
        ({"a": 0, "b": 0}, "", "auto", ("cpu", 8, None, {})),
        ({"a": 1, "b": 1}, "", "cpu", ("cpu", 8, None, {})),
        ({"a": 1, "b": 1}, "ab", "auto", ("gpu", 2, None, {"GPU": 1.0})),
        ({"a": 1, "b": 1}, "", "auto", ("gpu", 2, None, {})),
        ({"a": 1, "b": 0}, "a", "gpu", ("gpu", 1, None, {"GPU": 1.0})),
        # Only the address distinguishes a worker from those without a GPU, or with an unusable one.
        ({"a": 1, "b": 0}, "", "auto", ("gpu", 1, ("a",), {})),
        ({"a": 1, "b": 0}, "ab", "auto", ("gpu", 1, ("a",), {"GPU": 1.0})),
        ({"a": 1, "b": 1, "c": 0}, "a", "auto", ("gpu", 2, ("a", "b"), {})),
    ],
)
def test_chunks_go_to_workers_that_can_compute_them(
    gpus: dict[str, int], declared: str, device: str, expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def connect(*_: Any) -> Iterator[StubClient]:
        yield StubClient(gpus, declared)

    monkeypatch.setattr("pipeline.cluster.existing._connect", connect)
    with open_workers(Placement(device=device, scheduler="there"), 0) as workers:
        assert isinstance(workers, Workers)
        assert (workers.device, workers.computing, workers.addresses, workers.resources) == expected
        assert workers.threads == 4 * len(gpus)


def test_a_job_that_its_workers_cannot_import_is_told(path: str, cluster: str, tmp_path: Path,
                                                      monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    """And sent to them, it runs."""
    (tmp_path / "own_job.py").write_text((ROOT / "docs" / "examples" / "clipping.py").read_text())
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(WORKFLOWS, "clipping", WORKFLOWS["digest"])  # so that what is registered now leaves again
    importlib.import_module("own_job")
    with Client(scheduler_file=cluster) as client:
        with pytest.raises(PipelineError, match=r"expected a scheduler and workers that can import 'own_job', got .*"
                                                r"client.upload_file"):  # fmt: skip
            pipeline.run("clipping", path, client=client)
        client.upload_file(str(tmp_path / "own_job.py"))
        samples = np.fromfile(path, "<i4")
        assert pipeline.run("clipping", path, client=client, highest=1000) == {
            "low": int((samples <= 0).sum()), "high": int((samples >= 1000).sum())
        }  # fmt: skip
