"""`python -m pipeline reduce` from files to every form of output, for all chunk sizes; planted errors; bad input."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

import pipeline
import pipeline.engine.aggregate
import pipeline.storage.blocks
from kernels.reduce import partial as layout
from pipeline.cli.flags import Failure
from pipeline.cli.main import cli
from pipeline.engine.aggregate import run
from pipeline.errors import VerificationError
from pipeline.settings import Settings
from pipeline.storage.sources import open_source
from tests.cases.reduce import DTYPES, case
from workflows import WORKFLOWS
from workflows.histogram import HISTOGRAM
from workflows.reduce import OPERATIONS, REDUCE, ReduceOptions

pytestmark = pytest.mark.usefixtures("shared")
EVERYTHING = ",".join(OPERATIONS)
ECG = str(Path(__file__).parents[2] / "data/ecg.npy")


def reduced(*words: str) -> dict[str, Any]:
    """`result` of the JSON object."""
    done = CliRunner().invoke(cli, ["reduce", *words, "--json", "-q"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    result: dict[str, Any] = json.loads(done.stdout)["result"]
    return result


def refused(*words: str) -> str:
    with pytest.raises(Failure) as caught:
        CliRunner().invoke(cli, ["reduce", *words], catch_exceptions=False, standalone_mode=False)
    assert caught.value.exit_code == 2 and "\n" not in str(caught.value)
    return str(caught.value)


def written(path: Path, samples: NDArray[Any]) -> str:
    samples.tofile(path)
    return str(path)


def test_sample_file() -> None:
    samples = np.load(ECG)
    got = reduced(ECG, "--op", EVERYTHING)
    assert (got["sum"], got["count"], got["nan"]) == (int(samples.sum()), len(samples), 0)
    assert (got["min"], got["max"]) == (samples.min(), samples.max())
    assert (got["argmin"], got["argmax"]) == (samples.argmin(), samples.argmax())
    assert got["std"] == pytest.approx(samples.std(), rel=1e-12) and got["std"] ** 2 == pytest.approx(got["var"])
    assert list(reduced(ECG)) == ["count", "sum", "mean", "std", "min", "max", "samples", "nan"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_result_does_not_depend_on_files_chunks_blocks_or_byte_order(
    tmp_path: Path, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = case("specials", dtype, 3001)
    whole = reduced(written(tmp_path / "whole.bin", samples), "--dtype", dtype, "--op", EVERYTHING, "--nan", "omit")
    assert whole["argmin"] == int(np.flatnonzero(samples == whole_min(samples))[0])
    swapped = samples.astype(samples.dtype.newbyteorder(">"))
    names = [written(tmp_path / f"{i}.bin", part) for i, part in enumerate(np.split(swapped, [1, 1700, 1703]))]
    for block_bytes, chunk in ((64, "1000B"), (4096, "5000B"), (2**20, "1MiB")):
        monkeypatch.setattr(pipeline.storage.blocks, "BLOCK_BYTES", block_bytes)
        words = ["--dtype", dtype, "--byteorder", "big", "--op", EVERYTHING, "--nan", "omit", "-c", chunk]
        for verify in ("full", "sample"):
            assert reduced(*names, *words, "--verify", verify) == whole


def whole_min(samples: NDArray[Any]) -> Any:
    return samples[~np.isnan(samples)].min() if samples.dtype.kind == "f" else samples.min()


def test_first_place_in_the_whole_source_counts(tmp_path: Path) -> None:
    samples = np.ones(6000, np.float32)
    samples[[1001, 2500, 5999]] = -7
    samples[[3000, 4999]] = 9
    path = written(tmp_path / "samples.bin", samples)
    words = (path, "--dtype", "float32", "--op", "argmin,argmax", "-c", "4000B")
    assert reduced(*words) | {"samples": 0, "nan": 0} == {"argmin": 1001, "argmax": 3000, "samples": 0, "nan": 0}
    samples[[2222, 4444]] = np.nan
    written(tmp_path / "samples.bin", samples)
    assert reduced(*words)["argmin"] == reduced(*words)["argmax"] == 2222
    assert reduced(*words, "--nan", "omit")["argmax"] == 3000


def test_sum_of_a_file_is_fsum(tmp_path: Path) -> None:
    values = case("cancelling", "float32", 200_001).astype(np.float64) * 2.0**-900
    path = written(tmp_path / "samples.bin", values)
    assert reduced(path, "--dtype", "float64", "--op", "sum", "-c", "64KiB")["sum"] == math.fsum(values)


@pytest.mark.parametrize("suffix", REDUCE.formats)
def test_output_files(tmp_path: Path, suffix: str) -> None:
    target = tmp_path / f"result{suffix}"
    expected = reduced(ECG, "--op", "sum,mean,argmax", "-o", str(target))
    if suffix == ".json":
        document = json.loads(target.read_text())
        assert {name: document.pop(name) for name in ("format", "dtype")} == {"format": 2, "dtype": "uint16"}
        assert document.pop("exact")["layout"] == 1 and document.pop("baru")["format"] == 1
        assert document == expected
    elif suffix == ".npz":
        with np.load(target) as arrays:
            assert {name: arrays[name].item() for name in arrays} == expected
    elif suffix == ".parquet":
        rows = pyarrow.parquet.read_table(target).to_pylist()
        assert rows == [{"operation": name, "value": float(expected[name])} for name in ("sum", "mean", "argmax")]
    else:
        rows = list(csv.reader(target.read_text().splitlines()))
        assert rows == [["operation", "value"], *[[name, str(expected[name])] for name in ("sum", "mean", "argmax")]]


def test_panel() -> None:
    done = CliRunner().invoke(cli, ["reduce", ECG, "--op", "sum,count"], catch_exceptions=False)
    lines = done.stdout.splitlines()
    assert lines[0].startswith("reduce of ") and lines[2].split() == ["samples", "108,000"]
    assert "sum        107025651" in lines and lines[-2].startswith("verdict")
    assert "▁" not in done.stdout  # there is nothing to draw


def test_bad_options() -> None:
    assert "expected some of sum, mean, var, std, skewness, kurtosis, norm, min, max, argmin, argmax, count" in refused(
        ECG, "--op", "foo"
    )
    assert "got 'auto'" in refused(ECG, "--op", "auto")
    assert "expected each operation once, got sum 2 times" in refused(ECG, "--op", "sum,sum")
    assert "--ddof: expected 0 or more, got -1" in refused(ECG, "--ddof", "-1")
    assert "--nan: expected propagate or omit, got 'skip'" in refused(ECG, "--nan", "skip")
    assert "expected an output ending in .json, .npz, .csv, .parquet, got .png" in refused(ECG, "-o", "/tmp/x.png")


@pytest.mark.parametrize(
    ("position", "name"),
    [(layout.SUM_AT.start + 3, "sum, word 3"), (layout.SQUARES_AT.start, "sum of squares, word 0"),
     (layout.MIN_AT, "place of the minimum"), (layout.MAX_KEY, "maximum")],
)  # fmt: skip
def test_one_wrong_bit_is_caught_and_named(tmp_path: Path, position: int, name: str) -> None:
    path = written(tmp_path / "samples.bin", case("ordinary", "float64", 4000))

    def lies(block: NDArray[Any], options: ReduceOptions) -> NDArray[np.int64]:
        partial: NDArray[np.int64] = REDUCE.compute(block, options)
        partial[position] ^= 2 if position == layout.MIN_AT else 1
        return partial

    with pytest.raises(VerificationError, match=rf"a number is wrong in chunk \d .*{name}: expected"):
        run(
            replace(REDUCE, compute=lies),
            ReduceOptions(EVERYTHING),
            open_source((path,), "float64"),
            Settings(chunk_bytes=8000),
        )


@pytest.mark.parametrize("shape", [(0,), (3, 0)])
@pytest.mark.parametrize("dtype", ["int16", ">f4", "float64", "uint64"])
def test_empty_array(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    """As in NumPy, except for extremes and their positions, for which NumPy raises."""
    array = np.zeros(shape, dtype)
    np.save(tmp_path / "a.npy", array)
    values = reduced(str(tmp_path / "a.npy"), "--op", EVERYTHING)
    expected = {"sum": array.sum(), "norm": 0.0, "count": 0, "samples": 0, "nan": 0, "argmin": None, "argmax": None}
    assert values == dict.fromkeys(("mean", "var", "std", "skewness", "kurtosis", "min", "max"), "nan") | expected
    assert pipeline.run("reduce", tmp_path / "a.npy", op="sum,count").values == {"sum": array.sum(), "count": 0}


def test_empty_array_beside_others_and_with_jobs_that_refuse_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "a.npy", np.zeros(0, np.int32))
    np.save(tmp_path / "b.npy", np.array([3, 4], np.int32))
    paths = [str(tmp_path / "a.npy"), str(tmp_path / "b.npy")]
    assert reduced(*paths, "--op", "sum,argmax")["argmax"] == 1
    monkeypatch.setitem(WORKFLOWS, "histogram", replace(HISTOGRAM, empty=None))
    done = CliRunner().invoke(cli, ["reduce", *paths, "--also", "histogram"])
    assert done.exit_code == 2 and "a.npy: expected samples, got an empty array of shape (0,)" in done.stderr
