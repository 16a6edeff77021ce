"""An input that changes during a run ends it, also after its last byte was read; nothing is written."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.cluster.placement import Placement
from pipeline.engine.aggregate import run
from pipeline.engine.array import run_array
from pipeline.errors import PipelineError, VerificationError
from pipeline.settings import Settings
from pipeline.storage.sources import open_source
from tests.cases.monitors import Told
from workflows.histogram import HISTOGRAM, HistogramOptions
from workflows.transpose import TRANSPOSE

pytestmark = pytest.mark.usefixtures("shared")
ON_CPU = Placement("cpu")


def replaced(path: Path) -> None:
    """By a file of the same size and time of modification."""
    status = path.stat()
    path.with_suffix(".other").write_bytes(bytes(status.st_size))
    os.utime(path.with_suffix(".other"), ns=(0, status.st_mtime_ns))
    os.replace(path.with_suffix(".other"), path)


def rewritten(path: Path) -> None:
    """With the old time of modification."""
    status = path.stat()
    with path.open("r+b") as file:
        file.seek(-8, 2)
        file.write(b"changed!")
    os.utime(path, ns=(0, status.st_mtime_ns))


CHANGES = [
    (lambda path: os.truncate(path, 4000), "shrank"),
    (lambda path: os.truncate(path, 80_129), "grew"),
    (rewritten, "was written to, or given another name, mode or owner,"),
    (replaced, "was replaced by another file"),
    (Path.unlink, "expected the file that was planned, got 'No such file or directory'"),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    np.save(tmp_path / "in.npy", np.arange(10_000).reshape(100, 100))
    return tmp_path / "in.npy"


def at_the_end(path: Path, change: Callable[[Path], object]) -> Settings:
    """Settings of a run during which a file changes once all is done."""

    def progress(done: int, total: int | None) -> None:
        if done == total:
            change(path)

    return Settings(ON_CPU, "off", monitor=Told(progress))


@pytest.mark.parametrize(("change", "text"), CHANGES)
def test_change_after_the_last_read(path: Path, change: Callable[[Path], object], text: str) -> None:
    source = open_source((str(path),))
    with pytest.raises(PipelineError, match=f"^{path}: {text}") as caught:
        run(HISTOGRAM, HistogramOptions(), source, at_the_end(path, change))
    assert caught.value.exit_code == 1 and "\n" not in str(caught.value)


@pytest.mark.parametrize(("change", "text"), CHANGES)
def test_array_of_a_changed_input_is_not_published(
    path: Path, tmp_path: Path, change: Callable[[Path], object], text: str
) -> None:
    (tmp_path / "out.npy").write_bytes(b"old")
    sources = [open_source((str(path),), samples=False)]
    settings = at_the_end(path, change)
    with pytest.raises(PipelineError, match=f"^{path}: {text}"):
        run_array(TRANSPOSE, TRANSPOSE.options(), sources, str(tmp_path / "out.npy"), settings)
    assert (tmp_path / "out.npy").read_bytes() == b"old"
    assert {file.name for file in tmp_path.iterdir()} <= {"in.npy", "out.npy"}


def test_one_of_several_files(tmp_path: Path) -> None:
    for number in range(3):
        np.arange(1000, dtype="<i4").tofile(tmp_path / f"{number}.bin")
    source = open_source((str(tmp_path / "*.bin"),))
    settings = at_the_end(tmp_path / "1.bin", rewritten)
    with pytest.raises(PipelineError, match=rf"^{tmp_path}/1\.bin: was written to"):
        run(HISTOGRAM, HistogramOptions(), source, settings)


def wrong(path: Path | None) -> Any:
    """A computation that returns a wrong number, while a file changes."""

    def compute(block: Any, options: Any) -> Any:
        if path:
            os.utime(path, ns=(0, 0))
        return HISTOGRAM.compute(block, options)[::-1]

    return replace(HISTOGRAM, compute=compute)


def test_wrong_number_may_be_a_change_that_moved_no_time(path: Path) -> None:
    with pytest.raises(VerificationError, match=r"wrong in .* written; run again if a program writes to the input"):
        run(wrong(None), HistogramOptions(), open_source((str(path),)), Settings(ON_CPU, "full"))


def test_wrong_number_of_a_changed_file_is_no_fault_of_the_computation(path: Path) -> None:
    """Whether the change or the wrong number is noticed first."""
    with pytest.raises(PipelineError, match=f"^{path}: was written to while it was read") as caught:
        run(wrong(path), HistogramOptions(), open_source((str(path),)), Settings(ON_CPU, "full"))
    assert caught.value.exit_code == 1
