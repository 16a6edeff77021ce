"""Imported last by the fork server: settings that its workers inherit."""

import gc
import os
import pickle
import signal
import sys
from traceback import walk_tb
from typing import Any

from pipeline.process.exit_status import STATUS
from pipeline.process.supervisor import end_with_parent
from pipeline.threads import SWITCH_SECONDS


def in_worker() -> None:
    """Settings of a worker's own."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    end_with_parent()  # Dask takes the workers of a server that has ended for dead
    sys.excepthook = _unless_unwanted


def _unless_unwanted(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    """Print an uncaught exception, unless a new worker was never told what to do because its server was killed.

    The main module of a user's program, which a worker imports, may raise the same exceptions.
    """
    modules = [frame.f_globals.get("__name__") for frame, _ in walk_tb(trace)]
    if modules[-1:] != ["multiprocessing.spawn"] or not issubclass(kind, (EOFError, pickle.UnpicklingError)):
        sys.__excepthook__(kind, error, trace)


signal.pthread_sigmask(signal.SIG_BLOCK, STATUS)  # also in a server that multiprocessing starts for one that has ended
gc.freeze()  # garbage collection in a worker would touch, and so copy, the pages of the modules
sys.setswitchinterval(SWITCH_SECONDS)
os.register_at_fork(after_in_child=in_worker)
