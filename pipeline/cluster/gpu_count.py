"""How many GPUs take part by default: the time that each one saves, against the time its process takes to start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pipeline.gpu.devices import Gpu


class Speed(NamedTuple):
    """Bytes of inputs and output per second: of one GPU, what a second one adds, and what each further one adds.

    `task` are the seconds that one GPU's process takes for a task, however small.
    """

    one: float
    second: float
    further: float
    task: float = 0.0

    def of(self, gpus: int) -> float:
        """Bytes per second of so many."""
        return self.one + self.second * (gpus > 1) + self.further * max(0, gpus - 2)


# Measured on one, two and four H200s of one host; the records are in tests/benchmarks/results, and a test compares the
# choice with them.
#
# One GPU computes in the command's own process. Several have a process each, which start later than that: two by 0.5 to
# 0.9 s, four by 1.0 to 1.2 s (growth_4xH200).
PROCESSES_SECONDS = 0.2
PROCESS_SECONDS = 0.2
# More where they are spawned, not forked, by a process that may use a GPU already: four start 3.7 s later
# (histogram_file_4xH200).
SPAWN_SECONDS = 1.8
SPEEDS = {
    # A file in memory: one 48, two 88, four 55 to 103 GB/s (histogram_file_4xH200, growth_4xH200).
    "read": Speed(48e9, 40e9, 7e9),
    # Arrays that are written: one 9 to 32 GB/s (array_file_H200), and 2 to 5 ms a task where a limit of memory makes
    # them small (jobs_2xH200). Several were measured for products only, below.
    "write": Speed(20e9, 12e9, 10e9, 0.003),
    # Products, verified: 1.2 GB/s, of which the check takes most (verified_products_H200); small tasks 16 to 51 ms, two
    # GPUs 1.6, four 2.6 times as fast as one (jobs_2xH200, jobs_4xH200).
    "multiply": Speed(1.2e9, 0.7e9, 0.6e9, 0.016),
}
KINDS = {"histogram": "read", "reduce": "read", "matmul": "multiply"}  # of the jobs that are no "write"
OPERATIONS = 1e14  # multiplications and additions per second and GPU (matmul_kernel_H200: 0.7 to 1.3e14)


@dataclass(frozen=True)
class Load:
    """What a job has to do.

    Attributes
    ----------
    kind
        A key of `SPEEDS`.
    nbytes
        Bytes of inputs and output.
    operations
        Multiplications and additions, if they may take longer than the bytes.
    tasks
        Number of tasks, if they may be small.
    """

    kind: str
    nbytes: int
    operations: float = 0.0
    tasks: int = 0


def seconds(load: Load, gpus: int, spawned: bool = False) -> float:
    """Least seconds of a job on so many GPUs, from when one would be ready; `spawned`: not by the command."""
    speed = SPEEDS[load.kind]
    alone = load.nbytes / speed.one + load.operations / OPERATIONS + load.tasks * speed.task
    start = PROCESSES_SECONDS + SPAWN_SECONDS * spawned + PROCESS_SECONDS * gpus
    return start * (gpus > 1) + alone * speed.one / speed.of(gpus)


def best_number(load: Load, usable: int, spawned: bool = False) -> int:
    """The number of GPUs, up to this one, that finishes first; of equals the smaller."""
    return min(range(1, usable + 1), key=lambda gpus: seconds(load, gpus, spawned))


def reason(load: Load, gpus: int, usable: int, spawned: bool = False) -> str:
    """Why it is that number: the least seconds on one GPU, on so many, and on all."""
    from dask.utils import format_bytes

    if not load.nbytes:
        return "several need files of known size"
    numbers = sorted({gpus, usable} - {1})
    several = ", ".join(f"{seconds(load, number, spawned):.1f} s on {number}" for number in numbers)
    return (f"{format_bytes(load.nbytes)} take {seconds(load, 1):.1f} s or more on one, {several} with the start of "
            "their processes")  # fmt: skip


class Chosen(NamedTuple):
    """What computes: some of the usable GPUs, or the CPU; and `processes` to start, 0 if this one computes.

    `load` is what the number of GPUs follows from; `unused` says why there are GPUs of which none can be used.
    """

    gpus: tuple[Gpu, ...]
    usable: tuple[Gpu, ...]
    processes: int
    load: Load | None = None
    unused: str = ""
