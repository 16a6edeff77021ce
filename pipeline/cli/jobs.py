"""The subcommand of every job, built from its declaration: arguments, flags, what is printed and written."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields, replace
from functools import partial
from typing import Any, NamedTuple, cast

import click

from pipeline.by_kernel import by_kernel
from pipeline.cli.dry_run import plan_arrays, plan_samples
from pipeline.cli.flags import Command, build_options, from_configuration, option_files, option_flags
from pipeline.cli.help import COMPUTATION, CONTEXT, INPUT, complete_files
from pipeline.cli.inputs import inputs, opened, spool
from pipeline.cli.outputs import Named, check_apart, check_draw, reserve
from pipeline.cli.rows import rows_asked
from pipeline.cli.shared_flags import DIGEST, kernel_flag, output_flag, shared_flags
from pipeline.cli.typed_request import asked_for
from pipeline.cli.unfinished import journal_of
from pipeline.cli.usage import told
from pipeline.cli.watching import Watched, watching
from pipeline.cluster.placement import Placement
from pipeline.engine.aggregate import run_all
from pipeline.engine.aggregate_plan import Job
from pipeline.engine.outcome import Outcome, with_digest
from pipeline.errors import UsageError, meant
from pipeline.process import log_lines
from pipeline.process.signals import Stopped
from pipeline.process.signals import limit as time_limit
from pipeline.report.result_file import check_output
from pipeline.rows import RowsAsked, rows_of_source
from pipeline.settings import Settings
from pipeline.storage.leftovers import remove_leftovers
from pipeline.storage.output_format import split_output
from pipeline.storage.sources import Source
from workflows import WORKFLOWS
from workflows.aggregation import Aggregation
from workflows.array_job import ArrayJob

PLACEMENT = ("device", "gpus", "scheduler", "scheduler_file", "dashboard_address", "tls_ca_file", "tls_cert", "tls_key")
WHOLE = (
    "FILES are raw samples, or files of a format that `info` knows (FILE::MEMBER for one array of several), slices of "
    "them like 'x.npy[:, 3]', patterns like 'run-*.bin', @LIST for the files that a list names, or - for standard "
    "input; all count as one."
)


class Requested(NamedTuple):
    """A job that returns its result, the file to write it to, if any, files that its options were read from, and flags.

    The flags are those of the command line, as they were typed.
    """

    job: Job
    output: str | None
    read: tuple[Named, ...]
    asked: dict[str, Any]


def job_command(workflow: Aggregation[Any] | ArrayJob[Any], planned: bool = False) -> Command:
    """The subcommand of a job; `planned`: it runs nothing, and says what the run would need."""

    @click.pass_context
    def callback(ctx: click.Context, /, **_: Any) -> None:
        try:
            run(ctx)
        except Stopped as stopped:
            stopped.reason += ": nothing was written"
            raise

    def run(ctx: click.Context) -> None:
        values = from_configuration(ctx) | {"told": ctx.obj}
        values["dry_run"] = planned or values["dry_run"]
        if values["time_limit"] is not None:
            time_limit(values["time_limit"], f"{values['time_limit']:g} s")
        options = build_options(workflow.options, values)
        if values["scheduler"] and values["scheduler_file"]:
            raise click.UsageError("expected --scheduler or --scheduler-file, got both; leave one out")
        read = [Named(flag, path) for flag, path in option_files(ctx)]
        chosen = by_kernel(workflow, options, values["kernel"])
        log_lines.use_json(values["log_format"] == "json")
        if isinstance(chosen, ArrayJob):
            with spool(values), watching(values) as watched:
                _run_array_job(chosen, options, values, read, watched)
        else:
            requested = [
                Requested(Job(chosen, options), values["output"], tuple(read), asked_for(ctx, (COMPUTATION,))),
                *map(parse_also, [*values["also"], *([DIGEST] if values.get("with_digest") else [])]),
            ]
            with spool(values), watching(values) as watched:
                _run_aggregations(requested, values, asked_for(ctx, (INPUT,)), watched)

    arguments, flags = option_flags(workflow.options)
    files = click.Argument(["files"], nargs=-1, required=True, metavar=_files(workflow), shell_complete=complete_files)
    text = f"{workflow.summary}\n\n{workflow.files if isinstance(workflow, ArrayJob) else WHOLE}"
    return Command(workflow.name, params=[*arguments, files, *flags, *shared_flags(workflow)], callback=callback,
                   help=text, example=workflow.example,
                   context_settings=CONTEXT)  # fmt: skip


def _files(workflow: Aggregation[Any] | ArrayJob[Any]) -> str:
    """What the usage line calls the files: FILE where the job takes exactly one, whatever its options are."""
    fixed = isinstance(workflow, ArrayJob) and all(field.default is not MISSING for field in fields(workflow.options))
    return "FILE" if fixed and cast(ArrayJob[Any], workflow).operands(workflow.options()) == 1 else "FILES..."


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
        raise click.UsageError(f"--also: expected a job, one of {known}, got {name!r}{meant(name, known.split(', '))}")
    arguments, flags = option_flags(workflow.options)
    command = Command(name, params=[*arguments, *flags, kernel_flag(), output_flag(workflow)],
                      add_help_option=False)  # fmt: skip
    try:
        ctx = command.make_context(name, words)
        values = from_configuration(ctx)
        read = tuple(Named(f"--also {name}: {flag}", path) for flag, path in option_files(ctx))
        options = build_options(workflow.options, values)
        job = Job(by_kernel(workflow, options, values["kernel"]), options)
        return Requested(job, values["output"], read, asked_for(ctx))
    except click.ClickException as error:
        raise click.UsageError(f"--also {name}: {told(error)}") from None
    except UsageError as error:  # of the kernel; it names the job
        raise click.UsageError(f"--also {error}") from None


def resolved(jobs: Sequence[Job], values: dict[str, Any]) -> tuple[Source, list[Job], tuple[Source, ...]]:
    """The source, the jobs on its rows and on the samples that count, and what they read besides."""
    rows = rows_asked(values)
    source = opened(values["files"], values, empty=all(job.workflow.empty for job in jobs))
    return source, *_jobs_of(jobs, rows, values, source)


def _jobs_of(
    jobs: Sequence[Job], rows: RowsAsked, values: dict[str, Any], source: Source
) -> tuple[list[Job], tuple[Source, ...]]:
    """The jobs for the samples of a source, and the sources that they read besides."""
    from pipeline.cli.selection import preparation_asked

    prepared = preparation_asked(values).of_source(source)
    number = len(jobs) - bool(values.get("with_digest"))  # the digest is of all samples as they are
    of_rows = rows_of_source(list(map(prepared.job, jobs[:number])), rows, source)
    return [*of_rows, *jobs[number:]], prepared.sources


def _run_aggregations(
    requested: Sequence[Requested], values: dict[str, Any], read_as: dict[str, Any], watched: Watched
) -> None:
    """Run jobs over the same samples, read once, and write and print their results."""
    source, jobs, beside = resolved([one.job for one in requested], values)
    outputs = []
    for place, (job, (_, output, *_)) in enumerate(zip(jobs, requested, strict=True)):
        flag = f"--also {job.workflow.name}: " if place else ""
        try:
            if output is not None:
                check_output(output, source, job.workflow.formats)
                outputs.append(Named(f"{flag}-o", output))
        except UsageError as error:
            raise UsageError(f"{flag}{error}") from None
    rows = rows_asked(values)
    read = [*inputs([source, *beside], values), *(file for one in requested for file in one.read)]
    check_apart([*outputs, *_others(values)], read)
    if values["dry_run"]:
        kernel = next((one.job.workflow.kernel for one in requested if one.job.workflow.kernel), "")
        made = partial(_jobs_of, [one.job for one in requested], rows, values)
        plan_samples(made, source, settings_of(values, kernel), values)
        return
    check_draw(values["draw"], outputs, rows.any)
    with reserve([one.output for one in requested], values["trace"], values["draw"]) as reserved:
        name = ", ".join(job.workflow.name for job in jobs)
        asked = tuple((_named(job.workflow), (job.options, job.workflow.asked)) for job in jobs)
        settings = settings_of(values, next((job.workflow.kernel for job in jobs if job.workflow.kernel), ""))
        with journal_of(asked, (source, *beside), outputs, values) as journal:
            outcomes = _run(name, settings, watched, lambda how: run_all(jobs, source, how, journal, beside))
            outcomes = tuple(replace(outcome, asked=read_as | one.asked)
                             for outcome, one in zip(outcomes, requested, strict=True))  # fmt: skip
            outcomes = with_digest(outcomes) if values.get("with_digest") else outcomes
            reserved.publish(outcomes, values["as_json"], values["quiet"], values["told"])


def run_again(jobs: Sequence[Job], values: dict[str, Any]) -> tuple[Source, tuple[Outcome, ...]]:
    """Run jobs as their flags say, without a journal or a file, and print nothing: the source, and their outcomes."""
    with spool(values), watching(values) as watched:
        source, all_jobs, beside = resolved(jobs, values)
        names = ", ".join(job.workflow.name for job in all_jobs)
        return source, _run(
            names, settings_of(values, ""), watched, lambda how: run_all(all_jobs, source, how, None, beside)
        )


def _run_array_job(
    workflow: ArrayJob[Any], options: Any, values: dict[str, Any], read: Sequence[Named], watched: Watched
) -> None:
    """Run a job that writes an array, and print what it did."""
    from pipeline.engine.array import run_array

    files, path = values["files"], values["output"]
    groups = [files] if workflow.operands(options) is None else [(path,) for path in files]
    sources = [opened(group, values, samples=False) for group in groups]
    check_apart([Named("-o", split_output(path)[0]), *_others(values)], [*inputs(sources, values), *read])
    if values["dry_run"]:
        plan_arrays(workflow, options, sources, path, settings_of(values, workflow.kernel), values)
        return
    chunks, settings = values["chunks"], settings_of(values, workflow.kernel)
    asked = ((_named(workflow), options if chunks is None else (options, chunks)),)
    with (
        reserve([], values["trace"]) as reserved,
        journal_of(asked, tuple(sources), [Named("-o", path)], values) as journal,
    ):
        outcome = _run(
            workflow.name, settings, watched,
            lambda how: (run_array(workflow, options, sources, path, how, journal, chunks),),
        )  # fmt: skip
        journal.remove()  # the array is there, whether it can be printed or not
        if journal.continued:
            remove_leftovers()  # the list of the run that began it
        reserved.publish(outcome, values["as_json"], values["quiet"], values["told"])


def _named(workflow: Aggregation[Any] | ArrayJob[Any]) -> str:
    """The job with its kernel: a run that one kernel began is not continued by another."""
    return f"{workflow.name} by study/{workflow.kernel}" if workflow.kernel else workflow.name


def _others(values: dict[str, Any]) -> list[Named]:
    """Files that are written beside results."""
    flags = {"--trace": values["trace"], "--performance-report": values["performance_report"]}
    return [Named(flag, path) for flag, path in flags.items() if path is not None]


def _run(
    name: str, settings: Settings, watched: Watched, run: Callable[[Settings], tuple[Outcome, ...]]
) -> tuple[Outcome, ...]:
    """Run with the flags of all jobs."""
    with watched.shown(name):
        return run(replace(settings, monitor=watched))


def settings_of(values: dict[str, Any], kernel: str) -> Settings:
    """The flags of all jobs."""
    where = {name: values[name] for name in PLACEMENT}
    return Settings(
        placement=Placement(**where, own_process=True, stall_seconds=values["stall_timeout"], kernel=kernel),
        verify=values["verify"],
        replay=values["replay"],
        chunk_bytes=values["chunk_size"],
        device_memory_limit=values["device_memory_limit"],
        memory_limit=values.get("memory_limit"),
        traced=values["trace"] is not None,
    )
