"""Processes for GPU workers, started with the command: each creates its CUDA context while it imports modules.

The driver makes the contexts of several processes one after the other, and no context survives a fork, so that workers
forked from a server get theirs last of all. A worker that replaces another starts in the same way. If that fails it is
forked, from a server that then starts.
"""

from __future__ import annotations

import io
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import context, popen_forkserver, reduction, resource_tracker, spawn, util
from time import monotonic
from typing import Any, NamedTuple

from pipeline.cluster.helper_process import comes
from pipeline.cluster.processes import WORKER_PROCESS

END_SECONDS = 1.0  # for processes that were killed, whose contexts the driver removes
HUNG_SECONDS = 10.0  # in which a process that is not ready does nothing: the driver may make contexts one by one
VISIBLE = "CUDA_VISIBLE_DEVICES"


class _Early(NamedTuple):
    process: subprocess.Popen[bytes]
    connection: socket.socket  # on which the process says that it is ready, and gets what it is to run


_waiting: dict[str, _Early] = {}  # by GPU


def start(gpus: Sequence[str], modules: Sequence[str], variables: Mapping[str, str]) -> None:
    """Start a process for each GPU, unless one waits.

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
        if (before := _waiting.get(gpu)) is not None:
            if before.process.poll() is None:
                continue
            _kill([_waiting.pop(gpu)])
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
def taken_first(start: Callable[[Sequence[str]], object]) -> Iterator[None]:
    """When Dask forks GPU workers, it gets the waiting processes that `start` has started."""
    forked: Any = context.ForkServerProcess
    fork = forked._Popen

    def launched(process: Any) -> Any:
        if (gpu := _gpu_of(process)) is not None:
            start([gpu])
            if (early := _waiting.pop(gpu, None)) is not None:
                with suppress(OSError):  # it has died meanwhile, or too many files are open
                    if _is_ready(early):
                        return _Launched(process, early)
                _kill([early])
        return fork(process)

    forked._Popen = staticmethod(launched)
    try:
        yield
    finally:
        forked._Popen = staticmethod(fork)
        keep()


def _gpu_of(process: Any) -> str | None:
    """The GPU of one of Dask's workers, if it has one."""
    if process.name == WORKER_PROCESS:
        with suppress(AttributeError, IndexError, KeyError, TypeError):  # another version of Dask has it elsewhere
            return str(process._args[0].keywords["env"][VISIBLE])
    return None


def _is_ready(early: _Early) -> bool:
    """Wait until a process has imported its modules; False if it ends or hangs."""
    return comes(early.process, early.connection, HUNG_SECONDS) and bool(early.connection.recv(1))


class _Launched(popen_forkserver.Popen):
    """A process that waited, and is told what to run in the way a fork server is."""

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
        return self.wait(0 if flag == os.WNOHANG else None)

    def wait(self, timeout: float | None = None) -> int | None:
        """The same, after so many seconds at most; None: once it has ended.

        Its descriptors, for which multiprocessing waits, are closed before: the driver may take long to remove its
        context.
        """
        if self.returncode is None:
            with suppress(subprocess.TimeoutExpired):
                self.returncode = self._early.process.wait(timeout)
        return self.returncode


def _close(*fds: int) -> None:
    for fd in fds:
        os.close(fd)
