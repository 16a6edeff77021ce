"""Runs kernels under AddressSanitizer and UndefinedBehaviorSanitizer, which end the process at the first finding.

The sanitizer's library has to be preloaded: see `command`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tests.emulator.build import compiler

ROOT = Path(__file__).parents[2]
FAULTS = Path(__file__).with_name("faults.cu")
SEEDS = range(3)


def command(*words: str) -> tuple[list[str], dict[str, str]]:
    """Command line and environment of a process that runs a fault, or the cases that its stdin names."""
    asked = [compiler(), "-print-file-name=libasan.so"]
    library = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    # Python itself does not free everything at exit.
    options = {"ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=0", "UBSAN_OPTIONS": "print_stacktrace=1"}
    path = os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))
    return [sys.executable, "-m", "tests.emulator.sanitized", *words], {
        **os.environ, **options, "LD_PRELOAD": library, "PYTHONPATH": path,
    }  # fmt: skip


def run_cases(names: set[str]) -> None:
    """Run the cases with these names, printing each name before its launches."""
    from tests.cases.all import CASES
    from tests.emulator.device import schedule

    chosen = [case for case in CASES if str(case) in names]
    for case in chosen:
        print(case, flush=True)
        for seed in SEEDS:
            with schedule(seed):
                case.check(sys.modules["cupy"])
    print(f"{len(chosen)} cases")


def run_fault(name: str, n: int, threads: int) -> None:
    """Launch a kernel of faults.cu."""
    from kernels.common import nvrtc

    cupy: Any = sys.modules["cupy"]
    nvrtc.load(FAULTS, name)((1,), (threads,), (cupy.zeros(n, dtype=np.int32), np.int32(n)))
    print("not found")


def main(*words: str) -> None:
    """The cases that stdin names, or a fault: its name, size and threads."""
    import pytest

    from tests.cases.all import CASES  # imported before CuPy is replaced, because it detects GPUs
    from tests.emulator.cupy import on_host
    from tests.emulator.device import HOST

    assert CASES
    with pytest.MonkeyPatch.context() as monkeypatch, on_host(monkeypatch):
        HOST.flavour = "sanitized"
        if words:
            run_fault(words[0], int(words[1]), int(words[2]))
        else:
            run_cases(set(sys.stdin.read().splitlines()))


if __name__ == "__main__":
    main(*sys.argv[1:])
