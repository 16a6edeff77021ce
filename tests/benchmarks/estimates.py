"""What `plan` expects of runs, beside what they take: the aim is within a quarter on a CPU, a third on a GPU.

python -m tests.benchmarks OUT_FOLDER --only estimates
python -m tests.benchmarks.estimates OUT.json --seconds 55 --mebibytes 4096    # as many jobs as this time allows

Files are in memory. The machine is measured anew, once for each job, as by the first `plan` of a user.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from pipeline.gpu.devices import find_devices
from pipeline.storage.generate import generate
from tests.benchmarks.common import command, process, save
from tests.benchmarks.jobs import MEMORY
from tests.benchmarks.markdown import table

# By name the words of a command, with the dtypes of its files: of samples, or of arrays that it writes one of.
SAMPLES: dict[str, tuple[str, tuple[str, ...]]] = {
    "histogram": ("int32", ("histogram",)),
    "histogram, its own range": ("float32", ("histogram", "--range", "auto")),
    "histogram, unverified": ("int32", ("histogram", "--verify", "off")),
    "histogram, verified whole": ("int32", ("histogram", "--verify", "full")),
    "sum": ("float32", ("reduce", "--op", "sum")),
    "all of reduce": ("int16", ("reduce",)),
    "median": ("float32", ("quantile", "--q", "0.5")),
    "digest": ("int32", ("digest",)),
    "where": ("float32", ("histogram", "--where", "x > 500")),
    "four channels": ("int16", ("histogram", "--channels", "4")),
}
ARRAYS: dict[str, tuple[tuple[str, ...], tuple[float, float], int]] = {  # words; proportions; number of inputs
    "map add": (("map", "add"), (1.0, 1.0), 2),
    "transpose": (("transpose",), (1.0, 1.3), 1),
    "stencil": (("stencil", "--radius", "100"), (1.0, 0.0), 1),
    "matmul": (("matmul",), (1.0, 1.0), 2),
}
MEBIBYTES = {"cpu": 2048, "gpu": 32768}
SIDES = {"cpu": 3000, "gpu": 12000}  # of matrices that are multiplied


def measure(
    mebibytes: int | None = None, side: int | None = None, repeats: int = 3, seconds: float = math.inf,
    done: Callable[[dict[str, Any]], object] = bool,
) -> dict[str, Any]:  # fmt: skip
    """Estimates and medians of every job; none begins after so many seconds. Each is `done`: all figures until then."""
    device, began = "gpu" if find_devices().usable else "cpu", perf_counter()
    nbytes, side = (mebibytes or MEBIBYTES[device]) * 2**20, side or SIDES[device]
    rows: list[dict[str, Any]] = []
    figures = {"bytes": nbytes, "side": side, "repeats": repeats, "jobs": rows}
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder, tempfile.TemporaryDirectory() as cache:
        environment = dict(os.environ) | {"XDG_CACHE_HOME": cache}
        for name, (dtype, words) in SAMPLES.items():
            if perf_counter() - began > seconds:
                return figures
            path = Path(folder, "samples.npy")
            samples = nbytes // np.dtype(dtype).itemsize
            generate(path, min(samples, 2**22), dtype, "uniform")
            np.save(path, np.resize(np.load(path), samples))
            rows.append(row(name, [*words, str(path)], environment, repeats))
            path.unlink()
            done(figures)
        for name, (words, (high, wide), number) in ARRAYS.items():
            if perf_counter() - began > seconds:
                return figures
            paths = [str(Path(folder, f"{place}.npy")) for place in range(number)]
            size = (side, side) if name == "matmul" else shape(nbytes // 4, high, wide)
            for place, path_of in enumerate(paths):
                random = np.random.default_rng(place)
                np.save(path_of, np.resize(random.standard_normal(2**20, np.float32), size))
            output = str(Path(folder, "out.npy"))
            rows.append(row(name, [*words, *paths, "-o", output], environment, repeats))
            for path_of in (*paths, output):
                os.unlink(path_of)
            done(figures)
    return figures


def shape(nbytes: int, high: float, wide: float) -> tuple[int, ...]:
    """Of an array of float32 of these proportions; of one dimension if it has no width."""
    if not wide:
        return (nbytes // 4,)
    unit = (nbytes / 4 / high / wide) ** 0.5
    return max(1, int(unit * high)), max(1, int(unit * wide))


def row(name: str, words: list[str], environment: dict[str, str], repeats: int) -> dict[str, Any]:
    """Estimated and measured seconds, after the start and with it, and the stages that bound the run."""
    plan = json.loads(process(command("plan", *words, "--json"), environment).printed)
    estimated = plan["time"]
    runs = [json.loads(process(command(*words, "--json", "-q"), environment).printed)["performance"]
            for _ in range(repeats)]  # fmt: skip
    taken = median(run["seconds"] for run in runs)
    started = median(run["start_up_seconds"] for run in runs)
    figures = {
        "job": name,
        "seconds": {"estimated": estimated["run"], "measured": taken, "all": [run["seconds"] for run in runs]},
        "start-up": {"estimated": estimated["start_up"], "measured": started},
        "ratio": (estimated["run"] + estimated["start_up"]) / (taken + started),
        "ratio without the start-up": estimated["run"] / taken,
        "bound by": {"estimated": estimated["stage"], "measured": [run["bound_by"] for run in runs]},
        "chunks": plan["chunks"],
    }
    print(f"{name}: {estimated['run']:.2f} s expected, {taken:.2f} s taken", flush=True)
    return figures


def described(figures: Mapping[str, Any]) -> str:
    """A table: seconds of each run, as expected and as measured, after the start; and seconds of the start."""
    lines = []
    for one in figures["jobs"]:
        run, start = one["seconds"], one["start-up"]
        lines.append([one["job"], f"{run['estimated']:.2f} s", f"{run['measured']:.2f} s",
                      f"{one['ratio without the start-up']:.2f}", f"{start['estimated']:.2f} s",
                      f"{start['measured']:.2f} s"])  # fmt: skip
    columns = ["", "expected", "measured", "ratio", "start, expected", "start, measured"]
    return table(columns, lines)


def main() -> None:
    """Write what was measured after each job, so that a limit of time loses one job at most."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.estimates")
    parser.add_argument("path", metavar="OUT.json")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no job after so many")
    parser.add_argument("--mebibytes", type=int, help="of each file")
    parser.add_argument("--side", type=int, help="of matrices that are multiplied")
    parser.add_argument("--repeats", type=int, default=1)
    given = vars(parser.parse_args())
    path = given.pop("path")
    figures = measure(**given, done=lambda figures: Path(path).write_text(json.dumps(figures)))
    save(figures, path)
    for one in figures["jobs"]:
        expected, taken = one["seconds"]["estimated"], one["seconds"]["measured"]
        print(f"{one['job']:<28} {expected:8.2f} s expected {taken:8.2f} s taken, ratio "
              f"{one['ratio without the start-up']:.2f}, with the start-up {one['ratio']:.2f}")  # fmt: skip


if __name__ == "__main__":
    main()
