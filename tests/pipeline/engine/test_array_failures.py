"""Failures of jobs that write an array: the message, and no file left behind."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pipeline.engine.array import run_array
from pipeline.errors import PipelineError, UsageError, VerificationError
from pipeline.storage.sources import Source
from tests.cases.array import SCALED, Factor, compute, left, scaled
from tests.cases.array import array as array
from tests.cases.array import source as source
from tests.cases.array import workers as workers
from tests.cases.monitors import Told
from workflows.regions import Bounds, Spec

pytestmark = pytest.mark.usefixtures("shared")


@pytest.mark.parametrize("mode", ["full", "sample"])
def test_wrong_element_is_named_and_nothing_kept(source: Source, tmp_path: Path, mode: str) -> None:
    """A whole region is wrong, so that a sampled check notices."""

    def broken(blocks: Any, region: Bounds, *more: Any) -> Any:
        block = compute(blocks, region, *more)
        if region[0][0] == 20:
            block[(1, 5) if mode == "full" else ...] += 1
        return block

    (tmp_path / "out.npy").write_bytes(b"old")
    with pytest.raises(VerificationError) as caught:
        scaled(source, workflow=replace(SCALED, compute=broken), verify=mode)
    text = (
        r"^scaled: a number is wrong in region \[\(2\d, \d+\), .*\] on worker inproc://\S+ \(cpu\): element \(2\d, \d"
    )
    assert re.match(text, str(caught.value))
    if mode == "full":
        assert re.search(
            r"element \(21, 5\): expected -?\d+, got -?\d+; nothing was kept; run again if .* same$",
            str(caught.value),
        )
    assert caught.value.exit_code == 3
    assert left(tmp_path) == ["out.npy"] and (tmp_path / "out.npy").read_bytes() == b"old"


def raising(*_: Any) -> Any:
    raise RuntimeError("first line\nsecond line")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"compute": raising}, r"^scaled: region \[\(\d+, \d+\), \(0, 31\)\] failed: RuntimeError: first line \(.*\)$"),
        ({"check": raising}, r"^scaled: region .* failed: RuntimeError: first line \(.*, line \d+\)$"),
        ({"compute": lambda blocks, *_: blocks[0][1:]}, "^expected a block of int64 10×31, got int64 9×31$"),
        ({"compute": lambda blocks, *_: blocks[0].astype("f4")}, "^expected a block of int64 10×31, got float32 10×31"),
        ({"needs": lambda *_: (((0, 84), (0, 31)),)}, r"^scaled: expected regions inside of int64 83×31, got .*; repo"),
        ({"regions": lambda *_: iter([((0, 80), (0, 31))])}, "^scaled: expected regions of 2573 elements in all, got"),
    ],
)  # fmt: skip
def test_failing_job_leaves_nothing(source: Source, tmp_path: Path, change: dict[str, Any], text: str) -> None:
    with pytest.raises(PipelineError, match=text) as caught:
        scaled(source, workflow=replace(SCALED, **change))
    assert "\n" not in str(caught.value)
    assert left(tmp_path) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_interrupted_run_leaves_nothing(source: Source, tmp_path: Path, error: type[BaseException]) -> None:
    def interrupt(done: int, total: int) -> None:
        assert len(left(tmp_path)) == 2  # with the lock
        raise error

    with pytest.raises(error):
        scaled(source, monitor=Told(interrupt))
    assert left(tmp_path) == []


def touch(path: str) -> None:
    os.utime(path, ns=(0, 0))


def cut_short(path: str) -> None:
    os.truncate(path, 9)


@pytest.mark.parametrize("change", [touch, os.unlink, cut_short])
def test_input_that_changes_is_an_error(source: Source, tmp_path: Path, change: Any) -> None:
    path = source.files[0].path

    def changing(*arguments: Any) -> Any:
        if os.path.exists(path):
            change(path)
        return compute(*arguments)

    with pytest.raises(PipelineError, match=rf"^{re.escape(path)}: ") as caught:
        scaled(source, workflow=replace(SCALED, compute=changing))
    assert caught.value.exit_code == 1
    assert left(tmp_path) == []


def test_input_is_never_overwritten(source: Source, tmp_path: Path, array: NDArray[Any]) -> None:
    (tmp_path / "link.raw").symlink_to(tmp_path / "in.npy")
    for name in ("in.npy", "link.raw"):
        with pytest.raises(UsageError, match=f"{name}: the output is one of the inputs; choose another name"):
            scaled(source, name=name)
    np.testing.assert_array_equal(np.load(tmp_path / "in.npy"), array)


@pytest.mark.parametrize(
    ("name", "text"),
    [("missing/out.npy", "expected an existing folder for the output"), (".", "expected a file name for the output")],
)
def test_place_that_cannot_be_is_refused(source: Source, name: str, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        scaled(source, name=name)


def test_impossible_requests_are_refused(source: Source, tmp_path: Path) -> None:
    def outline(*_: Any) -> Spec:
        raise ValueError("expected something else")

    with pytest.raises(UsageError, match=r"^scaled: expected 1 array, got 2$"):
        run_array(SCALED, Factor(), [source, source], str(tmp_path / "out.npy"))
    with pytest.raises(UsageError, match=r"^scaled: expected something else$"):
        scaled(source, workflow=replace(SCALED, outline=outline))
    with pytest.raises(UsageError, match=r"^--verify: expected one of auto, full, sample, off, got 'most'$"):
        scaled(source, verify="most")
    assert left(tmp_path) == []
