"""Computes the first region, in the process that `array_first_process` starts."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from multiprocessing.connection import Connection
from threading import Thread

from pipeline.engine.array_plan import load
from pipeline.engine.array_task import compute_and_write
from pipeline.storage.mapped_input import MappedFiles
from pipeline.threads import SWITCH_SECONDS
from pipeline.timeline import Timeline


def serve(connection: Connection) -> None:
    """What the helper process does. It ends with the command's process."""
    sys.setswitchinterval(SWITCH_SECONDS)
    connection.recv()  # the plan is there
    plan, region = load(sys.stdin.buffer)
    timeline = Timeline(plan.traced)

    def end_with_the_first() -> None:
        with suppress(EOFError, OSError):
            connection.recv()  # nothing comes
        os._exit(0)

    Thread(target=end_with_the_first, daemon=True).start()
    counts = dict(compute_and_write(plan, region, timeline, MappedFiles().region))
    connection.send((counts, timeline))
