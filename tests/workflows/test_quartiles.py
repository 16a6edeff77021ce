"""Bins by quartiles: in runs of several passes, and what is planted in them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

import pipeline
from pipeline.cli.main import cli
from pipeline.engine.aggregate import run
from pipeline.errors import PipelineError, VerificationError
from pipeline.settings import Settings
from pipeline.storage.sources import open_source
from tests.cases.reduce import case
from workflows.histogram import HISTOGRAM
from workflows.histogram_options import HistogramOptions
from workflows.quartiles import PROOF, SEARCH, Quartiles, compute

pytestmark = pytest.mark.usefixtures("shared")
SAMPLES = 5001


def samples_of(dtype: str) -> NDArray[Any]:
    random = np.random.default_rng(0)
    return (random.exponential(size=SAMPLES) * (1e15 if dtype == "int64" else 1)).astype(dtype)


def printed(*words: str) -> dict[str, Any]:
    done = CliRunner().invoke(cli, ["histogram", *words, "--json", "-q"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    result: dict[str, Any] = json.loads(done.stdout)["result"]
    return result


@pytest.mark.parametrize("rule", ["fd", "auto"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_passes_and_chunks_do_not_matter(tmp_path: Path, dtype: str, rule: str) -> None:
    samples = samples_of(dtype)
    expected = len(np.histogram_bin_edges(samples, rule)) - 1
    hostile = samples
    if dtype != "int64":
        hostile = np.insert(samples, [0, 77, 3000], np.array([np.nan, np.inf, -np.inf], dtype))
    hostile.tofile(tmp_path / "samples.bin")
    words = (str(tmp_path / "samples.bin"), "--dtype", dtype, "--bins", rule, "--range", "auto")
    whole = printed(*words)
    assert whole["choice"]["bins"] == expected
    assert sum(whole["histogram"]["storage"]["values"][1:-1]) == SAMPLES
    for chunks in (2, 3, 7):
        nbytes = -(-len(hostile) // chunks) * hostile.itemsize
        assert printed(*words, "-c", f"{nbytes}B", "--verify", "full") == whole
    ends = [float(np.quantile(samples.astype(float), q)) for q in (0.1, 0.8)]
    got = pipeline.run("histogram", hostile, bins=rule, range=ends)
    assert len(got.counts) == len(np.histogram_bin_edges(samples, rule, ends)) - 1


def lying(**stages: Any) -> Any:
    """The job with other surveys, by their names."""
    survey = HISTOGRAM.survey
    assert survey is not None

    def choose(options: HistogramOptions) -> Any:
        chosen = survey.choose(options)
        return chosen if chosen is None else stages.get(chosen.name.replace(" ", "_"), chosen)

    return replace(HISTOGRAM, survey=replace(survey, choose=choose))


@pytest.mark.parametrize("ends", ["auto", (0.5, 3.0)])
@pytest.mark.parametrize("stage", [SEARCH, PROOF])
def test_a_wrong_count_is_caught(tmp_path: Path, stage: Any, ends: Any) -> None:
    """Counts that are off by three slots: a search that was led astray is disproved by the pass after it."""
    np.save(tmp_path / "a.npy", samples_of("float64"))

    def lies(block: NDArray[Any], options: HistogramOptions) -> NDArray[np.int64]:
        partial: NDArray[np.int64] = compute(block, options)
        if partial[1] >= 0:  # counts, not keys that are gathered
            partial[1:] = np.roll(partial[1:], 3)
        return partial

    job = lying(**{stage.name.replace(" ", "_"): replace(stage, compute=lies)})
    with pytest.raises(VerificationError):
        run(job, HistogramOptions(bins="fd", range=ends), open_source((str(tmp_path / "a.npy"),)), Settings())


def test_a_search_of_no_samples() -> None:
    with pytest.raises(PipelineError, match="expected at least one finite sample"):
        pipeline.run("histogram", np.full(9, np.nan), bins="fd", range="auto")
    got = pipeline.run("histogram", np.arange(9.0), bins="auto", range=(20.0, 30.0))
    assert (len(got.counts), got.underflow) == (1, 9)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "int16", "float64"])
def test_counts_on_a_gpu(cp: Any, dtype: str) -> None:
    samples = case("specials", dtype, 900)
    for limits in (None, (-1.0, 1e5), (1e300, 2e300)):
        options = HistogramOptions("fd")
        vars(options)["_quartiles"] = Quartiles.begin(samples.dtype, limits)
        halves = [SEARCH.compute(cp.asarray(half), options) for half in (samples[:400], samples[400:])]
        got = SEARCH.combine(*halves)
        np.testing.assert_array_equal(got.get(), SEARCH.reference(samples, options))
