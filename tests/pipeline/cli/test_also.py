"""Several jobs in one command: each prints and writes the same as alone."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import dask.config
import numpy as np
import pytest

from pipeline.cli.jobs import parse_also
from pipeline.cli.main import main

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Call]:
    """Runs the command line in a folder that has data.bin: (exit status, stdout, stderr)."""
    np.random.default_rng(0).integers(0, 1024, 5000).astype("<i4").tofile(tmp_path / "data.bin")
    monkeypatch.chdir(tmp_path)
    handler = signal.getsignal(signal.SIGTERM)

    def run(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            main([*words])
        return int(caught.value.code or 0), *capsys.readouterr()

    yield run
    signal.signal(signal.SIGTERM, handler)


def without_times(text: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(text)
    document["verification"].pop("seed")
    document.pop("performance")
    document["environment"].pop("cpu kernels")  # of all jobs of a pass, and of a survey before it
    return document


def test_json_has_a_line_for_each(call: Call) -> None:
    status, out, err = call("histogram", "data.bin", "--bins", "8", "--also", "reduce --op sum,std", "--also",
                            "histogram --range auto --bins=3", "--json")  # fmt: skip
    assert (status, err) == (0, "")
    jobs = ("histogram data.bin --bins 8", "reduce data.bin --op sum,std", "histogram data.bin --range auto --bins=3")
    alone = [call(*words.split(), "--json")[1] for words in jobs]
    assert [without_times(line) for line in out.splitlines()] == [without_times(text) for text in alone]


def test_panels_follow_one_another(call: Call) -> None:
    status, out, err = call("reduce", "data.bin", "--also", "histogram")
    assert (status, err) == (0, "")
    first, second = out.split("\n\nhistogram of ")
    assert first.startswith("reduce of data.bin (int32)\n─") and "verdict" in first
    assert second.startswith("data.bin (int32)\n─") and "verdict" in second


def test_each_writes_its_own_file(call: Call, tmp_path: Path) -> None:
    status, _, _ = call("histogram", "data.bin", "-o", "counts.npz", "--also", "reduce --op sum -o 'the sums.json'")
    assert status == 0
    samples = np.fromfile("data.bin", "<i4")
    assert np.load("counts.npz")["counts"].sum() == len(samples)
    assert json.loads(Path("the sums.json").read_text())["sum"] == samples.sum()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--also", ""], "--also: expected a job and its options, got ''"),
        (["--also", "reduce '"], '--also: expected a job and its options, got "reduce \'"'),
        (["--also", "mean"], "--also: expected a job, one of histogram, reduce, quantile, digest, got 'mean'"),
        (
            ["--also", "transpose -o a.npy"],
            "--also: expected a job, one of histogram, reduce, quantile, digest, got 'transpose'",
        ),
        (["--also", "reduce --op average"], "--also reduce: --op: expected "),
        (["--also", "reduce --bins 5"], "--also reduce: expected an option of reduce, got"),
        (["--also", "reduce other.bin"], "--also reduce: expected no files, got 'other.bin'"),
        (["--also", "reduce --verify off"], "--also reduce: expected an option of reduce, got"),
        (["--also", "histogram --bins 0"], "--also histogram: --bins: expected 1 to 1048576, got 0"),
        (["--also", "reduce -o a.txt"], "error: --also reduce: a.txt: expected an output ending in .json"),
        (["--also", "reduce -o data.bin/a.json"], "error: --also reduce: data.bin/a.json: expected an existing folder"),
        (["-o", "a.txt", "--also", "reduce"], "error: a.txt: expected an output ending in .json"),
        (
            ["-o", "a.json", "--also", "reduce -o a.json"],
            "reduce: -o a.json: expected different files, got",
        ),
    ],
)
def test_what_cannot_be_is_told_before_anything_is_read(call: Call, words: list[str], message: str) -> None:
    before = sorted(Path().iterdir())
    status, out, err = call("histogram", "data.bin", *words)
    assert (status, out) == (2, "")
    assert err.startswith("error: ") and err.count("\n") == 1 and message in err
    assert sorted(Path().iterdir()) == before


def test_jobs_that_write_arrays_take_no_others(call: Call) -> None:
    status, _, err = call("transpose", "data.bin", "-o", "a.npy", "--also", "reduce")
    assert status == 2 and "--also" in err


def test_configured() -> None:
    with dask.config.set({"pipeline.bins": 7}):
        assert parse_also("histogram").job.options.bins == 7
        assert parse_also("histogram --bins 9").job.options.bins == 9
    with dask.config.set({"pipeline.bins": "many"}), pytest.raises(click.UsageError, match="configuration"):
        parse_also("histogram")


def test_configured_jobs(call: Call) -> None:
    for configured in ("reduce --op sum", ["reduce --op sum"]):
        with dask.config.set({"pipeline.also": configured}):
            assert call("histogram", "data.bin", "--json")[1].count("\n") == 2
