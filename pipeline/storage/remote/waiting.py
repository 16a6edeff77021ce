"""Threads that wait for servers, and calls through them that a signal interrupts."""

from __future__ import annotations

from collections.abc import Callable
from threading import current_thread, main_thread
from typing import Any, ParamSpec, TypeVar

from kernels.common.once import once_per_process

REQUESTS = 32  # of a process, at once

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


@once_per_process
def threads() -> Any:
    """An executor. Dask's has daemons for threads: a process that ends does not wait for a server that stalls."""
    from distributed.threadpoolexecutor import ThreadPoolExecutor

    return ThreadPoolExecutor(REQUESTS, thread_name_prefix="remote")


def interruptible(
    function: Callable[Parameters, Result], *arguments: Parameters.args, **named: Parameters.kwargs
) -> Result:
    """Call what waits for a server. Handlers of signals run in the main thread, and not while it is in other code."""
    if current_thread() is not main_thread():
        return function(*arguments, **named)
    result: Result = threads().submit(function, *arguments, **named).result()
    return result


def within(
    seconds: float, function: Callable[Parameters, Result], *arguments: Parameters.args, **named: Parameters.kwargs
) -> Result:
    """The same, for so many seconds; then TimeoutError, and the call is abandoned."""
    result: Result = threads().submit(function, *arguments, **named).result(max(0.0, seconds))
    return result
