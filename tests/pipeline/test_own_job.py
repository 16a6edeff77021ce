"""Jobs of one's own: registered again, and what is told of mistakes in them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import pipeline
import pipeline.api
from pipeline.errors import PipelineError
from tests.pipeline.test_api import clipping as clipping
from workflows import Aggregation

ROOT = Path(__file__).parents[2]
ECG = ROOT / "data" / "ecg.npy"


def test_a_job_of_ones_own_can_be_registered_again(clipping: None) -> None:
    """As when a cell of a notebook runs again, or `Client.upload_file` loads the module twice."""
    before: Any = vars(pipeline.api)["WORKFLOWS"]["clipping"]
    try:
        changed = replace(before, finalize=lambda counts, options: "changed")
        assert pipeline.register(changed) is changed
        assert pipeline.run("clipping", ECG) == "changed"
    finally:
        pipeline.register(before)


@dataclass(frozen=True)
class Nothing:
    """No options."""


def own(**parts: Any) -> str:
    """What a job of one's own does, of which some parts are wrong: its result, or the message."""
    ones = {"compute": lambda block, options: np.array([len(block), int(block.sum())]),
            "reference": lambda block, options: np.array([len(block), sum(block.tolist())])}  # fmt: skip
    functions = ones | {"combine": np.add, "finalize": lambda counts, options: counts.tolist()} | parts
    job = Aggregation("own", "A job.", Nothing, invariants=(), label=lambda place, options: "number", **functions)
    pipeline.register(job)
    try:
        return str(pipeline.run("own", ECG, verify="full", chunk_bytes=50_000))
    except PipelineError as error:
        return str(error)


def test_what_is_wrong_with_a_job_of_ones_own_is_told(clipping: None) -> None:
    def fails(*_: Any) -> Any:
        raise KeyError("mine")

    samples = np.load(ECG)
    assert own() == str([samples.size, int(samples.sum())])
    assert own(compute=lambda *_: None).startswith("own: expected an array from compute, got NoneType; make it ")
    assert own(reference=lambda *_: 5).startswith("own: expected an array from reference, got int; make it ")
    for part in ("compute", "reference", "combine"):
        assert re.search(r"failed: KeyError: 'mine' \((test_own_job.py|fails), line \d+\)$", own(**{part: fails})), part
    for lost in (lambda a, b: a, lambda a, b: b):
        assert "differs between two orders" in own(combine=lost)
