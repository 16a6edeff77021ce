"""Connect to a scheduler that somebody else started, or say in time that it does not answer."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from pipeline.errors import PipelineError, UsageError


@contextmanager
def connect(scheduler: str | None, scheduler_file: str | None, seconds: float) -> Iterator[Any]:
    """Dask client of an existing cluster, by its address or by the file that its scheduler wrote.

    Raises
    ------
    UsageError
        If there is no such file, or no address in it.
    PipelineError
        If the scheduler does not answer within `seconds`.
    """
    from distributed import Client

    name = scheduler or scheduler_file
    address = scheduler or _address_in(str(scheduler_file))
    try:
        with ThreadPoolExecutor(1) as thread:  # the caller's may be running an event loop
            thread.submit(asyncio.run, _shake_hands(address, seconds)).result()
        client = Client(address, timeout=seconds, set_as_default=False)
    except Exception as error:  # an address can be wrong in many ways
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
    """Dask's client waits for ever for the first word of whoever accepts its connection."""
    from distributed import Security
    from distributed.comm import connect

    async with asyncio.timeout(seconds):
        comm = await connect(address, timeout=seconds, **Security().get_connection_args("client"))
        await comm.close()
