"""Batches that go on: what makes finished jobs run again, some jobs alone, names of files in the place of marks."""

from __future__ import annotations

import json
import os
from pathlib import Path

import dask.config
import numpy as np
import pytest

from tests.pipeline.cli.test_batch import JOBS, Call
from tests.pipeline.cli.test_batch import call as call


def test_resumed_only_with_the_same_files_and_configuration(call: Call) -> None:
    """Files that options of --also and the configuration name count, too, and the samples of a SigMF recording."""
    late = '[[jobs]]\nname = "late"\njob = "digest"\nfiles = "late.bin"\n'
    Path("edges.txt").write_text("0 300 1024")
    np.save("mask.npy", np.ones(900, bool))
    Path("r.sigmf-meta").write_text(json.dumps({"global": {"core:datatype": "ri16_le", "core:version": "1.0.0"}}))
    np.arange(9, dtype="<i2").tofile("r.sigmf-data")
    text = """
[[jobs]]
job = "reduce"
files = "run-0.bin"
also = ["histogram --edges edges.txt -o counts.json"]
[[jobs]]
name = "recording"
job = "digest"
files = "r.sigmf-meta"
"""
    assert call(text + late)[0] == 2

    def again() -> list[str]:
        _, lines, _ = call(text + late, "--resume")
        return [line["name"] for line in lines if not line.get("resumed")]

    assert again() == ["late"]
    Path("edges.txt").write_text("0 300 600 1024")
    assert again() == ["reduce", "late"]
    assert json.loads(Path("counts.json").read_text())["histogram"]["axes"][0]["edges"] == [0, 300, 600, 1024]
    np.arange(8, dtype="<i2").tofile("r.sigmf-data")
    assert again() == ["recording", "late"]
    with dask.config.set({"pipeline.verify": "full"}):
        assert again() == ["reduce", "recording", "late"]


def test_only_some_jobs(call: Call) -> None:
    """By their own name or that of their table; what the others have finished stays finished."""
    failing = JOBS + '[[jobs]]\nname = "late"\njob = "digest"\nfiles = "late.bin"\n'
    assert call(failing)[0] == 2

    def names(*words: str) -> list[str]:
        return [line["name"] for line in call(failing, *words)[1] if not line.get("resumed")]

    assert names("--only", "reduce") == ["reduce run-0.bin", "reduce run-1.bin", "reduce run-2.bin"]
    assert names("--only", "reduce run-1.bin", "--only", "map") == ["reduce run-1.bin", "map"]
    assert call(failing, "--only", "reduce run")[0] == 2
    np.arange(7, dtype="<i4").tofile("late.bin")
    assert names("--only", "late", "--resume") == ["late"]
    assert names("--resume") == []
    assert len(names("--resume")) == 6


@pytest.mark.parametrize("text", ["reduce --op sum -o 'of {stem}.json'", "reduce --op sum -o of\\ {stem}.json"])
def test_names_that_a_shell_would_split(call: Call, text: str) -> None:
    """They are one word of --also, and what looks like a mark in a name is none."""
    for name in ("a b", "don't", "{folder}"):
        os.symlink("run-0.bin", f"{name}.dat")
    jobs = f'[[jobs]]\njob = "digest"\neach = "*.dat"\noutput = "{{name}}.json"\nalso = [{json.dumps(text)}]'
    status, lines, err = call(jobs)
    assert status == 0, err
    assert [line["outputs"] for line in lines] == [
        [f"{name}.dat.json", f"of {name}.json"] for name in ("a b", "don't", "{folder}")
    ]
    assert all(os.path.exists(path) for line in lines for path in line["outputs"])
