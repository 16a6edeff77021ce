"""Errors planted in jobs over arrays in memory: what is checked is what the result is made of."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import pipeline
from pipeline.engine.aggregate_plan import Job
from pipeline.errors import VerificationError
from pipeline.in_memory import blocks
from pipeline.in_memory.aggregate import Work, cover_on_cpu
from workflows import WORKFLOWS
from workflows.digest import DIGEST, DigestOptions
from workflows.histogram import HISTOGRAM, HistogramOptions
from workflows.reduce import REDUCE, ReduceOptions

SAMPLES = np.random.default_rng(3).integers(0, 100, 40_000).astype(np.int32)
PART_BYTES = 20_000
TRIALS = 100


def moved(partial: NDArray[Any]) -> None:
    """One sample moves to the next bin."""
    full = int(np.flatnonzero(partial[1:-3])[0]) + 1
    partial[full : full + 2] += np.array([-1, 1], partial.dtype)


def wrong_once(workflow: Any, index: int, change: Callable[[NDArray[Any]], None]) -> Any:
    """A workflow that computes a wrong partial once: of the samples among which this one is."""
    left = [True]

    def compute(samples: NDArray[Any], options: Any) -> NDArray[Any]:
        partial = workflow.compute(samples, options)
        low = samples.ctypes.data - SAMPLES.ctypes.data
        if left and low <= 4 * index < low + samples.nbytes:
            left.clear()
            change(partial)
        return np.asarray(partial)

    return replace(workflow, compute=compute)


@pytest.mark.parametrize("verify", ["sample", "auto"])
def test_a_sample_finds_as_many_errors_as_it_covers(verify: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each error comes once: computing the same samples again, for the check, gives the right partial."""
    monkeypatch.setattr("pipeline.in_memory.aggregate.LEAST_BYTES", {"sample": 2000, "auto": 2000})
    if verify == "auto":
        monkeypatch.setattr("pipeline.in_memory.aggregate._Balance.even", False)
    random, caught, share = np.random.default_rng(4), 0, 0.0
    options = HistogramOptions(bins=10, range=(0.0, 100.0))
    for seed in range(TRIALS):
        job = Job(wrong_once(HISTOGRAM, int(random.integers(SAMPLES.size)), moved), options)
        work = Work((job,), verify, seed, PART_BYTES, 1)
        share = cover_on_cpu(replace(work, jobs=(Job(HISTOGRAM, options),)), SAMPLES).checked / SAMPLES.size
        try:
            cover_on_cpu(work, SAMPLES)
        except VerificationError:
            caught += 1
    assert abs(caught - TRIALS * share) < 4 * math.sqrt(TRIALS * share * (1 - share)) + 1, (caught, share)


@pytest.mark.parametrize("verify", ["full", "sample", "off"])
@pytest.mark.parametrize(
    ("workflow", "options"),
    [(HISTOGRAM, HistogramOptions(bins=10, range=(0.0, 100.0))), (REDUCE, ReduceOptions("sum,max")),
     (DIGEST, DigestOptions())],
)  # fmt: skip
def test_a_wrong_sum_of_partials_is_found(workflow: Any, options: Any, verify: str) -> None:
    """Each merge of two partials, of all that there are, once gives the first one alone."""
    calls = 0

    def combine(a: Any, b: Any, wrong: int) -> Any:
        nonlocal calls
        calls += 1
        return a.copy() if calls - 1 == wrong else workflow.combine(a, b)

    def covered(wrong: int) -> None:
        nonlocal calls
        calls = 0
        lossy = replace(workflow, combine=lambda a, b: combine(a, b, wrong))
        cover_on_cpu(Work((Job(lossy, options),), verify, 1, PART_BYTES, 1), SAMPLES)

    covered(-1)
    for wrong in range(calls):
        with pytest.raises(VerificationError, match="the sum of all chunks"):
            covered(wrong)


@pytest.mark.parametrize(("samples", "text"), [(SAMPLES[:99], "a partial changed"), (SAMPLES, "the sum of all chunks")])
def test_sums_that_change_while_results_are_made_are_found(
    samples: NDArray[Any], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    finalize = HISTOGRAM.finalize

    def changed(partial: NDArray[Any], options: Any) -> Any:
        partial[3] += 1
        return finalize(partial, options)

    monkeypatch.setitem(WORKFLOWS, "histogram", replace(HISTOGRAM, finalize=changed))
    with pytest.raises(VerificationError, match=text):
        pipeline.run("histogram", samples, chunk_bytes=PART_BYTES, bins=10, range=(0, 100))


@pytest.mark.parametrize("place", ["merge", "on the way"])
def test_errors_behind_the_checks_of_dask_blocks_are_found(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a task that merges, and in a partial on its way to it."""
    dask = pytest.importorskip("dask")
    array, calls = pytest.importorskip("dask.array").from_array(SAMPLES, 3000), 0
    combine, cover = HISTOGRAM.combine, blocks._cover_block

    def wrong() -> bool:
        nonlocal calls
        calls += 1
        return calls == 5

    def lossy(a: Any, b: Any) -> Any:
        return a.copy() if wrong() else combine(a, b)

    def changed(*given: Any) -> Any:
        got = cover(*given)
        if wrong():
            moved(got.item()._covered.partials[0])
        return got

    if place == "merge":
        monkeypatch.setitem(WORKFLOWS, "histogram", replace(HISTOGRAM, combine=lossy))
    else:
        monkeypatch.setattr(blocks, "_cover_block", changed)
    with dask.config.set(scheduler="synchronous"), pytest.raises(VerificationError):
        pipeline.run("histogram", array, bins=10, range=(0, 100), verify="full")
