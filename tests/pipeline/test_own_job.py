"""Jobs of one's own: registered again, and what is told of mistakes in them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

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


def own(given: Any = ECG, **parts: Any) -> str:
    """What a job of one's own does, of which some parts are wrong: its result, or the message."""
    ones = {"compute": lambda block, options: np.array([len(block), int(block.sum())]),
            "reference": lambda block, options: np.array([len(block), sum(block.tolist())])}  # fmt: skip
    others = {"combine": np.add, "finalize": lambda counts, options: counts.tolist(), "invariants": ()}
    job = Aggregation("own", "A job.", Nothing, label=lambda place, options: "number", **(ones | others | parts))
    pipeline.register(job)
    try:
        return str(pipeline.run("own", given, verify="full", chunk_bytes=50_000))
    except PipelineError as error:
        return str(error)


def test_what_is_wrong_with_a_job_of_ones_own_is_told(clipping: None) -> None:
    def fails(*_: Any) -> Any:
        raise KeyError("mine")

    samples = np.load(ECG)
    assert own() == str([samples.size, int(samples.sum())])
    assert own(compute=lambda *_: None).startswith("own: expected an array from compute, got NoneType; make it ")
    for given in (ECG, samples):
        assert own(given, reference=lambda *_: 5).startswith("own: expected an array from reference, got int; make it ")
    for part in ("compute", "reference", "combine"):
        assert re.search(r"failed: KeyError: 'mine' \((test_own_job.py|fails), line \d+\)$", own(**{part: fails})), part
    for lost in (lambda a, b: a, lambda a, b: b):
        told = own(combine=lost)
        assert "differs between two orders" in told and "check the job's combine, whose order must not matter" in told


@pytest.mark.parametrize("said", [False, True, np.bool_(False), 0])
def test_an_invariant_says_what_is_wrong_or_none(clipping: None, said: object) -> None:
    """One that returns whether it holds would pass what it finds wrong."""
    for given in (ECG, np.load(ECG)):
        told = own(given, invariants=(lambda partial, samples: said,))
        assert told.startswith(f"own: expected None or a text from an invariant, got {said!r}; make it return None ")


def test_a_job_of_ones_own_cannot_change_the_samples(clipping: None) -> None:
    """The caller has them still; and another job of the same call, with its check, would count what the first left."""

    def in_place(block: np.ndarray[Any, Any], options: Nothing) -> np.ndarray[Any, Any]:
        block.sort()
        return np.array([len(block), int(block.sum())])

    samples = np.arange(1000, 0, -1)
    for given in (ECG, samples):
        for part in ("compute", "reference"):
            found = own(given=given, **{part: in_place})
            assert re.search(r"failed: ValueError: .* read-only \((test_own_job.py|in_place), line \d+\)$", found), part
    assert samples[0] == 1000


def test_options_that_run_would_take_for_its_own_are_refused() -> None:
    @dataclass(frozen=True)
    class Named:
        bias: int = 0

    job: Any = vars(pipeline.api)["WORKFLOWS"]["histogram"]
    with pytest.raises(ValueError, match=r"expected options that pipeline.run has no argument for, got 'bias'; rename"):
        pipeline.register(replace(job, name="own", options=Named))
