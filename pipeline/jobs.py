"""The subcommand of every job, built from its declaration: arguments, flags, what is printed and written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click

from pipeline.cluster import Placement
from pipeline.engine import VERIFY, Outcome, run
from pipeline.files import whole_file
from pipeline.flags import Command, Size, build_options, from_configuration, option_flags
from pipeline.output import check_output, check_place, write_output
from pipeline.progress import show_progress
from pipeline.report import panel, to_json
from pipeline.sources import BYTEORDERS, DTYPES, RAW_DTYPE, Source, open_source
from pipeline.timeline import to_table, write_trace
from workflows.array_workflow import ArrayWorkflow
from workflows.workflow import Workflow

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
WHOLE = "FILES are raw samples or .npy files, or patterns like 'run-*.bin'; all count as one."


def job_command(workflow: Workflow[Any] | ArrayWorkflow[Any]) -> Command:
    """The subcommand of a job."""

    @click.pass_context
    def callback(ctx: click.Context, /, **_: Any) -> None:
        values = from_configuration(ctx)
        options = build_options(workflow.options, values)
        if values["scheduler"] and values["scheduler_file"]:
            raise click.UsageError("expected --scheduler or --scheduler-file, got both; leave one out")
        if isinstance(workflow, ArrayWorkflow):
            _write_array(workflow, options, values)
        else:
            _find(workflow, options, values)

    arguments, flags = option_flags(workflow.options)
    params = [*arguments, click.Argument(["files"], nargs=-1, required=True), *flags, *_shared_flags(workflow)]
    text = f"{workflow.summary}\n\n{workflow.files if isinstance(workflow, ArrayWorkflow) else WHOLE}"
    return Command(workflow.name, params=params, callback=callback, help=text, short_help=workflow.summary,
                   context_settings=CONTEXT)  # fmt: skip


def _shared_flags(workflow: Workflow[Any] | ArrayWorkflow[Any]) -> list[click.Option]:
    """What every job accepts: how to read the input, where to run, what to check, what to print."""
    option = click.Option
    if isinstance(workflow, ArrayWorkflow):
        output = option(["-o", "--output"], metavar="FILE", required=True, help="Where the array goes: .npy, or raw "
                        "under any other suffix. It appears when it is verified.")  # fmt: skip
    else:
        output = option(["-o", "--output"], metavar="FILE", help=f"Write the result: {', '.join(workflow.formats)}.")
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
    if isinstance(workflow, ArrayWorkflow):
        limit = option(["--memory-limit"], type=Size(), metavar="SIZE", help="Bytes that the tasks of a process may "
                       "hold.")  # fmt: skip
        flags.insert(-3, limit)
    return flags


def _find(workflow: Workflow[Any], options: Any, values: dict[str, Any]) -> None:
    """Run a job that returns what it found."""
    source = open_source(values["files"], values["dtype"], values["byteorder"], values["offset"])
    if values["output"] is not None:
        check_output(values["output"], source, workflow.formats)
    outcome = _run(workflow, options, values, [source], run, source)
    if values["output"] is not None:
        write_output(values["output"], outcome.result)
    _say(outcome, values)


def _write_array(workflow: ArrayWorkflow[Any], options: Any, values: dict[str, Any]) -> None:
    """Run a job that writes an array."""
    from pipeline.array_run import run_array

    files = values["files"]
    groups = [files] if workflow.operands(options) is None else [(path,) for path in files]
    how = values["dtype"], values["byteorder"], values["offset"]
    sources = [open_source(group, *how, samples=False) for group in groups]
    limit = values["memory_limit"]
    _say(_run(workflow, options, values, sources, run_array, sources, values["output"], memory_limit=limit), values)


def _run(
    workflow: Any, options: Any, values: dict[str, Any], sources: Sequence[Source], run: Any, *what: Any, **limits: Any
) -> Outcome:
    """Run a job with what all jobs accept, and write the trace."""
    if values["trace"] is not None:
        for source in sources:
            check_place(values["trace"], source)
    placement = Placement(*(values[name] for name in ("device", "scheduler", "scheduler_file", "dashboard_address")))
    with show_progress(workflow.name, values["quiet"]) as progress:
        outcome: Outcome = run(workflow, options, *what, placement=placement, verify=values["verify"],
                               chunk_bytes=values["chunk_size"],
                               device_memory_limit=values["device_memory_limit"], traced=values["trace"] is not None,
                               progress=progress, announce=_announce, **limits)  # fmt: skip
    if values["trace"] is not None:
        with whole_file(values["trace"]) as file:
            write_trace(file, outcome.stages.traces)
        click.echo("\n".join(to_table(outcome.stages.traces)), err=True)
    return outcome


def _say(outcome: Outcome, values: dict[str, Any]) -> None:
    click.echo(json.dumps(to_json(outcome)) if values["as_json"] else "\n".join(panel(outcome)))


def _announce(workers: Any) -> None:
    """Say where the dashboard is, with the pages that Dask links only where the scheduler's own host has a GPU."""
    if workers.dashboard:
        click.echo(f"dashboard: {workers.dashboard}", err=True)
        if workers.device == "gpu":
            base = workers.dashboard.removesuffix("status")
            click.echo(f"GPU pages: {base}individual-gpu-utilization {base}individual-gpu-memory", err=True)
