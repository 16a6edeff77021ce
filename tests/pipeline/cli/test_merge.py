"""Saved results added up: the numbers of one run over all files, and what is refused."""

from __future__ import annotations

import json
import math
import os
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from tests.pipeline.cli.test_results import Call, call

__all__ = ["call"]  # a fixture


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
    assert status == 3 and "inputs: 2 in the record, 1 given" in err


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
    merged, whole = ({k: v for k, v in json.loads(Path(f"{name}.json").read_text()).items() if k != "baru"}
                     for name in ("sum", "both"))  # fmt: skip
    assert merged == whole


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
    assert status == 2 and "both include" in err and "b.bin" in err and not os.path.exists("twice.json")


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
