"""The command `run`: the jobs of a file, one after another on one cluster, a line for each, and a table at the end."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from time import perf_counter
from typing import Any

import click

from pipeline.cli.batch_state import BatchState, key_of
from pipeline.cli.flags import Command, Duration, from_configuration
from pipeline.cli.help import OUTPUT, PLACE, Flag, complete_files
from pipeline.cli.job_file import Planned, read_jobs
from pipeline.cluster.shared import Shared, one_cluster
from pipeline.engine.outcome import Outcome
from pipeline.errors import PipelineError, UsageError, VerificationError, unexpected
from pipeline.process import signals
from pipeline.process.last_words import emit, say
from pipeline.process.signals import Stopped

# What a batch ends with: the first of these that one of its jobs ended with.
WORST = (VerificationError.exit_code, PipelineError.exit_code, UsageError.exit_code)
WORDS = {0: "verified", 1: "failed", 2: "wrong usage", 3: "MISMATCH", None: "not run"}
MOST_NAME, MOST_TEXT = 40, 100  # characters in the table

Line = dict[str, Any]


def _command_callback(path: str, **_: Any) -> None:
    ctx = click.get_current_context()
    values = from_configuration(ctx)
    if values["time_limit"] is not None:
        signals.limit(values["time_limit"], f"{values['time_limit']:g} s")
    jobs = read_jobs(path)
    if values["only"]:
        jobs = [job for job in jobs if {job.name, job.of} & {*values["only"]}]
        if not jobs:
            raise UsageError(f"{path}: expected jobs called {', '.join(values['only'])}, got none")
    if values["dry_run"]:
        ctx.exit(_plan_all(jobs, values))
    state = BatchState(path)
    # What jobs that are not asked for now have finished stays finished.
    if (values["resume"] or values["only"]) and not state.load() and values["resume"]:
        say("no unfinished batch of this file: all jobs run")
    lines: list[Line] = []
    try:
        with one_cluster(_bytes_of(jobs)) as shared:
            _run_all(jobs, state, shared, values, lines)
    except Stopped as stopped:
        done = sum(line["status"] == 0 for line in lines)
        stopped.add_note(f"{done} of {len(jobs)} jobs are done; the same command with --resume does the rest")
        raise
    finally:
        state.save()
        rest = [_line(job) for job in jobs[len(lines) :]]
        (say if values["as_json"] else emit)(*_table([*lines, *rest]))
    status = next((one for one in WORST if any(line["status"] == one for line in lines)), 0)
    if not status and not values["only"]:
        state.remove()
    ctx.exit(status)


def _run_all(jobs: Sequence[Planned], state: BatchState, shared: Shared, values: dict[str, Any],
             lines: list[Line]) -> None:  # fmt: skip
    """Run jobs in order; each adds its line, which says how it ended."""
    for number, job in enumerate(jobs, 1):
        key = key_of(job)
        done = state.line(job, key) if values["resume"] else None
        if done is not None:
            lines.append(done | {"resumed": True})
        else:
            if not values["quiet"]:
                say(f"[{number}/{len(jobs)}] {job.name}")
            lines.append(_line(job))
            _run(job, lines[-1], [*["--resume"] * values["resume"], "--quiet"])
            if lines[-1]["status"] == 0:
                state.finish(job, key, lines[-1])
            elif lines[-1]["status"] == PipelineError.exit_code:
                shared.close()  # whose workers may be why
        if values["as_json"]:
            emit(json.dumps(lines[-1]))
        signals.unseal()


def _plan_all(jobs: Sequence[Planned], values: dict[str, Any]) -> int:
    """Print what each job would need; the worst exit status."""
    lines: list[Line] = []
    for job in jobs:
        if not values["as_json"]:
            emit(*([""] if lines else []), f"{job.name}: {' '.join([str(job.command.name), *job.files])}")
        lines.append(_line(job))
        _run(job, lines[-1], ["--dry-run", *["--json"] * values["as_json"]])
    return next((one for one in WORST if any(line["status"] == one for line in lines)), 0)


def _line(job: Planned) -> Line:
    return {"name": job.name, "job": job.command.name, "files": list(job.files), "outputs": list(job.outputs),
            "status": None}  # fmt: skip


def _run(job: Planned, line: Line, more: Sequence[str]) -> None:
    """Run a job with more flags; its line gets the status, the start, the seconds and the results."""
    outcomes: list[Outcome] = []
    line["began"], began = datetime.now(UTC).isoformat(timespec="seconds"), perf_counter()
    try:
        with job.command.make_context(str(job.command.name), [*more, *job.words], obj=outcomes.extend) as ctx:
            job.command.invoke(ctx)
        line["status"] = 0
    except Stopped as stopped:
        line |= {"status": stopped.status, "error": str(stopped)}
        raise
    except click.ClickException as error:  # of a command these are PipelineErrors, too
        line |= {"status": error.exit_code, "error": error.format_message()}
    except Exception as error:
        line |= {"status": getattr(error, "exit_code", 1), "error": unexpected(error)}
    finally:
        line["seconds"] = round(perf_counter() - began, 3)
        line["results"] = [_summary(outcome) for outcome in outcomes]
    if line["status"]:
        say(f"{job.name}: error: {line['error']}")


def _summary(outcome: Outcome) -> dict[str, Any]:
    verdict = outcome.verdict
    return {"job": outcome.workflow.name, "samples": verdict.samples, "checked": verdict.checked,
            "verdict": str(verdict), "where": outcome.where,
            **({"blake3": outcome.blake3} if outcome.blake3 else {})}  # fmt: skip


def _bytes_of(jobs: Sequence[Planned]) -> int:
    """Bytes of all inputs that are files; errors in others appear when they are opened."""
    total = 0
    for job in jobs:
        with suppress(PipelineError, OSError):
            total += sum(os.path.getsize(path) for path in job.paths if os.path.isfile(path))
    return total


def _table(lines: Sequence[Line]) -> list[str]:
    """A line for each job, and one for all."""
    rows = [("job", "status", "samples", "checked", "seconds", "output")]
    for line in lines:
        first: Line = next(iter(line.get("results", ())), {})
        samples, checked = first.get("samples"), first.get("checked", 0)
        share = "" if not samples else f"{min(100 * checked / samples, 100 if checked == samples else 99.9):.3g} %"
        status = WORDS.get(line["status"], "stopped") + (" before" if line.get("resumed") else "")
        text = line.get("error") or " ".join(line["outputs"])
        rows.append((_cut(line["name"], MOST_NAME), status, "" if samples is None else f"{samples:,}", share,
                     f"{line['seconds']:.2f}" if "seconds" in line else "", _cut(text, MOST_TEXT)))  # fmt: skip
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    right = (False, False, True, True, True, False)
    shown = [
        "  ".join(f"{cell:>{width}}" if to_right else f"{cell:<{width}}"
                  for cell, width, to_right in zip(row, widths, right, strict=True)).rstrip()
        for row in rows
    ]  # fmt: skip
    good = sum(line["status"] == 0 for line in lines)
    return [shown[0], "─" * len(shown[0]), *shown[1:], "", f"{good} of {len(lines)} jobs verified"]


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


run_command = Command(
    "run",
    params=[
        click.Argument(["path"], metavar="JOBS.toml", shell_complete=complete_files),
        Flag(["--only"], multiple=True, metavar="NAME", help="Run only the jobs of this name; may be given several "
             "times."),
        Flag(["--json", "as_json"], group=OUTPUT, is_flag=True,
             help="Print one JSON object per line when each job ends; the table goes to stderr."),
        Flag(["-q", "--quiet"], group=OUTPUT, is_flag=True, help="Do not report on stderr which job begins."),
        Flag(["--resume"], group=PLACE, is_flag=True,
             help="Skip jobs that are finished, with the same inputs and outputs, and continue the interrupted one."),
        Flag(["--dry-run"], group=PLACE, is_flag=True, help="Run nothing; say what each job would need, like `plan`."),
        Flag(["--time-limit"], group=PLACE, type=Duration(), metavar="DURATION", help="Stop all after 90s, 30m or 2h, "
             "with exit status 75."),
    ],
    callback=_command_callback,
    help="Run the jobs in a file, one after another, on one cluster. A job that fails does not keep the others from "
         "running.\n\nExit status: that of the worst job, 3 before 1 before 2.",
    example="night.toml --resume",
)  # fmt: skip
