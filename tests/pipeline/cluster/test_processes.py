"""Clusters of processes: private to their user, the same result, and a process that dies costs a retry, not the run."""

from __future__ import annotations

import os
import tempfile
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import dask
import psutil
import pytest
from distributed import Client, Security

import pipeline.cluster.placement
import pipeline.cluster.processes
import pipeline.engine.run_loop
import pipeline.gpu.transfer
from pipeline.cluster.local_directory import local_directory
from pipeline.cluster.placement import Placement
from pipeline.cluster.worker import FOLDER
from pipeline.cluster.workers import Workers, known_workers
from pipeline.errors import PipelineError
from tests.cases.monitors import Told
from tests.pipeline.cluster.local_processes import counted, in_this_process, processes, text_of

pytestmark = pytest.mark.usefixtures("local_directory")


def hosts() -> set[str]:
    """Addresses on which this process and its children listen."""
    return {s.laddr[0] for p in processes() for s in p.net_connections("all") if s.status == psutil.CONN_LISTEN}


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
    folder = os.path.dirname(dask.config.get(FOLDER))
    assert os.stat(folder).st_mode & 0o777 == 0o700
    # Also of temporary files: Dask writes keys to some.
    assert set(workers.client.run(tempfile.gettempdir).values()) == {folder}


def http_status(address: str) -> int:
    try:
        with urlopen(address, timeout=10) as answer:
            return int(answer.status)
    except HTTPError as error:
        with error:
            return error.code


@pytest.mark.usefixtures("per_core")
def test_several_processes(
    path: str, placement: Placement, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", os.path.dirname(path))  # the workers' is another, whatever the user's is
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

    outcome = counted(path, monitor=Told(on_start=announce), placement=placement)
    assert outcome.where == "2 processes on this machine"
    assert text_of(outcome) == in_this_process(path)
    assert list(statuses.values()) == [404] * 5  # Dask's web servers run, and serve nothing
    assert capfd.readouterr() == ("", "")


def lifetime(dask_worker: Any) -> float | None:
    return dask_worker.lifetime  # type: ignore[no-any-return]


def idle_timeout(dask_scheduler: Any) -> float | None:
    return dask_scheduler.idle_timeout  # type: ignore[no-any-return]


@pytest.mark.parametrize("number", [1, 2])
def test_configured_ends_of_other_clusters(number: int, path: str, request: pytest.FixtureRequest) -> None:
    """Those of clusters that others share, in Dask's configuration, would end the run."""
    if number == 2:
        request.getfixturevalue("per_core")
    seen: list[Any] = []

    def look(workers: Workers) -> None:
        seen.extend(workers.client.run(lifetime).values())
        seen.append(workers.client.run_on_scheduler(idle_timeout))

    with dask.config.set({"distributed.worker.lifetime.duration": "1h", "distributed.scheduler.idle-timeout": "1h"}):
        counted(path, monitor=Told(on_start=look), placement=Placement(device="cpu"))
        assert dask.config.get("distributed.worker.lifetime.duration") == "1h"
    assert seen == [None] * (number + 1)


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

    outcome = counted(path, monitor=Told(on_start=announce), placement=replace(placement, dashboard_address=dashboard))
    # The dashboard has its stylesheets, and no more than it needs.
    assert list(statuses.values()) == ([200, 200, 404, 404] if dashboard else [404] * 4)
    assert capfd.readouterr() == ("", "")
    assert outcome.where == "2 processes on this machine, one per GPU"
    assert text_of(outcome) == in_this_process(path)


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


@pytest.mark.parametrize(("variable", "refused"), [(False, True), (True, False)])
def test_working_folder_is_no_place_for_scratch_files(
    variable: bool, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python takes it where no other place has room; unless the user has named it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.delenv(name, raising=False)
    if variable:
        monkeypatch.setenv("TMPDIR", str(tmp_path))
    expected = pytest.raises(PipelineError, match="expected to create a scratch folder") if refused else nullcontext()
    with expected, local_directory(False) as folder:
        assert folder.startswith(str(tmp_path))
    assert list(tmp_path.iterdir()) == []
