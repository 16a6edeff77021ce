"""The command `compare`: whether, where and by how much two arrays differ."""

from __future__ import annotations

import json
from typing import Any

import click

from pipeline.cli.flags import Command, Duration
from pipeline.cli.help import COMPUTATION, OUTPUT, PLACE, Flag, complete_files
from pipeline.cli.inputs import input_flags, opened
from pipeline.cli.usage import errors_have_status_2
from pipeline.compare import Comparison, compare, plain, shown
from pipeline.errors import UsageError
from pipeline.process.heartbeat import STALL_SECONDS
from pipeline.process.last_words import emit
from pipeline.storage.paths import is_stdin
from workflows.shown import how_many

DIFFERENT = 1  # exit status, as of cmp; errors have 2


@click.pass_context
def _compare(ctx: click.Context, /, a: str, b: str, as_values: bool, as_json: bool, **values: Any) -> None:
    with errors_have_status_2("compare"):
        if is_stdin(a) and is_stdin(b):
            raise UsageError("expected two sources, got standard input twice; write one of them to a file first")
        first, second = (opened((name,), values | {"spooled": ""}, empty=True) for name in (a, b))
        comparison = compare(first, second, as_values)
        emit(*([json.dumps(_as_json(comparison, a, b))] if as_json else _lines(comparison, a, b)))
    if not comparison.equal:
        ctx.exit(DIFFERENT)


compare_command = Command(
    "compare",
    params=[
        click.Argument(["a"], shell_complete=complete_files),
        click.Argument(["b"], shell_complete=complete_files),
        *(flag for flag in input_flags() if flag.name != "spool"),
        Flag(["--as-values"], group=COMPUTATION, is_flag=True, help="NaN equals NaN, and -0 equals 0; otherwise all "
             "bits have to be equal."),
        Flag(["--json", "as_json"], group=OUTPUT, is_flag=True, help="Print one JSON object instead of lines."),
        Flag(["--stall-timeout"], group=PLACE, type=Duration(), metavar="DURATION", default=STALL_SECONDS, shown="10m",
             help="How long to wait while nothing arrives on standard input."),
    ],
    callback=_compare,
    help="Say whether two arrays are equal, and where and by how many units in the last place they differ.\n\n"
         "A and B are files of any format that jobs read, FILE::MEMBER, patterns, or - for standard input. Formats and "
         "byte orders may differ. Exit status: 0 equal, 1 different, 2 an error.",
    example="before.npy after.h5::/data --as-values",
)  # fmt: skip


def _as_json(comparison: Comparison, a: str, b: str) -> dict[str, Any]:
    difference, values = comparison.difference, comparison.values or ()
    return {
        "equal": comparison.equal,
        "as_values": comparison.as_values,
        "inputs": [
            {"file": name, "dtype": dtype.name, "shape": list(shape)}
            for name, dtype, shape in zip((a, b), comparison.dtypes, comparison.shapes, strict=True)
        ],
        "compared": comparison.compared,
        "differing": difference.differing,
        "first": None if comparison.index is None else list(comparison.index),
        "values": [plain(value) for value in values],
        "bits": [f"0x{int(value.view(f'u{value.itemsize}')):0{2 * value.itemsize}x}" for value in values],
        "largest_ulp": difference.ulp,
        "nan": difference.nan,
    }


def _lines(comparison: Comparison, a: str, b: str) -> list[str]:
    (dtype, other), (shape, second) = comparison.dtypes, comparison.shapes
    difference, lines = comparison.difference, []
    if dtype != other:
        lines.append(f"dtypes differ: {dtype} and {other}; no samples were compared")
    if shape != second:
        lines.append(f"shapes differ: {shape} and {second}")
    if difference.differing and comparison.values is not None and comparison.index is not None:
        among = "" if shape == second else "first "
        lines.append(f"{difference.differing:,} of the {among}{comparison.compared:,} samples differ")
        where = ", ".join(map(str, comparison.index))
        lines.append(f"first at [{where}]: {' and '.join(map(shown, comparison.values))}")
        if difference.ulp is not None:
            lines.append(f"largest distance: {difference.ulp:,} ulp")
        if difference.nan:
            lines.append(f"{difference.nan:,} of them are NaN on one side or both, without a distance")
    elif dtype == other and shape != second:
        lines.append(f"the first {comparison.compared:,} samples are equal")
    if comparison.equal:
        return [f"{a} and {b} are equal: {how_many(comparison.compared)} of {dtype}, shape {shape}"]
    return [f"{a} and {b} differ", *(f"  {line}" for line in lines)]
