"""The end of the command's process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


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
