"""Jobs without verification, with the default one and verified whole: seconds after the start, and the share checked.

python -m tests.benchmarks OUT_FOLDER --only verified_streaming verified_writing verified_products

A file in memory is given several times, as several files. The three ways of a job alternate, and medians count.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from pipeline.gpu.devices import find_devices
from pipeline.storage.generate import generate
from tests.benchmarks.common import command, process
from tests.benchmarks.jobs import MEMORY, inputs
from tests.benchmarks.markdown import share, table

MODES = ("off", "auto", "full")
# Times that the file is given: what does not depend on its length should be little of an unverified run.
TIMES = {"gpu": 16, "cpu": 2}
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
# Dtypes and sizes of square matrices; a CPU takes minutes for larger ones.
PRODUCTS = (("int32", 4096), ("float16", 4096), ("float32", 4096), ("float64", 4096))
LARGE_PRODUCTS = {"gpu": (("float16", 16384), ("float32", 16384), ("float64", 16384)), "cpu": ()}
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


def product(dtype: str, size: int, folder: Path, repeats: int) -> dict[str, Any]:
    """Median seconds of whole commands, without a check and with it."""
    paths = [str(folder / name) for name in ("a.npy", "b.npy")]
    scale = 100 if np.dtype(dtype).kind == "i" else 1  # products of float16 would overflow
    for number, path in enumerate(paths):
        np.save(path, (scale * np.random.default_rng(number).standard_normal((size, size), np.float32)).astype(dtype))
    words = command("matmul", *paths, "-o", str(folder / "c.npy"), "-q", "--verify")
    taken: dict[str, list[float]] = {mode: [] for mode in ("off", "auto")}
    process([*words, "auto"])
    for turn in range(repeats):
        for mode in ("off", "auto") if turn % 2 else ("auto", "off"):
            taken[mode].append(process([*words, mode]).seconds)
    print("matmul", dtype, size, *(f"{mode} {median(seconds):.2f} s" for mode, seconds in taken.items()), flush=True)
    figures = {mode: {"seconds": median(seconds), "all seconds": seconds} for mode, seconds in taken.items()}
    return {"dtype": dtype, "size": size, **figures}


def streaming(
    mebibytes: int = 1024, times: Mapping[str, int] = TIMES, repeats: int = 3, dtypes: Sequence[str] = DTYPES
) -> dict[str, Any]:
    """Rows of jobs that only read."""
    number, rows = times[_device()], []
    with tempfile.TemporaryDirectory(dir=MEMORY) as scratch:
        path = os.path.join(scratch, "data.npy")
        for dtype in dtypes:
            generate(path, mebibytes * 2**20 // int("".join(filter(str.isdigit, dtype))) * 8, dtype, "gaussian")
            one_run(["histogram", path], "full")  # compiles what is not cached
            for job, words in STREAMING.items():
                if dtype in FEW or job in ("histogram", "sum"):
                    rows.append(row(job, dtype, [*words, *[path] * number], number * os.stat(path).st_size, repeats))
            os.unlink(path)
    return {"repeats": repeats, "rows": rows}


def writing(mebibytes: int = 1024, times: Mapping[str, int] = TIMES, repeats: int = 3) -> dict[str, Any]:
    """Rows of jobs that write an array."""
    rows = []
    with tempfile.TemporaryDirectory(dir=MEMORY) as scratch:
        for job, (words, kinds) in WRITING.items():
            paths = inputs(Path(scratch), kinds, mebibytes * 2**20 * min(times[_device()], 4))
            words = (*words, *paths, "-o", os.path.join(scratch, "out.npy"))
            one_run(words, "full")
            rows.append(row(job, kinds[0], words, sum(map(os.path.getsize, paths)), repeats))
    return {"repeats": repeats, "rows": rows}


def products(sizes: Sequence[tuple[str, int]] | None = None, repeats: int = 7) -> Iterator[dict[str, Any]]:
    """Rows of matrix products, after each of them."""
    if sizes is None:
        sizes = (*PRODUCTS, *LARGE_PRODUCTS[_device()])
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(dir=MEMORY) as scratch:
        for size in sizes:
            rows.append(product(*size, Path(scratch), repeats))
            yield {"repeats": repeats, "rows": rows}


def _device() -> str:
    return "gpu" if find_devices().usable else "cpu"


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


def described_products(rows: Sequence[Mapping[str, Any]]) -> str:
    """A table: whole commands without a check and with it."""
    lines = []
    for figures in rows:
        off, auto = (figures[mode]["seconds"] for mode in ("off", "auto"))
        lines.append([f"{figures['dtype']}, {figures['size']:,}²", f"{off:.2f} s", f"{auto:.2f} s",
                      f"{100 * (auto / off - 1):.0f} %"])  # fmt: skip
    return table(["whole command", "unverified", "every element checked", "more"], lines)
