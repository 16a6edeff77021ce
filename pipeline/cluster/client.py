"""A Dask client whose calls all have a limit: Dask's own client waits for ever for a frozen scheduler or worker."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from random import Random
from typing import Any

from distributed import Client, utils, utils_comm
from tornado.util import TimeoutError as PassedLimit

CALL_SECONDS = 120  # the longest call warms up workers: CUDA contexts, kernels that are compiled
CLOSE_SECONDS = 5


def _renew_thread() -> None:
    """A process that is forked from one that had a cluster lacks the thread in which Dask unpacks tasks, and waits."""
    utils._offload_executor = ThreadPoolExecutor(1, "Dask-Offload")


os.register_at_fork(after_in_child=_renew_thread)

# Dask draws a number for each result that is fetched: a program that has seeded `random` would get others after a run.
utils_comm.random = Random()


class LimitedClient(Client):  # type: ignore[misc]
    """Raises TimeoutError where Dask's client would wait for ever."""

    def sync(self, func: Any, *args: Any, callback_timeout: Any = None, **keywords: Any) -> Any:
        """As `Client.sync`, with a limit wherever it blocks."""
        if not keywords.get("asynchronous"):
            callback_timeout = callback_timeout or CALL_SECONDS
        return super().sync(func, *args, callback_timeout=callback_timeout, **keywords)

    def close(self, timeout: Any = CLOSE_SECONDS) -> Any:
        """Close this client; one whose scheduler does not answer is dropped."""
        with suppress(OSError, AssertionError):  # TimeoutError is an OSError
            return super().close(timeout)


class OwnClient(LimitedClient):
    """The client of one of our own clusters, whose loop does not print limits that pass just when it stops.

    Dask gathers messages in tasks that wait a few milliseconds for more of them; nobody waits for these tasks.
    """

    def __init__(self, cluster: Any) -> None:
        super().__init__(cluster, set_as_default=False)  # other threads use Dask, too
        self.loop.asyncio_loop.set_exception_handler(_handle)


def _handle(loop: Any, context: dict[str, Any]) -> None:
    if not isinstance(context.get("exception"), PassedLimit):
        loop.default_exception_handler(context)
