"""Where a job runs: one path, four clusters, always a Dask client (the table is in docs/design.md)."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any, cast

from pipeline.errors import PipelineError, UsageError
from pipeline.gpu.devices import Devices, Gpu, find_devices, only_visible
from pipeline.threads import THREADS, cores, processes

# Below this a second process costs more than it computes: starting takes seconds, a GPU reads this in milliseconds.
SMALL_BYTES = 2**30
PROCESS_BYTES = 2**28  # twice what a process of several takes
PROCESSES_FROM_BYTES = 2**32
ANSWER_SECONDS = 30


@dataclass(frozen=True)
class Placement:
    """What the user said about where to run.

    Attributes
    ----------
    device
        ``"auto"``, ``"gpu"`` or ``"cpu"``.
    scheduler, scheduler_file
        An existing cluster, by address or by the file that its scheduler wrote.
    dashboard_address
        Where to serve the dashboard, e.g. ``":8787"``; None serves none. Always on 127.0.0.1.
    own_process
        Whether this process is the command's, so that nobody else asks CUDA for GPUs in it.
    """

    device: str = "auto"
    scheduler: str | None = None
    scheduler_file: str | None = None
    dashboard_address: str | None = None
    own_process: bool = False


@dataclass(frozen=True)
class Workers:
    """A running cluster, as the run loop sees it.

    Attributes
    ----------
    client
        Connected Dask client.
    device
        ``"gpu"`` or ``"cpu"``: what chunks are computed on.
    computing, threads
        Chunks that are computed at a time, on all workers; threads of all workers.
    addresses
        Workers that tasks are confined to; None where any may take them, also one that replaced another that died.
    resources
        What a computing task asks of a worker.
    description
        One line for the report.
    dashboard
        Its address, or None.
    """

    client: Any
    device: str
    computing: int
    threads: int
    addresses: tuple[str, ...] | None
    resources: dict[str, float]
    description: str
    dashboard: str | None

    def left(self) -> int:
        """Number of workers that can compute a chunk now."""
        workers = self.client.scheduler_info(n_workers=-1)["workers"]
        able = set(workers if self.addresses is None else self.addresses) & set(workers)
        return sum(self.resources.keys() <= workers[address].get("resources", {}).keys() for address in able)


@contextmanager
def open_workers(placement: Placement, nbytes: int, compiled: Callable[[], bool] = bool) -> Iterator[Workers]:
    """Start or join the cluster for a job over `nbytes` bytes, and leave nothing of it running.

    `compiled` says, where that matters, whether compiled kernels do all that is computed on a CPU.

    Raises
    ------
    UsageError
        If a GPU was asked for where there is none.
    PipelineError
        If a scheduler or its workers do not answer within 30 s.
    """
    if placement.scheduler or placement.scheduler_file:
        with _existing(placement) as workers:
            yield workers
        return
    devices = find_devices() if placement.device != "cpu" else None
    gpus = devices.usable if devices else 0
    if placement.device == "gpu" and not gpus:
        reason = cast(Devices, devices).missing
        raise UsageError(f"--device gpu: expected a GPU, but {reason}; run with --device cpu for the same result")
    if gpus > 1 and nbytes >= SMALL_BYTES:
        with _one_process_per_gpu(placement, cast(Devices, devices).gpus) as workers:
            yield workers
    elif not gpus and nbytes >= PROCESSES_FROM_BYTES and (number := _processes(compiled())) > 1:
        with _several_processes(placement, number) as workers:
            yield workers
    else:
        alone = only_visible(cast(Devices, devices).gpus[0]) if placement.own_process and gpus > 1 else nullcontext()
        with alone, _in_this_process(placement, "gpu" if gpus else "cpu") as workers:
            yield workers


def _processes(compiled: bool) -> int:
    """As many as the cores keep busy and the memory of the machine, or of its container, holds."""
    from distributed.system import MEMORY_LIMIT

    return min(processes(compiled), int(MEMORY_LIMIT // PROCESS_BYTES))


def _loopback(dashboard_address: str | None) -> str | None:
    """The address on 127.0.0.1: Dask would bind a bare port on every interface."""
    if dashboard_address is None:
        return None
    host, _, port = dashboard_address.rpartition(":")
    if host not in ("", "127.0.0.1", "localhost") or not port.isdigit() or int(port) > 65535:
        raise UsageError(
            f"--dashboard-address: expected a port of this machine like :8787, got {dashboard_address!r}; "
            "the dashboard has no password, so it is served on loopback only: reach it through an ssh tunnel"
        )
    return f"127.0.0.1:{port}"


@contextmanager
def _in_this_process(placement: Placement, device: str) -> Iterator[Workers]:
    """Scheduler and one worker as threads of this process; no port is opened unless the dashboard is asked for."""
    from distributed import Client
    from distributed.deploy.spec import SpecCluster

    from pipeline.cluster.in_process import PortlessScheduler, PortlessWorker, Scheduler

    dashboard = _loopback(placement.dashboard_address)
    scheduler = {
        "cls": Scheduler if dashboard else PortlessScheduler,
        "options": {"protocol": "inproc://", "dashboard": bool(dashboard), "dashboard_address": dashboard},
    }
    threads = max(2, min(cores(), THREADS[device]))
    resources = {"GPU": 1} if device == "gpu" else {}
    options = {"protocol": "inproc://", "nthreads": threads, "memory_limit": None, "resources": resources}
    worker = {"cls": PortlessWorker, "options": options | {"dashboard": False}}
    with (
        _local_directory(),
        _routes(dashboard),
        SpecCluster(workers={0: worker}, scheduler=scheduler, silence_logs=50) as cluster,
        Client(cluster) as client,
    ):
        where = f"this process, {threads} threads" + (", 1 GPU" if device == "gpu" else "")
        yield _workers(client, device, where, dashboard)


def _several_processes(placement: Placement, number: int) -> AbstractContextManager[Workers]:
    from pipeline.cluster.fork_server import WORKER

    options = {"n_workers": number, "threads_per_worker": -(-cores() // number)}
    where = f"{number} processes on this machine"
    return _processes_of("distributed:LocalCluster", options, WORKER, placement, "cpu", where)


def _one_process_per_gpu(placement: Placement, gpus: tuple[Gpu, ...]) -> AbstractContextManager[Workers]:
    from pipeline.cluster.fork_server import GPU_WORKER

    # The other threads of a worker verify while its GPU computes.
    threads = max(2, min(cores() // len(gpus), THREADS["gpu"]))
    options = {"threads_per_worker": threads, "resources": {"GPU": 1}, "device_memory_limit": 0}
    # By UUID: dask-cuda would start a worker for every entry of CUDA_VISIBLE_DEVICES, also for those that CUDA ignores.
    options |= {"CUDA_VISIBLE_DEVICES": [gpu.uuid for gpu in gpus]}
    where = f"{len(gpus)} processes on this machine, one per GPU"
    return _processes_of("pipeline.cluster.gpu_cluster:GpuProcesses", options, GPU_WORKER, placement, "gpu", where)


@contextmanager
def _processes_of(
    kind: str, options: dict[str, Any], modules: Sequence[str], placement: Placement, device: str, where: str
) -> Iterator[Workers]:
    """A cluster of processes on this machine, of a kind that is imported while the server of the workers imports."""
    from pipeline.cluster.fork_server import fork_server

    dashboard = _loopback(placement.dashboard_address)
    # Somebody else's process may have reasons to have no server.
    with fork_server(modules) if placement.own_process else nullcontext():
        from distributed import Client

        from pipeline.cluster.processes import private, start_processes

        with (
            _local_directory(),
            _routes(dashboard),
            start_processes(resolve_name(kind), options | private(dashboard)) as cluster,
            Client(cluster) as client,
        ):
            yield _workers(client, device, where, dashboard)


@contextmanager
def _routes(dashboard: str | None) -> Iterator[None]:
    """No web pages but the dashboard's: Dask would serve the state of its processes to every user of the machine."""
    import dask

    pages = [f"distributed.http.{name}" for name in ("scheduler.prometheus", "scheduler.info", "health", "statics")]
    routes = {"scheduler": pages if dashboard else [], "worker": []}
    with dask.config.set({f"distributed.{server}.http.routes": routes[server] for server in routes}):
        yield


@contextmanager
def _local_directory() -> Iterator[None]:
    """Scratch space that only this user can enter, removed at the end."""
    import dask

    with tempfile.TemporaryDirectory(prefix="baru-") as path, dask.config.set({"temporary-directory": path}):
        yield


@contextmanager
def _existing(placement: Placement) -> Iterator[Workers]:
    from pipeline.cluster.existing import connect

    with connect(placement.scheduler, placement.scheduler_file, ANSWER_SECONDS) as client:
        yield _join(client, str(placement.scheduler or placement.scheduler_file), placement.device)


def _join(client: Any, name: str, device: str) -> Workers:
    """Look at what the workers of somebody else's cluster have."""
    try:
        client.wait_for_workers(1, timeout=ANSWER_SECONDS)
    except TimeoutError:
        raise PipelineError(f"scheduler {name}: expected a worker within {ANSWER_SECONDS} s, got none; start "
                            "`dask worker` or `dask cuda worker` with that address") from None  # fmt: skip
    try:
        usable = client.run(_usable_gpus)
    except Exception as error:  # Dask raises what went wrong on a worker as it is, or only its text
        reason = str(error).partition("\n")[0]
        raise PipelineError(f"scheduler {name}: expected workers that can run baru, got {reason}; "
                            "install the same version there") from error  # fmt: skip
    with_gpu = tuple(address for address, gpus in usable.items() if gpus)
    if device == "gpu" and not with_gpu:
        raise UsageError(f"--device gpu: expected a worker with a GPU at {name}, got {len(usable)} without; "
                         "run with --device cpu for the same result")  # fmt: skip
    info = client.scheduler_info(n_workers=-1)["workers"]
    threads = sum(worker["nthreads"] for worker in info.values())
    number = len(with_gpu) if with_gpu and device != "cpu" else len(usable)
    where = f"{number} worker{'s'[: number > 1]} at {name}"
    dashboard = client.dashboard_link or None
    if not with_gpu or device == "cpu":
        return Workers(client, "cpu", threads, threads, None, {}, where, dashboard)
    declared = {address for address, worker in info.items() if "GPU" in worker.get("resources", {})}
    resources = {"GPU": 1.0} if declared >= set(with_gpu) else {}
    confined = declared != set(with_gpu) and len(with_gpu) < len(usable)
    return Workers(client, "gpu", len(with_gpu), threads, with_gpu if confined else None, resources, where, dashboard)


def _usable_gpus() -> int:
    """Runs on a worker."""
    return find_devices().usable


def _workers(client: Any, device: str, where: str, dashboard: str | None) -> Workers:
    """What the run loop sees of our own clusters, whose GPU workers declare a GPU."""
    if device == "gpu":
        client.run(_warm_up)
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    if not workers:
        raise PipelineError(f"{where}: expected workers to start, got none; see above for what ended them")
    threads = sum(worker["nthreads"] for worker in workers)
    # Dask prints the address of the network card for an inproc:// scheduler, but 127.0.0.1 is what was bound.
    link = re.sub(r"//.*:", "//127.0.0.1:", client.dashboard_link) if dashboard else None
    if device == "gpu":
        return Workers(client, device, len(workers), threads, None, {"GPU": 1.0}, where, link)
    return Workers(client, device, threads, threads, None, {}, where, link)


def _warm_up() -> None:
    """Runs on a worker: what its first task would wait for is part of the start."""
    if find_devices().usable:
        import cupy

        from pipeline.gpu.transfer import warm_up

        warm_up()
        cupy.cuda.Device().synchronize()  # the context is there
