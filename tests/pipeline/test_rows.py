"""Results of rows, over files and arrays, against NumPy on each row."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import boost_histogram as bh
import click
import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

import pipeline
import pipeline.storage.sources
import workflows.by_rows
from pipeline.cli.main import cli
from pipeline.engine.aggregate import run_all
from pipeline.engine.aggregate_plan import Job
from pipeline.errors import PipelineError, UsageError, VerificationError
from pipeline.rows import RowsAsked, rows_of_source
from pipeline.settings import Settings
from pipeline.storage.sources import open_source
from tests.cases.formats import PIPE, Writer
from workflows.histogram import HISTOGRAM, HistogramOptions

pytestmark = pytest.mark.usefixtures("shared")
FRAMES, CHANNELS = 1500, 6
BINS: dict[str, Any] = {"bins": 20, "range": (-3, 3)}


@pytest.fixture
def frames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NDArray[np.float32]:
    """Samples of channels that take turns; some are NaN, or out of the range."""
    monkeypatch.chdir(tmp_path)
    samples = np.random.default_rng(3).normal(np.arange(CHANNELS) - 2, 1, (FRAMES, CHANNELS)).astype(np.float32)
    samples[5::97, 1] = np.nan
    samples.tofile("a.bin")
    return samples


def rows_by(samples: NDArray[Any], **how: Any) -> list[NDArray[Any]]:
    if "channels" in how:
        return list(samples.T if how.get("layout") != "planar" else samples.reshape(CHANNELS, -1))
    return [samples.reshape(-1)[first : first + how["segment"]] for first in range(0, samples.size, how["segment"])]


@pytest.mark.parametrize("chunk_bytes", [None, 4 * 1001, 4 * CHANNELS * 250])
@pytest.mark.parametrize("verify", ["auto", "full", "sample"])
@pytest.mark.parametrize("how", [{"channels": CHANNELS}, {"channels": CHANNELS, "layout": "planar"}, {"segment": 999}])
def test_histograms_of_rows(frames: NDArray[np.float32], how: Any, verify: str, chunk_bytes: int | None) -> None:
    result = pipeline.run("histogram", "a.bin", dtype="float32", verify=verify, chunk_bytes=chunk_bytes, **BINS, **how)
    rows = rows_by(frames, **how)
    np.testing.assert_array_equal(result.counts, [np.histogram(row, **BINS)[0] for row in rows])
    assert [one.nan for one in result.results] == [int(np.isnan(row).sum()) for row in rows]
    assert [one.underflow for one in result.results] == [int((row < -3).sum()) for row in rows]
    assert result.verification.samples == frames.size
    assert result.verification.checked == frames.size or verify != "full"


@pytest.mark.parametrize("how", [{"channels": CHANNELS}, {"channels": CHANNELS, "layout": "planar"}, {"segment": 999}])
def test_reductions_of_rows(frames: NDArray[np.float32], how: Any) -> None:
    options = {"op": "max,argmax,argmin,count", "nan": "omit", "verify": "full", **how}
    rows = rows_by(frames, **how)
    for result in (
        pipeline.run("reduce", "a.bin", dtype="float32", chunk_bytes=4 * 1001, **options),
        pipeline.run("reduce", frames, chunk_bytes=4 * 1001, **options),
        pipeline.run("reduce", frames[::-1][::-1], **options),
    ):
        arrays = result.arrays()
        assert arrays["max"].tolist() == [float(np.nanmax(row)) for row in rows]
        assert arrays["argmax"].tolist() == [int(np.nanargmax(row)) for row in rows]
        assert arrays["argmin"].tolist() == [int(np.nanargmin(row)) for row in rows]
        assert arrays["count"].tolist() == [int((~np.isnan(row)).sum()) for row in rows]


@pytest.mark.parametrize("axis", [0, 1, 2, -3])
def test_axes(tmp_path: Path, axis: int) -> None:
    """Of files, NumPy and dask arrays; a range of all samples together."""
    array = np.random.default_rng(axis + 9).normal(size=(4, 5, 6))
    np.save(tmp_path / "a.npy", array)
    lazy = pytest.importorskip("dask.array").from_array(array, chunks=(3, 5, 2))
    for given in (tmp_path / "a.npy", array, lazy):
        sums = pipeline.run("reduce", given, op="argmax,max", axis=axis).arrays()
        np.testing.assert_array_equal(sums["argmax"], array.argmax(axis))
        np.testing.assert_array_equal(sums["max"], array.max(axis))
        counted = pipeline.run("histogram", given, bins=7, range="auto", axis=axis)
        expected = np.apply_along_axis(lambda row: np.histogram(row, np.histogram_bin_edges(array, 7))[0], axis, array)
        np.testing.assert_array_equal(np.moveaxis(counted.counts, -1, axis), expected)


def test_files_as_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In their order; an empty one has a row, too."""
    monkeypatch.chdir(tmp_path)
    arrays = [np.arange(size, dtype=np.uint8) for size in (100, 0, 256)]
    for name, array in zip("abc", arrays, strict=True):
        np.save(f"{name}.npy", array)
    result = pipeline.run("histogram", "?.npy", by="file", bins=4, range=(0, 256))
    np.testing.assert_array_equal(result.counts, [np.histogram(array, 4, (0, 256))[0] for array in arrays])
    assert [Path(name).name for name in result.names] == ["a.npy", "b.npy", "c.npy"]
    loaded = bh.Histogram(bh.serialization.from_uhi(json.loads(json.dumps(result.to_uhi()))))
    np.testing.assert_array_equal(loaded.values(), result.counts)
    assert list(loaded.axes[0]) == result.names
    again = pipeline.run("histogram", *arrays, by="file", bins=4, range=(0, 256))
    np.testing.assert_array_equal(again.counts, result.counts)


@pytest.mark.parametrize("how", [{"by": "file"}, {"channels": 2, "layout": "planar"}, {"axis": 0}])
def test_no_samples_at_all(tmp_path: Path, how: dict[str, Any]) -> None:
    """Rows that have none, from a file and from an array, with a mask and without."""
    empty = np.zeros(0, np.float32)
    np.save(tmp_path / "a.npy", empty)
    for asked in ({}, {"mask": np.zeros(0, bool)}):
        for source in (str(tmp_path / "a.npy"), empty):
            result = pipeline.run("reduce", source, op="count,max", verify="full", **how, **asked)
            expected = [(0, math.nan)] * how.get("channels", 1)
            assert str([tuple(row.values.values()) for row in result.results]) == str(expected)


def test_result_is_uhi(frames: NDArray[np.float32]) -> None:
    result = pipeline.run("histogram", "a.bin", dtype="float32", channels=CHANNELS, **BINS)
    document = json.loads(json.dumps(result.document()))
    counts, nan = (bh.Histogram(bh.serialization.from_uhi(document[name])) for name in ("histogram", "nan"))
    by_boost = bh.Histogram(bh.axis.Regular(CHANNELS, 0, CHANNELS, underflow=False, overflow=False),
                            bh.axis.Regular(20, -3, 3))  # fmt: skip
    known = ~np.isnan(frames)
    by_boost.fill(np.broadcast_to(np.arange(CHANNELS), frames.shape)[known], frames[known])
    np.testing.assert_array_equal(counts.values(flow=True), by_boost.values(flow=True))
    np.testing.assert_array_equal(nan.values(), np.isnan(frames).sum(0))


def test_several_jobs_on_the_same_rows(frames: NDArray[np.float32]) -> None:
    jobs = [("histogram", BINS), ("reduce", {"op": "count"})]
    counted, reduced = pipeline.run(jobs, "a.bin", dtype="float32", channels=CHANNELS)
    assert [one.samples for one in counted.results] == [FRAMES] * CHANNELS
    assert reduced.arrays()["count"].tolist() == [FRAMES] * CHANNELS


@pytest.mark.parametrize("wrong", [("swapped", 0), ("lost", 1)])
@pytest.mark.parametrize("together", [True, False], ids=["rows together", "row by row"])
def test_wrong_row_is_found(frames: NDArray[np.float32], wrong: Any, together: bool) -> None:
    """Rows that are told apart wrongly, in a way that leaves all sums as they are."""
    how, place = wrong

    def compute(*arguments: Any) -> Any:
        counts = (HISTOGRAM.compute_rows if together else HISTOGRAM.compute)(*arguments)
        one, other = counts[..., 4 + place].copy(), counts[..., 5 + place].copy()
        counts[..., 4 + place], counts[..., 5 + place] = (other, one) if how == "swapped" else (one + other, 0)
        return counts

    source = open_source(["a.bin"], dtype="float32")
    planted = {"compute_rows": compute} if together else {"compute": compute, "compute_rows": None}
    job = Job(replace(HISTOGRAM, **planted), HistogramOptions(**BINS))
    jobs = rows_of_source([job], RowsAsked(channels=CHANNELS), source)
    with pytest.raises(VerificationError, match=r"histogram: a number is wrong in chunk 0 .* channel 0, bin [34] \["):
        run_all(jobs, source, Settings(verify="full"))


def test_stream(frames: NDArray[np.float32], monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a source whose length nobody knows; channels whose last frame is incomplete are refused."""
    monkeypatch.setattr(pipeline.storage.sources, "FORMATS", [PIPE, *pipeline.storage.sources.FORMATS])

    def counted(samples: int, **how: int) -> Any:
        Path("pipe").unlink(missing_ok=True)
        Writer(Path("pipe"), frames.tobytes()[: 4 * samples])
        source = open_source(["pipe"], dtype="float32")
        jobs = rows_of_source([Job(HISTOGRAM, HistogramOptions(**BINS))], RowsAsked(**how), source)
        (outcome,) = run_all(jobs, source, Settings())
        return outcome.result

    expected = [np.histogram(row, **BINS)[0] for row in frames.T]
    np.testing.assert_array_equal(counted(frames.size, channels=CHANNELS).counts, expected)
    assert [one.samples for one in counted(1000, segment=300).results] == [300, 300, 300, 100]
    with pytest.raises(PipelineError, match="--channels: expected a multiple of 6 samples, got 1,001"):
        counted(1001, channels=CHANNELS)


def test_edges_of_each_row(frames: NDArray[np.float32], tmp_path: Path) -> None:
    """Of a file and of arrays; the results have no edges in common, so they are no single histogram, nor a picture."""
    edges = np.sort(np.random.default_rng(1).normal(0, 3, (CHANNELS, 9)), axis=1)
    np.save("edges.npy", edges)
    expected = [np.histogram(row, line)[0] for row, line in zip(frames.T, edges, strict=True)]
    for given in ("a.bin", frames):
        kind = {"dtype": "float32"} if given is not frames else {}
        result = pipeline.run("histogram", given, edges=edges, channels=CHANNELS, verify="full", **kind)
        np.testing.assert_array_equal(result.arrays()["counts"], expected)
        np.testing.assert_array_equal(result.arrays()["edges"], edges)
        for rows, number in (({}, "1"), ({"channels": 3}, "3"), ({"segment": 100}, "90")):
            text = f"histogram: --edges: expected as many rows as there are lines of edges, 6, got {number};"
            with pytest.raises(UsageError, match=text):
                pipeline.run("histogram", given, edges=edges, **rows, **kind)
    words = ["histogram", "a.bin", "--dtype", "float32", "--channels", str(CHANNELS), "--edges", "edges.npy"]
    done = CliRunner().invoke(cli, [*words, "-o", "rows.csv"], catch_exceptions=False)
    assert done.exit_code == 0 and f"channel 5  range [{edges[5, 0]:g}, {edges[5, -1]:g}], bins: 8" in done.stdout
    lines = Path("rows.csv").read_text().splitlines()
    assert lines[2] == f"0,{edges[0, 0]},{edges[0, 1]},{expected[0][0]}"
    with pytest.raises(click.ClickException, match=r"rows.png: expected .* .json, .npz, .csv, .parquet, got"):
        cli.main([*words, "-o", "rows.png"], standalone_mode=False)


@pytest.mark.parametrize("how", [{"channels": 3}, {"segment": 11_000}, {"channels": 3, "layout": "planar"}])
def test_positions_in_long_rows(tmp_path: Path, how: dict[str, Any]) -> None:
    """Long enough for compiled checks; with a condition, too, positions count within the row."""
    samples = np.random.default_rng(5).permutation(33_000).astype(np.int32)
    samples.tofile(tmp_path / "a.bin")
    shape = {"segment": (3, 11_000), "layout": (3, 11_000)}
    rows = samples.reshape(next((size for key, size in shape.items() if key in how), (11_000, 3)))
    rows = rows if rows.shape[0] == 3 else rows.T
    for chunk_bytes in (None, 4 * 21_001):
        options = {"op": "argmax,argmin", "verify": "full", "chunk_bytes": chunk_bytes, **how}
        for given in (tmp_path / "a.bin", samples):
            plain = pipeline.run("reduce", given, **options).arrays()
            assert plain["argmax"].tolist() == rows.argmax(1).tolist()
            kept = pipeline.run("reduce", given, where="x < 20000", **options).arrays()
            assert kept["argmax"].tolist() == np.where(rows < 20_000, rows, -1).argmax(1).tolist()


REFUSED = [
    ({"channels": 7}, r"a.bin: expected a multiple of 7 samples as --channels says, got 9,000, 5 too many"),
    ({"channels": 0}, r"--channels: expected 1 to 2\^48, got 0"),
    ({"segment": -1}, r"--segment: expected 1 to 2\^48, got -1"),
    ({"segment": 10**30}, r"--segment: expected 1 to 2\^48, got 10"),
    ({"segment": 2.5}, "--segment: expected an integer, got 2.5"),
    ({"channels": "6"}, "--channels: expected an integer, got '6'"),
    ({"channels": True}, "--channels: expected an integer, got True"),
    ({"layout": "planar"}, "--layout planar: expected the number of --channels beside it"),
    ({"channels": 6, "layout": "other"}, "--layout: expected interleaved or planar, got 'other'"),
    ({"channels": 6, "segment": 5}, "expected one of .*, got --channels and --segment"),
    ({"by": "folder"}, "--by: expected file, got 'folder'"),
    ({"axis": 1}, r"--axis: expected one of the axes of .*a.bin, -1 to 0 of shape \(9000,\), got 1"),
    ({"segment": 1, "bins": 2**20}, r"histogram: expected rows that fit into memory, got 9,000 of 8,388,632 bytes"),
]


@pytest.mark.parametrize(("arguments", "text"), REFUSED)
def test_rows_that_cannot_be(frames: NDArray[np.float32], arguments: Any, text: str) -> None:
    with pytest.raises(UsageError, match=text) as caught:
        pipeline.run("histogram", "a.bin", **{"dtype": "float32"} | arguments)
    assert "\n" not in str(caught.value)


def test_jobs_that_write_arrays_have_no_rows(frames: NDArray[np.float32]) -> None:
    for given in ("a.bin", frames):
        with pytest.raises(PipelineError, match="transpose: expected a job that returns results for rows"):
            pipeline.run("transpose", given, channels=3, **({} if given is frames else {"output": "b.npy"}))


@pytest.mark.parametrize("rows", [{"segment": 3}, {"axis": 0}])
def test_no_rows_are_refused(tmp_path: Path, rows: Any) -> None:
    empty = np.zeros((4, 0), np.int16)
    np.save(tmp_path / "a.npy", empty)
    for given in (tmp_path / "a.npy", empty):
        with pytest.raises(UsageError, match=r"histogram: expected at least one (segment|row), got none"):
            pipeline.run("histogram", given, **rows)


def test_fortran_order_has_no_axes(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.asfortranarray(np.ones((3, 4))))
    with pytest.raises(UsageError, match=r"--axis: expected an array in C order, got .*a.npy in Fortran order"):
        pipeline.run("reduce", tmp_path / "a.npy", axis=0)
    np.save(tmp_path / "b.npy", np.ones((3, 4)))
    with pytest.raises(UsageError, match=r"--axis: expected one array, got 2 files"):
        pipeline.run("reduce", tmp_path / "b.npy", tmp_path / "a.npy", axis=0)


COPIED: list[int] = []
combined = workflows.by_rows.combined


def noted(workflow: Any, a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """Combines rows, and notes how long the result is; of a module, so that tasks have no copy of it."""
    total = combined(workflow, a, b)
    COPIED.append(total.size)
    return total


@pytest.mark.parametrize("chunk_bytes", [None, 4000])
@pytest.mark.parametrize("gathered", [1, workflows.by_rows.OF_FILES])
def test_many_small_files(
    tmp_path: Path, chunk_bytes: int | None, gathered: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file is a block, whose rows are not copied again with every further one; or many are computed together."""
    monkeypatch.setattr(workflows.by_rows, "OF_FILES", gathered)
    if gathered == 1:
        monkeypatch.setattr("pipeline.engine.aggregate_task.FRAMES", 1)
    random = np.random.default_rng(8)
    files = [random.normal(size=size).astype(np.float32) for size in random.integers(1, 30, 512)]
    for number, samples in enumerate(files):
        samples.tofile(tmp_path / f"{number:03}.bin")
    monkeypatch.setattr(workflows.by_rows, "combined", noted)
    COPIED.clear()
    result = pipeline.run("histogram", f"{tmp_path}/*.bin", dtype="float32", by="file", verify="off", device="cpu",
                          chunk_bytes=chunk_bytes, **BINS)  # fmt: skip
    np.testing.assert_array_equal(result.counts, [np.histogram(samples, **BINS)[0] for samples in files])
    if chunk_bytes is None:  # each row as often as the number of rows can be halved
        assert len(COPIED) == (511 if gathered == 1 else 0) and sum(COPIED) < 20 * result.counts.size
