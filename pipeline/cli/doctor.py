"""The command `doctor`: whether this machine is ready for jobs, and what to do if it is not."""

from __future__ import annotations

import json

import click

from pipeline.cli.flags import Command
from pipeline.process.last_words import emit


@click.command(cls=Command)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of lines.")
@click.pass_context
def doctor(ctx: click.Context, as_json: bool) -> None:
    """Check what jobs need of this machine, each with a time limit.

    A line is `ok`; `note`: jobs run, but slower or with less than they could; `problem`: some jobs fail; or `skipped`,
    because of another line. Notes and problems say what to do. Exit status: 0 without a problem, else 1.
    """
    from pipeline.doctor.check import OK, PROBLEM, examine
    from pipeline.doctor.checks import CHECKS

    width, lines = max(len(check.name) for check in CHECKS), []
    for line in examine(CHECKS):
        lines.append(line)
        if not as_json:
            found = line.finding
            emit(f"{found.state:<7}  {line.name:<{width}}  {found.text}{f'; {found.remedy}' if found.remedy else ''}")
    problems = sum(line.finding.state == PROBLEM for line in lines)
    if as_json:
        emit(json.dumps({"ready": not problems, "checks": [
            {"name": line.name, "state": line.finding.state, "text": line.finding.text,
             "remedy": line.finding.remedy or None, "seconds": line.seconds} for line in lines]}))  # fmt: skip
    else:
        others = sum(line.finding.state not in (OK, PROBLEM) for line in lines)
        emit("", f"{problems or 'no'} problem{'s'[: problems != 1]}" + (f", {others} to look at" if others else ""))
    if problems:
        ctx.exit(1)
