"""Errors on the command line: one line on stderr, the documented exit status, nothing written."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.cli import jobs
from pipeline.cli.jobs import job_command
from pipeline.cli.main import cli, main
from pipeline.engine.aggregate import run_all
from pipeline.gpu.devices import Devices
from workflows.aggregation import Aggregation
from workflows.histogram import FINITE_RANGE, HISTOGRAM

Failed = Callable[..., tuple[int, str]]


@pytest.fixture
def failed(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Failed]:
    """Runs a command that must fail in a folder that must stay as it is: (exit status, the line without `error: `)."""
    handler = signal.getsignal(signal.SIGTERM)
    monkeypatch.chdir(tmp_path)

    def call(*words: object) -> tuple[int, str]:
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(SystemExit) as caught:
            main([str(word) for word in words])
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("error: ")
        assert err.count("\n") == 1
        assert sorted(tmp_path.rglob("*")) == before
        return int(caught.value.code or 0), err.removeprefix("error: ").rstrip("\n")

    yield call
    signal.signal(signal.SIGTERM, handler)


@pytest.fixture
def files(tmp_path: Path) -> None:
    """Good and bad files, by relative names."""
    np.arange(100, dtype="<i4").tofile(tmp_path / "data.bin")
    np.full(3, np.nan, "<f4").tofile(tmp_path / "nan.bin")
    (tmp_path / "empty.bin").touch()
    (tmp_path / "odd.bin").write_bytes(bytes(10))
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    np.save(tmp_path / "object.npy", np.array([1, "x"], object), allow_pickle=True)
    np.save(tmp_path / "good.npy", np.arange(50, dtype="<u2"))
    content = (tmp_path / "good.npy").read_bytes()
    (tmp_path / "cut.npy").write_bytes(content[:-2])
    (tmp_path / "lying.npy").write_bytes(content.replace(b"(50,), }       ", b"(549755813888,)"[:12] + b"}  "))
    (tmp_path / "many.txt").write_text("0 " * (2**20 + 2))
    for name, text in (("down.txt", "1 2 1.5"), ("same.txt", "1\n1\n"), ("one.txt", "1"), ("nan.txt", "1 nan 2"),
                       ("words.txt", "1 two 3"), ("inf.txt", "0 inf"), ("none.txt", "")):  # fmt: skip
        (tmp_path / name).write_text(text)


BAD = [
    # (arguments, status, text of the line)
    ("missing.bin", 2, "/missing.bin: expected a file of samples, found none there"),
    ("empty.bin", 2, "/empty.bin: expected samples, got an empty file, as a failed recording or copy leaves it; leave"),
    ("folder", 2, "/folder: expected a file of samples, got a directory"),
    ("fifo", 2, "/fifo: expected a file of samples, got no regular file"),
    ("run-*.bin", 2, "run-*.bin: expected at least one file to match, got none"),
    ("odd.bin", 2, "/odd.bin: expected a multiple of 4 bytes for int32, got 10"),
    ("data.bin odd.bin", 2, "/odd.bin: expected a multiple of 4 bytes"),
    ("data.bin good.npy", 2, "/good.npy: expected int32 as in"),
    ("object.npy", 2, "Python objects, which are never unpickled"),
    ("cut.npy", 2, "/cut.npy: expected 100 bytes of data for shape (50,) of uint16, got 98"),
    ("lying.npy", 2, "/lying.npy: expected "),
    ("good.npy --dtype int32", 2, "expected int32 as --dtype says"),
    ("good.npy --byteorder big", 2, "expected big endian as --byteorder says"),
    ("good.npy --offset 2", 2, "--offset is for raw files"),
    ("data.bin --offset 400", 2, "expected samples after --offset 400"),
    ("data.bin --offset -4", 2, "--offset: expected bytes to skip, 0 or more, got -4"),
    ("data.bin --dtype int33", 2, "--dtype: expected one of int8, "),
    ("data.bin --byteorder middle", 2, "--byteorder: expected one of little, big, got 'middle'"),
    ("data.bin --bins 0", 2, "--bins: expected 1 to 1048576, got 0"),
    ("data.bin --bins -5", 2, "--bins: expected 1 to 1048576, got -5"),
    ("data.bin --bins 1048577", 2, "--bins: expected 1 to 1048576, got 1048577"),
    (
        "data.bin --bins 1e3",
        2,
        "or one of auto, fd, doane, scott, rice, sturges, sqrt, got '1e3'",
    ),
    ("data.bin --range 5 1", 2, "--range: expected LO below HI, got 5.0 1.0"),
    ("data.bin --range 5 5", 2, "--range: expected LO below HI, got 5.0 5.0"),
    ("data.bin --range nan 5", 2, "--range: expected two finite numbers, got nan 5.0"),
    ("data.bin --range 0 inf", 2, "--range: expected two finite numbers, got 0.0 inf"),
    ("data.bin --range 0 x", 2, "expected two numbers LO HI, or auto, got 'x'"),
    ("data.bin --range 0 auto", 2, "--range: expected LO HI, or auto alone, got 0.0 auto"),
    ("data.bin --range 0", 2, "expected two numbers LO HI, or auto, got '-o'"),
    ("data.bin --range 0,1000", 2, "--range: expected LO HI, got '0,1000'; write --range 0 1000"),
    ("data.bin --range=0,1000", 2, "--range: expected LO HI, got '0,1000'; write --range 0 1000"),
    ("data.bin --range 0 1,000", 2, "expected two numbers LO HI, or auto, got '1,000'"),
    ("data.bin --range 1 1.0000000000000002", 2, "1024 bins over"),
    ("nan.bin --dtype float32 --range auto", 2, "--range auto: expected at least one finite sample, got none"),
    ("data.bin --edges down.txt", 2, "--edges: expected strictly ascending numbers, got 2.0 before 1.5 at positions 1"),
    ("data.bin --edges same.txt", 2, "--edges: expected strictly ascending numbers, got 1.0 before 1.0"),
    ("data.bin --edges one.txt", 2, "--edges: expected 2 to 1048577 numbers, got 1"),
    ("data.bin --edges none.txt", 2, "--edges: expected 2 to 1048577 numbers, got 0"),
    ("data.bin --edges many.txt", 2, "--edges: expected 2 to 1048577 numbers, got 1048578"),
    ("data.bin --edges nan.txt", 2, "--edges: expected finite numbers, got NaN or infinity"),
    ("data.bin --edges inf.txt", 2, "--edges: expected finite numbers, got NaN or infinity"),
    ("data.bin --edges words.txt", 2, "words.txt: expected a file of numbers, one a line, got "),
    ("data.bin --edges missing.txt", 2, "missing.txt: expected a file of numbers, one a line, got 'No such file"),
    ("data.bin --trace=", 2, ": expected a file name for the output, got an empty one"),
    ("data.bin --edges folder", 2, "folder: expected a file of numbers, one a line, got 'Is a directory'"),
    ("data.bin -o folder/no/result.json", 2, "expected an existing folder for the output, found none at "),
    (
        "data.bin -o result.txt",
        2,
        "result.txt: expected an output ending in .json, .npz, .csv, ",
    ),
    ("good.npy -o good.npy", 2, "good.npy: expected an output ending in "),
    ("data.bin --chunk-size 1", 2, "--chunk-size: expected at least one sample of 4 bytes, got 1"),
    ("data.bin --chunk-size much", 2, "expected a size like 64MiB, got 'much'"),
    ("data.bin --chunk-size 1e999", 2, "expected a size like 64MiB, got '1e999'"),
    ("data.bin --verify maybe", 2, "--verify: expected one of auto, full, sample, off, got 'maybe'"),
    ("data.bin --device gpu", 2, "--device gpu: expected a GPU, but no NVIDIA driver is loaded"),
    ("data.bin --scheduler tcp://127.0.0.1:1", 1, "scheduler tcp://127.0.0.1:1: expected an answer within 1 s"),
    ("data.bin --scheduler-file none.json", 2, "--scheduler-file none.json: expected the file that a scheduler wrote"),
    ("data.bin --scheduler a --scheduler-file b", 2, "expected --scheduler or --scheduler-file, got both"),
    ("data.bin --op sum", 2, "got '--op', an option of reduce; python -m pipeline histogram --help lists those of"),
    ("data.bin --range [0,9]", 2, "--range: expected LO HI, got '[0,9]'; write --range 0 9"),
    ("data.bin --bin 5", 2, "expected an option of histogram, got '--bin'; did you mean '--bins'?"),
    ("data.bin --zzz", 2, "option of histogram, got '--zzz'; python -m pipeline histogram --help lists"),
    ("data.bin --verify ful", 2, "--verify: expected one of auto, full, sample, off, got 'ful'; did you mean 'full'?"),
    ("data.bin --json=yes", 2, "--json: expected no value, got one"),
    ("data.bin --gain much", 2, "--gain: expected a number, got 'much'"),
    ("data.bin --offset x", 2, "--offset: expected an integer"),
    ("", 2, "expected FILES, got none; for example: python -m pipeline histogram data.bin --bins 256"),
]


@pytest.mark.parametrize(("words", "status", "expected"), BAD, ids=[words or "nothing" for words, _, _ in BAD])
def test_bad_input(
    failed: Failed, files: None, monkeypatch: pytest.MonkeyPatch, words: str, status: int, expected: str
) -> None:
    monkeypatch.setattr("pipeline.cluster.existing.ANSWER_SECONDS", 1)
    monkeypatch.setattr(
        "pipeline.cluster.placement.find_devices", lambda: Devices((), None, None, "no NVIDIA driver is loaded")
    )
    output = [] if " -o " in words else ["-o", "result.json"]
    got = failed("histogram", *words.split(), *output)
    assert got[0] == status
    assert expected in got[1]


@pytest.mark.parametrize(
    ("words", "status", "expected"),
    [
        ("data.bin --samples 0", 2, "samples: expected 1 or more, got 0"),
        ("data.bin --dtype int33", 2, "dtype: expected one of "),
        ("data.bin --distribution flat", 2, "distribution: expected one of "),
        ("data.bin --seed -1", 2, "seed: expected 0 to 2**64 - 1, got -1"),
        ("no/data.bin", 2, "no/data.bin: expected an existing folder for the output, found none at "),
        (".", 2, ".: expected a file name for the output, got a directory"),
        ("", 2, "expected FILE, got none"),
        ("data.bin other.bin", 2, "expected only FILE, got 'other.bin' after it"),
    ],
)
def test_bad_generate(failed: Failed, words: str, status: int, expected: str) -> None:
    got = failed("generate", *words.split())
    assert got[0] == status
    assert expected in got[1]


def test_unknown_command(failed: Failed) -> None:
    assert failed("historgam", "data.bin")[0] == 2


def test_output_is_an_input(failed: Failed, files: None, tmp_path: Path) -> None:
    (tmp_path / "data.json").hardlink_to(tmp_path / "data.bin")
    before = (tmp_path / "data.bin").read_bytes()
    status, line = failed("histogram", "data.bin", "-o", "data.json")
    assert (status, line) == (2, "data.json: the output is one of the inputs; choose another name")
    assert (tmp_path / "data.bin").read_bytes() == before


def test_file_without_permission(failed: Failed, files: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pipeline.storage.files.open_to_read", denied)
    status, line = failed("histogram", "data.bin", "-o", "result.json")
    assert status == 1
    assert "data.bin: expected a readable file, got 'Permission denied'" in line


def test_file_changes_after_it_was_planned(
    failed: Failed, files: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "data.bin"
    for size, change in ((396, "shrank"), (400, "grew")):

        def late(*arguments: Any, size: int = size, **keywords: Any) -> Any:
            os.truncate(path, size)
            return run_all(*arguments, **keywords)

        monkeypatch.setattr(jobs, "run_all", late)
        status, line = failed("histogram", "data.bin", "-o", "result.json")
        assert status == 1
        assert f"{path}: {change} while it was read: expected " in line


def test_interrupted(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    np.arange(4, dtype="<i4").tofile(tmp_path / "data.bin")
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(jobs, "run_all", stopped)
    with pytest.raises(SystemExit) as caught:
        main(["histogram", str(tmp_path / "data.bin"), "-o", str(tmp_path / "result.json")])
    assert caught.value.code == 130
    out, err = capsys.readouterr()
    assert (out, err.lstrip()) == ("", "interrupted: nothing was written\n")  # after click's end of the line with ^C
    assert [path.name for path in tmp_path.iterdir()] == ["data.bin"]


def plant(monkeypatch: pytest.MonkeyPatch, workflow: Aggregation[Any]) -> None:
    """Replace the histogram command by one that computes something else."""
    monkeypatch.setitem(cli.commands, "histogram", job_command(workflow))


def moves_one(block: Any, options: Any) -> Any:
    """One sample 50 is counted in the neighbouring bin."""
    slots = HISTOGRAM.compute(block, options)
    if slots[51]:
        slots[51] -= 1
        slots[52] += 1
    return slots


def loses_one(block: Any, options: Any) -> Any:
    """One sample 50 is not counted."""
    slots = HISTOGRAM.compute(block, options)
    slots[51] = 0
    return slots


def test_mismatch(failed: Failed, files: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names chunk, byte range, worker and bins with both values; the old output stays."""
    (tmp_path / "result.json").write_text("old")
    plant(monkeypatch, dataclasses.replace(HISTOGRAM, compute=moves_one))
    status, line = failed("histogram", "data.bin", "-c", 160, "-o", "result.json", "--json")
    assert status == 3
    assert f"a number is wrong in chunk 1 ({tmp_path / 'data.bin'} bytes 160-319) on worker inproc://" in line
    assert "bin 50 [50, 51): expected 1, got 0; bin 51 [51, 52): expected 1, got 2; nothing was written" in line
    assert (tmp_path / "result.json").read_text() == "old"


@pytest.mark.parametrize("verify", ["full", "sample", "off"])
def test_broken_invariant(failed: Failed, files: None, monkeypatch: pytest.MonkeyPatch, verify: str) -> None:
    plant(monkeypatch, dataclasses.replace(HISTOGRAM, compute=loses_one))
    status, line = failed("histogram", "data.bin", "--verify", verify, "-o", "result.json")
    assert status == 3
    assert "every sample is counted once: expected 100 in all, got 99" in line


def test_wrong_range(failed: Failed, files: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pass that finds the range is verified too."""
    survey = HISTOGRAM.survey
    assert survey
    lying = dataclasses.replace(FINITE_RANGE, compute=lambda block, options: FINITE_RANGE.compute(block, options) + 1)
    plant(monkeypatch, dataclasses.replace(HISTOGRAM, survey=dataclasses.replace(survey, workflow=lying)))
    status, line = failed("histogram", "data.bin", "--bins", "5", "--range", "auto", "-o", "result.json")
    assert status == 3
    assert "minimum: expected 0.0, got 1.0; maximum: expected 99.0, got 100.0" in line


def test_mismatch_of_a_process(files: None, tmp_path: Path) -> None:
    """In a real process: Dask's own log of the failure is not on stderr."""
    program = """if True:
        import dataclasses
        from pipeline.cli.jobs import job_command
        from pipeline.cli.main import cli, main
        from workflows.histogram import HISTOGRAM
        lying = dataclasses.replace(HISTOGRAM, compute=lambda block, options: HISTOGRAM.compute(block, options)[::-1])
        cli.commands["histogram"] = job_command(lying)
        main(["histogram", "data.bin", "-o", "result.json"])
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1)
    assert done.stderr.startswith("error: histogram: a number is wrong in chunk 0 (")
    assert not (tmp_path / "result.json").exists()
