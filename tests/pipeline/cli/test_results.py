"""Saved results: shown as they were printed, added up exactly, compared, and verified against their data."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from pipeline.cli.main import cli
from tests.project.test_documents import ROOT
from workflows.saved import fingerprint, loaded

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Runs the command line in a folder with a.bin and b.bin of int16, and f.npy and g.npy of float32."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(5)
    for name, number in (("a", 5000), ("b", 7001)):
        random.integers(-50, 1100, number).astype("<i2").tofile(f"{name}.bin")
    for name in "fg":
        samples = (random.standard_normal(3000) * 10.0 ** random.integers(-30, 30, 3000)).astype(np.float32)
        samples[random.integers(0, 3000, 40)] = np.nan
        np.save(f"{name}.npy", samples)

    def run(*words: str) -> tuple[int, str, str]:
        done = CliRunner().invoke(cli, words)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done.exit_code, done.stdout, done.stderr

    return run


RAW = ("a.bin", "--dtype", "int16", "-o")
REQUESTS = {
    "histogram": ("histogram", *RAW),
    "auto": ("histogram", "--range", "auto", "--bins", "fd", *RAW),
    "log": ("histogram", "--range", "1", "1000", "--scale", "log", "--bins", "9", *RAW),
    "edges": ("histogram", "f.npy", "--range", "-1.5", "2.5", "--bins", "7", "--where", "x < 2", "-o"),
    "reduce": ("reduce", "f.npy", "--op", "count,sum,std,argmin,kurtosis,min", "--nan", "omit", "-o"),
    "nan": ("reduce", "f.npy", "--op", "sum,argmax,max", "-o"),
    "median": ("reduce", "f.npy", "--op", "median,sum,q0.1", "--nan", "omit", "-o"),
    "quantile": ("quantile", "f.npy", "--q", "0,0.3,1", "--method", "lower", "--nan", "omit", "-o"),
    "digest": ("digest", *RAW),
    "with digest": ("histogram", "--with-digest", *RAW),
    "calibrated": ("reduce", "--gain", "0.5", "--bias", "-2", "--transform", "abs", "--op", "sum,max", *RAW),
    "selected": ("reduce", "--where", "x > 5", "--missing", "7", "--op", "sum,argmin", *RAW),
    "rows": ("reduce", "--channels", "4", "--op", "sum,argmax", *RAW),
    "segments": ("histogram", "--segment", "1000", "--bins", "5", "--where", "x != 3", *RAW),
    "files": ("histogram", "b.bin", "--by", "file", *RAW),
}  # fmt: skip


@pytest.mark.parametrize("name", REQUESTS)
def test_shown_as_printed_and_verified(call: Call, name: str) -> None:
    """The panel, character by character; and the numbers again from the data."""
    status, printed, _ = call(*REQUESTS[name], "r.json")
    assert (status, "verdict" in printed) == (0, True)
    assert call("show", "r.json") == (0, printed, "")
    status, text, err = call("verify", "r.json", *(word for word in REQUESTS[name] if word.endswith((".bin", ".npy"))))
    assert (status, err) == (0, "") and text.startswith("r.json: verified")
    assert ("BLAKE3" in text) == (name == "with digest")
    assert call("diff", "r.json", "r.json") == (0, "r.json and r.json are equal\n", "")


@pytest.mark.parametrize("suffix", [".zip", ".h5"])
@pytest.mark.parametrize("name", ["histogram", "log", "segments", "files"])
def test_other_formats_hold_the_same(call: Call, name: str, suffix: str) -> None:
    assert call(*REQUESTS[name], "r.json")[0] == 0
    status, printed, _ = call("show", "r.json", "-o", f"r{suffix}")
    assert (status, call("show", f"r{suffix}")[1], call("diff", f"r{suffix}", "r.json")[0]) == (0, printed, 0)
    assert call("verify", f"r{suffix}", *(word for word in REQUESTS[name] if word.endswith(".bin")))[0] == 0


def test_formats_without_records_make_none(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record has a fingerprint of all numbers and exact sums, which takes longer than the rest for many rows."""
    made: list[Any] = []
    monkeypatch.setattr("pipeline.cli.outputs.record_of", made.append)
    for suffix in (".npz", ".csv"):
        assert call(*REQUESTS["rows"], f"r{suffix}")[0] == 0 and not made
    assert call(*REQUESTS["rows"], "r.json")[0] == 0 and len(made) == 1


def test_diff_says_where(call: Call) -> None:
    for name in ("a", "b"):
        assert call("histogram", f"{name}.bin", "--dtype", "int16", "--bins", "4", "-q", "-o", f"{name}.json")[0] == 0
        assert call("reduce", f"{name}.bin", "--dtype", "int16", "--op", "max", "-q", "-o", f"{name}-r.json")[0] == 0
    counts = [np.histogram(np.fromfile(f"{name}.bin", "<i2"), 4, (0, 1024))[0] for name in "ab"]
    status, out, _ = call("diff", "a.json", "b.json")
    assert status == 1 and f"counts[3], bin [768, 1024]: {counts[0][3]} and {counts[1][3]}" in out
    status, out, _ = call("diff", "a.json", "b.json", "--json")
    assert status == 1 and json.loads(out)["equal"] is False
    assert call("diff", "a.json", "a-r.json")[:2] == (
        1,
        "a.json and a-r.json differ\n  jobs differ: histogram and reduce\n",
    )
    assert call("diff", "a.json", "gone.json")[0] == 2
    assert call("diff", "a.json")[0] == 2


def edited(path: str, change: Callable[[Any], None], resealed: bool) -> None:
    """Change the document of a histogram; `resealed`: as if it had been written so."""
    document = json.loads(Path(path).read_text())
    change(document["histogram"])
    about = document["histogram"]["writer_info"]["baru"]
    if resealed:
        record = json.loads(about["run"])
        about["run"] = json.dumps(record | {"numbers": fingerprint(loaded(document, {}))})
    Path(path).write_text(json.dumps(document))


def test_verify_finds_one_wrong_count_and_changed_data(call: Call) -> None:
    assert call("histogram", *RAW[:-1], "-o", "r.json")[0] == 0
    shutil.copy("r.json", "kept.json")

    def more(histogram: Any) -> None:
        histogram["storage"]["values"][8] += 1

    edited("r.json", more, resealed=False)
    status, _, err = call("verify", "r.json", "a.bin")
    assert status == 2 and "its numbers are not those that this record was written with" in err
    assert "another program has changed them" in call("show", "r.json")[1]
    shutil.copy("kept.json", "r.json")
    edited("r.json", more, resealed=True)
    status, out, err = call("verify", "r.json", "a.bin")
    assert (status, out) == (3, "") and "counts[7], bin [7, 8)" in err and "the sizes and times" in err
    np.save("a.npy", np.fromfile("a.bin", "<i2"))
    assert call("histogram", "a.npy[:50]", "-o", "part.json")[0] == 0
    status, _, err = call("verify", "part.json", "a.npy")
    assert status == 3 and "a.npy is given, where the record names " in err and "a.npy[:50]" in err
    samples = np.fromfile("a.bin", "<i2")
    samples[17] = 99 if samples[17] != 99 else 98
    samples.tofile("a.bin")
    status, _, err = call("verify", "kept.json", "a.bin")
    assert status == 3 and "a.bin was written to since, or is a copy" in err


def test_what_uhi_adds_up_has_no_record(call: Call) -> None:
    import uhi.__main__

    for name in ("a", "b"):
        assert call("histogram", f"{name}.bin", "--dtype", "int16", "-q", "-o", f"{name}.json")[0] == 0
    uhi.__main__.main(["add", "sum.json", "a.json", "b.json"])
    assert call("merge", "a.json", "b.json", "-o", "ours.json")[0] == 0
    assert call("diff", "sum.json", "ours.json")[0] == 0
    for words in (("verify", "sum.json", "a.bin"), ("merge", "sum.json", "b.json", "-o", "c.json")):
        status, _, err = call(*words)
        assert status == 2 and "added others" in err


def test_configuration_of_now_is_not_that_of_then(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    import dask.config

    with dask.config.set({"pipeline.bins": 7}):
        assert call("histogram", *RAW[:-1], "-o", "seven.json")[0] == 0
    assert call("verify", "seven.json", "a.bin")[0] == 0
    assert call("histogram", *RAW[:-1], "-o", "usual.json")[0] == 0
    with dask.config.set({"pipeline.bins": 9, "pipeline.dtype": "uint8"}):
        assert call("verify", "usual.json", "a.bin")[0] == 0


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"histogram": 5}', '{"sum": 1}', "nonsense", '{"baru": {}}',
                                     '{"histogram": {"axes": [], "storage": {"values": 1}}, "nan": {}}'])  # fmt: skip
def test_other_files_are_refused_in_one_line(call: Call, content: str) -> None:
    Path("x.json").write_text(content)
    for words in (("show", "x.json"), ("verify", "x.json", "a.bin"), ("merge", "x.json", "x.json", "-o", "y.json")):
        status, out, err = call(*words)
        assert (status, out, err.count("\n")) == (2, "", 1) and err.startswith("error: x.json: expected a result")
    for suffix in ("zip", "h5"):
        Path(f"x.{suffix}").write_text(content)
        status, _, err = call("show", f"x.{suffix}")
        assert status in (1, 2) and err.startswith(f"error: x.{suffix}: expected a") and err.count("\n") == 1


def test_samples_that_came_from_standard_input(call: Call) -> None:
    """Of which nothing tells whether they are those of a file."""
    content = Path("a.bin").read_bytes()
    words = ("--dtype", "int16", "-o", "r.json")
    written = subprocess.run([sys.executable, "-m", "pipeline", "histogram", "-", *words], input=content, check=True,
                             capture_output=True, env=os.environ | {"PYTHONPATH": str(ROOT)})  # fmt: skip
    assert call("show", "r.json")[1].encode() == written.stdout
    status, out, _ = call("verify", "r.json", "a.bin")
    assert status == 0 and "the record names no files" in out
    assert call("histogram", "a.bin", *words[:-1], "file.json")[0] == 0
    assert call("merge", "r.json", "file.json", "-o", "sum.json")[0] == 0


def test_nothing_is_a_result_too(call: Call) -> None:
    for name, samples in (("none", []), ("one", [1.5])):
        np.save(f"{name}.npy", np.array(samples, np.float32))
        assert call("reduce", f"{name}.npy", "--op", "sum,argmin,mean", "-q", "-o", f"{name}.json")[0] == 0
    assert call("verify", "none.json", "none.npy")[0] == 0
    for order in (("none.json", "one.json"), ("one.json", "none.json")):
        assert call("merge", *order, "-o", "sum.json")[0] == 0
        assert call("diff", "sum.json", "one.json") == (0, "sum.json and one.json are equal\n", "")


def test_wrong_usage(call: Call) -> None:
    assert call("histogram", *RAW[:-1], "--json", "-o", "r.json")[0] == 0
    Path("printed.json").write_text(call("histogram", *RAW[:-1], "--json")[1])
    for words, message in (
        (("show", "printed.json"), "got what --json prints"), (("show", "r.csv"), "other formats have no record"),
        (("merge", "r.json", "-o", "s.json"), "expected two results or more"),
        (("merge", "r.json", "r.json", "-o", "r.json"), "would count twice"),
        (("show", "r.json", "-o", "r.json"), "expected different files"),
        (("show", "r.json", "-o", "r.txt"), "expected an output ending in"),
        (("verify", "r.json"), "expected FILES, got none"), (("verify", "r.json", "gone.bin"), "found none there"),
    ):  # fmt: skip
        status, out, err = call(*words)
        assert (status, out) == (2, "") and message in err
