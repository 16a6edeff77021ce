"""Tables of the recorded studies: the ladder of the histogram, and what the courses conclude."""

from __future__ import annotations

import json
from typing import Any

from tests.benchmarks.common import RESULTS
from tests.benchmarks.markdown import table
from workflows.study.registry import STUDIES
from workflows.study.study import OURS

DOCUMENTS = ("TP CUDA", "Lab4", "GPGPU", "Seminar", "Histogramme", OURS)
OWN_KERNEL = "the job's own kernel"  # description of a recorded variant that the ladder no longer has


def read_study(job: str) -> Any:
    """A recorded study; None where it was not recorded."""
    path = RESULTS / "study" / f"{job}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def ladder() -> str:
    """The gain of each step of the histogram's ladder, next to the course's own figures."""
    figures = read_study("histogram")
    variants = STUDIES["histogram"].variants
    rows = []
    for name in dict.fromkeys(row["variant"] for row in figures["rows"]):
        timed = [row for row in figures["rows"] if row["variant"] == name and row["ms"] and row["sizes"] == [2**25]
                 and row["table"] != "all samples equal" and not row.get("broken")]  # fmt: skip
        if not timed:
            continue
        best = min(timed, key=lambda row: float(row["ms"]))
        course = [float(row["course_ms"]) for row in timed if row["course_ms"]]
        rows.append(
            [
                f"`{name}`: {variants[name].idea if name in variants else OWN_KERNEL}",
                f"{best['ms']:.3g}",
                f"{best['share']:.1%}" if best["share"] else "",
                f"{min(course):g}" if course else "",
            ]
        )
    device = figures["environment"]["device"]
    held = [row["verdict"] for row in figures["conclusions"]]
    columns = [f"histogram of 2^25 samples on {device}", "ms", "of a plain read", "in the course, on RTX 3060, ms"]
    return (
        table(columns, rows) + f"\n\nOf the {len(held)} statements of the course that were tested on this GPU, "
        f"{held.count('held')} hold."
    )


def shape() -> str:
    """Rates of products by the shape of the block, beside those of tiles."""
    rows = [row for row in read_study("matmul")["rows"] if row["rate"] and row["dtype"] == "float64"]
    rates = {
        (row["parameters"]["x"], row["parameters"]["y"]): row["rate"] for row in rows if row["table"] == "2-D blocks"
    }
    best = max(rates, key=lambda block: float(rates[block]))
    enough = [rate for (x, y), rate in rates.items() if x >= 4 and x * y >= 64]
    narrow = {width: max(rate for (x, _), rate in rates.items() if x == width) for width in (1, 2)}
    tiles = {
        name: max(row["rate"] for row in rows if row["variant"] == name) for name in ("shared_tile", "register_tiled")
    }
    gains = {name: rate / rates[best] for name, rate in tiles.items()}
    return table(
        ["4096 × 4096, float64", "GFLOP/s"],
        [
            [f"the best block, {best[0]} × {best[1]}", f"{rates[best]:,.0f}"],
            ["all of at least 64 threads, four or more along a row", f"{min(enough):,.0f} to {max(enough):,.0f}"],
            ["the best with one thread along a row", f"{narrow[1]:,.0f}"],
            ["the best with two threads along a row", f"{narrow[2]:,.0f}"],
            [
                f"a tile in shared memory, {gains['shared_tile']:.1f} times the best block",
                f"{tiles['shared_tile']:,.0f}",
            ],
            [f"a tile in registers, {gains['register_tiled']:.1f} times", f"{tiles['register_tiled']:,.0f}"],
        ],
    )


def conclusions() -> str:
    """Every conclusion, its place, and whether it held when the study was recorded."""
    rows = []
    for job, study in STUDIES.items():
        recorded = {row["claim"]: row["verdict"] for row in (read_study(job) or {"conclusions": []})["conclusions"]}
        for conclusion in study.conclusions:
            verdict = recorded.get(conclusion.claim, "not measured yet")
            shown = f"**{verdict}**" if verdict == "not held" else verdict
            rows.append([conclusion.place, f"`{job}`", conclusion.claim, shown])
    rows.sort(key=lambda row: DOCUMENTS.index(row[0].partition(",")[0]))
    return _words(["place", "study", "conclusion", "on an H200"], rows)


def _words(columns: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (columns, ["---"] * len(columns), *rows))
