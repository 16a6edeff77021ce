"""A correction of Dask's nanny: a worker that dies while it starts is replaced, not waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Empty
from typing import Any

import distributed.nanny
from distributed.core import Status


class ReplacedProcess(distributed.nanny.WorkerProcess):  # type: ignore[misc]
    """A worker's process, which may be started again while the first start still waits for its message.

    Dask's own version then reads the queue of the second start, drops its message as another's, and waits for ever;
    the nanny can neither go on nor be closed.
    """

    status: Status

    async def start(self) -> Status:
        """Start the process; one that could not be created need not be ended."""
        try:
            return await super().start()
        except Exception:
            if self.status == Status.starting:  # Dask expects OSError, but a fork server that is killed is an EOFError
                self.status = Status.failed if self.pid else Status.stopped
            raise

    async def _wait_until_connected(self, uid: str) -> Any:
        queue = self.init_result_q
        while self.status == Status.starting and self.init_result_q is queue:
            try:
                message = queue.get_nowait()
            except Empty:
                await asyncio.sleep(self._init_msg_interval)
                continue
            if message["uid"] == uid:
                if "exception" in message:
                    raise message["exception"]
                return message
        if self.status == Status.starting:
            await self.running.wait()  # of the second start
        return None


@contextmanager
def replaced_processes() -> Iterator[None]:
    """Use it for all nannies that start a process."""
    before = distributed.nanny.WorkerProcess
    distributed.nanny.WorkerProcess = ReplacedProcess
    try:
        yield
    finally:
        distributed.nanny.WorkerProcess = before
