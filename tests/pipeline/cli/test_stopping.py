"""The end of a command from outside: time limits, signals, a full disk where its output goes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.cli import jobs
from pipeline.cli.main import main


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working folder, with a file of samples."""
    np.arange(1000, dtype=np.int32).tofile(tmp_path / "samples.bin")
    monkeypatch.chdir(tmp_path)


def test_time_limit_counts_from_the_start(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Files may take long to open; without a supervisor, too."""

    def slow(*_: Any, **__: Any) -> None:
        time.sleep(20)

    monkeypatch.setattr(jobs, "open_source", slow)
    with pytest.raises(SystemExit) as caught:
        main(["histogram", "samples.bin", "--time-limit", "0.2s"])
    assert (caught.value.code, *capsys.readouterr()) == (
        75, "", "stopped by the time limit of 0.2 s: nothing was written\n")  # fmt: skip
