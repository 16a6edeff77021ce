"""Results in every format, opened by the libraries that people have: boost-histogram, hist, mplhep, pandas, uhi."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import boost_histogram as bh
import numpy as np
import pandas
import pyarrow.parquet
import pytest
import uhi.io.hdf5
import uhi.io.zip
import uhi.schema
from click.testing import CliRunner
from uhi.io import _files

import pipeline
from pipeline.cli.main import cli
from pipeline.report.result_file import render
from workflows.histogram_result import HistogramResult
from workflows.rows import Rows
from workflows.rows_result import HistogramRows

EDGES = np.array([-0.1, 0.2, 1 / 3, 1e300])
RESULT = HistogramResult(np.array([1, 2**40, 0]), EDGES, underflow=5, overflow=6, nan=7, regular=False)
REGULAR = HistogramResult(np.array([3, 4]), np.array([0.0, 0.5, 1.0]), underflow=1, overflow=0, nan=0, regular=True)
ROWS = HistogramRows(Rows("file", (2,), None, sizes=(8, 8), names=("a", "b")), (REGULAR, REGULAR))
NUMBERED = HistogramRows(Rows("channel", (2,), None, inner=2), (RESULT, RESULT))


@pytest.fixture
def samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> np.ndarray[Any, Any]:
    monkeypatch.chdir(tmp_path)
    values = np.random.default_rng(0).normal(0, 10, 4000).astype(np.float32)
    values[::97] = np.nan
    np.save("x.npy", values)
    return values


def written(*words: str) -> None:
    done = CliRunner().invoke(cli, [*words, "-q"], catch_exceptions=False)
    assert done.exit_code == 0, done.stderr


@pytest.mark.parametrize("suffix", [".json", ".zip", ".h5"])
@pytest.mark.parametrize("result", [RESULT, REGULAR, ROWS, NUMBERED], ids=["variable", "regular", "names", "numbers"])
def test_uhi_in_every_container(tmp_path: Path, result: Any, suffix: str) -> None:
    """With the record of many inputs, longer than an attribute of HDF5 can be in its oldest layout."""
    record = {"format": 1, "input": {"files": [f"/data/run-{number:06}.bin" for number in range(5000)]}}
    path = tmp_path / f"result{suffix}"
    path.write_bytes(render(str(path), result, record))
    uhi.schema.main(str(path))  # raises or exits where the schema is broken
    document = _files.load(str(path), path=None)
    assert set(document) == {"histogram", "nan"}
    loaded = bh.Histogram(bh.serialization.from_uhi(document["histogram"]))
    np.testing.assert_array_equal(loaded.values(flow=True), result.values(flow=True))
    np.testing.assert_array_equal(loaded.axes[-1].edges, result.axes[-1].edges)
    nan = np.asarray(document["nan"]["storage"]["values"])
    np.testing.assert_array_equal(nan, [one.nan for one in result.results] if len(nan.shape) else result.nan)
    assert json.loads(document["histogram"]["writer_info"]["baru"]["run"]) == record


@pytest.mark.parametrize("suffix", [".h5", ".parquet"])
def test_equal_results_make_equal_files(suffix: str) -> None:
    assert render(f"a{suffix}", RESULT) == render(f"b{suffix}", RESULT)


def test_tables_in_pandas(samples: np.ndarray[Any, Any]) -> None:
    counts = np.histogram(samples[~np.isnan(samples)], 8, (-20, 20))[0]
    for suffix, read in ((".csv", pandas.read_csv), (".parquet", pandas.read_parquet)):
        written("histogram", "x.npy", "--bins", "8", "--range", "-20", "20", "-o", f"h{suffix}")
        table = read(f"h{suffix}")
        assert list(table.columns) == ["lower", "upper", "count"] and table["count"].dtype == np.int64
        assert table["lower"].dtype == table["upper"].dtype == np.float64
        np.testing.assert_array_equal(table["count"][1:-2], counts)
        np.testing.assert_array_equal(table["lower"][1:-2], np.linspace(-20, 20, 9)[:-1])
        assert table["lower"][0] == -np.inf and np.isnan(table["upper"].iloc[-1])
        assert table["count"].iloc[-1] == np.isnan(samples).sum() and table["count"].sum() == len(samples)
        written("reduce", "x.npy", "--op", "min,max,argmin", "--nan", "omit", "-o", f"r{suffix}")
        table = read(f"r{suffix}").set_index("operation")["value"]
        assert table["min"] == np.nanmin(samples) and table["argmin"] == np.nanargmin(samples)
        written("quantile", "x.npy", "--q", "0.25,0.5", "--nan", "omit", "-o", f"q{suffix}")
        expected = np.nanquantile(samples.astype(np.float64), [0.25, 0.5])
        np.testing.assert_array_equal(read(f"q{suffix}")["value"], expected)
        written("reduce", "x.npy", "--segment", "1000", "--op", "max", "--nan", "omit", "-o", f"s{suffix}")
        np.testing.assert_array_equal(read(f"s{suffix}")["value"], np.nanmax(samples.reshape(4, -1), axis=1))
    record = json.loads(pyarrow.parquet.read_schema("h.parquet").metadata[b"baru"])
    assert record["input"]["samples"] == len(samples) and record["verification"]["checked"] > 0


def test_integers_too_wide_for_parquet_are_text(tmp_path: Path) -> None:
    np.full(9, 2**64 - 1, "<u8").tofile(path := str(tmp_path / "x.bin"))
    written("reduce", path, "--dtype", "uint64", "--op", "sum,max", "-o", str(tmp_path / "r.parquet"))
    values = pandas.read_parquet(tmp_path / "r.parquet")["value"].tolist()
    assert values == [str(9 * (2**64 - 1)), str(2**64 - 1)]


def test_hist_takes_what_run_returns(samples: np.ndarray[Any, Any]) -> None:
    hist = pytest.importorskip("hist")
    for words in ({}, {"where": "x < 5"}, {"scale": "log", "range": (1, 100)}, {"channels": 4}):
        result = pipeline.run("histogram", "x.npy", **{"bins": 8, "range": (-20, 20), **words})  # type: ignore[arg-type]
        np.testing.assert_array_equal(hist.Hist(result).values(flow=True), result.values(flow=True))


def test_mplhep_draws_what_run_returns(samples: np.ndarray[Any, Any]) -> None:
    mplhep = pytest.importorskip("mplhep")
    from matplotlib.figure import Figure

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Integer weights", category=UserWarning)  # without SciPy
        for words in ({}, {"where": "x < 5"}, {"scale": "log", "range": (1, 100)}):
            result = pipeline.run("histogram", "x.npy", **{"bins": 8, "range": (-20, 20), **words})  # type: ignore[arg-type]
            axes = Figure().add_subplot()
            (drawn,) = mplhep.histplot(result, ax=axes)
            np.testing.assert_array_equal(drawn.stairs.get_data().values, result.counts)
            np.testing.assert_array_equal(drawn.stairs.get_data().edges, result.edges)
        for where in (None, "x < 5"):
            rows = pipeline.run("histogram", "x.npy", bins=8, range=(-20, 20), channels=4, where=where)
            drawn = mplhep.hist2dplot(rows, ax=Figure().add_subplot(), cbar=False)
            np.testing.assert_array_equal(np.asarray(drawn.pcolormesh.get_array()).T.reshape(4, 8), rows.counts)
