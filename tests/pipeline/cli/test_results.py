"""Saved results: shown as they were printed, added up exactly, compared, and verified against their data."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from pipeline.cli.main import cli
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


RAW = ("a.bin", "--dtype", "int16", "-q", "-o")
REQUESTS = {
    "histogram": ("histogram", *RAW),
    "auto": ("histogram", "--range", "auto", "--bins", "fd", *RAW),
    "log": ("histogram", "--range", "1", "1000", "--scale", "log", "--bins", "9", *RAW),
    "edges": ("histogram", "f.npy", "--range", "-1.5", "2.5", "--bins", "7", "--where", "x < 2", "-q", "-o"),
    "reduce": ("reduce", "f.npy", "--op", "count,sum,std,argmin,kurtosis,min", "--nan", "omit", "-q", "-o"),
    "nan": ("reduce", "f.npy", "--op", "sum,argmax,max", "-q", "-o"),
    "median": ("reduce", "f.npy", "--op", "median,sum,q0.1", "--nan", "omit", "-q", "-o"),
    "quantile": ("quantile", "f.npy", "--q", "0,0.3,1", "--method", "lower", "--nan", "omit", "-q", "-o"),
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


def test_merged_counts_are_those_of_one_run(call: Call) -> None:
    """NaN, underflow and overflow too; against NumPy, and against one run over both."""
    words = ("--range", "-1", "1", "--bins", "11", "-q")
    for name in "fg":
        assert call("histogram", f"{name}.npy", *words, "-o", f"{name}.json")[0] == 0
    assert call("histogram", "f.npy", "g.npy", *words, "-o", "both.json")[0] == 0
    status, text, err = call("merge", "f.json", "g.json", "-o", "sum.json")
    assert (status, err) == (0, "") and "merged" in text and text.count("100 % of 3,000 samples checked") == 2
    assert call("diff", "sum.json", "both.json")[0] == 0
    samples = np.concatenate([np.load("f.npy"), np.load("g.npy")]).astype(np.float64)
    document = json.loads(Path("sum.json").read_text())
    expected = [(samples < -1).sum(), *np.histogram(samples[~np.isnan(samples)], 11, (-1, 1))[0], (samples > 1).sum()]
    assert document["histogram"]["storage"]["values"] == expected
    assert document["nan"]["storage"]["values"] == np.isnan(samples).sum() > 0
    assert call("verify", "sum.json", "f.npy", "g.npy")[0] == 0
    status, _, err = call("verify", "sum.json", "f.npy")
    assert status == 3 and "the record names 2 files, and these are 1" in err


def test_merged_sums_are_rounded_once(call: Call) -> None:
    """Against fsum and fractions over both arrays, whose own rounded results do not add up to theirs."""
    words = ("--op", "sum,mean,var,skewness,min,argmin,argmax", "--nan", "omit", "-q")
    for name in "fg":
        assert call("reduce", f"{name}.npy", *words, "-o", f"{name}.json")[0] == 0
    assert call("merge", "f.json", "g.json", "-o", "sum.json", "--json")[0] == 0
    document = json.loads(Path("sum.json").read_text())
    every = np.concatenate([np.load("f.npy"), np.load("g.npy")]).astype(np.float64)
    kept = every[~np.isnan(every)]
    exact = [Fraction(float(x)) for x in kept]
    mean = sum(exact) / len(exact)
    assert document["sum"] == math.fsum(kept)
    assert document["mean"] == float(mean)
    assert document["var"] == float(sum((x - mean) ** 2 for x in exact) / len(exact))
    assert (document["argmin"], document["argmax"]) == (np.nanargmin(every), np.nanargmax(every))
    assert document["samples"] == len(every) and document["nan"] == np.isnan(every).sum()
    assert call("reduce", "f.npy", "g.npy", *words, "-o", "both.json")[0] == 0
    assert call("diff", "sum.json", "both.json")[0] == 0
    assert call("verify", "sum.json", "f.npy", "g.npy")[0] == 0
    status, _, err = call("verify", "sum.json", "g.npy", "f.npy")  # positions are those of the first order
    assert status == 3 and "argmin" in err


@pytest.mark.parametrize("words", [("--channels", "2"), ("--where", "x > 0"), ("--channels", "2", "--missing", "1")])
def test_merged_positions_count_what_was_left_out(call: Call, words: tuple[str, ...]) -> None:
    random = np.random.default_rng(1)
    for name in "xy":
        np.save(f"{name}.npy", random.integers(-3, 3, 600).astype(np.int8))
        assert call("reduce", f"{name}.npy", "--op", "argmax,sum,argmin", *words, "-q", "-o", f"{name}.json")[0] == 0
    assert call("reduce", "x.npy", "y.npy", "--op", "argmax,sum,argmin", *words, "-q", "-o", "both.json")[0] == 0
    assert call("merge", "x.json", "y.json", "-o", "sum.json")[0] == 0
    assert call("diff", "sum.json", "both.json") == (0, "sum.json and both.json are equal\n", "")


def test_merge_of_merged_results_and_of_another_order(call: Call) -> None:
    for name in ("a", "b"):
        assert call("histogram", f"{name}.bin", "--dtype", "int16", "-q", "-o", f"{name}.json")[0] == 0
    np.fromfile("a.bin", "<i2")[::-1].tofile("c.bin")
    assert call("histogram", "c.bin", "--dtype", "int16", "-q", "-o", "c.json")[0] == 0
    assert call("merge", "a.json", "b.json", "-o", "ab.json")[0] == 0
    assert call("merge", "c.json", "ab.json", "-o", "one.json")[0] == 0
    assert call("merge", "b.json", "c.json", "a.json", "-o", "other.json")[0] == 0
    assert call("diff", "one.json", "other.json")[0] == 0
    assert call("show", "one.json")[1].startswith("histogram of 3 files (int16)\n─")
    assert call("verify", "one.json", "a.bin", "b.bin", "c.bin")[0] == 0
    status, _, err = call("merge", "ab.json", "b.json", "-o", "twice.json")
    assert status == 2 and "both counted" in err and "b.bin" in err and not os.path.exists("twice.json")


REFUSED = [
    (("histogram", "--bins", "8"), ("histogram", "--bins", "9"), "different axes, 8 bins over [0, 1024] and 9 bins"),
    (("histogram",), ("reduce",), "histogram and reduce"),
    (("reduce", "--op", "sum"), ("reduce", "--op", "mean"), "--op sum and mean"),
    (("reduce", "--ddof", "1"), ("reduce",), "--ddof 1 and 0"),
    (("histogram", "--where", "x > 1"), ("histogram",), "--where x > 1 and None"),
    (("reduce", "--gain", "2"), ("reduce", "--gain", "3"), "--gain 2.0 and 3.0"),
    (("histogram",), ("histogram", "--dtype", "uint16"), "samples of int16 and of uint16"),
    (("reduce", "--op", "median"), ("reduce", "--op", "median"), "without the exact partial"),
    (("quantile",), ("quantile",), "quantiles and digests, which cannot be added up"),
    (("digest",), ("digest",), "quantiles and digests, which cannot be added up"),
    (("reduce", "--segment", "50"), ("reduce", "--segment", "50"), "rows that are a segment each"),
    (("reduce", "--channels", "1"), ("reduce", "--channels", "7001"), "and 7001 channels"),
]  # fmt: skip


@pytest.mark.parametrize(("first", "second", "why"), REFUSED)
def test_what_cannot_be_added_up(call: Call, first: tuple[str, ...], second: tuple[str, ...], why: str) -> None:
    for name, words in (("a", first), ("b", second)):
        dtype = () if "--dtype" in words else ("--dtype", "int16")
        assert call(words[0], f"{name}.bin", *dtype, *words[1:], "-q", "-o", f"{name}.json")[0] == 0
    status, out, err = call("merge", "a.json", "b.json", "-o", "sum.json")
    assert (status, out, err.count("\n")) == (2, "", 1) and why in err
    assert not os.path.exists("sum.json")


def test_the_same_bytes_by_any_name(call: Call) -> None:
    """Links, parts of a file that overlap or do not, and slices of one name."""
    os.link("a.bin", "hard.bin")
    os.symlink("a.bin", "soft.bin")
    requests = {"a": ("a.bin",), "hard": ("hard.bin",), "soft": ("soft.bin",), "late": ("a.bin", "--offset", "4000"),
                "early": ("a.bin[0:2000]",), "rest": ("a.bin[2000:]",), "strided": ("f.npy[::2]",)}  # fmt: skip
    for name, words in requests.items():
        dtype = () if name == "strided" else ("--dtype", "int16")
        assert call("histogram", *words, *dtype, "-q", "-o", f"{name}.json")[0] == 0
    for one, other in (("a", "hard"), ("a", "soft"), ("a", "late"), ("late", "rest"), ("strided", "strided")):
        status, _, err = call("merge", f"{one}.json", f"{other}.json", "-o", "sum.json")
        assert status == 2 and "would count twice" in err
    for one, other in (("early", "rest"), ("early", "late")):
        assert call("merge", f"{one}.json", f"{other}.json", "-o", "sum.json")[0] == 0
        assert call("diff", "sum.json", "a.json")[0] == 0


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


def test_wrong_usage(call: Call) -> None:
    assert call("histogram", *RAW[:-1], "--json", "-o", "r.json")[0] == 0
    Path("printed.json").write_text(call("histogram", *RAW[:-1], "--json")[1])
    for words, message in (
        (("show", "printed.json"), "got what --json prints"), (("show", "r.csv"), "hold the numbers alone"),
        (("merge", "r.json", "-o", "s.json"), "expected two results or more"),
        (("merge", "r.json", "r.json", "-o", "r.json"), "would count twice"),
        (("show", "r.json", "-o", "r.json"), "expected different files"),
        (("show", "r.json", "-o", "r.txt"), "expected an output ending in"),
        (("verify", "r.json"), "Missing argument"), (("verify", "r.json", "gone.bin"), "found none there"),
    ):  # fmt: skip
        status, out, err = call(*words)
        assert (status, out) == (2, "") and message in err
