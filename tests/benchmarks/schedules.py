"""Every variant of every kernel on the host, in very many orders of its threads.

python -m tests.benchmarks.schedules OUT.json [1000] [CASE ...]

With names of cases only these are run; what OUT.json says of others is kept.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.common import save
from tests.cases.all import CASES
from tests.emulator.build import compiler
from tests.emulator.cupy import on_host
from tests.emulator.device import HOST, schedule


def run(number: int, schedules: int) -> dict[str, Any]:
    """One case under many seeds: how often it passed, and the first seed with which a right one failed."""
    case, passed, failed_at = CASES[number], 0, None
    with pytest.MonkeyPatch.context() as monkeypatch, on_host(monkeypatch) as cupy:
        for seed in range(schedules):
            with schedule(seed):
                try:
                    case.check(cupy)
                    passed += 1
                except AssertionError:
                    failed_at = seed if failed_at is None else failed_at
        launches = sum(HOST.launched.values())
    row = {"case": str(case), "broken": case.broken, "passed": passed, "launches": launches}
    return row if failed_at is None or case.broken else row | {"failed_at": failed_at}


def main(out: str, schedules: str = "1000", *names: str) -> None:
    """Run all cases, or these, on all cores and write the outcomes."""
    numbers = [number for number, case in enumerate(CASES) if not names or str(case) in names]
    kept = json.loads(Path(out).read_text(encoding="utf-8")) if names else {"cases": []}
    if names and (len(numbers) < len(set(names)) or kept["schedules"] != int(schedules)):
        raise SystemExit(f"expected names of cases, and {kept['schedules']} schedules as in {out}")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        rows = list(pool.map(run, numbers, [int(schedules)] * len(numbers)))
    again = {row["case"] for row in rows}
    rows = [row for row in kept["cases"] if row["case"] not in again] + rows
    version = subprocess.run([compiler(), "--version"], capture_output=True, text=True, check=True).stdout
    right, broken = ([row for row in rows if row["broken"] is kind] for kind in (False, True))
    held = all(row["passed"] == int(schedules) for row in right) and all(row["passed"] == 0 for row in broken)
    figures = {
        "compiler": version.splitlines()[0],
        "schedules": int(schedules),
        "right": len(right),
        "broken": len(broken),
        "launches": sum(row["launches"] for row in rows),
        "as expected": held,
        "cases": rows,
    }
    save(figures, out)
    print(f"{len(right)} right and {len(broken)} broken cases in {schedules} schedules each: "
          f"{'as expected' if held else 'NOT as expected'}")  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:])
