"""The README's tables, made from the recorded figures; nothing in them is typed by hand.

python -m tests.benchmarks.tables
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from kernels.histogram_ladder import VARIANTS
from tests.benchmarks.common import RESULTS

README = Path(__file__).parents[2] / "README.md"

# Shown of the kernel's measurements: dtype, bins, edges.
SHOWN = (("int32", 1024, "regular"), ("int32", 16384, "regular"), ("int32", 65536, "regular"),
         ("uint8", 256, "regular"), ("uint16", 1024, "regular"), ("int64", 1024, "regular"),
         ("float64", 1024, "regular"), ("float32", 1024, "regular"), ("float32", 1024, "irregular"))  # fmt: skip


def read(name: str) -> Any:
    """Recorded figures."""
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def table(columns: list[str], rows: list[list[str]]) -> str:
    """Markdown; all columns but the first are numbers."""
    rule = ["---", *["--:"] * (len(columns) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (columns, rule, *rows))


def kernel() -> str:
    """The histogram kernel beside the read stream and CuPy: the worst of all distributions measured."""
    figures = read("histogram_kernel_H200.json")
    rows = []
    for dtype, bins, edges in SHOWN:
        cases = [
            case for case in figures["cases"] if (case["dtype"], case["bins"], case["edges"]) == (dtype, bins, edges)
        ]
        worst = min(cases, key=lambda case: float(case["share of read"]))
        peers = [rate for name, rate in worst["GB/s"].items() if name.startswith("cupy")]
        ours = worst["GB/s"]["ours"]
        name = f"{dtype}, {bins:,} {'irregular ' if edges == 'irregular' else ''}bins"
        rows.append(
            [name, f"{ours:,.0f}", f"{worst['share of read']:.0%}", f"{ours / max(peers):.0f} ×" if peers else ""]
        )
    device, when = figures["environment"]["gpus"][0], figures["environment"]["date"]
    gib = figures["bytes"] / 2**30
    return (f"Histogram kernel on one {device}, {gib:.0f} GiB on the device, the worst distribution ({when}):\n\n"
            + table(["samples", "GB/s", "of a plain read", "against CuPy"], rows))  # fmt: skip


def files() -> str:
    """A file in the page cache to its verified histogram, and the whole command on CPU cores."""
    one, four, cores = (read(f"histogram_{name}.json") for name in ("file_H200", "file_4xH200", "command_2cores"))
    if not (one["identical"] and four["identical"]):
        raise ValueError("the recorded runs differ in their results: that is no figure to show but a bug to find")
    rows = []
    for figures, where, name in (
        (one, "one GPU", "one H200"),
        (four, "4 GPUs", "four H200"),
        (four, "CPU", "64 CPU cores"),
    ):
        runs = [run for run in figures["runs"] if run["where"] == where]
        best = max(runs, key=lambda run: float(run["bytes_per_second"]))
        rows.append([name, f"{figures['bytes'] / 2**30:.0f}", f"{best['bytes_per_second'] / 1e9:.1f}"])
    peers = one["peers, bytes per second"]
    for name in peers:
        rows.append([f"{name}, one H200", f"{one['bytes'] / 2**30:.0f}", f"{peers[name] / 1e9:.1f}"])
    large = cores["whole command"]["1073741824 samples, --verify sample"]
    ours, numpy = large["pipeline"], large["numpy"]
    return (
        "File in the page cache to its histogram, once the workers are up; identical results on all of them:\n\n"
        + table(["where", "GiB", "GB/s"], rows)
        + f"\n\nOn {cores['environment']['cores']} CPU cores the whole command takes {ours['seconds']:.1f} s for 4 GiB "
        f"and {ours['peak bytes'] / 1e6:.0f} MB of memory;\n`numpy.bincount(numpy.fromfile(…))` takes "
        f"{numpy['seconds']:.1f} s and {numpy['peak bytes'] / 1e9:.1f} GB."
    )


def ladder() -> str:
    """What each idea of the histogram's ladder buys, beside the course's own figures."""
    figures = read("study/histogram.json")
    rows = []
    for name, variant in VARIANTS.items():
        timed = [row for row in figures["rows"] if row["variant"] == name and row["ms"] and row["sizes"] == [2**25]
                 and row["table"] != "all samples equal"]  # fmt: skip
        if not timed:
            continue
        best = min(timed, key=lambda row: float(row["ms"]))
        course = [float(row["course_ms"]) for row in timed if row["course_ms"]]
        rows.append(
            [
                f"`{name}`: {variant.idea}",
                f"{best['ms']:.3g}",
                f"{best['share']:.1%}",
                f"{min(course):g}" if course else "",
            ]
        )
    device = figures["environment"]["device"]
    held = [row["verdict"] for row in figures["conclusions"]]
    return (
        table([f"histogram of 2^25 samples on {device}", "ms", "of a plain read", "there, on RTX 3060, ms"], rows)
        + f"\n\nOf {len(held)} statements tested on today's GPU {held.count('held')} held."
    )


def others() -> str:
    """What is exact elsewhere: sums beside the read stream and CUB's, products beside cuBLAS."""
    sums, products = read("reduce_kernel_H200.json"), read("matmul_kernel_H200.json")
    rows = []
    for case in sums["cases"]:
        if case["samples"] == "ordinary" and case["dtype"] in ("float32", "float64", "int32"):
            rates, share = case["GB/s"], case["share of read"]["sum"]
            peer = f"{rates['sum'] / rates['cupy.sum']:.2f} × CUB's sum, through CuPy"
            rows.append(
                [f"exact sum, {case['dtype']}", f"{rates['sum']:,.0f} GB/s", f"{share:.0%} of a plain read", peer]
            )
    for case in products["cases"]:
        rates = case["TFLOP/s"]
        rows.append([f"exact matmul, {case['dtype']}, {case['size']}²", f"{rates['ours']:.1f} TFLOP/s", "",
                     f"{case['share of cublas']:.2f} × cuBLAS"])  # fmt: skip
    device = sums["environment"]["gpus"][0]
    return f"On one {device}, data on the device:\n\n" + table(["", "rate", "limit", "peer"], rows)


TABLES = {"kernel": kernel, "others": others, "files": files, "ladder": ladder}


def filled(text: str) -> str:
    """The README with each table between its markers made anew."""
    for name, make in TABLES.items():
        between = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        if len(between.findall(text)) != 1:
            raise ValueError(f"README.md: expected <!-- {name} --> and <!-- /{name} --> once")
        text = between.sub(lambda found, made=make: f"{found[1]}\n{made()}\n\n{found[2]}", text)
    return text


if __name__ == "__main__":
    README.write_text(filled(README.read_text(encoding="utf-8")), encoding="utf-8")
