"""Real `dask scheduler` and `dask worker` processes for tests, and runs on them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from distributed import Client

from pipeline.cluster.placement import Placement
from pipeline.cluster.workers import known_workers
from pipeline.engine.aggregate import run
from pipeline.engine.outcome import Outcome
from pipeline.settings import Settings
from pipeline.storage.sources import open_source
from workflows.histogram import HISTOGRAM, HistogramOptions

DASK = str(Path(sys.executable).with_name("dask"))
WORKER = ("--host", "127.0.0.1", "--nthreads", "1", "--no-nanny", "--no-dashboard")
PATIENCE = 60  # seconds for a process to start, far more than needed


def until(true: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, "a process of the test cluster did not start"
        time.sleep(0.05)


@contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A `dask …` process; killed at the end, because a worker without its scheduler does not stop when asked to."""
    process = subprocess.Popen([DASK, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextmanager
def scheduler(folder: Path, *more: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A scheduler without workers, and the file that it wrote."""
    file = str(folder / "scheduler.json")
    arguments = ("--host", "127.0.0.1", "--port", "0", "--dashboard-address", "127.0.0.1:0")
    with started("scheduler", *arguments, *more, "--scheduler-file", file) as process:
        until(lambda: process.poll() is None and os.path.exists(file) and os.path.getsize(file))
        yield file, process


@contextmanager
def worker(file: str, *more: str) -> Iterator[subprocess.Popen[bytes]]:
    with Client(scheduler_file=file, set_as_default=False) as client:
        workers = len(known_workers(client, ""))
        with started("worker", *WORKER, *more, "--scheduler-file", file) as process:
            until(lambda: len(known_workers(client, "")) == workers + 1)
            yield process
        until(lambda: len(known_workers(client, "")) == workers)


def counted(path: str, placement: Placement, **keywords: Any) -> Outcome:
    source = open_source((path,))
    return run(
        HISTOGRAM,
        HistogramOptions(),
        source,
        Settings(placement=placement, verify="full", chunk_bytes=9000, **keywords),
    )


def text_of(outcome: Outcome) -> str:
    return json.dumps(outcome.result.to_json())


def address_in(file: str) -> str:
    return str(json.loads(Path(file).read_text())["address"])
