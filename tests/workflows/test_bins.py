"""Bins that the samples decide on: NumPy's rules, and a logarithmic scale."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import uhi.schema
from click.testing import CliRunner
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

import pipeline
from kernels.common import cxx
from kernels.histogram.binning import MAX_BINS
from pipeline.cli.main import cli
from pipeline.engine.aggregate import run
from pipeline.errors import UsageError, VerificationError
from pipeline.settings import Settings
from pipeline.storage.sources import open_source
from tests.cases.reduce import DTYPES, FLOATS, case
from workflows import bins
from workflows.bins import STATISTICS
from workflows.histogram import HISTOGRAM
from workflows.histogram_options import HistogramOptions

pytestmark = pytest.mark.usefixtures("shared")
RULES = ("sqrt", "sturges", "rice", "scott", "doane", "fd", "auto")
ECG = str(Path(__file__).parents[2] / "data/ecg.npy")


def samples_of(dtype: str, shape: str, size: int) -> NDArray[Any]:
    random = np.random.default_rng([size, len(shape)])
    values = {
        "normal": random.normal(50, 12, size),
        "exponential": random.exponential(20, size),
        "two values": random.choice([3.0, 90.0], size),
        "far": np.append(random.normal(60, 1, size), 120.0),
    }[shape]
    return values.clip(0, 127).astype(dtype)


def counted(samples: NDArray[Any], **options: Any) -> Any:
    return pipeline.run("histogram", samples, verify="full", **options)


# --- NumPy's rules ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_as_many_bins_as_numpy(dtype: str, rule: str) -> None:
    for shape in ("normal", "exponential", "two values", "far"):
        for size in (1, 2, 3, 1000):
            samples = samples_of(dtype, shape, size)
            for ends in (None, (10.0, 75.5), (99.0, 99.5)):
                if dtype == "float16" and ends is None:
                    samples = samples.astype(np.float32)  # its range and its deviation are rounded to 11 bits by NumPy
                expected = np.histogram_bin_edges(samples, rule, ends)
                got = counted(samples, bins=rule, range="auto" if ends is None else ends)
                assert len(got.edges) == len(expected), (shape, size, ends)
                np.testing.assert_allclose(got.edges, expected, rtol=1e-6)
                assert (got.choice.rule, got.choice.asked) == (rule, len(expected) - 1)
                assert not got.choice.width or got.choice.width >= (got.edges[1] - got.edges[0]) * (1 - 1e-6)


class TooManyBins(Exception):
    """NumPy would fill the memory with their edges."""


def bins_of_numpy(samples: NDArray[np.float64], rule: str) -> int:
    """The number of NumPy's bins; raises ValueError where edges coincide, TooManyBins."""
    linspace = np.linspace

    def few(first: float, last: float, number: int, **how: Any) -> Any:
        if number > 2 * MAX_BINS:
            raise TooManyBins
        return linspace(first, last, number, **how)

    with patch.object(np, "linspace", few):
        return len(np.histogram_bin_edges(samples, rule)) - 1


@example(samples=np.array([5.891, 5.891, 5.891]))  # NumPy rounds their deviation: not to zero
@pytest.mark.parametrize("rule", RULES)
@settings(max_examples=40, deadline=None)
@given(samples=arrays("float64", st.integers(1, 60), elements=st.floats(-1e6, 1e6).map(lambda x: round(x, 3))))
def test_as_many_bins_as_numpy_for_any_samples(rule: str, samples: NDArray[np.float64]) -> None:
    try:
        expected = bins_of_numpy(samples, rule)
    except TooManyBins:
        return
    except ValueError:  # so many that edges coincide
        with pytest.raises(UsageError, match="have no distinct finite edges"):
            counted(samples, bins=rule, range="auto")
        return
    if expected <= MAX_BINS:
        got = counted(samples, bins=rule, range="auto").choice.asked
        # Where NumPy's rounded deviation or skewness decides, the exact one may say one bin more or less.
        rounded = rule not in ("sqrt", "sturges", "rice")
        assert got == expected or (rounded and abs(got - expected) <= 1 + expected * 1e-9)


def test_without_samples_in_the_range_there_is_one_bin() -> None:
    for rule in RULES:
        got = counted(np.arange(100.0), bins=rule, range=(200.0, 300.0))
        assert (len(got.counts), got.underflow, got.choice.width) == (1, 100, 0.0)
        assert "no width for these samples" in dict(got.lines())["bins"]


@pytest.mark.parametrize("dtype", FLOATS)
def test_nan_and_infinities_are_left_out(dtype: str) -> None:
    finite = samples_of(dtype, "normal", 999)
    samples = np.concatenate((finite, np.array([np.nan, np.inf, -np.inf, np.inf], dtype)))
    for rule in RULES:
        expected, got = counted(finite, bins=rule, range="auto"), counted(samples, bins=rule, range="auto")
        assert np.array_equal(got.edges, expected.edges) and np.array_equal(got.counts, expected.counts)
        assert (got.underflow, got.overflow, got.nan) == (1, 2, 1)
    with pytest.raises(UsageError, match="--range auto: expected at least one finite sample, got none"):
        counted(np.full(5, np.nan, dtype), bins="sqrt", range="auto")


@pytest.mark.parametrize("bins", ["sqrt", "fd", "doane", "scott", "auto"])
def test_ends_of_float64(bins: str) -> None:
    """Whose distance it does not have; a range around one of them ends there."""
    most = np.finfo(np.float64).max
    with pytest.raises(
        UsageError, match=rf"^--bins {bins}: expected samples less than 2\^1024 apart, got some from -1\."
    ):
        counted(np.array([-most, 0, 1, most]), bins=bins, range="auto")
    half = np.array([3, most / 2, most])
    with np.errstate(all="ignore"):
        assert counted(half, bins=bins, range="auto").edges[[0, -1]].tolist() == [3, most]
    for sample in (most, -most):
        for asked in (bins, 7, None):
            got = counted(np.array([sample]), bins=asked, range="auto")
            assert got.counts.sum() == 1 and sample in got.edges[[0, -1]]


def test_no_more_bins_than_there_are() -> None:
    samples = np.append(np.random.default_rng(0).normal(size=10_000), 1e9)
    with np.errstate(all="ignore"):
        asked = counted(np.append(samples, 1e5), bins="doane", range="auto").choice.asked
    assert asked < MAX_BINS
    far = np.append(np.arange(0, 1, 1e-4), 1e9)
    got = counted(far, bins="scott", range=(-1.0, 2.0**40))
    assert (len(got.counts), got.choice.asked) == (len(np.histogram_bin_edges(far, "scott", (-1.0, 2.0**40))) - 1,) * 2
    got = counted(np.arange(0, 1, 1e-4), bins="scott", range=(-1.0, 2.0**40))
    assert len(got.counts) == MAX_BINS < got.choice.asked
    line = dict(got.lines())["bins"]
    assert line.startswith("by the rule scott: at most 0.0")
    assert line.endswith(f" wide, {got.choice.asked:,} of them; 1,048,576 are the most there can be")


def test_integers_are_never_in_narrower_bins_than_1() -> None:
    samples = np.random.default_rng(0).integers(0, 5, 100_000)
    got = counted(samples, bins="sqrt", range="auto")
    assert got.edges.tolist() == [0, 1, 2, 3, 4] and got.choice.width == 1


# --- runs -------------------------------------------------------------------------------------------------------------


def printed(*words: str) -> dict[str, Any]:
    done = CliRunner().invoke(cli, ["histogram", *words, "--json", "-q"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    result: dict[str, Any] = json.loads(done.stdout)["result"]
    return result


@pytest.mark.parametrize("words", [("--range", "auto"), ("--range", "700", "1200"), ()])
@pytest.mark.parametrize("rule", RULES)
def test_chunks_do_not_matter(rule: str, words: tuple[str, ...]) -> None:
    whole = printed(ECG, "--bins", rule, *words)
    for chunk in ("108000B", "72000B", "30870B"):  # 2, 3 and 7 chunks
        assert printed(ECG, "--bins", rule, *words, "-c", chunk) == whole
    assert (
        whole["choice"]["rule"] == rule and whole["choice"]["bins"] == len(whole["histogram"]["storage"]["values"]) - 2
    )


def test_beside_other_jobs_and_on_rows(tmp_path: Path) -> None:
    alone = printed(ECG, "--bins", "scott", "--range", "auto")
    also = ("--also", "reduce --op std,skewness", "--json", "-q")
    words = ["histogram", ECG, "--bins", "scott", "--range", "auto", *also]
    done = CliRunner().invoke(cli, words, catch_exceptions=False)
    first, second = map(json.loads, done.stdout.splitlines())
    assert first["result"] == alone
    assert second["result"]["std"] == pytest.approx(np.load(ECG).std(), rel=1e-12)
    rows = printed(ECG, "--bins", "scott", "--range", "auto", "--segment", "30000")
    assert rows["histogram"]["axes"][1]["bins"] == alone["choice"]["bins"] and rows["choice"] == alone["choice"]


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = samples_of("float32", "normal", 3000)
    expected = counted(samples, bins="doane", range=(20.0, 60.0))
    monkeypatch.setattr(cxx, "library", lambda source: None)
    got = counted(samples, bins="doane", range=(20.0, 60.0))
    assert np.array_equal(got.counts, expected.counts) and got.choice == expected.choice


@pytest.mark.parametrize("ends", ["auto", (100.0, 1500.0)])
@pytest.mark.parametrize("position", [0, 3, 11, 20, 60, 150, 260])
def test_a_wrong_survey_is_caught(tmp_path: Path, position: int, ends: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def lies(block: NDArray[Any], options: HistogramOptions) -> NDArray[np.int64]:
        partial: NDArray[np.int64] = bins.compute(block, options)
        partial[position] ^= 1
        return partial

    survey = HISTOGRAM.survey
    assert survey is not None
    lying = replace(HISTOGRAM, survey=replace(survey, choose=lambda options: (
        None if survey.choose(options) is None else replace(STATISTICS, compute=lies)
    )))  # fmt: skip
    with pytest.raises(VerificationError, match=r"a number is wrong in chunk \d.*: expected"):
        run(lying, HistogramOptions(bins="doane", range=ends), open_source((ECG,), None), Settings(chunk_bytes=50_000))


# --- logarithmic scale ------------------------------------------------------------------------------------------------


def test_log_scale_in_every_form(tmp_path: Path) -> None:
    samples = np.random.default_rng(0).lognormal(size=5000)
    got = counted(samples, bins=40, range=(0.01, 100.0), scale="log")
    assert got.counts.tolist() == np.histogram(samples, got.edges)[0].tolist() and got.scale == "log"
    document = got.document()
    uhi.schema.validate(document)
    assert document["histogram"]["axes"][0]["type"] == "variable"
    assert dict(got.lines())["range"] == "[0.01, 100], bins: 40, logarithmic scale"
    auto = counted(samples, bins=40, range="auto", scale="log")
    assert (auto.edges[0], auto.edges[-1], auto.underflow, auto.overflow) == (samples.min(), samples.max(), 0, 0)
    assert counted(np.full(3, 4.0), bins=2, range="auto", scale="log").edges.tolist() == [2.0, 4.0, 8.0]
    assert len(counted(samples, range="auto", scale="log").counts) == 1024
    np.save(tmp_path / "a.npy", samples)
    words = ("--range", "0.01", "100", "--scale", "log", "-o", str(tmp_path / "a.png"))
    assert printed(str(tmp_path / "a.npy"), *words)["histogram"]["axes"][0]["type"] == "variable"
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("options", "message"), [
    ({"scale": "log"}, "--scale log: expected a range above 0, got 0 to 1024; give --range LO HI"),
    ({"scale": "log", "range": (-1.0, 5.0)}, "--scale log: expected a range above 0, got -1 to 5"),
    ({"scale": "log", "range": "auto"}, "--scale log: expected a range above 0, got -2 to 3"),
    ({"scale": "log", "range": (1, 5), "bins": "sqrt"}, "--scale log: expected a number of --bins, got the rule sqrt"),
    ({"scale": "log", "edges": [1.0, 5.0]}, "--scale log: expected no --edges"),
    ({"scale": "ln"}, "--scale: expected linear or log, got 'ln'"),
    ({"scale": "log", "range": (1.0, 1.0000000001), "bins": MAX_BINS}, "have no distinct finite edges"),
    ({"bins": "stone"}, "--bins: expected 1 to 1048576 or one of auto, .*, got 'stone'"),
])  # fmt: skip
def test_what_cannot_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        counted(np.array([-2.0, 3.0]), **options)
    assert "\n" not in str(caught.value)


# --- on a GPU ---------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "int16", "float64"])
def test_the_same_on_a_gpu(cp: Any, dtype: str) -> None:
    for name in ("specials", "ordinary"):
        samples = case(name, dtype, 900)
        for options in (HistogramOptions("doane", "auto"), HistogramOptions("scott", (-1.0, 30.0)),
                        HistogramOptions("scott", (1e300, 2e300)), HistogramOptions(None, "auto")):  # fmt: skip
            halves = [STATISTICS.compute(cp.asarray(half), options) for half in (samples[:400], samples[400:])]
            got = STATISTICS.combine(*halves).get()
            np.testing.assert_array_equal(got, STATISTICS.reference(samples, options))
