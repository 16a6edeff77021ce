"""The subcommand of every job, built from its declaration: arguments, flags, what is printed and written."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields
from typing import Any, NamedTuple, cast

import click

from pipeline.cli.flags import Command, Duration, Size, build_options, from_configuration, option_flags
from pipeline.cli.help import COMPUTATION, INPUT, OUTPUT, PLACE, Flag
from pipeline.cli.progress import show_progress
from pipeline.cluster.placement import STALL_SECONDS, Placement
from pipeline.engine.aggregate import run_all
from pipeline.engine.aggregate_plan import Job
from pipeline.engine.outcome import Outcome
from pipeline.errors import UsageError
from pipeline.process.last_words import emit, say
from pipeline.process.signals import limit as time_limit
from pipeline.report.panel import panel, to_json
from pipeline.report.result_file import check_output, write_output
from pipeline.report.trace import to_table, write_trace
from pipeline.settings import VERIFY, Settings
from pipeline.storage.atomic_file import check_place, whole_file
from pipeline.storage.sources import BYTEORDERS, DTYPES, RAW_DTYPE, Source, open_source
from workflows import WORKFLOWS
from workflows.aggregation import Aggregation
from workflows.array_job import ArrayJob

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
PLACEMENT = ("device", "scheduler", "scheduler_file", "dashboard_address", "tls_ca_file", "tls_cert", "tls_key")
WHOLE = "FILES are raw samples or .npy files, or patterns like 'run-*.bin'; all count as one."


class Requested(NamedTuple):
    """A job that returns its result, and the file to write it to, if any."""

    job: Job
    output: str | None


def job_command(workflow: Aggregation[Any] | ArrayJob[Any]) -> Command:
    """The subcommand of a job."""

    @click.pass_context
    def callback(ctx: click.Context, /, **_: Any) -> None:
        values = from_configuration(ctx)
        options = build_options(workflow.options, values)
        if values["scheduler"] and values["scheduler_file"]:
            raise click.UsageError("expected --scheduler or --scheduler-file, got both; leave one out")
        if isinstance(workflow, ArrayJob):
            outcomes = _run_array_job(workflow, options, values)
        else:
            first = Requested(Job(workflow, options), values["output"])
            outcomes = _run_aggregations([first, *map(parse_also, values["also"])], values)
        print_outcomes(outcomes, values["as_json"])

    arguments, flags = option_flags(workflow.options)
    files = click.Argument(["files"], nargs=-1, required=True, metavar=_files(workflow))
    text = f"{workflow.summary}\n\n{workflow.files if isinstance(workflow, ArrayJob) else WHOLE}"
    return Command(workflow.name, params=[*arguments, files, *flags, *_shared_flags(workflow)], callback=callback,
                   help=text, short_help=workflow.summary, section="Jobs", example=workflow.example,
                   context_settings=CONTEXT)  # fmt: skip


def _files(workflow: Aggregation[Any] | ArrayJob[Any]) -> str:
    """What the usage line calls the files: FILE where the job takes exactly one, whatever its options are."""
    fixed = isinstance(workflow, ArrayJob) and all(field.default is not MISSING for field in fields(workflow.options))
    return "FILE" if fixed and cast(ArrayJob[Any], workflow).operands(workflow.options()) == 1 else "FILES..."


def _shared_flags(workflow: Aggregation[Any] | ArrayJob[Any]) -> list[click.Option]:
    """Flags of all jobs: how to read the input, what to check, what to print, where to run."""
    aggregation = isinstance(workflow, Aggregation)
    flags = [
        Flag(["--dtype"], group=INPUT, metavar="DTYPE", shown=RAW_DTYPE, help=f"Of raw files: {', '.join(DTYPES)}."),
        Flag(["--byteorder"], group=INPUT, type=click.Choice(BYTEORDERS), shown="little", help="Of raw files."),
        Flag(["--offset"], group=INPUT, type=int, metavar="N", shown="0", help="Bytes to skip at the start of raw "
             "files."),
        Flag(["--also"], group=COMPUTATION, multiple=True, metavar="JOB", help="Another job over the same samples, "
             "which are read once for all: 'reduce --op sum,std -o sums.json', with its own options and its own "
             "output. May be given several times.") if aggregation else None,
        Flag(["--verify"], group=COMPUTATION, type=click.Choice(VERIFY), default="auto", shown="auto",
             help="What to check against an independent computation on the CPU: as much as can be checked in the time "
             "that the run takes, at least 1 % of every chunk; everything; a random 1/256 of every chunk; or nothing. "
             "Invariants are checked in any case."),
        _output_flag(workflow),
        Flag(["--json", "as_json"], group=OUTPUT, is_flag=True, help="Print one JSON object instead of the panel."),
        Flag(["--trace"], group=OUTPUT, metavar="FILE", help="Write when every block was read, copied and computed, "
             "for Perfetto or chrome://tracing, and print a summary on stderr."),
        Flag(["-q", "--quiet"], group=OUTPUT, is_flag=True, help="Show no progress on stderr."),
        Flag(["--device"], group=PLACE, type=click.Choice(["auto", "gpu", "cpu"]), default="auto", shown="auto",
             help="What to compute on; the result is the same."),
        Flag(["-c", "--chunk-size"], group=PLACE, type=Size(), metavar="SIZE", shown="by input size and workers",
             help="Bytes per task, like 256MiB."),
        Flag(["--device-memory-limit"], group=PLACE, type=Size(), metavar="SIZE", help="GPU memory that the tasks of a "
             "GPU may use."),
        None if aggregation else Flag(["--memory-limit"], group=PLACE, type=Size(), metavar="SIZE", help="Memory that "
                                      "the tasks of a process may use."),
        Flag(["--scheduler"], group=PLACE, metavar="ADDRESS", help="Run on this existing Dask cluster."),
        Flag(["--scheduler-file"], group=PLACE, metavar="FILE", help="Run on the cluster whose scheduler wrote this "
             "file."),
        Flag(["--tls-ca-file"], group=PLACE, metavar="FILE", help="Certificate authority of that cluster (PEM)."),
        Flag(["--tls-cert"], group=PLACE, metavar="FILE", help="Your certificate for it."),
        Flag(["--tls-key"], group=PLACE, metavar="FILE", help="The key of your certificate."),
        Flag(["--time-limit"], group=PLACE, type=Duration(), metavar="DURATION", help="Stop after 90s, 30m or 2h, with "
             "exit status 75."),
        Flag(["--stall-timeout"], group=PLACE, type=Duration(), metavar="DURATION", default=STALL_SECONDS, shown="10m",
             help="How long a process may read, copy and compute nothing until it is killed, and its task done again."),
        Flag(["--dashboard-address"], group=PLACE, metavar=":PORT", help="Serve the Dask dashboard on 127.0.0.1, at "
             ":8787 for example, or at any free port with :0."),
    ]  # fmt: skip
    return [flag for flag in flags if flag is not None]


def _output_flag(workflow: Aggregation[Any] | ArrayJob[Any]) -> click.Option:
    """The flag for the file that a job writes: optional for a result, required for an array."""
    if isinstance(workflow, ArrayJob):
        text = "Where the array goes: .npy, or raw under any other suffix. It appears once it is verified."
    else:
        text = f"Write the result, as the suffix says: {', '.join(workflow.formats)}."
    required = isinstance(workflow, ArrayJob)
    return Flag(["-o", "--output"], group=OUTPUT, metavar="FILE", required=required, help=text)


def parse_also(text: str) -> Requested:
    """The job that the words of `--also` describe, parsed as its own subcommand would be.

    Raises
    ------
    click.UsageError
        If there is no such job, it writes an array, or an option is not its own.
    """
    try:
        name, *words = shlex.split(text)
    except ValueError as error:  # an unclosed quote, or no word at all
        raise click.UsageError(f"--also: expected a job and its options, got {text!r}") from error
    workflow = WORKFLOWS.get(name)
    if not isinstance(workflow, Aggregation):
        known = ", ".join(name for name, other in WORKFLOWS.items() if isinstance(other, Aggregation))
        raise click.UsageError(f"--also: expected a job out of {known}, got {name!r}")
    arguments, flags = option_flags(workflow.options)
    command = Command(name, params=[*arguments, *flags, _output_flag(workflow)], add_help_option=False)
    try:
        values = from_configuration(command.make_context(name, words))
        return Requested(Job(workflow, build_options(workflow.options, values)), values["output"])
    except click.ClickException as error:
        raise click.UsageError(f"--also {name}: {error.format_message()}") from None


def _run_aggregations(requested: Sequence[Requested], values: dict[str, Any]) -> tuple[Outcome, ...]:
    """Run jobs over the same samples, read once, and write their results."""
    jobs = [job for job, _ in requested]
    empty = all(job.workflow.empty for job in jobs)
    source = open_source(values["files"], values["dtype"], values["byteorder"], values["offset"], empty=empty)
    outputs = [output for _, output in requested if output is not None]
    if len(set(outputs)) < len(outputs):
        raise click.UsageError(f"expected another output for every job, got {', '.join(outputs)}")
    for number, (job, output) in enumerate(requested):
        try:
            if output is not None:
                check_output(output, source, job.workflow.formats)
        except UsageError as error:
            raise UsageError(f"--also {job.workflow.name}: {error}" if number else str(error)) from None
    name = ", ".join(job.workflow.name for job in jobs)
    outcomes = _run(name, values, [source], lambda settings: run_all(jobs, source, settings))
    for (_, output), outcome in zip(requested, outcomes, strict=True):
        if output is not None:
            write_output(output, outcome.result)
    return outcomes


def _run_array_job(workflow: ArrayJob[Any], options: Any, values: dict[str, Any]) -> tuple[Outcome, ...]:
    """Run a job that writes an array."""
    from pipeline.engine.array import run_array

    files, path = values["files"], values["output"]
    groups = [files] if workflow.operands(options) is None else [(path,) for path in files]
    described = values["dtype"], values["byteorder"], values["offset"]
    sources = [open_source(group, *described, samples=False) for group in groups]
    return _run(workflow.name, values, sources, lambda how: (run_array(workflow, options, sources, path, how),))


def _run(
    name: str, values: dict[str, Any], sources: Sequence[Source], run: Callable[[Settings], tuple[Outcome, ...]]
) -> tuple[Outcome, ...]:
    """Run with the flags of all jobs, and write the trace."""
    if values["trace"] is not None:
        for source in sources:
            check_place(values["trace"], source)
    if values["time_limit"] is not None:
        time_limit(values["time_limit"], f"{values['time_limit']:g} s")
    where = {name: values[name] for name in PLACEMENT}
    with show_progress(name, values["quiet"]) as progress:
        outcomes = run(
            Settings(
                placement=Placement(**where, own_process=True, stall_seconds=values["stall_timeout"]),
                verify=values["verify"],
                chunk_bytes=values["chunk_size"],
                device_memory_limit=values["device_memory_limit"],
                memory_limit=values.get("memory_limit"),
                traced=values["trace"] is not None,
                progress=progress,
                on_start=_print_dashboard,
            )
        )
    if values["trace"] is not None:
        traces = outcomes[0].stages.traces
        with whole_file(values["trace"]) as file:
            write_trace(file, traces)
        say("\n".join(to_table(traces)))
    return outcomes


def print_outcomes(outcomes: Sequence[Outcome], as_json: bool) -> None:
    """Print each outcome as if its job had run alone: a JSON object on a line of its own, or a panel."""
    if as_json:
        emit("\n".join(json.dumps(to_json(outcome)) for outcome in outcomes))
    else:
        emit("\n\n".join("\n".join(panel(outcome)) for outcome in outcomes))


def _print_dashboard(workers: Any) -> None:
    """Print the dashboard's address, with pages that Dask links only if the scheduler's own host has a GPU."""
    if workers.dashboard:
        say(f"dashboard: {workers.dashboard}")
        if workers.device == "gpu":
            base = workers.dashboard.removesuffix("status")
            say(f"GPU pages: {base}individual-gpu-utilization {base}individual-gpu-memory")
