"""`--axis` of an array that has one axis, or none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import pipeline
from pipeline.cli.main import cli
from pipeline.errors import UsageError


def test_the_only_axis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left without it: numbers without axes, as in NumPy, also in files and what reads them."""
    monkeypatch.chdir(tmp_path)
    array = np.arange(50) * 3 % 7
    np.save("a.npy", array)
    for given in ("a.npy", array):
        sums = pipeline.run("reduce", given, op="sum,argmax", axis=0).arrays()
        assert (sums["sum"].shape, sums["sum"], sums["argmax"]) == ((), array.sum(0), array.argmax(0))
        assert pipeline.run("quantile", given, q=[0.1, 0.5], axis=0).arrays()["values"].shape == (2,)
        assert pipeline.run("digest", given, axis=0).arrays()["blake3"].shape == ()
        counted = pipeline.run("histogram", given, bins=3, range=(0, 7), axis=0)
        np.testing.assert_array_equal(counted.counts, np.histogram(array, 3, (0, 7))[0])
    for suffix in ("json", "npz"):
        words = ["histogram", "a.npy", "--axis", "0", "--bins", "3", "--range", "0", "7", "-o", f"h.{suffix}"]
        assert CliRunner().invoke(cli, words).exit_code == 0
    with np.load("h.npz") as stored:
        np.testing.assert_array_equal(stored["counts"], counted.counts)
    assert CliRunner().invoke(cli, ["show", "h.json"]).exit_code == 0


def test_a_number_has_no_axes(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.float32(3))
    with pytest.raises(UsageError, match=r"--axis: expected an array with axes, got \S*a.npy, which is a single"):
        pipeline.run("reduce", tmp_path / "a.npy", axis=0)
