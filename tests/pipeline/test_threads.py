"""Threads of BLAS: the command sets its share of the cores, unless the user chose a number."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from pipeline.threads import BLAS_VARIABLES, SWITCH_SECONDS, THREADS, blas_threads, cores

# Prints the variables in place of running the first job.
SHOW = """
import sys, os
from pipeline import __main__
from pipeline.cli import main as cli
cli.cli.main = lambda *a, **k: print(*(os.environ[name] for name in {names!r})) or 0
__main__.main()
"""


def shown(**changed: str) -> list[str]:
    environment = {name: value for name, value in os.environ.items() if name not in BLAS_VARIABLES} | changed
    done = subprocess.run([sys.executable, "-c", SHOW.format(names=BLAS_VARIABLES)], env=environment, text=True,
                          capture_output=True, check=True)  # fmt: skip
    return done.stdout.split()


def test_command_shares_the_cores():
    assert shown() == [str(blas_threads())] * len(BLAS_VARIABLES)


def test_users_number_stands():
    assert shown(OPENBLAS_NUM_THREADS="7")[BLAS_VARIABLES.index("OPENBLAS_NUM_THREADS")] == "7"


@pytest.mark.parametrize(("number", "expected"), [(1, 1), (2, 1), (7, 1), (8, 2), (64, 16)])
def test_all_threads_together_have_the_cores(monkeypatch, number, expected):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(number)))
    assert cores() == number
    assert blas_threads() == expected
    assert blas_threads() * THREADS["cpu"] <= max(number, THREADS["cpu"])


def test_numpy_is_not_there_yet():
    code = "import sys, pipeline.__main__; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_threads_of_the_command_take_turns_sooner():
    code = "import sys; from pipeline import __main__; __main__.prepare(); print(sys.getswitchinterval())"
    done = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, check=True)
    assert float(done.stdout) == pytest.approx(SWITCH_SECONDS)
