"""Processes for the workers of GPUs, started with the command: each makes its context while it imports modules.

The driver makes the contexts of several processes one after the other, and no context survives a fork, so that workers
forked from a server get theirs last of all. A cluster takes these processes first; those that replace them are forked.
"""

from __future__ import annotations

import io
import os
import socket
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import context, popen_forkserver, reduction, resource_tracker, spawn, util
from time import monotonic
from typing import Any, NamedTuple

from pipeline.cluster.processes import WORKER_PROCESS

END_SECONDS = 1.0  # for processes that were killed, whose contexts the driver removes
VISIBLE = "CUDA_VISIBLE_DEVICES"


class _Early(NamedTuple):
    process: subprocess.Popen[bytes]
    connection: socket.socket  # for what the process is to run


_waiting: dict[str, _Early] = {}  # by GPU


def start(gpus: Sequence[str], modules: Sequence[str], variables: Mapping[str, str]) -> None:
    """Start a process for each GPU, unless there is one.

    Parameters
    ----------
    gpus
        As CUDA_VISIBLE_DEVICES names them.
    modules
        That workers need.
    variables
        Of their environment, besides this one's.
    """
    for gpu in gpus:
        if gpu in _waiting:
            continue
        ours, theirs = socket.socketpair()
        with theirs:
            numbers = str(os.getpid()), str(theirs.fileno())
            words = [sys.executable, "-m", "pipeline.cluster.early_worker", *numbers, *modules]
            try:
                process = subprocess.Popen(
                    words, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()],
                    env={**os.environ, **variables, VISIBLE: gpu},
                )  # fmt: skip
            except OSError:  # a worker will be forked in its place
                ours.close()
                return
        _waiting[gpu] = _Early(process, ours)


def keep(gpus: Collection[str] = ()) -> None:
    """Kill the processes of all other GPUs that no worker has taken."""
    _kill([_waiting.pop(gpu) for gpu in _waiting.keys() - gpus])


def _kill(processes: Sequence[_Early]) -> None:
    for early in processes:
        early.process.kill()
        early.connection.close()
    until = monotonic() + END_SECONDS
    for early in processes:  # Python warns developers of processes that nobody has waited for
        with suppress(subprocess.TimeoutExpired):
            early.process.wait(max(until - monotonic(), 0))


@contextmanager
def taken_first() -> Iterator[None]:
    """Dask's workers that are to be forked from a server become, instead, the processes that wait for their GPU."""
    forked: Any = context.ForkServerProcess
    fork = forked._Popen

    def launched(process: Any) -> Any:
        if (early := _taken(process)) is not None:
            try:
                return _Launched(process, early)
            except OSError:  # it has died meanwhile, or too many files are open
                _kill([early])
        return fork(process)

    forked._Popen = staticmethod(launched)
    try:
        yield
    finally:
        forked._Popen = staticmethod(fork)
        keep()


def _taken(process: Any) -> _Early | None:
    """The process that waits for the GPU of one of Dask's workers, if it lives."""
    early = None
    if _waiting and process.name == WORKER_PROCESS:
        with suppress(AttributeError, IndexError, KeyError, TypeError):  # another version of Dask has it elsewhere
            early = _waiting.pop(process._args[0].keywords["env"][VISIBLE], None)
    if early is not None and early.process.poll() is not None:
        early.connection.close()
        return None
    return early


class _Launched(popen_forkserver.Popen):
    """A process that waited, told what to run as a fork server is."""

    _fds: list[int]  # that it is to inherit

    def __init__(self, process: Any, early: _Early) -> None:
        self._early = early
        super().__init__(process)

    def _launch(self, process: Any) -> None:
        text = io.BytesIO()
        context.set_spawning_popen(self)
        try:
            reduction.dump(spawn.get_preparation_data(process.name), text)
            reduction.dump(process, text)
        finally:
            context.set_spawning_popen(None)
        self.pid, tracker = self._early.process.pid, resource_tracker.getfd()
        assert tracker is not None  # it runs
        reads, writes = os.pipe()
        self.sentinel, held = os.pipe()  # readable once the process has ended, which holds the other end
        # As long as this is open the process knows that its parent lives.
        alive = os.dup(writes)
        self.finalizer = util.Finalize(self, _close, (alive, self.sentinel))
        with self._early.connection as connection:
            try:
                reduction.sendfds(connection, [reads, held, tracker, *self._fds])
            except OSError:
                os.close(writes)
                raise
            finally:
                os.close(reads)
                os.close(held)
        with suppress(BrokenPipeError), open(writes, "wb") as file:  # killed meanwhile: its exit status tells
            file.write(text.getbuffer())  # some of it when the file is closed

    def poll(self, flag: int = os.WNOHANG) -> int | None:
        """Its exit status, or minus the signal that ended it; None while it runs."""
        if self.returncode is None:
            process, at_once = self._early.process, flag == os.WNOHANG
            # Its descriptors are closed before it has ended: the driver may take long to remove its context.
            self.returncode = process.poll() if at_once else process.wait()
        return self.returncode


def _close(*fds: int) -> None:
    for fd in fds:
        os.close(fd)
