"""The command in its users' environments, which are not those of a developer: locales, a system without /proc."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ECG = str(Path(__file__).parents[2] / "data" / "ecg.npy")


@pytest.mark.parametrize("job", ["histogram", "reduce"])
def test_locale_without_utf_8(job: str, tmp_path: Path) -> None:
    """Constants are read from sources whose comments have mathematical signs."""
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run([sys.executable, "-m", "pipeline", job, ECG, "-o", tmp_path / "result.json"],
                          capture_output=True, env={**os.environ, **locale}, timeout=100)  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")


def test_no_proc() -> None:
    program = """if True:
        import os
        real = os.path.exists
        os.path.exists = lambda path: not str(path).startswith("/proc/") and real(path)
        from pipeline.__main__ import main
        main(["histogram", "x.bin"])
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (
        1,
        "error: expected /proc, got none; mount it: mount -t proc proc /proc\n",
    )
