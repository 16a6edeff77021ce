"""What would compute a run on this machine, what is free there, and what tells it from another one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from typing import NamedTuple

import psutil

from kernels.common import cxx
from pipeline.cluster.gpu_count import PROCESS_SECONDS, PROCESSES_SECONDS, SPEEDS, Chosen, Load
from pipeline.cluster.placement import Placement, choose
from pipeline.cluster.workers import Workers
from pipeline.errors import UsageError
from pipeline.gpu.devices import find_devices
from pipeline.report.panel import versions
from pipeline.threads import THREADS, cores


class Planned(NamedTuple):
    """What would compute a run: workers without a client, and how much faster they are than those that are measured.

    `start_up`: seconds that their processes take besides.
    """

    workers: Workers
    chosen: Chosen
    faster: float
    start_up: float


def planned(placement: Placement, nbytes: int, compiled: Callable[[], bool], load: Callable[[], Load]) -> Planned:
    """As `open_workers` would choose; UsageError for another scheduler, whose machines cannot be looked at."""
    if placement.scheduler or placement.scheduler_file:
        raise UsageError("plan: expected a run on this machine, got a scheduler, whose workers cannot be measured from "
                         "here; leave it out, or plan on one of them")  # fmt: skip
    chosen = choose(placement, nbytes, compiled, load)
    number, device = chosen.processes, "gpu" if chosen.gpus else "cpu"
    here = max(2, min(cores(), THREADS[device]))
    if chosen.gpus:
        gpus = len(chosen.gpus)
        threads = max(2, min(cores() // gpus, THREADS[device])) * gpus if number else here
        where = f"{gpus} GPU{'s'[: gpus > 1]} ({', '.join(sorted({gpu.name for gpu in chosen.gpus}))})"
        workers = Workers(None, device, gpus, threads, None, {"GPU": 1.0}, where, None)
        speed = SPEEDS[(chosen.load or load()).kind]
        faster = speed.of(gpus) / speed.one
    else:
        threads = number * -(-cores() // number) if number else here
        where = f"{number} processes of this machine" if number else f"this process, {threads} threads"
        workers = Workers(None, device, threads, threads, None, {}, where, None)
        faster = threads / here
    return Planned(workers, chosen, faster, (PROCESSES_SECONDS + PROCESS_SECONDS * number) if number else 0.0)


def free_memory() -> int:
    """Bytes of memory that are free, within the limit of a container or of `ulimit`."""
    from distributed.system import MEMORY_LIMIT

    return int(min(psutil.virtual_memory().available, MEMORY_LIMIT - psutil.Process().memory_info().rss))


def free_disk(path: str) -> int:
    """Bytes that are free where a file is to be."""
    return shutil.disk_usage(os.path.dirname(os.path.abspath(path))).free


def identity() -> tuple[object, ...]:
    """What measurements are valid for: the processor and its cores, GPUs and driver, versions, compiler."""
    devices = find_devices()
    gpus = tuple((gpu.name, gpu.memory) for gpu in devices.gpus)
    return (cxx.features(), cores(), gpus, devices.driver, cxx.compiler(), tuple(sorted(versions().items())))
