"""Calls of `pipeline.run` like an earlier one, over NumPy and CuPy arrays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import pipeline
from pipeline import api
from pipeline.arguments import jobs_of
from pipeline.errors import UsageError, VerificationError
from pipeline.in_memory.options_cache import MOST
from workflows import WORKFLOWS
from workflows.histogram import HISTOGRAM

pytestmark = pytest.mark.gpu
SAMPLES = np.random.default_rng(5).integers(-50, 1100, 3001).astype("i4")


@pytest.fixture(params=["NumPy", "CuPy"])
def array_of(request: pytest.FixtureRequest) -> Any:
    return np.asarray if request.param == "NumPy" else request.getfixturevalue("cp").asarray


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The jobs of calls whose arguments were read."""
    jobs: list[Any] = []

    def noted(job: Any, options: Any) -> Any:
        jobs.append(job)
        return jobs_of(job, options)

    monkeypatch.setattr(api, "jobs_of", noted)
    return jobs


def test_arguments_are_read_once(array_of: Any, read: list[Any]) -> None:
    for start in (0, 1, 500):
        array = array_of(SAMPLES[start:])
        found = pipeline.run("histogram", array, bins=61, range=(0, 999), verify="full")
        np.testing.assert_array_equal(found.counts, np.histogram(SAMPLES[start:], 61, (0, 999))[0])
        assert (found.verification.mode, found.verification.checked) == ("full", 3001 - start)
    assert read == ["histogram"]


def test_other_calls_are_read(array_of: Any, read: list[Any]) -> None:
    """Whatever else is said, and another dtype, shape of the arguments or job under the name."""
    array = array_of(SAMPLES)
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((array,), {"bins": 62, "range": (0, 999)}),
        ((array,), {"bins": 62, "range": (0.0, 999)}),
        ((array,), {"bins": 62, "range": (0, 999), "verify": "off"}),
        ((array,), {"bins": 62, "range": (0, 999), "where": "x != 7"}),
        ((array,), {"bins": 62, "range": (0, 999), "chunk_bytes": 4096}),
        ((array,), {"edges": np.arange(9.0)}),
        ((array.astype("i8"),), {"bins": 62, "range": (0, 999)}),
        ((array, array), {"bins": 62, "range": (0, 999)}),
    ]
    for files, said in calls:
        pipeline.run("histogram", *files, **said)
    assert len(read) == len(calls)
    for files, said in calls:
        length = len(read)
        counts = pipeline.run("histogram", *files, **said).counts
        goes_on = len(files) == 1 and said.keys() <= {"bins", "range", "verify"}
        assert len(read) == length + (not goes_on), said
        kept = SAMPLES[SAMPLES != 7] if "where" in said else SAMPLES
        bins: Any = said.get("edges", said.get("bins"))
        assert (counts == len(files) * np.histogram(kept, bins, said.get("range"))[0]).all()


def test_a_job_that_is_registered_instead(array_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    array = array_of(SAMPLES)
    assert pipeline.run("histogram", array, bins=63).samples == len(SAMPLES)
    half = replace(HISTOGRAM, compute=lambda block, options: HISTOGRAM.compute(block, options) // 2)
    monkeypatch.setitem(WORKFLOWS, "histogram", half)
    for _ in range(2):
        with pytest.raises(VerificationError, match=r"every sample is counted once|a number is wrong"):
            pipeline.run("histogram", array, bins=63)


def test_what_was_refused_is_refused_again(array_of: Any) -> None:
    array = array_of(SAMPLES)
    for said in ({"verify": "some"}, {"bins": 0}, {"bin": 7}):
        for _ in range(2):
            with pytest.raises(UsageError):
                pipeline.run("histogram", array, **said)
    for _ in range(2):
        with pytest.raises(UsageError, match="complex64"):
            pipeline.run("histogram", array.astype("c8"))
        assert pipeline.run("histogram", array[:0], bins=5).counts.tolist() == [0] * 5


def test_bool_counts_as_uint8_each_time(array_of: Any) -> None:
    array = array_of(SAMPLES) > 3
    ones = int((SAMPLES > 3).sum())
    for _ in range(2):
        counts = pipeline.run("histogram", array, bins=2, range=(0, 2)).counts
        assert counts.tolist() == [SAMPLES.size - ones, ones]


def test_few_are_kept(array_of: Any, read: list[Any]) -> None:
    array = array_of(SAMPLES)
    for bins in range(70, 71 + 2 * MOST):
        pipeline.run("histogram", array, bins=bins)
    pipeline.run("histogram", array, bins=70)
    assert len(read) == 2 + 2 * MOST
    pipeline.run("histogram", array, bins=70 + 2 * MOST)
    assert len(read) == 2 + 2 * MOST


def test_other_jobs_and_results(array_of: Any, read: list[Any]) -> None:
    array = array_of(SAMPLES[:3000].reshape(60, 50))
    for _ in range(3):
        assert pipeline.run("reduce", array, op="sum,argmax").values == {
            "sum": SAMPLES[:3000].sum(), "argmax": SAMPLES[:3000].argmax(),
        }  # fmt: skip
        counted = pipeline.run("histogram", array, range="auto", bins=9)
        assert counted.counts.tolist() == np.histogram(SAMPLES[:3000], 9)[0].tolist()
    assert read == ["reduce", "histogram"]
