"""Every correct variant under AddressSanitizer and UndefinedBehaviorSanitizer; both find their planted faults."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from tests.cases.all import CASES
from tests.emulator.kinds import SANITIZED
from tests.emulator.recording import Due
from tests.emulator.sanitized import command


def run(*words: str, cases: str = "") -> tuple[int, str, str]:
    line, environment = command(*words)
    done = subprocess.run(line, env=environment, text=True, capture_output=True, input=cases, timeout=900)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.timeout(920)  # many minutes on a busy machine
@pytest.mark.recorded(SANITIZED, [(case.stem, case.name) for case in CASES if not case.broken])
def test_every_right_variant_is_clean(host: Any, due: Due) -> None:
    """In one process, because starting Python under AddressSanitizer takes longer than most cases."""
    status, out, err = run(cases="\n".join(f"{stem}-{name}" for stem, name in due.units))
    assert status == 0, f"{out.splitlines()[-1:]}: {err[:5000]}"
    assert out.splitlines()[-1] == f"{len(due.units)} cases"
    due.outcomes.update(dict.fromkeys(due.units, "clean"))


@pytest.mark.parametrize(
    ("name", "n", "threads", "message"),
    [("behind_the_end", 64, 65, "use-after-poison"), ("behind_shared", 64, 8, "index 8 out of bounds"),
     ("overflows", 10_000, 1, "signed integer overflow"), ("shifts_too_far", 40, 1, "shift exponent 40 is too large"),
     ("loads_misaligned", 64, 1, "load of misaligned address"), ("right_reverse", 64, 64, "")],
)  # fmt: skip
def test_fault_is_found(host: Any, name: str, n: int, threads: int, message: str) -> None:
    status, out, err = run(name, str(n), str(threads))
    assert message in err and (status, out) == ((1, "") if message else (0, "not found\n")), (status, out, err)
