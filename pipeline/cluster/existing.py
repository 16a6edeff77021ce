"""Joins an existing cluster, with time limits for its scheduler and workers to answer."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from pipeline.cluster.workers import ANSWER_SECONDS, Workers, known_workers
from pipeline.errors import PipelineError, UsageError
from pipeline.gpu.devices import find_devices


@contextmanager
def existing_workers(scheduler: str | None, scheduler_file: str | None, device: str) -> Iterator[Workers]:
    """Workers of an existing cluster, given by the scheduler's address or the file that it wrote.

    Raises
    ------
    UsageError
        If there is no such file, no address in it, or no GPU although one was requested.
    PipelineError
        If the scheduler or its workers do not answer in time, or cannot run baru.
    """
    with _connect(scheduler, scheduler_file, ANSWER_SECONDS) as client:
        yield _inspect(client, str(scheduler or scheduler_file), device)


@contextmanager
def _connect(scheduler: str | None, scheduler_file: str | None, seconds: float) -> Iterator[Any]:
    from distributed import Client

    name = scheduler or scheduler_file
    address = scheduler or _address_in(str(scheduler_file))
    try:
        with ThreadPoolExecutor(1) as thread:  # the calling thread may be running an event loop
            thread.submit(asyncio.run, _shake_hands(address, seconds)).result()
        client = Client(address, timeout=seconds, set_as_default=False)
    except Exception as error:  # a wrong address may raise almost anything
        reason = str(error).partition("\n")[0] or "none"
        raise PipelineError(f"scheduler {name}: expected an answer within {seconds} s, got {reason}; "
                            "is it running, and is the address right?") from None  # fmt: skip
    with client:
        yield client


def _address_in(path: str) -> str:
    if not os.path.isfile(path):
        raise UsageError(f"--scheduler-file {path}: expected the file that a scheduler wrote, found none; "
                         "start `dask scheduler --scheduler-file FILE` first")  # fmt: skip
    try:
        with open(path, encoding="utf-8") as file:
            return str(json.load(file)["address"])
    except (OSError, ValueError, KeyError, TypeError):
        raise UsageError(f"--scheduler-file {path}: expected JSON with an address in it, as a scheduler writes it; "
                         "is it the right file?") from None  # fmt: skip


async def _shake_hands(address: str, seconds: float) -> None:
    """Connect once, with a time limit: Dask's client has none for the first reply after a connection is accepted."""
    from distributed import Security
    from distributed.comm import connect

    async with asyncio.timeout(seconds):
        comm = await connect(address, timeout=seconds, **Security().get_connection_args("client"))
        await comm.close()


def _inspect(client: Any, name: str, device: str) -> Workers:
    """Ask the workers for their GPUs, and select those that will compute."""
    try:
        client.wait_for_workers(1, timeout=ANSWER_SECONDS)
    except TimeoutError:
        raise PipelineError(f"scheduler {name}: expected a worker within {ANSWER_SECONDS} s, got none; start "
                            "`dask worker` or `dask cuda worker` with that address") from None  # fmt: skip
    try:
        usable = client.run(_usable_gpus)
    except Exception as error:  # Dask raises a worker's own error, or one with its text
        reason = str(error).partition("\n")[0]
        raise PipelineError(f"scheduler {name}: expected workers that can run baru, got {reason}; "
                            "install the same version there") from error  # fmt: skip
    with_gpu = tuple(address for address, gpus in usable.items() if gpus)
    if device == "gpu" and not with_gpu:
        raise UsageError(f"--device gpu: expected a worker with a GPU at {name}, got {len(usable)} without; "
                         "run with --device cpu for the same result")  # fmt: skip
    info = known_workers(client, f"scheduler {name}")
    if not info.keys() & usable.keys():
        raise PipelineError(f"scheduler {name}: expected its workers to stay, got none a moment after they answered; "
                            "see their logs for what ended them")  # fmt: skip
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
    """Number of GPUs that the worker running this can use."""
    return find_devices().usable
