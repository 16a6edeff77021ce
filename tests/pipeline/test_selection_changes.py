"""Masks and columns that change during a run, or between a run and the one that continues it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline
import pipeline.engine.aggregate
from pipeline.engine.aggregate import run_all
from pipeline.engine.aggregate_plan import Job
from pipeline.engine.journal_request import Request, difference, identities
from pipeline.engine.selection import Preparation
from pipeline.errors import PipelineError
from pipeline.settings import Settings
from pipeline.storage.sources import open_source
from workflows.histogram import HISTOGRAM, HistogramOptions

SHAPE = (403, 21)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """x.npy, t.npy, and good.npy, of bool."""
    random = np.random.default_rng(0)
    np.save(tmp_path / "x.npy", random.standard_normal(SHAPE))
    np.save(tmp_path / "t.npy", random.integers(0, 5, SHAPE))
    np.save(tmp_path / "good.npy", random.random(SHAPE) < 0.5)
    return tmp_path


@pytest.mark.usefixtures("shared")
def test_a_mask_that_changes_ends_the_run(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after its last byte was read."""
    finish = pipeline.engine.aggregate._one_pass

    def changed(*arguments: Any) -> Any:
        done = finish(*arguments)
        np.save(data / "good.npy", np.ones(SHAPE, bool))
        return done

    monkeypatch.setattr(pipeline.engine.aggregate, "_one_pass", changed)
    with pytest.raises(PipelineError, match=r"good\.npy: was written to"):
        pipeline.run("histogram", data / "x.npy", mask=data / "good.npy")


@pytest.mark.usefixtures("shared")
def test_a_mask_that_shrinks_before_it_is_read_ends_the_run(data: Path) -> None:
    source = open_source((str(data / "x.npy"),))
    prepared = Preparation(mask=str(data / "good.npy")).of_source(source)
    np.save(data / "good.npy", np.ones(3, bool))
    with pytest.raises(PipelineError, match=r"good\.npy: shrank while it was read"):
        run_all([prepared.job(Job(HISTOGRAM, HistogramOptions()))], source, Settings(), beside=prepared.sources)


def test_what_is_continued_has_the_same_selection(data: Path) -> None:
    """Another condition is another request; another mask of the same name is told."""
    source = open_source((str(data / "x.npy"),))

    def request(**asked: Any) -> Request:
        prepared = Preparation(**asked).of_source(source)
        job = prepared.job(Job(HISTOGRAM, HistogramOptions()))
        return Request(
            (("histogram", (job.options, job.workflow.asked)),), (source, *prepared.sources), (), "auto", None
        )

    column = {"t": str(data / "t.npy")}
    requests = [request(), request(where="x < 3"), request(where="x < 4"), request(missing=(3,)), request(gain=2.0),
                request(gain=2.0, transform="log"), request(where="t < 3", columns=column),
                request(mask=str(data / "good.npy"))]  # fmt: skip
    assert len({one.key() for one in requests}) == len(requests)
    before = requests[-1]
    kept_ = {"parameters": before.parameters(), "inputs": identities(before.files or [])}
    assert difference(kept_, request(mask=str(data / "good.npy"))) is None
    np.save(data / "good.npy", np.ones(SHAPE, bool))
    after = request(mask=str(data / "good.npy"))
    assert after.key() == before.key() and "good.npy" in str(difference(kept_, after))
