"""Results of rows that are made together against those of each row by itself, in all their forms."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import kernels.common.rounded
import pipeline
from kernels.common import cxx
from kernels.quantile.ranks import METHODS
from kernels.reduce import lines as of_lines
from pipeline.engine.aggregate_plan import Job
from tests.cases.quantile_small import samples_of
from tests.cases.reduce import DTYPES, generator, ordinary
from workflows.by_rows import by_rows
from workflows.columns import Columns
from workflows.histogram import HISTOGRAM, HistogramOptions
from workflows.quantile import QUANTILE, QuantileOptions, with_search
from workflows.reduce import OPERATIONS, REDUCE, ReduceOptions
from workflows.rows import Rows, RowsOptions
from workflows.rows_partial import lined
from workflows.saved import fingerprint, numbers

SIZES = (0, 1, 2, 5, 5, 0, 40, 17, 3, 1)


def results(
    workflow: Any, options: Any, samples: NDArray[Any], rows: Rows, changed: Any = lambda job: job, dtype: Any = None
) -> tuple[Any, Any]:
    """Those of rows together, and of each; of a block in several parts. `changed`: the job of samples of a dtype,
    made of the one that gets others."""
    job = Job(workflow, options).prepared(np.dtype(dtype or samples.dtype))
    if job.workflow.of_few:
        job = replace(job, options=job.workflow.of_few(job.options, rows.longest))
    made = []
    workflow = changed(job.workflow)
    for one in (workflow, replace(workflow, lines=None, compute_rows=None)):
        of_rows, given = by_rows(one), RowsOptions(rows, samples.dtype, (job.options,))
        total = None
        for part in np.array_split(np.arange(len(samples)), 3):
            indices = range(part[0], part[-1] + 1)
            partial = of_rows.compute(samples[part], given, indices)
            total = partial if total is None else of_rows.combine(total, partial)
            if check := of_rows.check(given, samples.dtype):
                check.add(samples[part], int(part[0]))
                np.testing.assert_array_equal(check.partial(), partial)
        assert total is not None and not any(holds(total, len(samples)) for holds in of_rows.invariants)
        made.append(of_rows.finalize(total, given))
    return made[0], made[1]


def assert_same(together: Any, each: Any) -> None:
    assert isinstance(together.results, Columns) and not isinstance(each.results, Columns)
    assert type(together) is type(each) and len(together) == len(each)
    assert together == each and together.results == each.results and together.results[1:3] == each.results[1:3]
    assert repr(list(together)) == repr(list(each)) and repr(together[-1]) == repr(each[-1])
    assert json.dumps(together.to_json()) == json.dumps(each.to_json())
    assert json.dumps(together.document()) == json.dumps(each.document())
    assert repr(together.table()) == repr(each.table())
    assert together.lines() == each.lines()
    assert fingerprint(together) == fingerprint(each)
    ours, theirs = numbers(together), numbers(each)
    assert list(ours) == list(theirs)
    for name, array in theirs.items():
        assert (ours[name].dtype, ours[name].shape) == (array.dtype, array.shape), name
        assert ours[name].tobytes() == array.tobytes(), name


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("nan", ["propagate", "omit"])
@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("kind", [samples_of, ordinary])
def test_reductions(dtype: str, nan: str, compiled: bool, kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if not compiled:
        monkeypatch.setattr(cxx, "library", lambda source: None)
    samples = kind(dtype, sum(SIZES))
    files = Rows("file", (len(SIZES),), None, sizes=SIZES, names=tuple("abcdefghij"))
    for op in (",".join(OPERATIONS), "count", "argmax", "sum,max", "std,argmin"):
        for ddof in (0, 2):
            for rows in (files, Rows("segment", (11,), 7), Rows("row", (37, 2), 1, 2)):
                assert_same(*results(REDUCE, ReduceOptions(op, nan, ddof), samples, rows))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("nan", ["propagate", "omit"])
@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("kind", [samples_of, ordinary])
def test_order_statistics(dtype: str, nan: str, compiled: bool, kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if not compiled:
        monkeypatch.setattr(kernels.common.rounded, "functions", lambda: None)
    samples = kind(dtype, sum(SIZES))
    files = Rows("file", (len(SIZES),), None, sizes=SIZES, names=tuple("abcdefghij"))
    for op in ("median", "q1,argmax,iqr,sum,q0.3"):
        for rows in (files, Rows("segment", (11,), 7), Rows("row", (37, 2), 1, 2)):
            assert_same(*results(REDUCE, ReduceOptions(op, nan), samples, rows))
    assert_same(*results(REDUCE, ReduceOptions("mad,max", nan), samples, files))


def test_quartiles_beside_infinities() -> None:
    """Their difference is infinite, or none; of the largest numbers it is beyond float64."""
    most, inf = np.finfo(np.float64).max, np.inf
    values = np.array([(-inf, 0, 1), (-inf, 0, inf), (inf, inf, inf), (-most, 0, most), (-inf, -inf, 3)])
    together, each = results(REDUCE, ReduceOptions("iqr"), values.ravel(), Rows("segment", (5,), 3))
    assert_same(together, each)
    assert str(together.arrays()["iqr"].tolist()) == f"[inf, inf, nan, {most}, nan]"


@pytest.mark.parametrize("values", [[1, 2, 2**40, 3], [2**40, 1, 2**50, 2], [2**63, 2**63, 1, 0], [-5, 1, 2**33, 0]])
def test_integers_of_all_sizes(values: list[int]) -> None:
    """The dtypes of small and of large sums together are those of the arrays of each, stacked."""
    samples = np.array(values, np.uint64 if max(values) > 2**62 else np.int64)
    assert_same(*results(REDUCE, ReduceOptions("sum,max"), samples, Rows("segment", (2,), 2)))


BIG = 2**63 - 1


@pytest.mark.parametrize(
    ("values", "dtype", "sums"),
    [
        ([2**53 + 1, 0, 1, 2], "int64", "int64"),
        ([-1, 0, BIG, 0], "int64", "int64"),
        ([2**40, 0, 2**33, 0], "int64", "int64"),
        ([BIG, BIG, 1, 2], "int64", "uint64"),
        ([BIG, 1, 2**53 + 1, 0], "int64", "uint64"),
        ([BIG, 0, BIG, 0], "uint64", "int64"),
        ([BIG, BIG, -1, 0], "int64", "<U21"),
        ([2**64 - 1, 2**64 - 1, 1, 0], "uint64", "<U21"),
    ],
)
def test_integers_keep_all_digits(values: list[int], dtype: str, sums: str) -> None:
    samples, rows = np.array(values, dtype), Rows("segment", (2,), 2)
    expected = [sum(values[:2]), sum(values[2:])]
    for made in results(REDUCE, ReduceOptions("sum,max"), samples, rows):
        arrays = made.arrays()
        assert arrays["sum"].dtype == sums and list(map(int, arrays["sum"].tolist())) == expected
        assert list(map(int, arrays["max"].tolist())) == [max(values[:2]), max(values[2:])]


@pytest.mark.parametrize(("value", "kind"), [(2**53, "<f8"), (2**53 + 1, "<U32"), (2**64 - 1, "<U32")])
def test_integers_beside_rows_without_samples(value: int, kind: str) -> None:
    """NaN beside integers that float64 does not hold: text."""
    samples = np.array([value, value, 7, 9], np.uint64)
    for job, options, name in (("reduce", {"op": "max"}, "max"), ("quantile", {"q": "1", "method": "lower"}, "values")):
        found = pipeline.run(job, samples, segment=2, where="x > 9", **options)
        array = found.arrays()[name].ravel()
        assert array.dtype.str == kind, job
        assert [str(array[0]), str(array[1])] == [str(float(value) if kind == "<f8" else value), "nan"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_histograms(dtype: str) -> None:
    samples = samples_of(dtype, sum(SIZES))
    files = Rows("file", (len(SIZES),), None, sizes=SIZES, names=tuple("abcdefghij"))
    for rows in (files, Rows("segment", (11,), 7), Rows("row", (37, 2), 1, 2)):
        together, each = results(HISTOGRAM, HistogramOptions(bins=5, range=(-3, 60)), samples, rows)
        assert_same(together, each)
        for flow in (False, True):
            np.testing.assert_array_equal(together.values(flow), each.values(flow))
        assert together.to_uhi() == each.to_uhi()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("nan", ["propagate", "omit"])
def test_quantiles(dtype: str, method: str, nan: str) -> None:
    options = QuantileOptions(q="0,0.1,1/3,0.5,0.75,1", method=method, nan=nan)
    for kind in (samples_of, ordinary):
        samples = kind(dtype, sum(SIZES))
        files = Rows("file", (len(SIZES),), None, sizes=SIZES, names=tuple("abcdefghij"))
        for rows in (files, Rows("segment", (11,), 7), Rows("row", (37, 2), 1, 2)):
            assert_same(*results(QUANTILE, options, samples, rows))


def test_quantiles_beside_infinities() -> None:
    """Between a number and an infinity lies that infinity; between both there is none."""
    samples = np.array([(1, np.inf), (-np.inf, 1), (-np.inf, np.inf), (np.inf, np.inf), (1, 2)], np.float32)
    together, each = results(QUANTILE, QuantileOptions(q="0.5"), samples.ravel(), Rows("segment", (5,), 2))
    assert_same(together, each)
    assert str(together.arrays()["values"].ravel().tolist()) == "[inf, -inf, nan, inf, 1.5]"


def test_quantiles_of_the_largest_floats() -> None:
    """Whose sum is beyond the range of float64: no warning, which the tests take for an error."""
    samples = np.tile(np.finfo(np.float64).max, 4)
    together, each = results(QUANTILE, QuantileOptions(q="0.5"), samples, Rows("segment", (2,), 2))
    assert_same(together, each)
    assert together[1].values == (samples[0],)


@pytest.mark.parametrize("dtype", ["int16", "float32", "float64"])
def test_long_rows_among_short_ones(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is computed and checked row by row, and together, adds up; whatever is verified, and where arrays lie."""
    monkeypatch.setattr("workflows.rows.LONG", 50)
    samples = generator("long", dtype).normal(0, 1000, 3000).astype(dtype)
    sizes = (1000, 3, 900, 1, 50, 40, 1006)
    parts = np.split(samples, np.cumsum(sizes)[:-1])
    for chunk_bytes in (None, 512, 4096):
        found = pipeline.run("reduce", *parts, by="file", op="sum,max", verify="full", chunk_bytes=chunk_bytes)
        assert found.verification.checked == 3000
        for one, part in zip(found, parts, strict=True):
            assert one.values == pipeline.run("reduce", part, op="sum,max").values


@pytest.mark.parametrize("entry", [0, 3, -1])
@pytest.mark.parametrize("row", [0, 17, 39])
def test_a_wrong_line_of_order_statistics_is_named(entry: int, row: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is wrong about its length, about its own results, or about a key."""

    job = Job(REDUCE, ReduceOptions("median,max")).prepared(np.dtype(np.int16))
    options = with_search(job.options, job.options.search.of_few(10))
    of_rows = RowsOptions(Rows("segment", (40,), 10), np.dtype(np.int16), (options,))
    rows_of, samples = by_rows(job.workflow), np.arange(400, dtype=np.int16)
    right = rows_of.compute(samples, of_rows, range(400))
    partial = right.copy()
    found = lined(partial)
    assert found and rows_of.differences
    found.lines[row, entry] += 1
    named = [text.split(",")[0] for text in rows_of.differences(partial, right, of_rows)]
    told = [text for holds in rows_of.invariants if (text := holds(partial, 400))]
    assert named == [f"segment {row}"] or told[0].startswith(f"row {row}: ")


@pytest.mark.parametrize("entry", [slice(None), 0, 1, of_lines.WINDOWS], ids=["all", "dtype", "asked", "words"])
@pytest.mark.parametrize("row", [0, 3, 6])
def test_a_line_that_is_zero_is_named(row: int, entry: int | slice) -> None:
    """Also where a line says what its entries are."""
    job, options = by_rows(REDUCE), ReduceOptions("sum,max")
    of_rows = RowsOptions(Rows("segment", (7,), 5), np.dtype(np.int16), (options,))
    partial = job.compute(np.arange(1, 36, dtype=np.int16), of_rows, range(35))
    _, every_row = job.invariants
    assert every_row(partial, 35) is None
    right, found = partial.copy(), lined(partial)
    assert found and job.differences
    found.lines[row, entry] = 0
    if entry != of_lines.WINDOWS:  # which no number depends on
        assert [text.split(",")[0] for text in job.differences(partial, right, of_rows)] == [f"segment {row}"]
    told = every_row(partial, 35)
    assert told and told.startswith(f"row {row}: ")
    assert ("expected 5, got 0" in told) == (entry == slice(None))
