"""Chooses where a job runs and starts or joins that cluster, always through a Dask client (table in docs/design.md)."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pkgutil import resolve_name
from time import monotonic, sleep
from typing import Any, cast

from pipeline.cluster.cuda_errors import lost_context, out_of_memory
from pipeline.cluster.local_directory import local_directory
from pipeline.cluster.watch import Watch, retire, watching_itself
from pipeline.cluster.workers import ANSWER_SECONDS, Workers, known_workers
from pipeline.errors import PipelineError, UsageError
from pipeline.gpu.devices import Devices, Gpu, find_devices, only_visible
from pipeline.gpu.xid import Xids
from pipeline.threads import THREADS, cores, processes

# Below this a second process does not pay off: it takes seconds to start, and a GPU reads this in milliseconds.
SMALL_BYTES = 2**30
PROCESS_BYTES = 2**28  # memory reserved per process: twice what one of several takes
PROCESSES_FROM_BYTES = 2**32
LOOK_SECONDS = 0.1  # between two looks for workers
DEVICES = ("auto", "gpu", "cpu")

# Longer than any read of a block, copy or kernel takes, on storage that still works: at 250 kB/s a block of a GPU takes
# as long.
STALL_SECONDS = 600.0


@dataclass(frozen=True)
class Placement:
    """Where the user wants the job to run.

    Attributes
    ----------
    device
        ``"auto"``, ``"gpu"`` or ``"cpu"``.
    scheduler, scheduler_file
        An existing cluster, by address or by the file that its scheduler wrote.
    dashboard_address
        Where to serve the dashboard, e.g. ``":8787"``; None serves none. Always on 127.0.0.1.
    tls_ca_file, tls_cert, tls_key
        Files of the certificate authority of an existing cluster, and of this user's certificate and its key.
    own_process
        Whether this process belongs to the command line, so that no other code in it uses CUDA.
    stall_seconds
        How long a process of a cluster on this machine may make no progress.
    """

    device: str = "auto"
    scheduler: str | None = None
    scheduler_file: str | None = None
    dashboard_address: str | None = None
    tls_ca_file: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    own_process: bool = False
    stall_seconds: float = STALL_SECONDS

    def __post_init__(self) -> None:
        if self.device not in DEVICES:
            raise UsageError(f"--device: expected one of {', '.join(DEVICES)}, got {self.device!r}")


@contextmanager
def open_workers(placement: Placement, nbytes: int, compiled: Callable[[], bool] = bool) -> Iterator[Workers]:
    """Start or join the cluster for a job over `nbytes` bytes; stop what was started.

    `compiled`, called only if it matters, returns whether compiled kernels do all of a CPU's work, without the GIL.

    Raises
    ------
    UsageError
        If a GPU was requested and there is none.
    PipelineError
        If processes do not start, or an existing cluster does not answer in time.
    """
    if placement.scheduler or placement.scheduler_file:
        from pipeline.cluster.existing import existing_workers

        files = {name: getattr(placement, name) for name in ("tls_ca_file", "tls_cert", "tls_key")}
        with existing_workers(placement.scheduler, placement.scheduler_file, placement.device, files) as workers:
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
    """As many as keep the cores busy and fit into the memory of the machine or its container."""
    from distributed.system import MEMORY_LIMIT

    return min(processes(compiled), int(MEMORY_LIMIT // PROCESS_BYTES))


def _loopback(dashboard_address: str | None) -> str | None:
    """The address on 127.0.0.1, since Dask binds a bare port on every interface; any port if this one is in use."""
    if dashboard_address is None:
        return None
    host, _, port = dashboard_address.rpartition(":")
    if host not in ("", "127.0.0.1", "localhost") or not port.isdecimal() or int(port) > 65535:
        raise UsageError(
            f"--dashboard-address: expected a port of this machine like :8787, got {dashboard_address!r}; "
            "the dashboard has no password, so it is served on loopback only: reach it through an ssh tunnel"
        )
    try:
        with socket.create_server(("127.0.0.1", int(port))):
            return f"127.0.0.1:{port}"
    except OSError:  # Dask would do the same, with a warning of three lines; the command prints the port
        return "127.0.0.1:0"


@contextmanager
def _in_this_process(placement: Placement, device: str) -> Iterator[Workers]:
    """A scheduler and one worker as threads of this process; only the dashboard opens a port."""
    from distributed.deploy.spec import SpecCluster

    from pipeline.cluster.client import LimitedClient
    from pipeline.cluster.in_process import PortlessScheduler, PortlessWorker, Scheduler
    from pipeline.cluster.processes import started

    dashboard = _loopback(placement.dashboard_address)
    scheduler = {
        "cls": Scheduler if dashboard else PortlessScheduler,
        "options": {"protocol": "inproc://", "dashboard": bool(dashboard), "dashboard_address": dashboard},
    }
    threads = max(2, min(cores(), THREADS[device]))
    resources = {"GPU": 1} if device == "gpu" else {}
    options = {"protocol": "inproc://", "nthreads": threads, "memory_limit": None, "resources": resources}
    worker = {"cls": PortlessWorker, "options": options | {"dashboard": False}}
    where = f"this process, {threads} threads" + (", 1 GPU" if device == "gpu" else "")
    cluster = {"workers": {0: worker}, "scheduler": scheduler, "silence_logs": 50}
    with (
        local_directory(placement.own_process) as progress,
        _routes(dashboard),
        started(SpecCluster, cluster) as running,
        LimitedClient(running) as client,
        watching_itself(progress, placement.stall_seconds),
    ):
        watch = Watch(progress, placement.stall_seconds, lambda device: 0)
        yield _workers(client, device, where, dashboard, watch)


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
    # By UUID: dask-cuda starts a worker for every entry of CUDA_VISIBLE_DEVICES, even for entries that CUDA ignores.
    options |= {"CUDA_VISIBLE_DEVICES": [gpu.uuid for gpu in gpus]}
    where = f"{len(gpus)} processes on this machine, one per GPU"
    return _processes_of("pipeline.cluster.gpu_cluster:GpuProcesses", options, GPU_WORKER, placement, "gpu", where)


@contextmanager
def _processes_of(
    kind: str, options: dict[str, Any], modules: Sequence[str], placement: Placement, device: str, where: str
) -> Iterator[Workers]:
    """A cluster of processes on this machine; its class is imported while the fork server imports modules."""
    from pipeline.cluster.fork_server import fork_server, start

    dashboard = _loopback(placement.dashboard_address)
    # A fork server is for the command's own process: a library should not start one behind its caller's back.
    own = placement.own_process
    with fork_server(modules) if own else nullcontext():
        from pipeline.cluster.client import LimitedClient
        from pipeline.cluster.processes import private, start_processes

        with (
            local_directory(placement.own_process) as progress,
            _routes(dashboard),
            start_processes(
                resolve_name(kind), options | private(dashboard), partial(start, modules) if own else bool
            ) as cluster,
            LimitedClient(cluster) as client,
            closing(Xids(options.get("CUDA_VISIBLE_DEVICES", ()))) as xids,
        ):
            watch = Watch(progress, placement.stall_seconds, partial(retire, cluster), xids.take)
            yield _workers(client, device, where, dashboard, watch)


@contextmanager
def _routes(dashboard: str | None) -> Iterator[None]:
    """Serve only the dashboard's pages: by default Dask shows its state to every user of the machine."""
    import dask

    pages = [f"distributed.http.{name}" for name in ("scheduler.prometheus", "scheduler.info", "health", "statics")]
    routes = {"scheduler": pages if dashboard else [], "worker": []}
    with dask.config.set({f"distributed.{server}.http.routes": routes[server] for server in routes}):
        yield


def _workers(client: Any, device: str, where: str, dashboard: str | None, watch: Watch) -> Workers:
    """One of our own clusters, whose GPU workers declare a GPU to Dask."""
    if device == "gpu":
        _warm_up_gpus(client, where)
    until = monotonic() + ANSWER_SECONDS
    while not (workers := known_workers(client, where).values()) and monotonic() < until:
        sleep(LOOK_SECONDS)  # all of them may have been killed, and be starting again
    if not workers:
        raise PipelineError(f"{where}: expected workers to start, got none; see above for what ended them")
    threads = sum(worker["nthreads"] for worker in workers)
    # For an inproc:// scheduler Dask reports the address of a network interface, but it is bound to 127.0.0.1.
    link = re.sub(r"//.*:", "//127.0.0.1:", client.dashboard_link) if dashboard else None
    if device == "gpu":
        return Workers(client, device, len(workers), threads, None, {"GPU": 1.0}, where, link, watch)
    return Workers(client, device, threads, threads, None, {}, where, link, watch)


def _warm_up_gpus(client: Any, where: str) -> None:
    """Warm up all GPUs; one that fails is found by its first tasks, and left out, unless all fail."""
    from pipeline.cluster.client import CALL_SECONDS

    try:
        results = client.run(_warm_up, on_error="return").values()
    except TimeoutError:
        raise PipelineError(f"{where}: expected every GPU to start within {CALL_SECONDS} s; nvidia-smi may tell which "
                            "one hangs; leave it out with CUDA_VISIBLE_DEVICES") from None  # fmt: skip
    errors = [result for result in results if isinstance(result, BaseException)]
    if errors and len(errors) == len(results):
        reason = out_of_memory(errors[0]) or lost_context(errors[0])
        text = reason or f"{type(errors[0]).__name__}: {errors[0]}".partition("\n")[0]
        raise PipelineError(f"{where}: expected a GPU that computes, but {text}") from errors[0]


def _warm_up() -> None:
    """Initialize CUDA on a worker, so that it counts as start-up and not as part of the first task."""
    if find_devices().usable:
        import cupy

        from pipeline.gpu.transfer import warm_up

        warm_up()
        cupy.cuda.Device().synchronize()  # waits for the context
