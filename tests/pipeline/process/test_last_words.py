"""The end of the command's process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(("words", "status"), [("--version", 0), ("--none", 2)])
@pytest.mark.parametrize("warns", [False, True])
def test_end_takes_nothing_apart(words: str, status: int, warns: bool) -> None:
    """But all that is registered is called, and all that is printed is written."""
    code = f"""
import atexit, os, sys
class Kept:
    def __del__(self, write=os.write):
        write(1, b"taken apart\\n")
kept = Kept()
from pipeline.__main__ import main
sys.argv[1:] = [{words!r}]
try:
    main()
finally:
    atexit.register(print, "called")
    print("printed")"""
    variables = os.environ | {"PYTHONWARNINGS": "default" if warns else "", "PYTHONUNBUFFERED": ""}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=variables, timeout=60)
    last = ["printed", "called", *["taken apart"] * warns]
    assert (done.returncode, done.stdout.splitlines()[-len(last) :]) == (status, last)


def test_what_was_registered_before_the_command_began_is_called(tmp_path: Path) -> None:
    """As by what measures coverage in every process."""
    (tmp_path / "sitecustomize.py").write_text("import atexit; atexit.register(print, 'called')")
    paths = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run([sys.executable, "-m", "pipeline", "--version"], capture_output=True, text=True,
                          env=os.environ | {"PYTHONPATH": paths}, cwd=ROOT, timeout=60)  # fmt: skip
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "called"
