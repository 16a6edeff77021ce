"""Errors planted inside of every job, one in each run: how many are caught, change nothing, or are missed.

python -m tests.benchmarks OUT_FOLDER --only planted_errors
python -m tests.benchmarks.planted_errors OUT.json --seconds 600 --job quantile rows   # these jobs, so long

On a machine with a GPU all jobs compute there, otherwise on the CPU. A trial is repeated by
`python -m tests.benchmarks.planted SCENARIO SCENARIO+1 10 DEVICE --only TRIAL`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from time import perf_counter
from typing import Any

from pipeline.gpu.devices import find_devices
from pipeline.threads import cores
from tests.benchmarks.common import save
from tests.benchmarks.markdown import table
from tests.benchmarks.planted.jobs import JOBS

TRIALS = 10  # in a scenario
CAUGHT, HARMLESS, ADMITTED, MISSED, UNCLEAR = "caught", "harmless", "admitted", "missed", "unclear"
OUTCOMES = (CAUGHT, HARMLESS, ADMITTED, MISSED, UNCLEAR)
OUTSIDE = ("reader of both", "file after its check", "writer, beside its region")
PROCESSES = 12  # at most: they share one GPU, if there is one
NOT_REACHED = "not reached"
FIRST_JOBS = JOBS[:6]  # of records that do not name any

Row = dict[str, Any]


def outcomes(first: int, last: int, trials: int, device: str, end: float, jobs: Sequence[str] = ()) -> Iterator[Row]:
    """What became of every error in scenarios `first` to `last` - 1, of some jobs or all, in a process of its own.

    After a crash another one runs the scenario again, and goes on with the next one if that crashes, too. Scenarios
    that would begin after `end`, by `perf_counter`, are left out.
    """
    # The processes share cores.
    alone = os.environ | dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1")
    again = -1  # the scenario that crashed once
    while first < last:
        rows: list[Row] = []  # of one scenario
        words = [sys.executable, "-m", "tests.benchmarks.planted", *map(str, (first, last, trials)), device]
        words += ["--job", *jobs] if jobs else []
        piped: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": alone}
        with subprocess.Popen(words, **piped) as child, ThreadPoolExecutor(1) as errors:
            assert child.stdout and child.stderr
            told = errors.submit(child.stderr.read)
            for line in child.stdout:
                row = json.loads(line)
                if "begins" in row:
                    yield from rows
                    first, rows = row["begins"], []
                    if perf_counter() > end:
                        child.terminate()
                        return
                else:
                    rows.append(row)
            status = child.wait()
            text = told.result()
        if not status:
            yield from rows
            return
        if again != first:
            again = first
            continue
        yield from rows
        said = text.strip().splitlines()[-1:] or ["nothing said"]
        yield {"scenario": first, "trial": None, "job": "?", "dtype": "?", "place": "process", "kind": "?",
               "outcome": UNCLEAR, "detail": f"status {status}: {said[0]}"}  # fmt: skip
        first += 1


def counted(rows: list[Row]) -> list[Row]:
    """Numbers of each outcome by job, place and kind."""
    keys = ("job", "place", "kind")
    counts = Counter((*(row[key] for key in keys), row["outcome"]) for row in rows)
    kinds = sorted({key[:3] for key in counts})
    return [dict(zip(keys, kind, strict=True)) | {name: counts[*kind, name] for name in OUTCOMES} for kind in kinds]


def by_pass(rows: list[Row]) -> Row:
    """Numbers of each outcome by the pass over the samples, where it is known."""
    counts = Counter((row.get("in_pass", ""), row["outcome"]) for row in rows)
    return {name: {outcome: counts[name, outcome] for outcome in OUTCOMES}
            for name in sorted({name for name, _ in counts if name})}  # fmt: skip


def number(row: Row) -> str:
    """Scenario and trial."""
    return f"{row['scenario']}/{row['trial']}"


def told(row: Row) -> str:
    """All that is known about what became of an error."""
    what = f"{row['job']} of {row['dtype']}, {row['place']}, {row['kind']}"
    return f"{number(row)}: {what}: {row['outcome']}; {row['detail']}"


def summary(rows: list[Row], key: str) -> str:
    """Numbers of each outcome by place or by kind, as a table."""
    counts = Counter((row[key], row["outcome"]) for row in rows)
    names = sorted({row[key] for row in rows})
    lines = [[name, *(str(counts[name, outcome]) for outcome in OUTCOMES)] for name in names]
    total = ["all", *(str(sum(counts[name, outcome] for name in names)) for outcome in OUTCOMES)]
    return table([key, *OUTCOMES], [*lines, total])


def described(figures: Row) -> str:
    """Recorded figures by place, under a line that says where they were recorded."""
    environment = figures["environment"]
    where = f"One {environment['gpus'][0]}" if figures["device"] == "gpu" else f"{environment['cores']} cores of a CPU"
    counts: Counter[tuple[str, str]] = Counter()
    for row in figures["counts"]:
        for outcome in OUTCOMES:
            counts[row["place"], outcome] += row[outcome]
    names = sorted({row["place"] for row in figures["counts"]})
    lines = [[name, *(f"{counts[name, outcome]:,}" for outcome in OUTCOMES)] for name in names]
    lines.append(["all", *(f"{sum(counts[name, outcome] for name in names):,}" for outcome in OUTCOMES)])
    jobs = figures.get("jobs", FIRST_JOBS)
    of = "" if list(jobs) == list(JOBS) else f", of {', '.join(jobs)}"
    # Until the other jobs came, the harness failed where it should have changed a partial, which counted as caught.
    none = "" if "jobs" in figures else ", those in partials not really planted"
    what = f"{figures['trials']:,} errors{of}{none}"
    return f"{where}, {environment['date']}, {what}:\n\n{table(['place', *OUTCOMES], lines)}"


def measure(
    scenarios: int = 1001, trials: int = TRIALS, processes: int | None = None, seconds: float = math.inf,
    jobs: Sequence[str] = (),
) -> dict[str, Any]:  # fmt: skip
    """Counts, and the numbers of everything that was not caught; no scenario begins after so many seconds.

    `jobs`: of which scenarios are run; all by default.
    """
    gpu = find_devices().usable > 0
    device, began = "gpu" if gpu else "cpu", perf_counter()
    processes = processes or min(cores(), PROCESSES)
    with ThreadPoolExecutor(processes) as pool:
        bounds = [scenarios * number // processes for number in range(processes + 1)]
        tasks = [
            pool.submit(lambda ends: list(outcomes(*ends, trials, device, began + seconds, jobs)), ends)
            for ends in pairwise(bounds)
        ]
        rows = [row for task in tasks for row in task.result()]
    reached = [row for row in rows if row["outcome"] != NOT_REACHED]
    outside = [row for row in reached if row["place"] in OUTSIDE]
    inside = [row for row in reached if row["place"] not in OUTSIDE]
    print(f"{summary(inside, 'place')}\n\n{summary(inside, 'kind')}\n\n{summary(inside, 'job')}\n")
    print(f"outside of what is promised:\n{summary(outside, 'place')}")
    return {
        "device": device, "processes": processes, "seconds": round(perf_counter() - began, 1), "trials": len(inside),
        "not reached": len(rows) - len(reached), "totals": dict(Counter(row["outcome"] for row in inside)),
        "jobs": list(jobs or JOBS), "passes": by_pass(inside), "counts": counted(inside), "outside": counted(outside),
        "missed or unclear": [told(row) for row in inside if row["outcome"] in (MISSED, UNCLEAR)],
        **{name: " ".join(number(row) for row in inside if row["outcome"] == name) for name in (ADMITTED, HARMLESS)},
    }  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.planted_errors")
    parser.add_argument("path", metavar="OUT.json")
    parser.add_argument("--seconds", type=float, default=math.inf, help="after which no scenario begins")
    parser.add_argument("--job", nargs="+", choices=JOBS, default=(), metavar="NAME", help=", ".join(JOBS))
    parser.add_argument("--scenarios", type=int, default=1001, help="of all jobs together (default: %(default)s)")
    given = parser.parse_args()
    save(measure(given.scenarios, seconds=given.seconds, jobs=given.job), given.path)
