"""Selection and calibration as users ask for them: flags, arguments, files beside the samples, what is refused."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask.array
import numpy as np
import pytest

import pipeline
from pipeline.cli.main import main
from pipeline.engine.selection import Preparation
from pipeline.errors import UsageError, VerificationError
from pipeline.storage.column import WINDOW, Beside, SourceColumn, open_column

SHAPE = (403, 21)
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, data: Path) -> Iterator[Run]:
    """Runs the command line in the folder of the data: (exit status, stdout, stderr)."""
    monkeypatch.chdir(data)
    handler = signal.getsignal(signal.SIGTERM)

    def call(*words: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            main([str(word) for word in words])
        return int(caught.value.code or 0), *capsys.readouterr()

    yield call
    signal.signal(signal.SIGTERM, handler)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """x.npy, with NaN; t.npy, big endian; good.npy, of bool."""
    random = np.random.default_rng(0)
    x = random.standard_normal(SHAPE).astype(np.float32)
    x[5, 5], x[0, 3] = np.nan, -9.5
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "t.npy", random.integers(0, 5, x.size).astype(">i2"))
    np.save(tmp_path / "good.npy", random.random(SHAPE) < 0.5)
    return tmp_path


def kept(data: Path) -> Any:
    """The samples in one dimension, and which of them the request below keeps."""
    x, t, good = (np.load(data / f"{name}.npy").reshape(-1) for name in ("x", "t", "good"))
    return x, good & (t < 3) & (x != np.float32(-9.5)) & ~np.isnan(x) & (np.abs(x) < 2)


KINDS: dict[str, Callable[[Any], Any]] = {
    "NumPy": lambda x: x, "big endian": lambda x: x.astype(">f4"), "Fortran": np.asfortranarray,
    "gaps": lambda x: np.repeat(x, 2, axis=1)[:, ::2], "dask": lambda x: dask.array.from_array(x, chunks=(100, 10)),
}  # fmt: skip


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("chunk_bytes", [None, 5000])
@pytest.mark.parametrize("kind", ["file", *KINDS])
@pytest.mark.parametrize("beside", ["files", "arrays"])
def test_files_and_arrays(data: Path, kind: str, beside: str, chunk_bytes: int | None) -> None:
    """Samples, mask and columns may each be either."""
    mask: Any = data / "good.npy"
    column: Any = data / "t.npy"
    if beside == "arrays":
        mask, column = np.load(mask), np.load(column)
    source = data / "x.npy" if kind == "file" else KINDS[kind](np.load(data / "x.npy"))
    histogram, reduced = pipeline.run(
        [("histogram", {"bins": 32, "range": "auto"}), ("reduce", {"op": "argmin,argmax,count,sum"})], source,
        where="t < 3 and abs(x) < 2", columns={"t": column}, mask=mask, missing=[-9.5, float("nan")], gain=0.5, bias=3,
        verify="full", chunk_bytes=chunk_bytes,
    )  # fmt: skip
    x, keep = kept(data)
    y, places = x[keep].astype(np.float64) * 0.5 + 3, np.flatnonzero(keep)
    counts, edges = np.histogram(y, 32)
    assert histogram.counts.tolist() == counts.tolist() and histogram.edges.tolist() == edges.tolist()
    assert histogram.excluded == reduced.excluded == (~keep).sum() and histogram.samples == keep.sum()
    assert reduced.values["argmin"] == places[y.argmin()] and reduced.values["argmax"] == places[y.argmax()]
    assert histogram.verification.checked == x.size


def test_the_command_line(run: Run, data: Path) -> None:
    words = ["--where", "t < 3 and abs(x) < 2", "--column", "t=t.npy", "--mask", "good.npy", "--missing", "-9.5",
             "--missing", "nan", "--gain", "0.5", "--bias", "-3", "--transform", "abs"]  # fmt: skip
    status, out, err = run("histogram", "x.npy", "--range", "0", "8", "--bins", "16", *words, "--json", "--also",
                           "reduce --op count,argmax -o r.npz", "-o", "h.json", "-q")  # fmt: skip
    x, keep = kept(data)
    y = np.abs(x[keep].astype(np.float64) * 0.5 - 3)
    histogram, reduced = map(json.loads, out.splitlines())
    assert (status, err) == (0, "")
    assert histogram["result"]["histogram"]["storage"]["values"][1:-1] == np.histogram(y, 16, (0, 8))[0].tolist()
    asked = {"gain": 0.5, "bias": -3.0, "transform": "abs", "columns": {"t": str(data / "t.npy")}, "where": words[1],
             "mask": str(data / "good.npy"), "missing": [-9.5, "nan"]}  # fmt: skip
    for document in (histogram, reduced):
        assert document["result"]["excluded"] == (~keep).sum()
        assert {flag: document["job"]["options"][flag] for flag in asked} == asked
    written = json.loads((data / "h.json").read_text())
    assert written["excluded"]["storage"]["values"] == (~keep).sum() and written["excluded"]["uhi_schema"] == 1
    with np.load(data / "r.npz") as arrays:
        assert arrays["excluded"] == (~keep).sum() and arrays["argmax"] == np.flatnonzero(keep)[y.argmax()]


def test_the_panel_and_the_table(run: Run) -> None:
    status, out, _ = run("reduce", "x.npy", "--op", "count", "--where", "x > 0", "--gain", "2", "-o", "r.csv")
    lines = out.splitlines()
    assert status == 0 and "calibrated  x * 2.0 + 0.0" in lines
    (excluded,) = (line for line in lines if line.startswith("excluded"))
    assert excluded.endswith(" samples by --where x > 0")
    assert Path("r.csv").read_text().splitlines()[-1] == f"excluded,{excluded.split()[1].replace(',', '')}"


@pytest.mark.parametrize("asked", [{"where": "x > 100"}, {"missing": [1.0, 2.0], "where": "x == 1 or x == 2"}])
def test_nothing_is_left(asked: dict[str, Any]) -> None:
    samples = np.array([1.0, 2.0, 1.0])
    histogram, reduced = pipeline.run([("histogram", {}), ("reduce", {"op": "sum,max,argmax,mean"})], samples, **asked)
    assert histogram.counts.sum() == 0 and (histogram.samples, histogram.excluded) == (0, 3)
    assert str(reduced.values) == str({"sum": 0.0, "max": np.nan, "argmax": None, "mean": np.nan})
    with pytest.raises(UsageError, match="--range auto: expected at least one finite sample, got none"):
        pipeline.run("histogram", samples, range="auto", **asked)


def test_no_samples_at_all(tmp_path: Path) -> None:
    for name in ("x", "m"):
        np.save(tmp_path / f"{name}.npy", np.ones(0, np.uint8))
    for source in (tmp_path / "x.npy", np.ones(0, np.uint8)):
        got = pipeline.run("histogram", source, mask=tmp_path / "m.npy", where="x < 3", transform="log")
        assert (got.samples, got.excluded, got.counts.sum()) == (0, 0, 0)


def test_thousands_of_missing_values() -> None:
    """Functions that follow the tree of a condition would meet Python's limit of recursion."""
    found = pipeline.run("reduce", np.arange(3000), op="count,sum", missing=list(range(2500)))
    assert found.values == {"count": 500, "sum": sum(range(2500, 3000))}


def test_numpy_takes_selected_quantiles() -> None:
    """As it takes those of all samples."""
    given: dict[str, Any] = {"q": [0, 1], "where": "x > 3"}
    np.testing.assert_array_equal(np.asarray(pipeline.run("quantile", np.arange(10), **given)), [4.0, 9.0])
    rows = np.asarray(pipeline.run("quantile", np.arange(10), segment=5, **given))
    np.testing.assert_array_equal(rows, [[4.0, 4.0], [5.0, 9.0]])


def test_rows_are_selected_by_what_lies_beside_them(data: Path) -> None:
    x, t = np.load(data / "x.npy"), np.load(data / "t.npy").reshape(SHAPE)
    for source in (x, data / "x.npy"):
        rows = pipeline.run("histogram", source, range=(-2, 2), bins=8, channels=21, where="t > 2 and x < 1",
                            columns={"t": data / "t.npy"}, verify="full")  # fmt: skip
        for channel in range(21):
            keep = (t[:, channel] > 2) & (x[:, channel] < 1)
            expected = np.histogram(x[:, channel][keep].astype(np.float64), 8, (-2, 2))[0]
            assert rows.counts[channel].tolist() == rows[channel].counts.tolist() == expected.tolist()
            assert rows.excluded[channel] == rows[channel].excluded == (~keep).sum()
        assert rows.arrays()["excluded"].shape == (21,) and len(rows) == 21
        assert rows.document()["excluded"]["storage"]["values"] == rows.excluded
        assert rows.table()[1][-1][:3] == ("20", "excluded", "")


def test_columns_are_read_with_any_step(tmp_path: Path) -> None:
    numbers = np.arange(3 * WINDOW + 17, dtype=np.int32)
    np.save(tmp_path / "c.npy", numbers)
    _, column = open_column(str(tmp_path / "c.npy"), "--column c", Beside(numbers.shape, numbers.size), ("int32",))
    for indices in (range(5), range(7, numbers.size), range(0), range(3, 4), range(3, 10, 9), range(1, numbers.size, 7),
                    range(2, numbers.size, 7), range(0, WINDOW + 1, 2)):  # fmt: skip
        assert column.read(indices).tolist() == list(indices)


@pytest.mark.parametrize("of_file", [True, False])
def test_a_mask_that_is_read_wrongly_once_is_caught(
    tmp_path: Path, of_file: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where rows take turns a thread keeps a window of the mask; checks must not get that of a computation."""
    samples, mask = np.arange(WINDOW, dtype=np.int32), np.arange(WINDOW) % 5 < 3
    for name, array in (("x", samples), ("m", mask)):
        np.save(tmp_path / f"{name}.npy", array)
    inputs: Any = (tmp_path / "x.npy", tmp_path / "m.npy") if of_file else (samples, mask)
    expected = [int(samples[channel::4][mask[channel::4]].sum()) for channel in range(4)]
    read, caught = SourceColumn._read, 0

    def wrong_once(self: SourceColumn, first: int, last: int) -> Any:
        numbers = read(self, first, last)
        return np.roll(numbers, 1) if next(wrong) else numbers

    monkeypatch.setattr(SourceColumn, "_read", wrong_once)
    for which in range(8):
        wrong = map(which.__eq__, count())
        try:
            rows = pipeline.run("reduce", inputs[0], op="sum", channels=4, mask=inputs[1], verify="full", device="cpu")
            assert [row.values["sum"] for row in rows] == expected
        except VerificationError:
            caught += 1
    assert caught >= 2  # once in a computation and once in a check, at least


# --- what is refused --------------------------------------------------------------------------------------------------

REFUSED = [
    (["--where", "x ** 2 < 3"], "--where: expected comparisons of x, i, and numbers, with"),
    (["--where", "t < 3"], "name a column by --column t=FILE.npy"),
    (["--mask", "gone.npy"], "/gone.npy: expected a file"),
    (["--mask", "t.npy"], "/t.npy: expected bool or uint8, got >i2; convert it"),
    (["--mask", "other.npy"],
     "/other.npy: expected shape (403, 21) or (8463,), one number for each sample, got (21, 403)"),
    (["--mask", "turned.npy"], "/turned.npy: expected C order, like the samples, got the other one; save it in a .npy "
                               "file as numpy.ascontiguousarray returns it"),
    (["--mask", "text.npy"], "/text.npy: expected a .npy header, got"),
    (["--mask", "object.npy"], "/object.npy: expected samples of int8, "),
    (["--column", "t=t.npy"], "--column: expected columns that --where uses, got t; leave them out, or use them"),
    (["--column", "x=t.npy", "--where", "x < 3"], "--column: expected a name of letters, digits and _, other than"),
    (["--column", "not=t.npy", "--where", "x < 3"], "got 'not'"),
    (["--column", "t"], "expected NAME=FILE.npy, got 't'"),
    (["--column", "t=t.npy", "--column", "t=t.npy", "--where", "t < 3"], "expected each name once, got t twice"),
    (["--missing", "none"], "expected a number or nan, got 'none'"),
    (["--gain", "0"], "--gain: expected a finite number other than 0, got 0.0"),
    (["--gain", "nan"], "--gain: expected a finite number other than 0, got nan"),
    (["--bias", "inf"], "--bias: expected a finite number, got inf"),
    (["--transform", "exp"], "--transform: expected one of none, sqrt, log, "),
    (["--mask", "good.npy", "-o", "good.npy"], "good.npy"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "expected"), REFUSED)
def test_one_line_and_nothing_written(run: Run, data: Path, words: list[str], expected: str) -> None:
    good = np.load(data / "good.npy")
    np.save(data / "other.npy", np.ascontiguousarray(good.T))
    np.save(data / "turned.npy", np.asfortranarray(good))
    np.save(data / "object.npy", np.array([None] * good.size))
    (data / "text.npy").write_text("true\n" * good.size)
    before = sorted(os.listdir())
    output = [] if "-o" in words else ["-o", "out.json"]
    status, out, err = run("histogram", "x.npy", *words, *output)
    assert (status, out) == (2, "") and err.count("\n") == 1 and expected in err, err
    assert sorted(os.listdir()) == before


def test_integers_that_do_not_fit(run: Run, data: Path) -> None:
    np.save(data / "small.npy", np.arange(5, dtype=np.int8))
    status, _, err = run("histogram", "small.npy", "--where", "x + 300 < 5")
    assert status == 2
    assert err == ("error: --where: expected a number that fits int8, in which NumPy computes with it, got 300 (at "
                   "character 1); write 300.0 to compute in a float\n")  # fmt: skip
    assert run("histogram", "small.npy", "--where", "x < 300", "-q")[0] == 0


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"where": 3}, "where: expected a condition as text"),
    ({"columns": ["t.npy"]}, "columns: expected files or arrays by name"),
    ({"columns": {"t": 3}, "where": "t < 3"}, "columns: t: expected a .npy file or an array, got 3"),
    ({"mask": [True]}, "mask: expected a .npy file or an array"),
    ({"mask": np.ones(3)}, "--mask an array in memory: expected bool or uint8, got float64; convert it"),
    ({"mask": np.ones(3, bool)}, r"--mask an array in memory: expected shape \(5,\), one number for each sample, got"),
    ({"mask": dask.array.ones(5)}, "mask: expected a .npy file or an array, got Array"),
    ({"missing": "nan"}, "missing: expected a number, got 'nan'"),
    ({"missing": [True]}, "missing: expected a number, got True"),
    ({"gain": "2"}, "gain: expected a number, got '2'"),
    ({"transform": "exp"}, "--transform: expected one of none, "),
]


@pytest.mark.parametrize(("asked", "expected"), WRONG)
def test_wrong_arguments(asked: dict[str, Any], expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        pipeline.run("histogram", np.arange(5), **asked)


def test_jobs_that_write_arrays_refuse(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="transpose: expected none of where=, mask="):
        pipeline.run("transpose", np.ones((2, 2)), where="x > 0")


@pytest.mark.parametrize("name", ["run.h5::/y", "table.parquet::y"])
def test_columns_are_no_members_of_other_formats(tmp_path: Path, name: str) -> None:
    np.save(tmp_path / "x.npy", np.arange(9))
    with pytest.raises(UsageError, match=f"--column y: expected a .npy file, got {name}, a member"):
        pipeline.run("histogram", str(tmp_path / "x.npy"), where="y != 7", columns={"y": name})


def test_sources_of_unknown_length_have_no_columns() -> None:
    array = dask.array.from_array(np.arange(100), chunks=10)
    unknown = array[array > 5]
    with pytest.raises(UsageError, match="--mask: expected a dask array of known shape"):
        pipeline.run("histogram", unknown, mask=np.ones(94, bool))
    stream: Any = SimpleNamespace(shape=None, samples=None, names=("standard input",))
    with pytest.raises(UsageError, match="--mask: expected inputs of known length, got standard input; write it to a"):
        Preparation(mask="good.npy").of(np.dtype(np.int8), partial(Beside.of, stream))
