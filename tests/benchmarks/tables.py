"""The tables in README.md and docs/, made from the recorded figures; no number in them is typed by hand.

python -m tests.benchmarks.tables
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tests.benchmarks import (
    arrays,
    decompress_kernel,
    error_tables,
    estimates,
    format_rates,
    formats,
    hostile_kernels,
    matmul_tables,
    planted_errors,
    rows_kernel,
    select_kernel,
    verified_rates,
)
from tests.benchmarks import question_kernels as question_rates
from tests.benchmarks import questions as question_tables
from tests.benchmarks.common import RESULTS
from tests.benchmarks.markdown import share, table
from tests.benchmarks.rows import ROWS
from tests.benchmarks.study_tables import conclusions, ladder, shape
from tests.benchmarks.targets import CORES, GPU, GPUS, IN_MEMORY, Figure, Need, Row

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
DOCS = ROOT / "docs"
REDUCE_DTYPES = ("uint8", "int32", "int64", "float16", "float32", "float64")
REDUCE_PARTS = ("sum", "sum, squares", "extremes", "everything")


def read(name: str) -> Any:
    """Recorded figures."""
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def amount(number: float, need: Need) -> str:
    """To the precision of the requirement, rounded away from it, so that rounding never hides a shortfall."""
    if math.isnan(number):
        return "nan"
    if number >= 100:
        return f"{number:,.0f}"
    step = 100 if need.unit.startswith("s") else 1000 if need.limit < 1.5 else 10
    return f"{(math.ceil if need.at_most else math.floor)(number * step) / step:g}"


def cell(figure: Figure | None, need: Need | None) -> str:
    """A measured number, bold where it falls short, with the case that it belongs to."""
    if need is None:
        return ""
    if figure is None:
        return "not measured"
    number = amount(figure.number, need)
    case = f" ({figure.case})" if figure.case else ""
    return (number if need.met(figure.number) else f"**{number}**") + case


def measured(rows: Sequence[Row]) -> str:
    """Each row with the requirement and the measurement, under a line that says where and how."""
    lines = []
    for row in rows:
        figure, of_peer = row.figures()
        peer = f"{cell(of_peer, row.peer)}; {row.peer}" if row.peer else ""
        lines.append([row.what, str(row.need), cell(figure, row.need), peer])
    return (
        f"Measured on {machines()}{elsewhere(rows)}.\nA ratio compares two measurements of one run. Rows show their "
        "worst distribution, dtype and size; for files and commands,\nthe fastest or the median run. Figures that fall "
        "short are bold. The last column has the measured ratio to a peer,\nthen the required one.\n\n"
        + table(["", "required", "measured", "peer"], lines)
    )


def speed(rows: Sequence[Row] = ROWS) -> str:
    """Every row; below the table, what limits those that fall short."""
    bounds = [f"- **{row.what}**: {row.bound}" for row in rows if row.short()]
    text = measured(rows)
    return f"{text}\n\n## What bounds the rows in bold\n\n" + "\n".join(bounds) if bounds else text


def highlights(rows: Sequence[Row] = ROWS) -> str:
    """The rows that the README shows, and how many of all rows meet the requirement."""
    met = sum(row.met() for row in rows)
    return (
        measured([row for row in rows if row.in_readme]) + f"\n\n{met} of all {len(rows)} rows meet their requirement. "
        "[docs/performance.md](docs/performance.md) has them all, with what bounds\nthose that fall short and what "
        "was tried."
    )


def machines() -> str:
    """The GPU, the days on which its files were recorded, and the cores of the CPU rows."""
    environments = [read(path.name)["environment"] for path in sorted(RESULTS.glob(f"*_{GPU}.json"))]
    days = sorted({environment["date"] for environment in environments})
    name = read(f"histogram_kernel_{GPU}.json")["environment"]["gpus"][0]
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return f"one {name} ({when}) or {GPUS.partition('x')[0]} of them; CPU rows on {CORES.removesuffix('cores')} cores"


def elsewhere(rows: Sequence[Row]) -> str:
    """The GPU of the rows of arrays in memory, if there are any, which is another one."""
    if not any(f"arrays_{IN_MEMORY}" in getattr(row.find, "args", ()) for row in rows):
        return ""
    environment = read(f"arrays_{IN_MEMORY}.json")["environment"]
    return f".\nThe rows *histogram of an array on a GPU* are from one {environment['gpus'][0]} ({environment['date']})"


def reductions() -> str:
    """Each part of a reduction as a share of a plain read, by dtype."""
    cases = {
        (case["dtype"], case["samples"]): case["share of read"] for case in read(f"reduce_kernel_{GPU}.json")["cases"]
    }
    rows = [
        [part + suffix, *(share(cases[dtype, samples][part]) for dtype in REDUCE_DTYPES)]
        for samples, suffix in (("ordinary", ""), ("any bits", ", any bits"))
        for part in REDUCE_PARTS
    ]
    return table(["share of a plain read", *REDUCE_DTYPES], rows)


def in_memory() -> str:
    """Arrays in a GPU's memory beside CuPy's functions."""
    path = RESULTS / f"arrays_{IN_MEMORY}.json"
    return arrays.described(read(path.name)["cases"]) if path.exists() else "Not measured yet."


def products() -> str:
    """Large products beside cuBLAS."""
    return matmul_tables.large(read(f"matmul_kernel_{GPU}.json")["cases"])


def hard_products() -> str:
    """Products with elements that are computed term by term."""
    return matmul_tables.hard(read(f"matmul_kernel_{GPU}.json")["hard cases"])


def small_products() -> str:
    """Stacks of small matrices beside their limit and cuBLAS."""
    return matmul_tables.small(read(f"matmul_small_{GPU}.json")["cases"])


def odd_products() -> str:
    """Stacks of small matrices with elements that are computed term by term."""
    return matmul_tables.odd(read(f"matmul_small_{GPU}.json"))


def caught(by: str) -> str:
    """Which errors in products are caught, exact products or those by a library."""
    return error_tables.found(read(f"{by}_errors_{CORES}.json")["rows"])


def curve(by: str, *first: str) -> str:
    """The same by the size of the error; `first` is the heading of the largest one."""
    return error_tables.curve(read(f"{by}_errors_{CORES}.json")["rows"], *first)


def hard_errors(by: str) -> str:
    """What may pass in hard products."""
    return error_tables.hard(read(f"{by}_errors_{CORES}.json")["hard"])


def hidden_errors() -> str:
    """What passes in elements far below the largest ones of their rows."""
    return error_tables.hidden(read(f"hidden_errors_{CORES}.json")["rows"])


def planted() -> str:
    """What became of planted errors, by place, on each machine."""
    files = sorted(RESULTS.glob("planted_errors_*.json"))
    return "\n\n".join(planted_errors.described(read(path.name)) for path in files)


def verified(machine: str = "H200") -> str:
    """What verification costs the jobs that stream, and those that write an array."""
    paths = {kind: f"verified_{kind}_{machine}.json" for kind in ("streaming", "writing", "products")}
    rows = {kind: read(path)["rows"] if (RESULTS / path).exists() else [] for kind, path in paths.items()}
    tables = verified_rates.described([*rows["streaming"], *rows["writing"]])
    return f"{tables}\n\n{verified_rates.described_products(rows['products'])}" if rows["products"] else tables


def stored(machine: str) -> str:
    """Rates of other formats beside raw samples, and whole commands beside other libraries'."""
    for path in RESULTS.glob(f"format_rates_*{machine}.json"):
        return format_rates.described(read(path.name))
    path = RESULTS / f"formats_{machine}.json"
    if not path.exists():
        return "Not measured yet."
    figures = read(path.name)
    commands = figures["whole command"]
    text = formats.described(figures["streamed"])
    return f"{text}\n\n{formats.described_commands(commands)}" if commands else text


def recorded(module: Any, name: str) -> str:
    """The table of one benchmark."""
    return str(module.described(read(name)))


def questions() -> str:
    """Whole commands that answer questions about one file, beside other libraries'."""
    path = RESULTS / f"questions_{CORES}.json"
    return question_tables.described(read(path.name)) if path.exists() else "Not measured yet."


GENERAL = ("environment", "harness", "seed", "trials", "seconds", "failures", "rate of failures below")


def chaos() -> str:
    """The long runs of the harnesses in tests/chaos, by machine."""
    lines = []
    for path in sorted(RESULTS.glob("chaos_*.json")):
        figures = read(path.name)
        seen = {name: seen for name, seen in figures.items() if name not in GENERAL and isinstance(seen, int | float)}
        rest = ", ".join(f"{name}: {number:,}" for name, number in seen.items())
        bound = f"{figures['rate of failures below']:.2g}" if not figures["failures"] else ""
        machine = path.stem.removeprefix(f"chaos_{figures['harness']}_")
        lines.append([f"`{figures['harness']}`, {machine}, {figures['environment']['date']}", f"{figures['trials']:,}",
                      f"{len(figures['failures']):,}", bound, rest])  # fmt: skip
    return table(["harness, machine", "trials", "failures", "rate below", "what was seen"], lines)


PAGES: Mapping[Path, Mapping[str, Callable[[], str]]] = {
    README: {"speed": highlights},
    DOCS / "performance.md": {
        "speed": speed, "questions": questions,
        "question kernels": partial(recorded, question_rates, "question_kernels_H100.json"),
        "hostile kernels": partial(recorded, hostile_kernels, "hostile_kernels_H100.json"),
        "rows kernel": partial(recorded, rows_kernel, f"rows_kernel_{GPU}.json"),
        "select kernel": partial(recorded, select_kernel, f"select_kernel_{GPU}.json"),
    },
    DOCS / "plan.md": {
        "estimates": partial(recorded, estimates, "estimates_H100.json"),
        "estimates, two cores": partial(recorded, estimates, f"estimates_{CORES}.json"),
    },
    DOCS / "use.md": {"arrays": in_memory},
    DOCS / "kernels.md": {"ladder": ladder, "shape": shape},
    DOCS / "studies.md": {"conclusions": conclusions},
    DOCS / "reduce.md": {"reductions": reductions},
    DOCS / "matmul.md": {
        "products": products, "hard products": hard_products, "small products": small_products,
        "odd products": odd_products,
    },
    DOCS / "verification.md": {
        "product errors": partial(caught, "product"), "product curve": partial(curve, "product"),
        "hard product errors": partial(hard_errors, "product"), "hidden errors": hidden_errors,
        "library errors": partial(caught, "library"), "library curve": partial(curve, "library", "largest"),
        "hard library errors": partial(hard_errors, "library"),
        "planted errors": planted, "verified rates": verified,
        "verified rates, H100": partial(verified, "H100"), "verified rates, two cores": partial(verified, CORES),
    },
    DOCS / "guarantees.md": {"chaos": chaos},
    DOCS / "formats.md": {
        "formats": partial(stored, "H200"), "formats, two cores": partial(stored, CORES),
        "formats, 32 GiB": partial(recorded, format_rates, "format_streaming_H200.json"),
        "decompressed": partial(recorded, decompress_kernel, f"decompress_kernel_{GPU}.json"),
    },
}  # fmt: skip


def filled(page: Path, text: str) -> str:
    """A page with each table between its markers regenerated."""
    for name, make in PAGES[page].items():
        between = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        if len(between.findall(text)) != 1:
            raise ValueError(f"{page.name}: expected <!-- {name} --> and <!-- /{name} --> once")
        text = between.sub(lambda old, made=make: f"{old[1]}\n{made()}\n\n{old[2]}", text)
    return text


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(filled(page, page.read_text(encoding="utf-8")), encoding="utf-8")
