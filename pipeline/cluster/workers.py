"""A running cluster, as the run loop sees it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pipeline.errors import PipelineError

if TYPE_CHECKING:
    from concurrent.futures import Future

ANSWER_SECONDS = 30  # how long to wait for a scheduler, or for a replacement of a lost worker


def _unwatched(waited: float) -> None:
    """No process of a cluster is watched."""


@dataclass(frozen=True)
class Workers:
    """A running cluster, as the run loop sees it.

    Attributes
    ----------
    client
        Connected Dask client, whose calls have a limit.
    device
        ``"gpu"`` or ``"cpu"``: what chunks are computed on.
    computing, threads
        Chunks computed at a time, and threads, over all workers.
    addresses
        Workers that tasks are restricted to; None if any may run them, including replacements of dead ones.
    resources
        Dask resources that a computing task requests.
    description
        One line for the report.
    dashboard
        Its address, or None.
    watch
        (seconds since the last result) -> None. To be called every second or so: ends processes that hang, and raises
        PipelineError if the run cannot go on.
    gpus
        One line for the report: which GPUs take part, and why; empty on a CPU, or if another scheduler has them.
    names
        Short names of its GPUs for people, by UUID, if they are on this machine.
    page
        Address of our own page beside the dashboard, if it is certainly served.
    """

    client: Any
    device: str
    computing: int
    threads: int
    addresses: tuple[str, ...] | None
    resources: dict[str, float]
    description: str
    dashboard: str | None
    watch: Callable[[float], None] = _unwatched
    gpus: str = ""
    names: Mapping[str, str] = field(default_factory=dict)
    page: str | None = None

    def left(self) -> int:
        """Number of workers that can compute a chunk now."""
        workers = known_workers(self.client, self.description)
        able = set(workers if self.addresses is None else self.addresses) & set(workers)
        return sum(self.resources.keys() <= workers[address].get("resources", {}).keys() for address in able)


def known_workers(client: Any, where: str) -> dict[str, Any]:
    """What the scheduler says of each of its workers, by address.

    `Client.scheduler_info` returns an attribute of the client instead, which a timer sets to an answer without workers
    every two seconds: possibly between the call and its return.

    Raises
    ------
    PipelineError
        If the scheduler does not answer within `ANSWER_SECONDS`; `where` names it.
    """
    try:
        identity = client.sync(client.scheduler.identity, n_workers=-1, callback_timeout=ANSWER_SECONDS)
    except OSError as error:  # TimeoutError is one
        raise PipelineError(f"{where}: expected an answer from the scheduler within {ANSWER_SECONDS} s, got "
                            f"{str(error) or 'none'}; is it still running?") from None  # fmt: skip
    return dict(identity["workers"])


@contextmanager
def aside() -> Iterator[None]:
    """In a task of a caller's cluster, let another take its place: this one waits for tasks that may have no other."""
    distributed = sys.modules.get("distributed")
    try:
        assert distributed is not None
        distributed.secede()
    except Exception:  # there is no task, or it has done so itself
        yield
        return
    try:
        yield
    finally:
        distributed.rejoin()


def asked(future: Any) -> Future[Any]:
    """Ask for the result of a Dask future, once; a caller who stops waiting for the answer cancels nothing.

    `distributed.Future.result` with a limit cancels its request when the time is over. If the request has not begun by
    then, the client keeps it as the one that later requests join, and never answers any of them.
    """
    import asyncio

    client = future.client
    return asyncio.run_coroutine_threadsafe(client.gather(future, asynchronous=True), client.loop.asyncio_loop)
