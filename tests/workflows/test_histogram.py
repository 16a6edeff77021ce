"""The histogram job: its options, its report, and every form of its result."""

from __future__ import annotations

import json
import math
import re
import statistics
from pathlib import Path
from typing import Any

import boost_histogram as bh
import numpy as np
import pytest
import uhi.schema

import pipeline
from kernels.histogram.binning import MAX_BINS
from pipeline.errors import UsageError
from tests.cases.histogram import HUGE
from workflows import WORKFLOWS
from workflows.histogram import HISTOGRAM, HistogramOptions, HistogramResult, every_sample_counted_once


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"bins": 0}, "--bins: expected 1 to 1048576, got 0"),
        ({"bins": -1}, "--bins: expected 1 to 1048576, got -1"),
        ({"bins": MAX_BINS + 1}, "--bins: expected 1 to 1048576, got 1048577"),
        ({"range": "all"}, "--range: expected LO HI or auto, got 'all'"),
        ({"range": (math.nan, 1.0)}, "--range: expected two finite numbers, got nan 1.0"),
        ({"range": (0.0, math.inf)}, "--range: expected two finite numbers, got 0.0 inf"),
        ({"range": (-math.inf, 0.0)}, "--range: expected two finite numbers, got -inf 0.0"),
        ({"range": (1.0, 1.0)}, "--range: expected LO below HI, got 1.0 1.0"),
        ({"range": (2.0, 1.0)}, "--range: expected LO below HI, got 2.0 1.0"),
        ({"range": (1.0, 1.0 + 1e-14)}, "--bins: 1024 bins over 1.0 to 1.00000000000001 "),
        ({"range": (-HUGE, HUGE)}, "--bins: 1024 bins over -1.79"),
        ({"edges": np.array([1.0])}, "--edges: expected 2 to 1048577 numbers, got 1 in shape (1,)"),
        ({"edges": np.zeros((2, 2, 2))}, "--edges: expected 2 to 1048577 numbers, got 8 in shape (2, 2, 2)"),
        ({"edges": np.zeros((2, 2))}, "--edges: expected strictly ascending numbers, got 0.0 before 0.0"),
        ({"edges": np.arange(MAX_BINS + 2.0)}, "--edges: expected 2 to 1048577 numbers, got 1048578 "),
        ({"edges": np.array([0.0, math.nan])}, "--edges: expected finite numbers, got NaN or infinity; "),
        ({"edges": np.array([0.0, math.inf])}, "--edges: expected finite numbers, got NaN or infinity; "),
        ({"edges": np.array([0.0, 1.0, 1.0])}, "ascending numbers, got 1.0 before 1.0 at positions 1 and 2; "),
        ({"edges": np.array([0.0, 2.0, 1.5, 3.0])}, "ascending numbers, got 2.0 before 1.5 at positions 1 and 2; "),
    ],
)
def test_options_that_cannot_be(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        HistogramOptions(**values)
    assert str(caught.value).startswith("--")
    assert "\n" not in str(caught.value)


def test_options_at_their_limits() -> None:
    assert len(HistogramOptions(bins=1).all_edges) == 2
    assert len(HistogramOptions(bins=MAX_BINS).all_edges) == MAX_BINS + 1
    assert len(HistogramOptions(edges=np.arange(MAX_BINS + 1.0)).all_edges) == MAX_BINS + 1
    assert HistogramOptions(bins=4, range=(1.0, 1.0 + 4 * 2.0**-52)).all_edges.tolist() == [
        1 + i * 2.0**-52 for i in range(5)
    ]


def test_edges_replace_bins_and_range() -> None:
    options = HistogramOptions(bins=5, range=(0.0, 1.0), edges=np.array([0, 2, 2**64 - 1], np.uint64))
    assert (options.bins, options.range) == (2, (0.0, 2.0**64))
    assert options.all_edges.dtype == np.float64
    with pytest.raises(ValueError, match="strictly ascending"):  # equal once they are float64
        HistogramOptions(edges=np.array([0, 2**64 - 2, 2**64 - 1], np.uint64))
    with pytest.raises(ValueError, match="strictly ascending"):  # a difference of uint64 would wrap to a positive one
        HistogramOptions(edges=np.array([5, 3], np.uint64))


def test_options_without_a_range_yet() -> None:
    options = HistogramOptions(bins=3, range="auto")
    with pytest.raises(ValueError, match="--range auto: the range is not known"):
        _ = options.all_edges


def test_binning_is_kept_and_native() -> None:
    options = HistogramOptions()
    other = np.dtype(np.int32).newbyteorder()
    assert options.binning(other) is options.binning(np.dtype(np.int32))
    assert options.binning(other).dtype.isnative
    assert options.binning(other).regular
    assert not HistogramOptions(edges=np.array([0.0, 1, 5])).binning(other).regular


def test_survey_gives_the_range() -> None:
    survey = HISTOGRAM.survey
    assert survey is not None
    auto = HistogramOptions(bins=3, range="auto")
    needed = [
        survey.needed(HistogramOptions(edges=np.array([0.0, 1]), range="auto")),
        survey.needed(HistogramOptions()),
    ]
    assert (survey.needed(auto), needed) == (True, [False, False])
    samples = np.array([np.nan, 4, np.inf, -2], np.float32)
    extremes = survey.workflow.finalize(survey.workflow.compute(samples, auto), auto)
    assert survey.resolve(auto, extremes).all_edges.tolist() == [-2, 0, 2, 4]
    assert survey.resolve(auto, np.array([5.0, 5.0])).range == (4.5, 5.5)  # as NumPy widens it
    with pytest.raises(ValueError, match="--range auto: expected at least one finite sample, got none"):
        survey.resolve(auto, survey.workflow.compute(np.full(3, np.nan), auto))
    (never_nan,) = survey.workflow.invariants
    assert never_nan(extremes, 4) is None
    assert never_nan(np.array([np.nan, 1.0]), 4) == "a finite range is never NaN"
    assert [survey.workflow.label(position, auto) for position in (0, 1)] == ["minimum", "maximum"]


def test_workflow_is_registered() -> None:
    assert WORKFLOWS["histogram"] is HISTOGRAM
    for name, workflow in WORKFLOWS.items():
        assert workflow.name == name


def test_invariant() -> None:
    assert HISTOGRAM.invariants == (every_sample_counted_once,)
    assert every_sample_counted_once(np.array([1, 2, 0, 0]), 3) is None
    assert every_sample_counted_once(np.array([1, 2, 0, 0]), 4000) == (
        "every sample is counted once: expected 4,000 in all, got 3"
    )
    assert every_sample_counted_once(np.array([5, -2, 0, 0]), 3) == "no count is negative: got -2"


def test_labels() -> None:
    options = HistogramOptions(bins=4, range=(-1.0, 1.0))
    expected = [
        "underflow",
        "bin 0 [-1, -0.5)",
        "bin 1 [-0.5, 0)",
        "bin 2 [0, 0.5)",
        "bin 3 [0.5, 1]",
        "overflow",
        "NaN",
    ]
    assert [HISTOGRAM.label(slot, options) for slot in range(7)] == expected


def example(options: HistogramOptions) -> HistogramResult:
    """A different count in every slot, one of them not representable in float64."""
    slots = np.arange(10, 10 + len(options.all_edges) + 2)
    slots[2] = 2**60 + 1
    result: HistogramResult = HISTOGRAM.finalize(slots, options)
    return result


REGULAR = HistogramOptions(bins=8, range=(-1.0, 3.0))
VARIABLE = HistogramOptions(edges=np.array([-2.5, 0.0, 0.1, 1e9]))


@pytest.mark.parametrize("dtype", ["uint8", ">i2", "float16", ">f8"])
def test_empty_arrays_have_no_samples(tmp_path: Path, dtype: str) -> None:
    """As in NumPy; a range cannot be found in nothing, where NumPy takes 0 to 1."""
    path, other = tmp_path / "none.npy", tmp_path / "some.npy"
    np.save(path, np.zeros((5, 0), dtype))
    result = pipeline.run("histogram", path, bins=9, range=(-3, 4))
    counts, edges = np.histogram(np.load(path).astype(np.float64), 9, (-3, 4))
    assert (result.counts.tolist(), result.edges.tolist(), result.samples) == (counts.tolist(), edges.tolist(), 0)
    assert pipeline.run("histogram", path, path, edges=np.array([0.0, 1.0, 5.0])).counts.tolist() == [0, 0]
    with pytest.raises(UsageError, match=r"^--range auto: expected at least one finite sample, got none; give --range"):
        pipeline.run("histogram", path, range="auto")
    samples = np.array([3, 4, 4, 7], dtype)
    np.save(other, samples)
    for options in ({"range": (0.0, 8.0)}, {"range": "auto"}):
        found = pipeline.run("histogram", path, other, path, bins=4, **options)
        ends = None if "auto" in options.values() else (0, 8)
        assert found.counts.tolist() == np.histogram(samples.astype(np.float64), 4, ends)[0].tolist()


def test_finalize_names_the_slots() -> None:
    result = HISTOGRAM.finalize(np.array([1, 2, 3, 4, 5, 6]), VARIABLE)
    assert (result.underflow, result.counts.tolist(), result.overflow, result.nan) == (1, [2, 3, 4], 5, 6)
    assert (result.samples, result.regular, result.edges.tolist()) == (21, False, [-2.5, 0.0, 0.1, 1e9])
    assert {type(value) for value in (result.underflow, result.overflow, result.nan, result.samples)} == {int}


@pytest.mark.parametrize("options", [REGULAR, VARIABLE], ids=["regular", "variable"])
def test_uhi_is_what_boost_histogram_reads(options: HistogramOptions) -> None:
    result = example(options)
    document = result.to_uhi()
    uhi.schema.validate(document)
    uhi.schema.validate_histogram(document)
    loaded = bh.Histogram(bh.serialization.from_uhi(json.loads(json.dumps(document))))
    assert loaded.view(flow=True).tolist() == [result.underflow, *result.counts.tolist(), result.overflow]
    (axis,) = loaded.axes
    assert isinstance(axis, bh.axis.Regular if options.edges is None else bh.axis.Variable)
    assert axis.edges.tolist() == result.edges.tolist()
    assert document["metadata"] == {}  # of several histograms that are added only the first one's is kept


def test_uhi_schema_would_object() -> None:
    """The schema rejects wrong documents, so the test above is meaningful."""
    document = example(REGULAR).to_uhi()
    document["axes"][0]["type"] = "even"
    with pytest.raises(Exception, match="axes"):
        uhi.schema.validate_histogram(document)


@pytest.mark.parametrize("options", [REGULAR, VARIABLE], ids=["regular", "variable"])
def test_json_keeps_every_count(options: HistogramOptions) -> None:
    result = example(options)
    plain = result.to_json()
    text = json.dumps(plain, allow_nan=False)
    assert json.loads(text) == plain
    assert plain["histogram"]["storage"]["values"][2] == 2**60 + 1
    flow = {"underflow": result.underflow, "overflow": result.overflow, "nan": result.nan}
    assert plain == {"histogram": result.to_uhi(), "samples": result.samples, **flow}


def test_other_forms_of_the_result() -> None:
    result = example(VARIABLE)
    columns, rows = result.table()
    assert columns == ("lower", "upper", "count")
    assert rows[0] == ("-inf", -2.5, 10)
    assert rows[1:4] == [(-2.5, 0.0, 11), (0.0, 0.1, 2**60 + 1), (0.1, 1e9, 13)]
    assert rows[4:] == [(1e9, "inf", 14), ("nan", "nan", 15)]
    arrays = result.arrays()
    assert {name: array.tolist() for name, array in arrays.items()} == {
        "counts": [11, 2**60 + 1, 13],
        "edges": [-2.5, 0.0, 0.1, 1e9],
        "underflow": 10,
        "overflow": 14,
        "nan": 15,
    }
    assert [array.tolist() for array in result.steps()] == [arrays["counts"].tolist(), arrays["edges"].tolist()]
    lines = dict(result.lines())
    assert next(iter(lines)) == "range" and list(lines)[-1] == "first ten counts"
    assert lines["samples"] == f"{sum((10, 11, 2**60 + 1, 13, 14, 15)):,}"
    assert lines["first ten counts"] == str([11, 2**60 + 1, 13])


def lines_of(counts: list[int], edges: list[float], underflow: int = 0, overflow: int = 0) -> dict[str, str]:
    result = HistogramResult(np.array(counts), np.array(edges), underflow, overflow, nan=3, regular=False)
    return dict(result.lines())


def test_samples_outside_are_told_where_they_are_many() -> None:
    """More than one in a hundred of all, NaN included; NaN itself lies nowhere."""
    assert "outside" not in lines_of([896], [0.0, 1.0], 4, 5) | lines_of([0], [0.0, 1.0])
    advice = "--range auto includes all that are finite"
    assert lines_of([887], [0.0, 1.0], 5, 5)["outside"] == f"10 samples (1.11 %); {advice}"
    assert lines_of([0], [0.0, 1.0], 5, 4)["outside"] == f"9 samples (75 %); is the dtype right? {advice}"
    assert lines_of([1], [0.0, 1.0], 0, 10**9)["outside"] == f"1,000,000,000 samples (99.9 %); {advice}"


def test_moments_are_those_of_the_middles_of_bins() -> None:
    lines = lines_of([2, 0, 5], [-1.0, 0.0, 10.0, 11.5], overflow=1000)
    middles = [-0.5] * 2 + [10.75] * 5
    assert (
        lines["mean"] == f"{statistics.fmean(middles):.6g}, from counts and bin centres, of the samples in bins alone"
    )
    assert lines["spread"] == f"{statistics.pstdev(middles):.6g}, standard deviation from counts and bin centres"
    assert lines["mode"] == "[10, 11.5], 5 samples"
    edges = np.array([-1.0, 0.0, 10.0, 11.5])
    whole = dict(HistogramResult(np.array([2, 0, 5]), edges, underflow=0, overflow=0, nan=0, regular=False).lines())
    assert whole["mean"] == f"{statistics.fmean(middles):.6g}, from counts and bin centres; exact: reduce --op mean,std"
    assert lines_of([5, 5], [0.0, 1.0, 2.0])["mode"] == "[0, 1), 5 samples"  # the first of equals
    assert lines_of([0, 7], [0.0, 1.0, 2.0])["spread"].startswith("0, ")
    nothing = lines_of([0, 0], [0.0, 1.0, 2.0], underflow=5)
    assert {nothing[name] for name in ("mean", "mode", "spread")} == {"none, no sample lies in a bin"}
    widest = lines_of([1, 1], [-1.7e308, 0.0, 1.7e308])
    assert widest["mean"].startswith("0, ") and widest["spread"].startswith("8.5e+307, ")


@pytest.mark.parametrize("options", [{"range": "auto"}, {"range": "auto", "bins": "sturges"}, {"range": (1, 2)}])
def test_advice_to_survey_the_range_only_where_it_was_not(options: Any) -> None:
    """What lies outside of the range of the samples is infinite."""
    samples = np.array([1.0, 2, 3] + [np.inf] * 5)
    (text,) = (text for name, text in pipeline.run("histogram", samples, **options).lines() if name == "outside")
    assert ("--range auto" in text) is (options["range"] != "auto")
