"""The commands over saved results: `show`, `merge`, `diff` and `verify`."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

import click

from pipeline.cli.flags import Command, build_options, from_configuration
from pipeline.cli.help import OUTPUT, Flag, complete_files
from pipeline.cli.jobs import job_command, run_again
from pipeline.cli.outputs import Named, check_apart, check_draw
from pipeline.cli.typed_request import command_words
from pipeline.cli.usage import errors_have_status_2
from pipeline.engine.aggregate_plan import Job
from pipeline.errors import UsageError, VerificationError
from pipeline.process.last_words import emit
from pipeline.report.difference import between, differences
from pipeline.report.merge import merge
from pipeline.report.pictures import ratio
from pipeline.report.record import identities
from pipeline.report.result_file import WRITERS, check_output, write_output
from pipeline.report.saved_file import SUFFIXES, Saved, read_result
from pipeline.report.saved_panel import shown
from pipeline.rows import OF_ONE_AXIS
from pipeline.storage.atomic_file import reserved
from pipeline.storage.protocol import Source
from workflows import WORKFLOWS, pictures
from workflows.aggregation import Aggregation
from workflows.rows_result import RowsResult
from workflows.selection_result import SelectedResult
from workflows.shown import PlottedHistogram, PlottedRows

DIFFERENT = 1  # exit status of `diff`, as of cmp; errors have 2
MOST_LINES = 3  # of differences in the message of a mismatch


def _lines(saved: Saved, as_json: bool) -> list[str]:
    if not as_json:
        return shown(saved)
    return [json.dumps({"result": saved.result.to_json()} | dict(saved.record or {}))]


def _write(path: str, saved: Saved, read: Sequence[str], how: str = "counts", against: Saved | None = None) -> None:
    """Write a result in the format of a suffix, not over one that was read."""
    workflow = WORKFLOWS.get(saved.job)
    formats = workflow.formats if isinstance(workflow, Aggregation) else (*WRITERS, *pictures.SUFFIXES)
    if not isinstance(_whole(saved), PlottedHistogram | PlottedRows):
        formats = tuple(suffix for suffix in formats if suffix not in OF_ONE_AXIS)
    check_output(path, None, formats)
    check_apart([Named("-o", path)], [Named("", name) for name in read])
    with reserved(path) as target:
        if against:
            target.write(_ratio(path, saved, against, how))
        else:
            write_output(target, saved.result, saved.record, how)


def _whole(saved: Saved) -> Any:
    """The result as if no samples had been left out: its type says how it can be drawn."""
    return saved.result.result if isinstance(saved.result, SelectedResult) else saved.result


def _ratio(path: str, saved: Saved, against: Saved, how: str) -> bytes:
    names = saved.path, against.path
    if os.path.basename(names[0]) != os.path.basename(names[1]):
        names = os.path.basename(names[0]), os.path.basename(names[1])
    try:
        return ratio(saved.result, against.result, names, os.path.splitext(path)[1], how)
    except ValueError as error:
        raise UsageError(f"--against {against.path}: {str(error).removeprefix('against: ')}") from None


def _show(path: str, output: str | None, draw: str, against: str | None, as_json: bool) -> None:
    saved = read_result(path)
    check_draw(draw, [] if output is None else [Named("-o", output)], isinstance(_whole(saved), PlottedRows))
    other = None if against is None else _other(against, saved, output)
    if output is not None:
        _write(output, saved, [path] if other is None else [path, other.path], draw, other)
    emit(*_lines(saved, as_json))


def _other(path: str, saved: Saved, output: str | None) -> Saved:
    """The histogram that another one is drawn beside."""
    if output is None or not output.endswith(pictures.SUFFIXES):
        raise UsageError(f"--against {path}: expected a picture, got {output or 'none'}; name one with -o "
                         f"({', '.join(pictures.SUFFIXES)})")  # fmt: skip
    other = read_result(path)
    for one in (saved, other):
        if not isinstance(_whole(one), PlottedHistogram):
            rows = " in rows" if isinstance(_whole(one), RowsResult) else ""
            raise UsageError(f"{one.path}: --against expected two histograms, got the result of a {one.job}{rows}")
    return other


def _merge(paths: tuple[str, ...], output: str, as_json: bool) -> None:
    if len(paths) < 2:
        raise UsageError(f"expected two results or more, got {paths[0]} alone; name the others")
    merged = merge([read_result(path) for path in paths])
    saved = Saved(output, merged.result, merged.record)
    _write(output, saved, paths)
    emit(*_lines(saved, as_json))


@click.pass_context
def _diff(ctx: click.Context, /, a: str, b: str, as_json: bool) -> None:
    with errors_have_status_2("diff"):
        one, other = read_result(a), read_result(b)
        lines = differences(one, other)
        if as_json:
            emit(json.dumps({"equal": not lines, "results": [a, b], "differences": lines}))
        else:
            emit(*([f"{a} and {b} differ", *(f"  {line}" for line in lines)] if lines else [f"{a} and {b} are equal"]))
    if lines:
        ctx.exit(DIFFERENT)


def _verify(path: str, files: tuple[str, ...], quiet: bool) -> None:
    import dask.config

    saved = read_result(path)
    record = saved.known()
    workflow = WORKFLOWS.get(saved.job)
    if not isinstance(workflow, Aggregation):
        raise UsageError(f"{path}: expected a job, one of {', '.join(WORKFLOWS)}, got {saved.job}")
    if rounded := next((part["verification"]["rounding"] for part in saved.parts
                        if part["verification"].get("rounding")), None):  # fmt: skip
        raise UsageError(f"{path}: expected a result whose bits are the same everywhere, got one {rounded}; run the "
                         "job again without --kernel")  # fmt: skip
    digest = record.get("input", {}).get("blake3")
    # What is configured here was perhaps not configured there: only what was asked for then counts.
    with dask.config.set({"pipeline": {}}):
        command = job_command(workflow)
        words = command_words(command, record["asked"])
        ctx = command.make_context(workflow.name, ["--device=cpu", "--verify=full", *words, *files])
        values = from_configuration(ctx) | {"quiet": quiet, "with_digest": bool(digest)}
        jobs = [Job(workflow, build_options(workflow.options, values))]
    if digest:
        other = WORKFLOWS["digest"]
        assert isinstance(other, Aggregation)
        jobs.append(Job(other, other.options()))
    source, outcomes = run_again(jobs, values)
    changes = _changes(saved, source)
    lines = list(between(saved.result, outcomes[0].result))
    if digest and digest != outcomes[1].result.blake3:
        lines.append(f"BLAKE3 of the samples: {digest} and {outcomes[1].result.blake3}")
    if lines:
        seen = "; ".join(line.strip() for line in lines[:MOST_LINES])
        more = f"; and {len(lines) - MOST_LINES} more" if len(lines) > MOST_LINES else ""
        changes = changes or "the files have the sizes and times that they had then"
        raise VerificationError(f"{path}: expected the numbers that the data give, got others (in the file, from the "
                                "data): "
                                f"{seen}{more}; {changes}")  # fmt: skip
    devices = ", ".join(sorted({device for part in saved.parts for device in part["environment"]["devices"]}))
    emit(f"{path}: verified, every number is what the data give",
         f"  {outcomes[0].verdict.samples:,} samples computed again on the CPU, and all of them once more by the "
         "check, which shares no code with it",
         f"  the result was computed on {devices or 'nothing'}, by baru "
         f"{saved.parts[0]['environment']['versions'].get('baru')}",
         *([f"  BLAKE3 of the samples is the same: {digest}"] if digest else []),
         *([f"  {changes}"] if changes else []))  # fmt: skip


def _changes(saved: Saved, source: Source) -> str:
    """How the files differ from those of the record, by size, time of the last change, and array or slice."""
    then = [one for part in saved.parts for one in part["input"].get("identity", ())]
    now = list(identities(source))
    if not then:
        return "the record names no files: the samples came from standard input"
    if len(then) != len(now):
        return f"inputs: {len(then)} in the record, {len(now)} given"
    for before, after in zip(then, now, strict=True):
        if before.get("size") != after.get("size"):
            return f"{after['path']} has {after.get('size')} bytes, and had {before.get('size')}"
        if before.get("mtime_ns") != after.get("mtime_ns"):
            return f"{after['path']} was written to since, or is a copy"
        if os.path.basename(before["path"]) != os.path.basename(after["path"]):
            return f"{after['path']} is given, where the record names {before['path']}"
    return ""


def _json_flag() -> click.Option:
    return Flag(["--json", "as_json"], group=OUTPUT, is_flag=True, help="Print one JSON object instead.")


def _result(name: str) -> click.Argument:
    metavar = name.upper() if name in ("a", "b") else "RESULT"
    return click.Argument([name], metavar=metavar, shell_complete=complete_files)


READ = f"A result is a {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]} file that -o wrote."
show_command, merge_command, diff_command, verify_command = (
    Command(
        "show", callback=_show,
        params=[_result("path"), Flag(["-o", "--output"], group=OUTPUT, metavar="FILE",
                                      help="Write it in the format of the suffix, also as a picture."),
                Flag(["--draw"], group=OUTPUT, type=click.Choice(pictures.HOW), default="counts", shown="counts",
                     help="What a picture of -o shows: counts; log, the same on a logarithmic scale; or cumulative, "
                     "the share of the samples up to a value."),
                Flag(["--against"], group=OUTPUT, metavar="FILE",
                     help="Also draw another histogram of the same bins, and the ratio of both."), _json_flag()],
        help="Show a saved result: its numbers, what was checked, where it was computed, as the run printed it. "
             f"{READ}",
        example="counts.json -o counts.png",
    ),
    Command(
        "merge", callback=_merge,
        params=[click.Argument(["paths"], nargs=-1, required=True, metavar="RESULTS...", shell_complete=complete_files),
                Flag(["-o", "--output"], group=OUTPUT, metavar="FILE", required=True, help="Where the sum goes."),
                _json_flag()],
        help="Add up saved results of different files: the numbers of one run over all of them, to the last bit. "
             f"Results with different axes, dtypes or options, or that count the same file, are refused. {READ}",
        example="monday.json tuesday.json -o week.json",
    ),
    Command(
        "diff", callback=_diff,
        params=[_result("a"), _result("b"), _json_flag()],
        help="Say whether two saved results have the same numbers, bit by bit, and where they differ; times, devices "
             f"and file names are ignored. {READ} Exit status: 0 equal, 1 different, 2 an error.",
        example="monday.json tuesday.json",
    ),
    Command(
        "verify", callback=_verify,
        params=[_result("path"), click.Argument(["files"], nargs=-1, required=True, metavar="FILES...",
                                                shell_complete=complete_files),
                Flag(["-q", "--quiet"], group=OUTPUT, is_flag=True, help="Show no progress on stderr.")],
        help="Check a saved result against its data, without a GPU: the recorded request runs again on the CPU, every "
             "sample is checked by another computation, and every number compared. "
             f"{READ} Exit status: 0 verified, 3 a number differs.",
        example="counts.json 'run-*.bin'",
    ),
)  # fmt: skip
