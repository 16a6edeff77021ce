"""Rows of samples that are selected, or calibrated, together against each row by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pipeline
import workflows.selection_rows
from pipeline.errors import VerificationError
from tests.cases.quantile_small import samples_of
from tests.workflows.test_columns import SIZES, assert_same, results
from tests.workflows.test_selection import selection
from workflows.by_rows import by_rows
from workflows.calibration import TRANSFORMS, Calibration, calibrated
from workflows.histogram import HISTOGRAM, HistogramOptions
from workflows.quantile import QUANTILE, QuantileOptions
from workflows.reduce import OPERATIONS, REDUCE, ReduceOptions
from workflows.rows import Rows, RowsOptions
from workflows.selection import selected

JOBS = (
    (REDUCE, ReduceOptions(",".join(OPERATIONS), "omit")), (REDUCE, ReduceOptions("argmin,sum")),
    (HISTOGRAM, HistogramOptions(bins=5, range=(-3, 60))), (QUANTILE, QuantileOptions(q="0,0.1,0.5")),
    (REDUCE, ReduceOptions("median,argmin")),
)  # fmt: skip
ROWS = (
    Rows("file", (len(SIZES),), None, sizes=SIZES, names=tuple("abcdefghij")), Rows("segment", (10,), 7),
    Rows("row", (37, 2), 1, 2), Rows("row", (2, 6), 6, 6), Rows("channel", (5,), 14, 5),
)  # fmt: skip


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int64", "float16", "float64"])
@pytest.mark.parametrize("text", ["x > 3", "i >= 20 and y", "i < 0"])
def test_selected_samples(dtype: str, text: str) -> None:
    samples = samples_of(dtype, sum(SIZES))
    chosen = selection(text, y=np.random.default_rng(0).random(len(samples)) < 0.6)
    for rows in ROWS:
        some = samples[: len(samples) // (rows.inner * (rows.length or 1)) * rows.inner * (rows.length or 1)]
        for workflow, options in JOBS:
            assert_same(*results(workflow, options, some, rows, lambda job: selected(job, chosen)))


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("dtype", ["int16", "uint64", "float16", "float64"])
def test_calibrated_samples(dtype: str, transform: str) -> None:
    """Those that are selected, too: of integers of which none is left no logarithms are looked up."""
    samples, calibration, chosen = samples_of(dtype, sum(SIZES)), Calibration(-2.5, 3.0, transform), selection("i < 40")

    def both(job: Any) -> Any:
        return selected(calibrated(job, calibration), chosen)

    for rows in (ROWS[0], ROWS[2]):
        for workflow, options in JOBS:
            assert_same(*results(workflow, options, samples, rows, lambda job: calibrated(job, calibration), "f8"))
        assert_same(*results(REDUCE, JOBS[1][1], samples, rows, both, "f8"))


@pytest.mark.parametrize("entry", [0, 3, -1])
@pytest.mark.parametrize("row", [0, 17, 39])
def test_a_wrong_row_is_named(entry: int, row: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*given: Any) -> Any:
        lines = compute_rows(*given)
        lines[row, entry] += 1
        return lines

    compute_rows = workflows.selection_rows.compute_rows
    monkeypatch.setattr("workflows.selection.compute_rows", wrong)
    samples = np.arange(400, dtype=np.int16)
    for rows in ({"segment": 10}, {"channels": 40}):
        with pytest.raises(VerificationError, match=rf"(segment|channel|row) {row}\b"):
            pipeline.run("reduce", samples, op="sum,max,argmax,norm", where="x != 5", verify="full", **rows)


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [ROWS[1], ROWS[4]], ids=["segments", "channels"])
def test_on_a_device(cp: Any, rows: Rows) -> None:
    """Short rows are selected on the host, and calibrated where they lie, with the same results."""
    samples, calibration, chosen = samples_of("float32", 70), Calibration(2.0, 0.0, "abs"), selection("x > 3")
    for workflow, options in JOBS[:3]:
        for changed in (selected(workflow, chosen), calibrated(workflow, calibration)):
            job, given = by_rows(changed), RowsOptions(rows, samples.dtype, (options,))
            assert changed.compute_rows
            for indices in (range(70), range(3, 61)):
                block = samples[indices.start : indices.stop]
                got = job.compute(cp.asarray(block), given, indices)
                np.testing.assert_array_equal(got, job.compute(block, given, indices))
