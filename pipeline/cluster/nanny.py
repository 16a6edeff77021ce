"""A correction of Dask's nanny: a worker that dies while it starts is replaced, not waited for."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Empty
from time import monotonic
from typing import Any

import dask
import distributed.nanny
from distributed.core import Status

from pipeline.cluster.worker import FOLDER

LOOKED_SECONDS = 5  # until a process is replaced that nobody has looked at since it ended
ATTEMPTS = 4  # to start a process that is killed meanwhile
CLOSING = (Status.closing, Status.closing_gracefully, Status.closed, Status.failed)


class ReplacedProcess(distributed.nanny.WorkerProcess):  # type: ignore[misc]
    """A worker's process, which may be started again while the first start still waits for its message.

    Dask's own version then reads the queue of the second start, drops its message as another's, and waits for ever;
    the nanny can neither go on nor be closed.
    """

    status: Status
    _init_msg_interval = 0.01  # seconds between two looks, of Dask's 0.05: a look takes microseconds
    _last: int | None = None  # the process before

    @classmethod
    def _run(cls, *arguments: Any, **keywords: Any) -> None:
        # Dask writes a key to a temporary folder, and reads it, as each process starts, which may be killed then.
        tempfile.tempdir = keywords["config"].get("temporary-directory")
        super()._run(*arguments, **keywords)

    async def start(self) -> Status:
        """Start the process, and again if it or the fork server is killed while it starts."""
        await self._looked_at()
        if self._last and not self._is_wanted():
            return self.status
        for left in reversed(range(ATTEMPTS)):
            try:
                status: Status = await super().start()
            except Exception as error:
                # Dask expects an OSError, and closes the nanny of a process that was created; else that never ends.
                if self.status == Status.starting:
                    self.status = Status.failed if self.pid else Status.stopped
                if not (left and isinstance(error, OSError | EOFError) and self._is_wanted()):
                    raise
            else:
                if status != Status.stopped or not (left and self._is_wanted()):
                    self._last = self.pid
                    return status
        raise AssertionError("unreachable")

    async def _looked_at(self) -> None:
        """Wait until the watch has seen how the previous process ended: its GPU may have to be left out."""
        path, began = f"{dask.config.get(FOLDER, '')}/{self._last}", monotonic()
        while os.path.exists(path) and monotonic() - began < LOOKED_SECONDS:
            await asyncio.sleep(self._init_msg_interval)

    def _is_wanted(self) -> bool:
        """Whether the process has stopped although its nanny goes on."""
        return self.status == Status.stopped and self.on_exit.__self__.status not in CLOSING

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
