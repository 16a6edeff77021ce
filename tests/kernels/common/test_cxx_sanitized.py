"""Compiled CPU kernels in separate processes: under sanitizers, and built for older CPUs."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from kernels.common import cxx
from tests.cases.cpp import CHECKS
from tests.emulator.kinds import CXX
from tests.emulator.recording import Due

ROOT = Path(__file__).parents[3]


def run(due: Due, *options: str, **variables: str) -> None:
    """The checks that are due, compiled with more options."""
    path = os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))
    environment = {**os.environ, **variables, "PYTHONPATH": path}
    command = [sys.executable, "-W", "ignore", "-m", "tests.cases.cpp", *options]
    names = json.dumps([check for check, _ in due.units])
    done = subprocess.run(command, env=environment, capture_output=True, text=True, input=names, timeout=110)
    assert done.returncode == 0, done.stderr[:5000]
    compared = json.loads(done.stdout)
    assert all(compared.values()) and (len(compared) < len(CHECKS) or sum(compared.values()) > 25_000)
    due.outcomes.update({(check, name): compared[check] for check, name in due.units})


def units(name: str) -> list[tuple[str, str]]:
    """Every check with these options."""
    return [unit for unit in CXX.units() if unit[1] == name]


@pytest.mark.parametrize(
    "check", [pytest.param(unit[0], marks=pytest.mark.recorded(CXX, [unit])) for unit in units("sanitized")]
)
def test_all_cases_are_clean(check: str, due: Due) -> None:
    """Under AddressSanitizer and UndefinedBehaviorSanitizer, which abort at the first finding."""
    words = cxx.compiler()
    asked = [*words, "-print-file-name=libasan.so"] if words else ["false"]
    library = subprocess.run(asked, capture_output=True, text=True).stdout.strip()
    if not Path(library).is_absolute():
        if os.environ.get("CI") == "true":
            raise RuntimeError("expected a compiler with AddressSanitizer")
        pytest.skip("no compiler with AddressSanitizer")
    # Python itself does not free everything at exit.
    variables = {"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=1", "LD_PRELOAD": library}
    run(due, "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", **variables)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="options for x86")
@pytest.mark.parametrize(
    "architecture",
    [pytest.param(name, marks=pytest.mark.recorded(CXX, units(name))) for name in ("x86-64", "x86-64-v3")],
)
def test_vectors_of_other_cpus(architecture: str, due: Due) -> None:
    """16-byte vectors without fused multiply-add, and 32-byte vectors."""
    if cxx.compiler() is None:
        pytest.skip("no C++ compiler")
    if architecture == "x86-64-v3" and " avx2 " not in cxx.features():
        pytest.skip("this CPU has none of 32 bytes")
    run(due, f"-march={architecture}")
