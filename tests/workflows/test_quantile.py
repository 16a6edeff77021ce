"""Quantiles as jobs: files in any number of chunks, arrays, rows, options, results; errors that are planted."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import pipeline
import pipeline.engine.aggregate_task
import workflows.order_statistics
import workflows.quantile
from kernels.quantile.ranks import METHODS, SELECTING
from pipeline.cluster.placement import Placement
from pipeline.engine.aggregate import run_all
from pipeline.engine.aggregate_plan import Job
from pipeline.errors import UsageError, VerificationError
from pipeline.rows import RowsAsked, rows_of_source
from pipeline.settings import Settings
from pipeline.storage.sources import open_source
from workflows.quantile import QUANTILE, QuantileOptions, read_quantiles
from workflows.reduce import REDUCE, ReduceOptions

ON_CPU = Placement(device="cpu")
STATISTICS = "min,median,iqr,mad,q0.001,max,sum"
DTYPES = ("int16", "uint8", "float16", "int32", "uint64", "float32", "float64")
MOST = float(np.finfo(np.float64).max)


def samples_of(dtype: str, size: int = 20_011) -> NDArray[Any]:
    return (np.random.default_rng(7).normal(size=size) * 20 + 100).astype(dtype)


def distances(samples: NDArray[Any]) -> NDArray[np.float64]:
    wide = samples.astype(np.float64)
    return np.abs(wide - np.median(wide))


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("dtype", DTYPES)
def test_files_in_any_number_of_chunks(tmp_path: Path, dtype: str) -> None:
    """The same bits from one to seven chunks, of one file or several, in either byte order, beside another job."""
    samples = samples_of(dtype)
    paths = [str(tmp_path / name) for name in ("all.bin", "first.bin", "second.bin", "big.bin")]
    swapped = samples.astype(samples.dtype.newbyteorder(">"))
    for path, part in zip(paths, (samples, samples[:7001], samples[7001:], swapped), strict=True):
        part.tofile(path)
    expected = np.quantile(samples.astype(np.float64), [0.1, 0.5])
    wide = samples.astype(np.float64)
    known = None
    for files, byteorder in ((paths[:1], "little"), (paths[1:3], "little"), (paths[3:], "big")):
        for chunks in (1, 2, 3, 7):
            source = open_source(files, dtype, byteorder)
            jobs = [Job(QUANTILE, QuantileOptions("0.1,0.5")), Job(REDUCE, ReduceOptions(STATISTICS))]
            settings = Settings(ON_CPU, "full", chunk_bytes=-(-samples.nbytes // chunks))
            quantiles, reduced = (outcome.result for outcome in run_all(jobs, source, settings))
            got = [*quantiles.values, *reduced.values.values()]
            assert known in (None, repr(got))
            known = repr(got)
    np.testing.assert_allclose(quantiles.values, expected, rtol=1e-14)
    assert reduced.values["median"] == np.median(wide) and reduced.values["mad"] == np.median(distances(samples))
    assert reduced.values["iqr"] == pytest.approx(np.subtract(*np.quantile(wide, [0.75, 0.25])), rel=1e-14)
    assert (reduced.values["min"], reduced.values["max"]) == (samples.min(), samples.max())


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("row", [1, 7, 1000, 16_384, 16_385], ids=str)
def test_rows_short_and_long(tmp_path: Path, dtype: str, row: int) -> None:
    """Rows that are gathered, and those that are not, whole or cut into chunks, beside statistics of them."""
    samples = samples_of(dtype, min(60 * row, 20_011))
    if samples.dtype.kind == "f":
        samples[5] = np.nan
    samples.tofile(path := tmp_path / "all.bin")
    rows = [samples[start : start + row].astype(np.float64) for start in range(0, len(samples), row)]
    for chunks in (1, 3):
        jobs = [Job(QUANTILE, QuantileOptions("0,0.5,1")), Job(REDUCE, ReduceOptions("median,mad,max"))]
        source = open_source([str(path)], dtype)
        of_rows = rows_of_source(jobs, RowsAsked(segment=row), source)
        settings = Settings(ON_CPU, "full", chunk_bytes=-(-samples.nbytes // chunks))
        quantiles, reduced = (outcome.result for outcome in run_all(of_rows, source, settings))
        got = [list(one.values) for one in quantiles]
        np.testing.assert_array_equal(got, [np.quantile(x, [0, 0.5, 1]) for x in rows])
        expected = [[np.median(x), np.median(distances(x)), np.max(x)] for x in rows]  # distances are rounded
        np.testing.assert_allclose([list(one.values.values()) for one in reduced], expected, rtol=1e-14)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("method", METHODS)
def test_numpy_says_the_same(dtype: str, method: str) -> None:
    """Bit for bit where a sample is selected; else within the roundings of NumPy, which computes in float64 here."""
    samples, q = samples_of(dtype, 8001), [0, 0.125, 0.5, 0.875, 1]
    result = pipeline.run("quantile", samples, q=q, method=method)
    if method in SELECTING:
        expected = np.quantile(samples, q, method=method)
        assert np.asarray(result).dtype == samples.dtype
        np.testing.assert_array_equal(np.asarray(result), expected)
    else:
        expected = np.quantile(samples.astype(np.float64), q, method=method)
        assert np.asarray(result).dtype == np.float64
        np.testing.assert_allclose(np.asarray(result), expected, rtol=1e-15)


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("job", ["quantile", "reduce"])
def test_no_samples(tmp_path: Path, job: str) -> None:
    options = {"q": [0.5]} if job == "quantile" else {"op": "median,mad,iqr,q0.5"}
    for dtype in ("float32", "int16", "int64"):
        np.save(tmp_path / "empty.npy", np.zeros(0, dtype))
        for empty in (str(tmp_path / "empty.npy"), np.zeros(0, dtype)):
            result = pipeline.run(job, empty, **options)
            values = result.values if job == "quantile" else result.values.values()
            assert all(map(math.isnan, values))


def test_rows_have_their_own() -> None:
    samples = samples_of("float32", 6000).reshape(-1, 3)
    result = pipeline.run("quantile", samples, q=[0.25, 0.5], axis=0)
    reduced = pipeline.run("reduce", samples, op="mad,sum", axis=0)
    for row in range(3):
        alone = np.ascontiguousarray(samples[:, row])
        assert result[row].values == pipeline.run("quantile", alone, q=[0.25, 0.5]).values
        assert reduced[row].values == pipeline.run("reduce", alone, op="mad,sum").values


def test_nan_and_infinities() -> None:
    samples = np.array([1, np.nan, 3, -np.inf, np.inf, 2], np.float32)
    assert all(map(math.isnan, pipeline.run("quantile", samples).values))
    assert pipeline.run("quantile", samples, nan="omit").values == (-math.inf, 1, 2, 3, math.inf)
    # Beside an infinity lies the infinity; between two of them nothing; with weight 0 an infinity does not count.
    assert pipeline.run("quantile", samples[[2, 4]], q=["0.1", 0]).values == (math.inf, 3)
    assert math.isnan(pipeline.run("quantile", samples[[3, 4]], q=[0.5]).values[0])
    reduced = pipeline.run("reduce", samples, op="mad,iqr,count", nan="omit").values
    assert (reduced["mad"], reduced["iqr"]) == (1, 2) or reduced["mad"] == 1


@pytest.mark.parametrize(("q", "texts"), [
    ("0.1, .5,1", ("0.1", ".5", "1")), (0.1, ("0.1",)), ([0.3, "1/3", Decimal("0.25"), Fraction(2, 3), 1],
    ("0.3", "1/3", "0.25", "2/3", "1")), (np.float32([0.1]), ("0.1",)), ((1e-20,), ("1e-20",)),
])  # fmt: skip
def test_q_is_what_its_text_says(q: Any, texts: Sequence[str]) -> None:
    assert read_quantiles(q) == texts


@pytest.mark.parametrize(("options", "message"), [
    ({"q": [1.5]}, "from 0 to 1, got 1.5; write 50 % as 0.5"), ({"q": -0.1}, "from 0 to 1, got -0.1"),
    ({"q": "0.5,x"}, "got 'x'"), ({"q": []}, "got none"), ({"q": ""}, "got none"), ({"q": [math.nan]}, "got 'nan'"),
    ({"q": True}, "got 'True'"), ({"q": "1e-9999999"}, "got '1e-9999999'"), ({"q": "1/0"}, "got '1/0'"),
    ({"method": "linaer"}, "did you mean linear?"), ({"nan": "skip"}, "propagate or omit"),
    ({"q": [0.5] * 5000}, "4096"),
])  # fmt: skip
def test_wrong_options_are_refused_in_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        pipeline.run("quantile", np.zeros(3), **options)
    assert message in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize("op", ["q1.5", "q-1", "median,q2", "qq", "q", "medain"])
def test_wrong_operations_are_refused(op: str) -> None:
    with pytest.raises(UsageError, match="--op"):
        pipeline.run("reduce", np.zeros(3), op=op)


def test_results_are_written_as_files(tmp_path: Path) -> None:
    result = pipeline.run("quantile", samples_of("int32"), q="0.5,0.25", method="higher")
    assert json.loads(json.dumps(result.to_json()))["values"] == list(result.values)
    assert result.arrays()["values"].dtype == np.int32 and result.arrays()["q"].tolist() == [0.5, 0.25]
    assert result.table() == (("q", "value"), [("0.5", result.values[0]), ("0.25", result.values[1])])
    assert result.document()["method"] == "higher"


PLANTED = threading.Event()  # an error; the cluster is in this process


class Once:
    """A function that plants an error in one of its results."""

    def __init__(
        self, function: Callable[..., Any], when: Callable[[Any], bool], change: Callable[[Any], None]
    ) -> None:
        self.function, self.when, self.change = function, when, change
        PLANTED.clear()

    def __call__(self, block: Any, search: Any) -> Any:
        counts = self.function(block, search)
        if not PLANTED.is_set() and self.when(search):
            PLANTED.set()
            self.change(counts)
        return counts


def _shifted(counts: NDArray[np.int64]) -> None:
    """A sample of the fullest slot is counted in the one below: the sum stays."""
    place = int(counts.argmax())
    counts[[place, place - 1]] += (-40, 40)


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("verify", ["full", "off"])
@pytest.mark.parametrize("dtype", ["int32", "float64"])
@pytest.mark.parametrize("first", [True, False])
def test_an_error_of_a_survey_gives_no_wrong_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str, first: bool, verify: str
) -> None:
    """In the first one, or in one that looks into cells: the result is right, or there is none, even unverified."""
    samples = samples_of(dtype, 300_000)
    samples.tofile(path := str(tmp_path / "samples.bin"))
    right = pipeline.run("quantile", samples, q="0.25,0.5,0.9").values
    planted = Once(
        workflows.quantile.count,
        lambda search: search.cells is not None and search.cells.everything is first,
        _shifted if first else lambda counts: np.add(counts, counts != 0, out=counts),
    )
    monkeypatch.setattr(workflows.quantile, "count", planted)
    settings = Settings(ON_CPU, verify)
    try:
        outcome = run_all([Job(QUANTILE, QuantileOptions("0.25,0.5,0.9"))], open_source([path], dtype), settings)[0]
        assert outcome.result.values == right
    except VerificationError as error:
        assert "quantile" in str(error)
    assert PLANTED.is_set()


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize(("samples", "expected"), [
    ([-MOST, -MOST, -MOST, MOST, MOST, math.inf, -math.inf], math.inf),  # twice as far as float64 can say
    ([-MOST, -MOST, MOST / 2, MOST / 2, -math.inf], math.inf), ([-MOST, MOST], MOST), ([-MOST, 0.0, math.inf], MOST),
    ([MOST, MOST, -MOST, math.inf, -math.inf], math.inf), ([5e-324, -5e-324, math.inf, -math.inf], math.inf),
])  # fmt: skip
def test_deviations_beyond_float64(samples: list[float], expected: float) -> None:
    assert pipeline.run("reduce", np.array(samples), op="mad").values["mad"] == expected


@pytest.mark.parametrize("job", [Job(QUANTILE, QuantileOptions("0.25")), Job(REDUCE, ReduceOptions("mad,sum"))])
@pytest.mark.parametrize("dtype", ["int16", "float32"])
def test_an_error_of_the_proof_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str, job: Job) -> None:
    samples_of(dtype, 30_000).tofile(path := str(tmp_path / "samples.bin"))
    of_proof = (lambda search: search.cells is None) if dtype == "float32" else (lambda search: True)
    planted = Once(workflows.quantile.count, of_proof, _shifted)
    for module in (workflows.quantile, workflows.order_statistics):
        monkeypatch.setattr(module, "count", planted)
    with pytest.raises(VerificationError, match=job.workflow.name):
        run_all([job], open_source([path], dtype), Settings(ON_CPU, "full"))
    assert PLANTED.is_set()


@pytest.mark.usefixtures("shared")
def test_surveys_count_as_checked_by_the_proof(tmp_path: Path) -> None:
    samples_of("float32").tofile(path := str(tmp_path / "samples.bin"))
    outcome = run_all([Job(QUANTILE, QuantileOptions())], open_source([path], "float32"), Settings(ON_CPU, "full"))[0]
    assert outcome.verdict.checked == outcome.verdict.samples == 20_011


@pytest.mark.parametrize("sizes", [(1,), (3, 0, 2), (15,)])
def test_files_with_few_samples_in_all(tmp_path: Path, sizes: tuple[int, ...]) -> None:
    """Fewer than rows that are files are computed together by: what is gathered has room for no more than there are."""
    files = [np.arange(size, dtype=np.float32) for size in sizes]
    for number, samples in enumerate(files):
        np.save(tmp_path / f"{number}.npy", samples)
    result = pipeline.run("quantile", f"{tmp_path}/*.npy", by="file", q="1/2", device="cpu", verify="full")
    expected = [np.median(samples) if samples.size else np.nan for samples in files]
    np.testing.assert_array_equal([row.values[0] for row in result], expected)
