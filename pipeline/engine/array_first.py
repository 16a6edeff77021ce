"""Computes the first region, in the process that `array_begun` starts."""

from __future__ import annotations

import os
import pickle
import sys
from contextlib import suppress
from multiprocessing.connection import Connection
from threading import Thread
from typing import Any, cast

from pipeline.engine.array_plan import ArrayPlan
from pipeline.engine.array_task import compute_and_write
from pipeline.storage.mapped_input import MappedFiles
from pipeline.threads import SWITCH_SECONDS
from pipeline.timeline import Timeline
from workflows import WORKFLOWS, ArrayJob


def serve(connection: Connection) -> None:
    """The other process, which ends with the first one."""
    sys.setswitchinterval(SWITCH_SECONDS)
    connection.recv()  # the plan is there
    name, values, region = pickle.load(sys.stdin.buffer)
    plan = ArrayPlan(cast("ArrayJob[Any]", WORKFLOWS[name]), **values)
    timeline = Timeline(plan.traced)

    def end_with_the_first() -> None:
        with suppress(EOFError, OSError):
            connection.recv()  # nothing comes
        os._exit(0)

    Thread(target=end_with_the_first, daemon=True).start()
    counts = dict(compute_and_write(plan, region, timeline, MappedFiles().region))
    connection.send((counts, timeline))
