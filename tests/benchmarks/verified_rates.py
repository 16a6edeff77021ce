"""Jobs without verification, with the default one and verified whole: seconds after the start, and the share checked.

python -m tests.benchmarks OUT_FOLDER --only verified_rates

A file in memory is given several times, as several files. The three ways of a job alternate, and medians count.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from pipeline.gpu.devices import find_devices
from pipeline.storage.generate import generate
from tests.benchmarks.common import command, process
from tests.benchmarks.jobs import MEMORY, inputs
from tests.benchmarks.markdown import share, table

MODES = ("off", "auto", "full")
# Times that the file is given: what does not depend on its length should be little of an unverified run.
TIMES = {"gpu": 32, "cpu": 2}
DTYPES = ("int8", "int16", "int32", "int64", "float16", "float32", "float64")
STREAMING: Mapping[str, tuple[str, ...]] = {
    "histogram": ("histogram", "--range", "0", "1000"), "histogram, its own range": ("histogram", "--range", "auto"),
    "sum": ("reduce", "--op", "sum"), "standard deviation and extremes": ("reduce", "--op", "std,min,max"),
}  # fmt: skip
# Of jobs that write an array also the dtypes of their inputs.
WRITING: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "map add": (("map", "add"), ("float32", "float32")), "stencil": (("stencil", "--radius", "1000"), ("float32",)),
    "transpose": (("transpose",), ("float64",)),
}  # fmt: skip
# Dtypes of the jobs beside the first and the sum.
FEW = ("int32", "float32")


def one_run(words: Sequence[str], mode: str) -> tuple[float, float]:
    """Seconds after the start of a job, and the share of its samples that was checked."""
    report = json.loads(process(command(*words, "-q", "--json", "--verify", mode)).printed)
    verdict = report["verification"]
    return report["performance"]["seconds"], verdict["checked"] / verdict["samples"]


def row(job: str, dtype: str, words: Sequence[str], nbytes: int, repeats: int) -> dict[str, Any]:
    """Medians of a job in each mode."""
    runs: dict[str, list[tuple[float, float]]] = {mode: [] for mode in MODES}
    for _ in range(repeats):
        for mode, done in runs.items():
            done.append(one_run(words, mode))
    figures: dict[str, Any] = {"job": job, "dtype": dtype, "bytes read": nbytes}
    for mode, done in runs.items():
        figures[mode] = {"seconds": median(seconds for seconds, _ in done), "all seconds": [s for s, _ in done],
                         "share": median(share for _, share in done)}  # fmt: skip
    print(job, dtype, *(f"{mode} {figures[mode]['seconds']:.2f} s" for mode in MODES), flush=True)
    return figures


def measure(
    mebibytes: int = 1024, times: Mapping[str, int] = TIMES, repeats: int = 3, dtypes: Sequence[str] = DTYPES
) -> dict[str, Any]:
    """All rows."""
    number = times["gpu" if find_devices().usable else "cpu"]
    rows = []
    with tempfile.TemporaryDirectory(dir=MEMORY) as scratch:
        folder = Path(scratch)
        for dtype in dtypes:
            path = str(folder / "data.npy")
            generate(path, mebibytes * 2**20 // int("".join(filter(str.isdigit, dtype))) * 8, dtype, "gaussian")
            one_run(["histogram", path], "full")  # compiles what is not cached
            for job, words in STREAMING.items():
                if dtype in FEW or job in ("histogram", "sum"):
                    rows.append(row(job, dtype, [*words, *[path] * number], number * os.stat(path).st_size, repeats))
            os.unlink(path)
        for job, (words, kinds) in WRITING.items():
            paths = inputs(folder, kinds, mebibytes * 2**20 * min(number, 4))
            words = (*words, *paths, "-o", str(folder / "out.npy"))
            one_run(words, "full")
            rows.append(row(job, kinds[0], words, sum(map(os.path.getsize, paths)), repeats))
    return {"repeats": repeats, "rows": rows}


def described(rows: Sequence[Mapping[str, Any]]) -> str:
    """A table: rates without verification and verified whole, their ratio, and what the default checks."""
    columns = ["", "unverified", "verified whole", "ratio", "checked by default", "in times the seconds"]
    lines = []
    for figures in rows:
        off, auto, full = (figures[mode]["seconds"] for mode in MODES)
        rates = (f"{figures['bytes read'] / seconds / 1e9:.3g} GB/s" for seconds in (off, full))
        lines.append([f"{figures['job']}, {figures['dtype']}", *rates, share(off / full),
                      f"{100 * figures['auto']['share']:.0f} %", f"{auto / off:.2f}"])  # fmt: skip
    return table(columns, lines)
