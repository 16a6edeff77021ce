"""Runs on clusters of processes on this machine, for tests, and what is left of them."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

import psutil
import pytest

import pipeline.cluster.placement
import pipeline.engine.run_loop
from pipeline.cluster.placement import Placement, open_workers
from pipeline.engine.aggregate import run
from pipeline.engine.outcome import Outcome
from pipeline.settings import Settings
from pipeline.storage.sources import open_source
from workflows.histogram import HISTOGRAM, HistogramOptions


def processes() -> list[psutil.Process]:
    """This process and its live children, without multiprocessing's resource tracker."""
    alive = [psutil.Process()]
    for child in alive[0].children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # nor a zombie, which another test may have left
            if "resource_tracker" not in " ".join(child.cmdline()):
                alive.append(child)
    return alive


def counted(path: str, compute: Any = HISTOGRAM.compute, **keywords: Any) -> Outcome:
    workflow = replace(HISTOGRAM, compute=compute)
    return run(
        workflow, HistogramOptions(), open_source((path,)), Settings(verify="full", chunk_bytes=20000, **keywords)
    )


def text_of(outcome: Outcome) -> str:
    return json.dumps(outcome.result.to_json())


def in_this_process(path: str) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline.cluster.placement, "PROCESSES_FROM_BYTES", 2**62)
        patch.setattr(pipeline.engine.run_loop, "open_workers", open_workers)
        return text_of(counted(path, placement=Placement(device="cpu")))
