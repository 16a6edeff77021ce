"""The subcommand of every job, built from its declaration: arguments, flags, what is printed and written."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import click

from pipeline.cli.also import Found, also_flag, output_flag, parse_also
from pipeline.cli.flags import Command, Size, build_options, from_configuration, option_flags
from pipeline.cli.progress import show_progress
from pipeline.cluster.placement import Placement
from pipeline.engine.aggregate import run_all
from pipeline.engine.aggregate_plan import Job
from pipeline.engine.outcome import Outcome
from pipeline.report.panel import panel, to_json
from pipeline.report.result_file import check_output, check_place, write_output
from pipeline.settings import VERIFY, Settings
from pipeline.storage.atomic_file import whole_file
from pipeline.storage.sources import BYTEORDERS, DTYPES, RAW_DTYPE, Source, open_source
from pipeline.timeline import to_table, write_trace
from workflows.aggregation import Aggregation
from workflows.array_job import ArrayJob

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
WHOLE = "FILES are raw samples or .npy files, or patterns like 'run-*.bin'; all count as one."


def job_command(workflow: Aggregation[Any] | ArrayJob[Any]) -> Command:
    """The subcommand of a job."""

    @click.pass_context
    def callback(ctx: click.Context, /, **_: Any) -> None:
        values = from_configuration(ctx)
        options = build_options(workflow.options, values)
        if values["scheduler"] and values["scheduler_file"]:
            raise click.UsageError("expected --scheduler or --scheduler-file, got both; leave one out")
        if isinstance(workflow, ArrayJob):
            _write_array(workflow, options, values)
        else:
            _find([Found(Job(workflow, options), values["output"]), *map(parse_also, values["also"])], values)

    arguments, flags = option_flags(workflow.options)
    params = [*arguments, click.Argument(["files"], nargs=-1, required=True), *flags, *_shared_flags(workflow)]
    text = f"{workflow.summary}\n\n{workflow.files if isinstance(workflow, ArrayJob) else WHOLE}"
    return Command(workflow.name, params=params, callback=callback, help=text, short_help=workflow.summary,
                   context_settings=CONTEXT)  # fmt: skip


def _shared_flags(workflow: Aggregation[Any] | ArrayJob[Any]) -> list[click.Option]:
    """What every job accepts: how to read the input, where to run, what to check, what to print."""
    option = click.Option
    if isinstance(workflow, ArrayJob):
        output = option(["-o", "--output"], metavar="FILE", required=True, help="Where the array goes: .npy, or raw "
                        "under any other suffix. It appears when it is verified.")  # fmt: skip
    else:
        output = output_flag(workflow)
    flags = [
        option(["--dtype"], metavar="DTYPE", help=f"Of raw files: {', '.join(DTYPES)}.  [default: {RAW_DTYPE}]"),
        option(["--byteorder"], type=click.Choice(BYTEORDERS), help="Of raw files.  [default: little]"),
        option(["--offset"], type=int, help="Bytes to skip at the start of raw files.  [default: 0]"),
        option(["--verify"], type=click.Choice(VERIFY), help="Recompute everything, a random sample of every chunk, or "
               "nothing with the CPU reference; invariants hold always.  [default: full up to 256 MiB, else sample]"),
        output,
        option(["--json", "as_json"], is_flag=True, help="Print one JSON object instead of the panel."),
        option(["--trace"], metavar="FILE", help="Write when every block was read, copied and computed, for "
               "Perfetto or chrome://tracing; a table of it goes to stderr."),
        option(["-q", "--quiet"], is_flag=True, help="No progress on stderr."),
        option(["--device"], type=click.Choice(["auto", "gpu", "cpu"]), default="auto", show_default=True,
               help="What to compute on; the result is the same."),
        option(["-c", "--chunk-size"], type=Size(), metavar="SIZE", help="Bytes per task, like 256MiB.  "
               "[default: by size of the input and number of workers]"),
        option(["--device-memory-limit"], type=Size(), metavar="SIZE", help="Bytes that the tasks of a GPU may hold in "
               "its memory."),
        option(["--scheduler"], metavar="ADDRESS", help="Run on this existing Dask cluster."),
        option(["--scheduler-file"], metavar="FILE", help="Run on the cluster whose scheduler wrote this file."),
        option(["--dashboard-address"], metavar=":PORT", help="Serve the Dask dashboard on 127.0.0.1, at :8787 or "
               "any port with :0."),
    ]  # fmt: skip
    if isinstance(workflow, ArrayJob):
        limit = option(["--memory-limit"], type=Size(), metavar="SIZE", help="Bytes that the tasks of a process may "
                       "hold.")  # fmt: skip
        flags.insert(-3, limit)
    else:
        flags.insert(0, also_flag())
    return flags


def _find(found: Sequence[Found], values: dict[str, Any]) -> None:
    """Run jobs that return what they found."""
    empty = all(job.workflow.empty for job, _ in found)
    source = open_source(values["files"], values["dtype"], values["byteorder"], values["offset"], empty=empty)
    outputs = [output for _, output in found if output is not None]
    if len(set(outputs)) < len(outputs):
        raise click.UsageError(f"expected another output for every job, got {', '.join(outputs)}")
    jobs = [job for job, _ in found]
    for job, output in found:
        if output is not None:
            check_output(output, source, job.workflow.formats)
    name = ", ".join(job.workflow.name for job in jobs)
    outcomes = _run(name, values, [source], lambda settings: run_all(jobs, source, settings))
    for (_, output), outcome in zip(found, outcomes, strict=True):
        if output is not None:
            write_output(output, outcome.result)
    _say(outcomes, values)


def _write_array(workflow: ArrayJob[Any], options: Any, values: dict[str, Any]) -> None:
    """Run a job that writes an array."""
    from pipeline.engine.array import run_array

    files = values["files"]
    groups = [files] if workflow.operands(options) is None else [(path,) for path in files]
    how = values["dtype"], values["byteorder"], values["offset"]
    sources = [open_source(group, *how, samples=False) for group in groups]
    path = values["output"]
    _say(_run(workflow.name, values, sources, lambda how: (run_array(workflow, options, sources, path, how),)), values)


def _run(
    name: str, values: dict[str, Any], sources: Sequence[Source], run: Callable[[Settings], tuple[Outcome, ...]]
) -> tuple[Outcome, ...]:
    """Run with what all jobs accept, and write the trace."""
    if values["trace"] is not None:
        for source in sources:
            check_place(values["trace"], source)
    where = {name: values[name] for name in ("device", "scheduler", "scheduler_file", "dashboard_address")}
    placement = Placement(**where, own_process=True)
    with show_progress(name, values["quiet"]) as progress:
        outcomes = run(
            Settings(
                placement=placement,
                verify=values["verify"],
                chunk_bytes=values["chunk_size"],
                device_memory_limit=values["device_memory_limit"],
                memory_limit=values.get("memory_limit"),
                traced=values["trace"] is not None,
                progress=progress,
                on_start=_announce,
            )
        )
    if values["trace"] is not None:
        traces = outcomes[0].stages.traces
        with whole_file(values["trace"]) as file:
            write_trace(file, traces)
        click.echo("\n".join(to_table(traces)), err=True)
    return outcomes


def _say(outcomes: Sequence[Outcome], values: dict[str, Any]) -> None:
    """Each outcome as if its job had run alone: a JSON object on a line of its own, or a panel."""
    if values["as_json"]:
        click.echo("\n".join(json.dumps(to_json(outcome)) for outcome in outcomes))
    else:
        click.echo("\n\n".join("\n".join(panel(outcome)) for outcome in outcomes))


def _announce(workers: Any) -> None:
    """Say where the dashboard is, with the pages that Dask links only where the scheduler's own host has a GPU."""
    if workers.dashboard:
        click.echo(f"dashboard: {workers.dashboard}", err=True)
        if workers.device == "gpu":
            base = workers.dashboard.removesuffix("status")
            click.echo(f"GPU pages: {base}individual-gpu-utilization {base}individual-gpu-memory", err=True)
