"""Chooses where a job runs and starts or joins that cluster, always through a Dask client (table in docs/design.md)."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pkgutil import resolve_name
from time import monotonic, sleep
from typing import Any

from pipeline.cluster.cuda_preload import make_context, warm_up_gpus
from pipeline.cluster.dashboard import loopback, routes
from pipeline.cluster.gpu_count import Chosen, Load, best_number, reason
from pipeline.cluster.limits import check_files, processes_within
from pipeline.cluster.local_directory import local_directory
from pipeline.cluster.watch import Watch, retire, watching_itself
from pipeline.cluster.workers import ANSWER_SECONDS, Workers, known_workers
from pipeline.errors import PipelineError, UsageError
from pipeline.gpu.devices import Devices, Gpu, find_devices, only_visible
from pipeline.gpu.named_gpus import as_text, label, selected
from pipeline.gpu.xid import Xids
from pipeline.process.heartbeat import STALL_SECONDS
from pipeline.threads import THREADS, cores, processes

PROCESSES_FROM_BYTES = 2**32
LOOK_SECONDS = 0.1  # between two looks for workers

_told: list[Devices] = []  # for the next workers
DEVICES = ("auto", "gpu", "cpu")


@dataclass(frozen=True)
class Placement:
    """Where the user wants the job to run.

    Attributes
    ----------
    device
        ``"auto"``, ``"gpu"`` or ``"cpu"``.
    scheduler, scheduler_file
        An existing cluster, by address or by the file that its scheduler wrote.
    client
        Or that of a `distributed.Client`.
    dashboard_address
        Where to serve the dashboard, e.g. ``":8787"``; None serves none. Always on 127.0.0.1.
    tls_ca_file, tls_cert, tls_key
        Files of the certificate authority of an existing cluster, and of this user's certificate and its key.
    own_process
        Whether this process belongs to the command line, so that no other code in it uses CUDA.
    stall_seconds
        How long a process of a cluster on this machine may make no progress.
    gpus
        GPUs that take part, in any form that `as_text` takes; None: as many as finish first.
    kernel
        A CUDA kernel that has to compute, so only GPUs will do; empty for the job's own, which CPUs have, too.
    """

    device: str = "auto"
    scheduler: str | None = None
    scheduler_file: str | None = None
    client: Any = None
    dashboard_address: str | None = None
    tls_ca_file: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    own_process: bool = False
    stall_seconds: float = STALL_SECONDS
    gpus: Any = None  # text, once it is checked
    kernel: str = ""

    def __post_init__(self) -> None:
        if self.device not in DEVICES:
            raise UsageError(f"--device: expected one of {', '.join(DEVICES)}, got {self.device!r}")
        if self.kernel:
            if self.device == "cpu":
                raise UsageError(f"--kernel {self.kernel}: expected a GPU, since variants are CUDA kernels, got "
                                 "--device cpu; leave one of them out")  # fmt: skip
            object.__setattr__(self, "device", "gpu")
        if self.gpus is None:
            return
        object.__setattr__(self, "gpus", as_text(self.gpus))
        if self.device == "cpu":
            raise UsageError(f"--gpus: expected none with --device cpu, got {self.gpus}; leave one of them out")
        if self.existing:
            raise UsageError(f"--gpus: expected none for an existing cluster, whose workers have their GPUs, got "
                             f"{self.gpus}; leave it out, and start workers on the GPUs you want")  # fmt: skip

    @property
    def existing(self) -> bool:
        """Whether it is a cluster that others have started."""
        return bool(self.scheduler or self.scheduler_file) or self.client is not None


def ask() -> Devices:
    """What the driver offers, so that `open_workers` need not ask: answers are late while contexts are created."""
    _told[:] = [find_devices()]
    return _told[0]


def choose(
    placement: Placement, nbytes: int, compiled: Callable[[], bool], load: Callable[[], Load],
    devices: Devices | None = None,
) -> Chosen:  # fmt: skip
    """What computes a job over `nbytes` bytes on this machine.

    `compiled`, called only if it matters, returns whether compiled kernels do all of a CPU's work, without the GIL;
    `load`, called only if there is a choice of GPUs, what there is to do. The driver is asked for `devices` by default.

    Raises
    ------
    UsageError
        If a GPU was requested and there is none.
    """
    devices = None if placement.device == "cpu" else devices or find_devices()
    if devices is None or not devices.usable:
        if devices and (placement.gpus or placement.device == "gpu"):
            flag = f"--gpus {placement.gpus}" if placement.gpus else "--device gpu"
            instead = "run with --device cpu instead, for the same result"
            if placement.kernel:
                flag, instead = f"--kernel {placement.kernel}", "variants are CUDA kernels: leave --kernel out"
            raise UsageError(f"{flag}: expected a GPU, but {devices.missing}; {instead}")
        number = processes(compiled()) if nbytes >= PROCESSES_FROM_BYTES else 1
        unused = f"none of {len(devices.gpus)}: {devices.missing}" if devices and devices.gpus else ""
        return Chosen((), (), number if number > 1 else 0, unused=unused)
    usable, known = devices.gpus, None
    if placement.gpus:
        gpus = selected(placement.gpus, usable)
    else:
        known = load() if len(usable) > 1 else None
        gpus = usable[: best_number(known, len(usable), not placement.own_process) if known else 1]
    # In a process that is not ours to change, CUDA takes the first of all visible GPUs.
    here = len(gpus) == 1 and (placement.own_process or gpus == usable[:1])
    return Chosen(gpus, usable, 0 if here else len(gpus), known)


@contextmanager
def open_workers(
    placement: Placement, nbytes: int, compiled: Callable[[], bool] = bool, load: Callable[[], Load] | None = None,
    here: Callable[[str], object] = bool,
) -> Iterator[Workers]:  # fmt: skip
    """Start or join the cluster for a job over `nbytes` bytes; stop what was started.

    `compiled` and `load` as for `choose`; by default the bytes are only read. `here` is called with the device if the
    only worker is to be part of this process, before it starts.

    Raises
    ------
    UsageError
        If a GPU was requested and there is none.
    PipelineError
        If processes do not start, too few files can be opened, or an existing cluster does not answer in time.
    """
    if placement.existing:
        from pipeline.cluster.existing import existing_workers, workers_of_client

        if placement.client is not None:
            with workers_of_client(placement.client, placement.device) as workers:
                yield workers
            return
        files = {name: getattr(placement, name) for name in ("tls_ca_file", "tls_cert", "tls_key")}
        with existing_workers(placement.scheduler, placement.scheduler_file, placement.device, files) as workers:
            yield workers
        return
    known = _told.pop() if _told else None
    chosen = choose(placement, nbytes, compiled, load or partial(Load, "read", nbytes), known)
    if early := sys.modules.get("pipeline.cluster.early"):  # what the command has started was a guess
        early.keep([gpu.uuid for gpu in chosen.gpus] if chosen.processes else ())
    if chosen.gpus and chosen.processes:
        check_files(len(chosen.gpus), chosen.processes)
        opened = _one_process_per_gpu(placement, chosen.gpus)
    elif chosen.processes and (number := processes_within(chosen.processes)) > 1:
        opened = _several_processes(placement, number)
    else:
        check_files(len(chosen.gpus), 0)
        here(device := "gpu" if chosen.gpus else "cpu")
        opened = _in_this_process(placement, device)
    alone = placement.own_process and not chosen.processes and len(chosen.usable) > 1
    with only_visible(chosen.gpus[0]) if alone else nullcontext(), opened as workers:
        names = {gpu.uuid: f"GPU {gpu.index}" for gpu in chosen.gpus if not gpu.uuid.startswith("MIG-")}
        yield replace(workers, gpus=_described(placement, chosen), names=names)


def _described(placement: Placement, chosen: Chosen) -> str:
    """Which GPUs take part, and why; nothing where there are none."""
    if not chosen.gpus:
        return chosen.unused
    why = f"--gpus {placement.gpus}" if placement.gpus else "the only one"
    if chosen.load:
        why = reason(chosen.load, len(chosen.gpus), len(chosen.usable), not placement.own_process)
    names = ", ".join(map(label, chosen.gpus))
    return f"GPU{'s'[: len(chosen.gpus) > 1]} {names} of {len(chosen.usable)}: {why}"


@contextmanager
def _in_this_process(placement: Placement, device: str) -> Iterator[Workers]:
    """A scheduler and one worker as threads of this process; only the dashboard opens a port."""
    if device == "gpu":
        make_context()
    from distributed.deploy.spec import SpecCluster

    from pipeline.cluster.client import OwnClient
    from pipeline.cluster.in_process import PortlessScheduler, PortlessWorker, Scheduler
    from pipeline.cluster.processes import started

    dashboard = loopback(placement.dashboard_address)
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
        routes(dashboard),
        started(SpecCluster, cluster) as running,
        OwnClient(running) as client,
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
    where = f"{len(gpus)} process{'es'[: 2 * (len(gpus) > 1)]} on this machine, one per GPU"
    return _processes_of("pipeline.cluster.gpu_cluster:GpuProcesses", options, GPU_WORKER, placement, "gpu", where)


@contextmanager
def _processes_of(
    kind: str, options: dict[str, Any], modules: Sequence[str], placement: Placement, device: str, where: str
) -> Iterator[Workers]:
    """A cluster of processes on this machine; its class is imported while the fork server imports modules."""
    from pipeline.cluster.fork_server import fork_server, start

    dashboard, gpus = loopback(placement.dashboard_address), options.get("CUDA_VISIBLE_DEVICES", ())
    # A fork server is for the command's own process: a library should not start one behind its caller's back.
    own = placement.own_process
    with fork_server(modules, gpus) if own else nullcontext():
        from pipeline.cluster.client import OwnClient
        from pipeline.cluster.processes import private, start_processes

        with (
            local_directory(placement.own_process) as progress,
            routes(dashboard),
            start_processes(
                resolve_name(kind), options | private(dashboard), partial(start, modules, gpus) if own else bool
            ) as cluster,
            OwnClient(cluster) as client,
            closing(Xids(gpus)) as xids,
        ):
            watch = Watch(progress, placement.stall_seconds, partial(retire, cluster), xids.take)
            yield _workers(client, device, where, dashboard, watch)


def _workers(client: Any, device: str, where: str, dashboard: str | None, watch: Watch) -> Workers:
    """One of our own clusters, whose GPU workers declare a GPU to Dask."""
    if device == "gpu":
        warm_up_gpus(client, where)
    until = monotonic() + ANSWER_SECONDS
    while not (workers := known_workers(client, where).values()) and monotonic() < until:
        sleep(LOOK_SECONDS)  # all of them may have been killed, and be starting again
    if not workers:
        raise PipelineError(f"{where}: expected workers to start, got none; see above for what ended them")
    threads = sum(worker["nthreads"] for worker in workers)
    # For an inproc:// scheduler Dask reports the address of a network interface, but it is bound to 127.0.0.1.
    link = re.sub(r"//.*:", "//127.0.0.1:", client.dashboard_link) if dashboard else None
    page = f"{link.removesuffix('status')}baru" if link else None
    if device == "gpu":
        return Workers(client, device, len(workers), threads, None, {"GPU": 1.0}, where, link, watch, page=page)
    return Workers(client, device, threads, threads, None, {}, where, link, watch, page=page)
