"""Shared by all benchmarks: interleaved medians, the description of the machine, the JSON file."""

from __future__ import annotations

import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from pipeline.gpu.devices import Gpu, find_devices
from pipeline.report.panel import versions

RESULTS = Path(__file__).parent / "results"


def device_medians(works: dict[str, Callable[[], Any]], repeats: int, lead: Callable[[], Any]) -> dict[str, float]:
    """Median seconds of each piece of GPU work, by CUDA events; the pieces alternate after two warm-ups each.

    `lead` runs before each to keep the device busy while Python prepares the launch, which is then not measured.
    """
    import cupy

    began, ended = cupy.cuda.Event(), cupy.cuda.Event()
    taken: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(repeats + 2):
        for name, work in works.items():
            lead()
            began.record()
            work()
            ended.record()
            ended.synchronize()
            if turn >= 2:
                taken[name].append(cupy.cuda.get_elapsed_time(began, ended) / 1000)
    return {name: statistics.median(seconds) for name, seconds in taken.items()}


class Process(NamedTuple):
    """Wall seconds, peak resident bytes, output and CPU seconds of a finished process."""

    seconds: float
    peak_bytes: int
    printed: str
    cpu_seconds: float


def process(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Process:
    """Run a command as a whole.

    Raises
    ------
    RuntimeError
        If it fails.
    """
    began = perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True)
    assert child.stdout
    printed = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    seconds = perf_counter() - began
    child.stdout.close()
    child.returncode = status
    if status:
        raise RuntimeError(f"{command} ended with status {status}")
    return Process(seconds, 1024 * usage.ru_maxrss, printed, usage.ru_utime + usage.ru_stime)


def with_bytecode(folder: str | Path) -> dict[str, str]:
    """The environment of commands whose Python is compiled once, below a folder, as an installed package's is."""
    kept = {key: text for key, text in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPYCACHEPREFIX": str(Path(folder, "pyc"))}


def command(*words: str) -> list[str]:
    """The command line of our command."""
    return [sys.executable, "-m", "pipeline", *words]


def machine_name(gpus: Sequence[Gpu], one: bool) -> str:
    """Name of the machine in file names: ``H200``, ``4xH200``; ``2cores`` where no GPU was used."""
    if not gpus:
        return f"{len(os.sched_getaffinity(0))}cores"
    words = gpus[0].name.split()[1:] or [gpus[0].name]  # after the maker's
    name = next((word for word in words if any(map(str.isdigit, word))), words[-1])
    return name if one or len(gpus) == 1 else f"{len(gpus)}x{name}"


def environment() -> dict[str, Any]:
    """Machine, versions and date of a measurement."""
    devices = find_devices()
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.processor(),
    )
    return {
        "date": datetime.date.today().isoformat(),
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "gpus": [gpu.name for gpu in devices.gpus],
        "driver": devices.driver,
        "versions": versions(),
    }


def save(figures: dict[str, Any] | Iterator[dict[str, Any]], path: str | Path) -> None:
    """Write figures with their environment as JSON, and print them; of a benchmark that yields them, after every row:
    runs may be cut short."""
    text, about = "", environment()
    for so_far in figures if isinstance(figures, Iterator) else (figures,):
        text = json.dumps({"environment": about, **so_far}, indent=1)
        Path(path).write_text(text + "\n", encoding="utf-8")
    print(text)
