"""Compiled kernels of the CPU under AddressSanitizer and UndefinedBehaviorSanitizer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernels import native

SCRIPT = Path(__file__).with_name("native_cases.py")


def test_all_cases_are_clean() -> None:
    words = native.compiler()
    asked = [*words, "-print-file-name=libasan.so"] if words else ["false"]
    library = subprocess.run(asked, capture_output=True, text=True).stdout.strip()
    if not Path(library).is_absolute():
        if os.environ.get("CI") == "true":
            raise RuntimeError("expected a compiler with AddressSanitizer")
        pytest.skip("no compiler with AddressSanitizer")
    # Python itself leaks, and ends without freeing.
    options = {"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=1", "LD_PRELOAD": library}
    path = os.pathsep.join((str(SCRIPT.parent.parent), os.environ.get("PYTHONPATH", "")))
    environment = {**os.environ, **options, "PYTHONPATH": path}
    command = [sys.executable, "-W", "ignore", str(SCRIPT)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr[:5000]
    assert int(done.stdout) > 50_000
