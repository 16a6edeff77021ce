"""Clusters of processes: private to their user, the same result, and a process that dies costs a retry, not the run."""

from __future__ import annotations

import glob
import json
import multiprocessing.util
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import dask
import numpy as np
import psutil
import pytest
from distributed import Client, Security
from numpy.typing import NDArray

import pipeline.cluster.placement
import pipeline.cluster.processes
import pipeline.engine.run_loop
import pipeline.gpu.transfer
from pipeline.cluster.placement import Placement, open_workers
from pipeline.cluster.workers import Workers, known_workers
from pipeline.engine.aggregate import run
from pipeline.engine.outcome import Outcome
from pipeline.errors import PipelineError
from pipeline.gpu.devices import Devices, Gpu
from pipeline.settings import Settings
from pipeline.storage.sources import open_source
from workflows.histogram import HISTOGRAM, HistogramOptions


@pytest.fixture
def path(tmp_path: Path) -> str:
    np.random.default_rng(0).integers(-10, 1100, 40000, dtype=np.int32).tofile(tmp_path / "samples.bin")
    return str(tmp_path / "samples.bin")


@pytest.fixture(autouse=True)
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
    monkeypatch.setattr(pipeline.cluster.placement, "SMALL_BYTES", 0)

    @contextmanager
    def on_cpu(placement: Placement, nbytes: int, _: Any) -> Iterator[Workers]:
        with open_workers(placement, nbytes) as workers:
            assert workers.device == "gpu"
            yield replace(workers, device="cpu")

    monkeypatch.setattr(pipeline.engine.run_loop, "open_workers", on_cpu)


def processes() -> list[psutil.Process]:
    """This process and its live children, without multiprocessing's resource tracker."""
    alive = [psutil.Process()]
    for child in alive[0].children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # nor a zombie, which another test may have left
            if "resource_tracker" not in " ".join(child.cmdline()):
                alive.append(child)
    return alive


def hosts() -> set[str]:
    """Addresses on which this process and its children listen."""
    return {s.laddr[0] for p in processes() for s in p.net_connections("all") if s.status == psutil.CONN_LISTEN}


def counted(path: str, compute: Any = HISTOGRAM.compute, **keywords: Any) -> Outcome:
    workflow = replace(HISTOGRAM, compute=compute)
    return run(
        workflow, HistogramOptions(), open_source((path,)), Settings(verify="full", chunk_bytes=20000, **keywords)
    )


def text_of(outcome: Outcome) -> str:
    return json.dumps(outcome.result.to_json())


def in_this_process(path: str) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline.cluster.placement, "PROCESSES_FROM_BYTES", 2**62)
        patch.setattr(pipeline.engine.run_loop, "open_workers", open_workers)
        return text_of(counted(path, placement=Placement(device="cpu")))


def assert_private(workers: Workers) -> None:
    """Nobody without its certificates joins the cluster, and everything listens on loopback."""
    assert hosts() == {"127.0.0.1"}
    scheduler = workers.client.scheduler_info()["address"]
    addresses = [scheduler, *known_workers(workers.client, "")]
    assert len(addresses) == 3
    assert all(address.startswith("tls://127.0.0.1:") for address in addresses)
    for address, security in ((scheduler.replace("tls:", "tcp:"), None), (scheduler, Security.temporary())):
        with pytest.raises(OSError, match=r"Timed out trying to connect|closed|certificate does not match"):
            Client(address, security=security, timeout=1, set_as_default=False)
    with pytest.raises(TypeError, match="TLS expects a `ssl_context`"):
        Client(scheduler, timeout=1, set_as_default=False)
    directory = glob.glob(f"{tempfile.gettempdir()}/baru-*")
    assert [os.stat(name).st_mode & 0o777 for name in directory] == [0o700]


def http_status(address: str) -> int:
    try:
        with urlopen(address, timeout=10) as answer:
            return int(answer.status)
    except HTTPError as error:
        with error:
            return error.code


@pytest.mark.usefixtures("per_core")
def test_several_processes(path: str, placement: Placement, capfd: pytest.CaptureFixture[str]) -> None:
    statuses: dict[str, int] = {}

    def announce(workers: Workers) -> None:
        assert_private(workers)
        assert (workers.dashboard, workers.computing, workers.threads, workers.left()) == (None, 2, 2, 2)
        base = workers.client.dashboard_link.removesuffix("status")
        assert base.startswith("http://127.0.0.1:")
        statuses.update({page: http_status(base + page) for page in ("status", "info/main/workers.html", "metrics")})
        for worker in known_workers(workers.client, "").values():
            address = f"http://127.0.0.1:{worker['services']['dashboard']}/health"
            statuses[address] = http_status(address)

    outcome = counted(path, on_start=announce, placement=placement)
    assert outcome.where == "2 processes on this machine"
    assert text_of(outcome) == in_this_process(path)
    assert list(statuses.values()) == [404] * 5  # Dask's web servers run, and serve nothing
    assert capfd.readouterr() == ("", "")


def environment(name: str) -> str:
    return os.environ[name]


def monitored() -> bool:
    return bool(dask.config.get("distributed.diagnostics.nvml"))


@pytest.mark.usefixtures("per_gpu")
@pytest.mark.parametrize(
    ("placement", "dashboard"), [(False, None), (True, None), (True, ":0")], indirect=["placement"]
)
def test_one_process_per_gpu(
    path: str, placement: Placement, dashboard: str | None, capfd: pytest.CaptureFixture[str]
) -> None:
    """The real dask-cuda cluster: its own switch leaves out what needs a driver."""
    statuses: dict[str, int] = {}

    def announce(workers: Workers) -> None:
        assert_private(workers)
        info = known_workers(workers.client, "")
        assert [worker["resources"]["GPU"] for worker in info.values()] == [1, 1]
        assert all(worker["nthreads"] >= 2 for worker in info.values())
        visible = workers.client.run(environment, "CUDA_VISIBLE_DEVICES")
        assert sorted(visible.values()) == ["GPU-0", "GPU-1"]
        assert set(workers.client.run(environment, pipeline.gpu.transfer.FED).values()) == {"2"}
        assert set(workers.client.run(monitored).values()) == {bool(dashboard)}  # which has GPU pages
        assert (workers.resources, workers.computing, workers.left()) == ({"GPU": 1.0}, 2, 2)
        assert bool(workers.dashboard) == bool(dashboard)
        base = str(workers.client.dashboard_link).removesuffix("status")
        pages = ("status", "statics/css/base.css", "json/identity.json", "proxy/1/127.0.0.1/")
        statuses.update({page: http_status(base + page) for page in pages})

    outcome = counted(path, on_start=announce, placement=replace(placement, dashboard_address=dashboard))
    # The dashboard has its stylesheets, and no more than it needs.
    assert list(statuses.values()) == ([200, 200, 404, 404] if dashboard else [404] * 4)
    assert capfd.readouterr() == ("", "")
    assert outcome.where == "2 processes on this machine, one per GPU"
    assert text_of(outcome) == in_this_process(path)


def first_time() -> bool:
    """Whether this is the first call by any process of this test."""
    try:
        os.close(os.open(os.environ["BARU_TEST_MARKER"], os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


class CudaError(Exception):
    """Stands for CuPy's error after a kernel wrote out of bounds."""

    status = 700


def loses_its_context_once(block: NDArray[Any], options: HistogramOptions) -> NDArray[np.int64]:
    if first_time():
        raise CudaError("cudaErrorIllegalAddress: an illegal memory access was encountered")
    return HISTOGRAM.compute(block, options)


def kills_every_worker_once(block: NDArray[Any], options: HistogramOptions) -> NDArray[np.int64]:
    """Replacement processes have other addresses."""
    folder = Path(os.environ["BARU_TEST_MARKER"] + ".folder")
    folder.mkdir(exist_ok=True)
    if len(list(folder.iterdir())) < 2:
        (folder / str(os.getpid())).touch()
        os._exit(9)
    return HISTOGRAM.compute(block, options)


def dies(block: NDArray[Any], options: HistogramOptions) -> NDArray[np.int64]:
    os._exit(9)


@pytest.mark.usefixtures("per_core")
@pytest.mark.parametrize(
    ("placement", "compute"),
    [(True, loses_its_context_once), (True, kills_every_worker_once), (False, kills_every_worker_once)],
    indirect=["placement"],
)
def test_chunks_of_a_dead_process_are_computed_again(
    path: str,
    placement: Placement,
    compute: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("BARU_TEST_MARKER", f"{tmp_path}/marker")
    outcome = counted(path, compute=compute, placement=placement)
    assert list(tmp_path.glob("marker*"))  # it did die
    assert text_of(outcome) == in_this_process(path)
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("per_core")
def test_process_that_always_dies_fails_the_run(
    path: str, placement: Placement, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Closing ends, although a worker that dies at start-up can make Dask wait forever for the next one."""
    monkeypatch.setattr(pipeline.cluster.processes, "CLOSE_SECONDS", 2)
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),  # fewer processes that start to die
        pytest.raises(PipelineError, match=r"^histogram: chunk \d .* failed: KilledWorker: ") as caught,
    ):
        counted(path, compute=dies, placement=placement)
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("per_core")
def test_processes_that_do_not_start_are_one_line(
    path: str, placement: Placement, capfd: pytest.CaptureFixture[str]
) -> None:
    with (
        dask.config.set({"distributed.worker.preload": ["no_such_module"]}),
        pytest.raises(
            PipelineError, match="expected a process for every worker to start, got RuntimeError: "
        ) as caught,
    ):
        counted(path, placement=placement)
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")
