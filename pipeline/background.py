"""Jobs that run in the background of a Python program: futures, which can be awaited."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Generic, Literal, TypeVar, overload

from kernels.common.once import once_per_process
from pipeline.api import Given, Jobs, Path, run
from pipeline.cluster.shared import within_run
from pipeline.engine.array import ArrayResult
from pipeline.errors import PipelineError
from workflows.digest import DigestResult
from workflows.histogram_result import HistogramResult
from workflows.quantile_result import QuantileResult
from workflows.reduce_result import ReduceResult

Found = TypeVar("Found")

ON_CLUSTERS = 8  # runs at a time on clusters of the caller
_thread = threading.local()


class Submitted(Generic[Found]):
    """A job that `submit` has started: ask for its result, or await it.

    Examples
    --------
    >>> import numpy, pipeline
    >>> job = pipeline.submit("reduce", numpy.arange(10), op="sum")
    >>> job.result(timeout=60).values
    {'sum': 45}
    >>> job.done()
    True
    """

    def __init__(self, future: Future[Found]) -> None:
        self._future = future

    def __await__(self) -> Generator[Any, None, Found]:
        """Wait for the result without blocking the event loop."""
        return asyncio.wrap_future(self._future).__await__()

    def result(self, timeout: float | None = None) -> Found:
        """The result, as `run` returns it, or its error.

        Parameters
        ----------
        timeout
            Seconds to wait; None: until it is there. The job goes on after a TimeoutError.

        Raises
        ------
        PipelineError
            If a job's own code, or a function that is called once another job has ended, would wait.
        """
        self._check_wait()
        return self._future.result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The error that the job ended with, None if it has a result; waits as `result`."""
        self._check_wait()
        return self._future.exception(timeout)

    def done(self) -> bool:
        """Whether it has ended, or was cancelled."""
        return self._future.done()

    def cancel(self) -> bool:
        """Do not start it; returns False if it has started, and goes on."""
        return self._future.cancel()

    def add_done_callback(self, function: Callable[[Submitted[Found]], object]) -> None:
        """Call a function with this once it has ended."""
        self._future.add_done_callback(lambda _: function(self))

    def _check_wait(self) -> None:
        """Refuse to wait in a thread that this job may wait for."""
        if not self.done() and (getattr(_thread, "of_jobs", False) or within_run()):
            raise PipelineError("expected no wait for a job inside a job or callback, which could deadlock; call run, "
                                "or wait elsewhere")  # fmt: skip

    def __repr__(self) -> str:
        state = "cancelled" if self._future.cancelled() else "done" if self.done() else "pending"
        return f"<Submitted: {state}>"


@overload
def submit(
    job: Literal["histogram"], *files: Given, channels: None = None, layout: None = None, segment: None = None,
    by: None = None, axis: None = None, where: None = None, mask: None = None, missing: None = None, **options: Any,
) -> Submitted[HistogramResult]: ...  # fmt: skip


@overload
def submit(
    job: Literal["reduce"], *files: Given, channels: None = None, layout: None = None, segment: None = None,
    by: None = None, axis: None = None, where: None = None, mask: None = None, missing: None = None, **options: Any,
) -> Submitted[ReduceResult]: ...  # fmt: skip


@overload
def submit(
    job: Literal["quantile"], *files: Given, channels: None = None, layout: None = None, segment: None = None,
    by: None = None, axis: None = None, where: None = None, mask: None = None, missing: None = None, **options: Any,
) -> Submitted[QuantileResult]: ...  # fmt: skip


@overload
def submit(
    job: Literal["digest"], *files: Given, channels: None = None, layout: None = None, segment: None = None,
    by: None = None, axis: None = None, where: None = None, mask: None = None, missing: None = None, **options: Any,
) -> Submitted[DigestResult]: ...  # fmt: skip


@overload
def submit(
    job: Literal["matmul", "transpose", "stencil", "map"], *files: Path, output: Path, **options: Any
) -> Submitted[ArrayResult]: ...


@overload
def submit(job: str | Jobs, *files: Given, **options: Any) -> Submitted[Any]: ...


def submit(job: Any, *files: Any, **arguments: Any) -> Submitted[Any]:
    """Start a job in the background, with the arguments of `run`.

    Jobs on clusters of the caller (``client=``, ``scheduler=`` or ``scheduler_file=``) run at the same time. Others
    start clusters of their own, which would take each other's cores, GPUs and memory: they run one after another.

    Returns
    -------
    Submitted
        ``result(timeout)`` waits for what `run` returns; ``await`` works, too.

    Examples
    --------
    >>> import asyncio, numpy, pipeline
    >>> async def both():
    ...     jobs = [pipeline.submit("reduce", numpy.arange(n), op="max") for n in (10, 20)]
    ...     return [(await job).values["max"] for job in jobs]
    >>> asyncio.run(both())
    [9, 19]
    """
    elsewhere = any(arguments.get(name) is not None for name in ("client", "scheduler", "scheduler_file"))
    return Submitted(_threads(elsewhere).submit(run, job, *files, **arguments))


@once_per_process
def _threads(elsewhere: bool) -> ThreadPoolExecutor:
    """The threads of jobs, which end before Python's own pools, Dask's among them, let nothing more begin."""
    from concurrent.futures import process  # noqa: F401 - Dask imports it, too, which is an error while Python exits

    known = partial(setattr, _thread, "of_jobs", True)
    threads = ThreadPoolExecutor(ON_CLUSTERS if elsewhere else 1, "pipeline", known)
    threading._register_atexit(threads.shutdown)  # type: ignore[attr-defined]
    return threads
