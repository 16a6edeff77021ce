"""The choice of a cluster, and the one in this process: no port except the dashboard's, on loopback only."""

from __future__ import annotations

import asyncio
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urljoin
from urllib.request import urlopen

import numpy as np
import psutil
import pytest
from click.testing import CliRunner
from distributed import Client

import pipeline.cluster.cuda_preload
import pipeline.cluster.placement
from pipeline.cli.main import cli
from pipeline.cluster.placement import Placement, open_workers
from pipeline.cluster.watch import Watch
from pipeline.cluster.workers import Workers, known_workers
from pipeline.engine.array import _threads_of_one
from pipeline.errors import PipelineError, UsageError
from pipeline.gpu.devices import Devices, Gpu
from pipeline.settings import Settings

GPU = Gpu(0, "planted", "GPU-0", 2**37, 2**37)
WORKERS = Workers(None, "cpu", 1, 1, None, {}, "here", None)
NO_GPU = Devices((), None, None, "no NVIDIA driver is loaded")


def listening(process: psutil.Process) -> set[tuple[str, int]]:
    return {tuple(s.laddr) for s in process.net_connections("all") if s.status == psutil.CONN_LISTEN}


@pytest.fixture
def before() -> set[tuple[str, int]]:
    return listening(psutil.Process())


def page(address: str) -> str:
    with urlopen(address, timeout=10) as answer:
        return str(answer.read().decode())


def test_no_port_is_opened(before: set[tuple[str, int]]) -> None:
    with open_workers(Placement(device="cpu"), 0) as workers:
        assert listening(psutil.Process()) == before
        assert all(address.startswith("inproc://") for address in known_workers(workers.client, ""))
        assert workers.dashboard is None
        assert workers.client.submit(sum, [1, 2]).result() == 3


def test_what_can_be_done_here_begins_before_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    def begin(device: str) -> None:
        raise InterruptedError(device)

    monkeypatch.setattr(pipeline.cluster.placement, "_in_this_process", None)  # which would be called next
    with pytest.raises(InterruptedError, match="cpu"), open_workers(Placement("cpu"), 0, here=begin):
        pass


@pytest.mark.parametrize("address", [":0", "127.0.0.1:0", "localhost:0"])
def test_dashboard_answers_on_loopback_only(before: set[tuple[str, int]], address: str) -> None:
    with open_workers(Placement(device="cpu", dashboard_address=address), 0) as workers:
        opened = listening(psutil.Process()) - before
        assert [host for host, _ in opened] == ["127.0.0.1"]
        assert workers.dashboard == f"http://127.0.0.1:{opened.pop()[1]}/status"
        html = page(workers.dashboard)
        pages = re.findall(r'<link [^>]*href="(statics/css/[^"]*)"', html)
        assert len(pages) >= 2  # without its stylesheets the dashboard is unreadable
        for name in (*pages, "individual-gpu-utilization", "individual-gpu-memory"):
            assert page(urljoin(workers.dashboard, name))
    assert listening(psutil.Process()) == before


def test_dashboard_takes_another_port_where_its_own_is_in_use() -> None:
    """Dask would warn, in three lines; the address that is printed is the one that answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        with open_workers(Placement(device="cpu", dashboard_address=f":{taken}"), 0) as workers:
            assert workers.dashboard and f":{taken}/" not in workers.dashboard
            assert "Dask" in page(workers.dashboard)


def test_dashboard_address_is_printed(tmp_path: Path) -> None:
    np.arange(100, dtype=np.int32).tofile(tmp_path / "samples.bin")
    arguments = ["histogram", str(tmp_path / "samples.bin"), "--device", "cpu", "-q", "--dashboard-address"]
    result = CliRunner().invoke(cli, [*arguments, ":0"])
    pages = re.fullmatch(r"dashboard: (http://127\.0\.0\.1:\d+/)status\nthis run: (.*)baru\n", result.stderr)
    assert pages and pages[1] == pages[2]
    assert result.exit_code == 0


@pytest.mark.parametrize(
    "address", ["0.0.0.0:8787", "192.168.1.1:0", "example.org:80", "[::]:0", "8787:", ":http", "8787x", ":65536", ""]
)
def test_dashboard_elsewhere_is_refused(address: str) -> None:
    with (
        pytest.raises(UsageError, match=r"--dashboard-address: expected a port of this machine like :8787, got '"),
        open_workers(Placement(device="cpu", dashboard_address=address), 0),
    ):
        pass


@pytest.mark.parametrize(
    ("device", "gpus", "nbytes", "kind", "compiled"),
    [
        ("auto", 0, 2**32 - 1, "process", None), ("auto", 0, 2**32, "cores", False), ("cpu", 0, 2**32, "cores", False),
        ("auto", 0, 2**32, "process", True), ("auto", 1, 2**40, "process", None), ("gpu", 1, 2**40, "process", None),
        ("auto", 2, 2**36, "process", None), ("auto", 2, 2**39, "gpus", None), ("gpu", 8, 2**42, "gpus", None),
        ("cpu", 8, 2**33, "cores", False), ("cpu", 8, 2**30, "process", None),
    ],
)  # fmt: skip
def test_cluster_by_gpus_and_size(
    device: str, gpus: int, nbytes: int, kind: str, compiled: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether kernels are compiled is not queried where it does not matter."""

    def answer() -> bool:
        assert compiled is not None
        return compiled

    def stub(name: str) -> Any:
        @contextmanager
        def cluster(placement: Placement, number: Any = None) -> Iterator[Any]:
            opened.append((name, number))
            yield WORKERS

        return cluster

    opened: list[Any] = []
    monkeypatch.setattr(pipeline.cluster.placement, "find_devices", lambda: Devices((GPU,) * gpus, "1", "1", None))
    monkeypatch.setattr(pipeline.threads, "cores", lambda: 4)
    for name, function in {"process": "in_this_process", "cores": "several_processes",
                           "gpus": "one_process_per_gpu"}.items():  # fmt: skip
        monkeypatch.setattr(pipeline.cluster.placement, f"_{function}", stub(name))
    with open_workers(Placement(device=device), nbytes, answer):
        pass
    computing = {"process": "gpu" if gpus and device != "cpu" else "cpu", "cores": 2, "gpus": (GPU,) * gpus}[kind]
    assert opened == [(kind, computing)]


@pytest.mark.parametrize("before", [None, "1,0"])
@pytest.mark.parametrize(("own", "gpus", "shown"), [(True, 2, GPU.uuid), (True, 1, None), (False, 2, None)])
def test_a_command_on_one_of_several_gpus_hides_the_others(
    monkeypatch: pytest.MonkeyPatch, own: bool, gpus: int, shown: str | None, before: str | None
) -> None:
    @contextmanager
    def cluster(*_: Any) -> Iterator[Workers]:
        yield replace(WORKERS, description=str(os.environ.get("CUDA_VISIBLE_DEVICES")))

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if before is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", before)
    monkeypatch.setattr(pipeline.cluster.placement, "find_devices", lambda: Devices((GPU,) * gpus, "1", "1", None))
    monkeypatch.setattr(pipeline.cluster.placement, "_in_this_process", cluster)
    with open_workers(Placement(own_process=own), 0) as seen:
        assert seen.description == str(shown or before)
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == before


@pytest.mark.parametrize("gpus", [None, "0,", "1,"])
def test_context_is_begun_before_all_else_on_the_gpu_that_takes_part(
    gpus: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begin() -> None:
        raise UsageError(f"begun on {os.environ.get('CUDA_VISIBLE_DEVICES')}")

    two = (GPU, Gpu(1, "planted", "GPU-1", 2**37, 2**37))
    monkeypatch.setattr(pipeline.cluster.placement, "find_devices", lambda: Devices(two, "1", "1", None))
    monkeypatch.setattr(pipeline.cluster.placement, "make_context", begin)
    chosen = "GPU-1" if gpus == "1," else "GPU-0"
    with (
        pytest.raises(UsageError, match=f"^begun on {chosen}$"),
        open_workers(Placement(own_process=True, gpus=gpus), 0),
    ):
        pass
    with open_workers(Placement("cpu"), 0) as workers:  # without one
        assert workers.gpus == ""


def test_gpu_where_there_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline.cluster.placement, "find_devices", lambda: NO_GPU)
    with (
        pytest.raises(
            UsageError, match="expected a GPU, but no NVIDIA driver is loaded; run with --device cpu instead"
        ),
        open_workers(Placement(device="gpu"), 0),
    ):
        pass


def test_one_gpu_computes_one_chunk_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline.cluster.placement, "find_devices", lambda: Devices((GPU,), "1", "1", None))
    monkeypatch.setattr(pipeline.cluster.cuda_preload, "warm_up", lambda: None)  # there is no CUDA to warm up
    with open_workers(Placement(), 0) as workers:
        assert (workers.device, workers.resources, workers.computing) == ("gpu", {"GPU": 1.0}, 1)
        assert workers.description.endswith("threads, 1 GPU")
        assert workers.left() == 1


class StubClient:
    """A stand-in for the client of a cluster whose workers are `info`."""

    def __init__(self, **resources: dict[str, float]) -> None:
        self.info = {name: {"nthreads": 3, "resources": declared} for name, declared in resources.items()}

    scheduler = property(lambda self: self)

    def sync(self, function: Any, n_workers: int, callback_timeout: float) -> Any:
        return function(n_workers)

    def identity(self, n_workers: int) -> Any:
        return {"workers": self.info if n_workers == -1 else {}}


@pytest.mark.parametrize(
    ("resources", "addresses", "left"),
    [({}, None, 3), ({"GPU": 1.0}, None, 2), ({}, ("a", "gone"), 1), ({}, ("gone",), 0), ({"FPGA": 1.0}, None, 0)],
)
def test_workers_left(resources: dict[str, float], addresses: Any, left: int) -> None:
    client = StubClient(a={}, b={"GPU": 1.0}, c={"GPU": 1.0})
    assert Workers(client, "gpu", 1, 1, addresses, resources, "", None).left() == left


def test_workers_are_counted_by_the_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by the client, whose timer forgets them every two seconds: here whenever it is asked."""
    update = Client._update_scheduler_info

    async def forgetful(self: Any, n_workers: int = 0) -> None:
        await update(self, n_workers=0)

    monkeypatch.setattr(Client, "_update_scheduler_info", forgetful)
    with open_workers(Placement(device="cpu"), 0) as workers:
        assert workers.client.scheduler_info()["workers"] == {}
        assert workers.computing == workers.threads >= 2
        assert workers.left() == 1
        settings = Settings(memory_limit=2**20)
        assert _threads_of_one(workers, settings) == workers.threads


def test_scheduler_has_a_time_limit_to_count_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent:
        async def identity(self, n_workers: int) -> Any:
            await asyncio.sleep(60)

    with open_workers(Placement(device="cpu"), 0) as workers:
        monkeypatch.setattr("pipeline.cluster.workers.ANSWER_SECONDS", 0.1)
        with monkeypatch.context() as patch, pytest.raises(PipelineError) as caught:
            patch.setattr(workers.client, "scheduler", Silent())
            workers.left()
    assert str(caught.value).startswith("this process, ") and caught.value.exit_code == 1
    assert ": expected an answer from the scheduler within 0.1 s, got " in str(caught.value)


def test_cluster_without_workers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline.cluster.placement, "ANSWER_SECONDS", 0.3)
    with pytest.raises(PipelineError, match=r"^here: expected workers to start, got none"):
        pipeline.cluster.placement._workers(StubClient(), "cpu", "here", None, Watch("", 0, len))


def test_workers_that_all_start_again_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([{}, {}, {"tls://here": {"nthreads": 2}}])
    monkeypatch.setattr(pipeline.cluster.placement, "known_workers", lambda *_: next(answers))
    workers = pipeline.cluster.placement._workers(StubClient(), "cpu", "here", None, Watch("", 0, len))
    assert (workers.computing, workers.threads) == (2, 2)


@pytest.mark.parametrize(("device", "threads"), [("cpu", 4), ("gpu", 16)])
def test_no_more_threads_than_the_gil_lets_run(monkeypatch: pytest.MonkeyPatch, device: str, threads: int) -> None:
    for cores, expected in ((64, threads), (3, 3), (1, 2)):
        monkeypatch.setattr(pipeline.cluster.placement, "cores", lambda cores=cores: cores)
        with pipeline.cluster.placement._in_this_process(Placement(), device) as workers:
            assert workers.threads == expected
