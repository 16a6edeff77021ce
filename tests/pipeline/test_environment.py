"""The command in its users' environments, which are not those of a developer: locales, a system without /proc."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.errors import unexpected

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


def test_working_folder_that_was_removed(tmp_path: Path) -> None:
    """Files are found by their whole path only."""
    result = tmp_path / "result.json"
    program = """if True:
        import os, sys
        os.mkdir("gone")
        os.chdir("gone")
        os.rmdir("../gone")
        from pipeline.__main__ import main
        main(sys.argv[1:])
    """
    done = [subprocess.run([sys.executable, "-c", program, "histogram", path, "-o", result], capture_output=True,
                           text=True, timeout=100, cwd=tmp_path) for path in (ECG, "ecg.npy")]  # fmt: skip
    assert (done[0].returncode, done[0].stderr) == (0, "") and done[0].stdout.startswith(f"histogram of {ECG} (uint16)")
    assert (done[1].returncode, done[1].stderr) == (1, "error: expected a working folder, got one that was removed; go "
                                                    "to another one (cd), or name whole paths\n")  # fmt: skip


@pytest.mark.parametrize(
    ("error", "remedy"), [(OSError(errno.EMFILE, "Too many open files", "x.py"), "ulimit -n"),
                          (RuntimeError("can't start new thread"), "ulimit -u")],
)  # fmt: skip
def test_limits_are_named(error: Exception, remedy: str) -> None:
    line = unexpected(error)
    assert remedy in line and "python -X dev" not in line
