"""The README's tables, made from the recorded figures; nothing in them is typed by hand.

python -m tests.benchmarks.tables
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernels.study.histogram import VARIANTS
from tests.benchmarks.common import RESULTS
from tests.benchmarks.rows import ROWS
from tests.benchmarks.targets import CORES, GPU, Found, Need, Row

README = Path(__file__).parents[2] / "README.md"


def read(name: str) -> Any:
    """Recorded figures."""
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def table(columns: list[str], rows: list[list[str]]) -> str:
    """Markdown; all columns but the first are numbers."""
    rule = ["---", *["--:"] * (len(columns) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (columns, rule, *rows))


def amount(number: float, need: Need) -> str:
    """To the precision of its need, rounded away from it: what is short never looks as if it were not."""
    if math.isnan(number):
        return "nan"
    if number >= 100:
        return f"{number:,.0f}"
    step = 100 if need.unit.startswith("s") else 1000 if need.limit < 1.5 else 10
    return f"{(math.ceil if need.at_most else math.floor)(number * step) / step:g}"


def cell(found: Found | None, need: Need | None) -> str:
    """A measured number, bold where it is short, with the case that it is of."""
    if need is None:
        return ""
    if found is None:
        return "not measured"
    number = amount(found.number, need)
    case = f" ({found.case})" if found.case else ""
    return (number if need.met(found.number) else f"**{number}**") + case


def speed(rows: Sequence[Row] = ROWS) -> str:
    """Every row with what is required and what was measured; below it, what bounds those that are short."""
    lines, bounds = [], []
    for row in rows:
        found, beside = row.found()
        peer = f"{cell(beside, row.peer)}; {row.peer}" if row.peer else ""
        lines.append([row.what, str(row.need), cell(found, row.need), peer])
        if row.short():
            bounds.append(f"- **{row.what}**: {row.bound}")
    machines = f"{environment_of(GPU)}, or four of them; CPU rows on {CORES.removesuffix('cores')} cores"
    text = (
        f"Measured on {machines}. Ratios are those within one process,\nof all distributions, dtypes and sizes of a "
        "row the worst. Of a peer: what was measured; what is required.\n\n"
        + table(["", "required", "measured", "peer"], lines)
    )
    return f"{text}\n\nShort of it, in bold:\n\n" + "\n".join(bounds) if bounds else text


def environment_of(machine: str) -> str:
    """The GPU's name and the date, from the histogram's figures."""
    environment = read(f"histogram_kernel_{machine}.json")["environment"]
    return f"one {environment['gpus'][0]} ({environment['date']})"


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


TABLES = {"speed": speed, "ladder": ladder}


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
