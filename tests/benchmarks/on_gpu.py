"""Kernel tests on a GPU, and their small cases under compute-sanitizer: tests, outcomes, machine.

python -m tests.benchmarks.on_gpu OUT.json
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.benchmarks.common import save

TESTS = Path(__file__).parents[1]
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
SECONDS = 300  # limit for a tool
# A kernel that is broken on purpose, to show that the tool reports errors. Its conflict has to be between plain
# accesses: racecheck does not report conflicting atomics, as in the histogram's no_barrier.
CANARY = {"racecheck": "missing_barrier"}


def run_cases(variant: str | None) -> None:
    """Run every right case of tests/cases/all.py on the current GPU, or those of a variant, whatever their outcome."""
    sys.path.insert(0, str(TESTS))
    import cupy

    from tests.cases.all import CASES

    chosen = [case for case in CASES if (case.variant == variant if variant else not case.broken)]
    for case in chosen:
        try:
            case.check(cupy)
        except AssertionError:
            if not variant:
                raise
    cupy.cuda.runtime.deviceSynchronize()
    print(f"cases: {len(chosen)}")


def sanitize(tool: str, variant: str | None = None) -> dict[str, Any]:
    """Cases that ran, errors that the tool counted, and its output if it failed."""
    command = [
        "timeout",
        str(SECONDS),
        "compute-sanitizer",
        "--tool",
        tool,
        sys.executable,
        "-m",
        "tests.benchmarks.on_gpu",
        "--cases",
        variant or "",
    ]
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    ran = re.search(r"^cases: (\d+)$", done.stdout, re.MULTILINE)
    errors = re.search(r"(?:ERROR SUMMARY: |RACECHECK SUMMARY: )(\d+)", done.stdout)
    outcome = {"cases": int(ran[1]) if ran else 0, "errors": int(errors[1]) if errors else None}
    if done.returncode or not ran:
        outcome["said"] = done.stdout[-2000:]
    print(tool, variant or "", outcome, flush=True)
    return outcome


def run_tests() -> dict[str, dict[str, int]]:
    """Passed, failed and skipped tests of each file."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        subprocess.run([sys.executable, "-m", "pytest", "-q", "-m", "gpu or hardware", "-p", "no:cacheprovider",
                        "--tb=short", "--durations=8", f"--junitxml={report}", str(TESTS)])  # fmt: skip
        counted: dict[str, Counter[str]] = {}
        for case in ET.parse(report).iter("testcase"):
            kinds = {child.tag for child in case}
            outcome = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
            counted.setdefault(case.get("classname", "").rpartition(".")[2], Counter())[outcome] += 1
    return {name: dict(counts) for name, counts in sorted(counted.items())}


def measure() -> dict[str, Any]:
    """Run everything concurrently: nothing here is timed."""
    with ThreadPoolExecutor() as pool:
        tools = {tool: pool.submit(sanitize, tool) for tool in TOOLS}
        canaries = {tool: pool.submit(sanitize, tool, variant) for tool, variant in CANARY.items()}
        return {"tests": run_tests(), "sanitizer": {tool: future.result() for tool, future in tools.items()},
                "canary": {tool: future.result() for tool, future in canaries.items()}}  # fmt: skip


if __name__ == "__main__":
    if sys.argv[1] == "--cases":
        run_cases(sys.argv[2] or None)
    else:
        save(measure(), sys.argv[1])
