"""The command in its users' environments: locales, streams, folders and limits that are not those of a developer."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

ECG = Path(__file__).parents[2] / "data" / "ecg.npy"


def command(
    *words: str | Path | bytes, env: Mapping[str, str] = {}, **settings: object
) -> subprocess.CompletedProcess[bytes]:
    """A command's status, stdout and stderr."""
    return subprocess.run([sys.executable, "-m", "pipeline", *words], capture_output=True,
                          env={**os.environ, **env}, timeout=100, **settings)  # type: ignore[call-overload]  # fmt: skip


@pytest.mark.parametrize("job", ["histogram", "reduce"])
def test_locale_without_utf_8(job: str, tmp_path: Path) -> None:
    """Sources have signs of mathematics in comments; stderr and the panel get along without."""
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = command(job, ECG, "-o", tmp_path / "result.json", env=locale)
    assert (done.returncode, done.stderr) == (0, b"")
