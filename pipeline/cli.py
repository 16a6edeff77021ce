"""The command line: one subcommand per workflow, built from the registry, and a few that need no cluster."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

import click

from pipeline import __version__
from pipeline.cluster import Placement
from pipeline.commands import COMMANDS
from pipeline.devices import find_devices
from pipeline.errors import PipelineError
from pipeline.files import whole_file
from pipeline.flags import Command, Failure, Size, build_options, from_configuration, option_flags
from pipeline.generate import DISTRIBUTIONS
from pipeline.generate import generate as write_samples
from pipeline.output import check_output, check_place, write_output
from pipeline.progress import show_progress
from pipeline.report import panel, to_json
from pipeline.run import VERIFY, run
from pipeline.sources import BYTEORDERS, DTYPES, RAW_DTYPE, open_source
from pipeline.timeline import to_table, write_trace
from workflows import WORKFLOWS
from workflows.workflow import Workflow

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.group(name="pipeline", context_settings=CONTEXT)
@click.version_option(__version__, package_name="baru", message="baru %(version)s")
def cli() -> None:
    """Batch jobs over files larger than memory, on every GPU.

    The same bits on any number of GPUs, and every number checked.

    Exit status: 0 verified, 1 failed, 2 wrong usage, 3 verification found a mismatch.
    """


def job_command(workflow: Workflow[Any]) -> Command:
    """The subcommand of a workflow."""

    @click.pass_context
    def callback(ctx: click.Context, /, **_: Any) -> None:
        _run_job(workflow, from_configuration(ctx))

    params = [click.Argument(["files"], nargs=-1, required=True), *option_flags(workflow.options), *_shared_flags()]
    text = f"{workflow.summary}\n\nFILES are raw samples or .npy files, or patterns like 'run-*.bin'; all count as one."
    return Command(workflow.name, params=params, callback=callback, help=text, short_help=workflow.summary,
                   context_settings=CONTEXT)  # fmt: skip


def _shared_flags() -> list[click.Option]:
    """What every job accepts: how to read the input, where to run, what to check, what to print."""
    option = click.Option
    return [
        option(["--dtype"], metavar="DTYPE", help=f"Of raw files: {', '.join(DTYPES)}.  [default: {RAW_DTYPE}]"),
        option(["--byteorder"], type=click.Choice(BYTEORDERS), help="Of raw files.  [default: little]"),
        option(["--offset"], type=int, help="Bytes to skip at the start of raw files.  [default: 0]"),
        option(["--verify"], type=click.Choice(VERIFY), help="Recompute everything, a random sample of every chunk, or "
               "nothing with the CPU reference; invariants hold always.  [default: full up to 256 MiB, else sample]"),
        option(["-o", "--output"], metavar="FILE", help="Write the result: .json (UHI), .npz, .csv or .png."),
        option(["--json", "as_json"], is_flag=True, help="Print one JSON object instead of the panel."),
        option(["--trace"], metavar="FILE", help="Write when every block was read, copied and computed, for "
               "Perfetto or chrome://tracing; a table of it goes to stderr."),
        option(["-q", "--quiet"], is_flag=True, help="No progress on stderr."),
        option(["--device"], type=click.Choice(["auto", "gpu", "cpu"]), default="auto", show_default=True,
               help="What to compute on; the result is the same."),
        option(["-c", "--chunk-size"], type=Size(), metavar="SIZE", help="Bytes per task, like 256MiB.  "
               "[default: by size of the input and number of workers]"),
        option(["--scheduler"], metavar="ADDRESS", help="Run on this existing Dask cluster."),
        option(["--scheduler-file"], metavar="FILE", help="Run on the cluster whose scheduler wrote this file."),
        option(["--dashboard-address"], metavar=":PORT", help="Serve the Dask dashboard on 127.0.0.1, at :8787 or "
               "any port with :0."),
    ]  # fmt: skip


def _run_job(workflow: Workflow[Any], values: dict[str, Any]) -> None:
    options = build_options(workflow.options, values)
    if values["scheduler"] and values["scheduler_file"]:
        raise click.UsageError("expected --scheduler or --scheduler-file, got both; leave one out")
    source = open_source(values["files"], values["dtype"], values["byteorder"], values["offset"])
    if values["output"] is not None:
        check_output(values["output"], source)
    if values["trace"] is not None:
        check_place(values["trace"], source)
    placement = Placement(*(values[name] for name in ("device", "scheduler", "scheduler_file", "dashboard_address")))
    with show_progress(workflow.name, values["quiet"]) as progress:
        outcome = run(workflow, options, source, placement=placement, verify=values["verify"],
                      chunk_bytes=values["chunk_size"], traced=values["trace"] is not None, progress=progress,
                      announce=_announce)  # fmt: skip
    if values["trace"] is not None:
        with whole_file(values["trace"]) as file:
            write_trace(file, outcome.stages.traces)
        click.echo("\n".join(to_table(outcome.stages.traces)), err=True)
    if values["output"] is not None:
        write_output(values["output"], outcome.result)
    click.echo(json.dumps(to_json(outcome)) if values["as_json"] else "\n".join(panel(outcome)))


def _announce(workers: Any) -> None:
    """Say where the dashboard is, with the pages that Dask links only where the scheduler's own host has a GPU."""
    if workers.dashboard:
        click.echo(f"dashboard: {workers.dashboard}", err=True)
        if workers.device == "gpu":
            base = workers.dashboard.removesuffix("status")
            click.echo(f"GPU pages: {base}individual-gpu-utilization {base}individual-gpu-memory", err=True)


@cli.command(cls=Command)
@click.argument("file")
@click.option("--samples", type=int, default=2**25, show_default=True, help="How many.")
@click.option("--dtype", default="int32", show_default=True, metavar="DTYPE", help=f"One of {', '.join(DTYPES)}.")
@click.option("--distribution", default="uniform", show_default=True, metavar="NAME",
              help=f"One of {', '.join(DISTRIBUTIONS)}.")  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, help="The same seed writes the same bytes.")
def generate(file: str, samples: int, dtype: str, distribution: str, seed: int) -> None:
    """Write a file of 10-bit samples to try things on: the seed's 2^25 of them in int32, or any other."""
    write_samples(file, samples=samples, dtype=dtype, distribution=distribution, seed=seed)


@cli.command(cls=Command)
def devices() -> None:
    """List the GPUs that jobs will use, their memory, driver and CuPy; or say that jobs run on the CPU."""
    found = find_devices()
    for gpu in found.gpus:
        memory = f"{gpu.free / 2**30:.1f} of {gpu.memory / 2**30:.1f} GiB free"
        click.echo(f"GPU {gpu.index}  {gpu.name}  {memory}  {gpu.uuid}")
    if found.gpus:
        click.echo(f"driver {found.driver}, CuPy {found.cupy or 'not installed'}")
    if found.missing:
        click.echo(f"Jobs will run on the CPU: {found.missing}. The results are the same.")


for _command in (*(job_command(workflow) for workflow in WORKFLOWS.values()), *COMMANDS):
    cli.add_command(_command)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line: every error is one line on stderr, and the exit status says which kind it was."""
    # What SIGINT cleans up, SIGTERM does too: schedulers of batch jobs send it first.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        status = cli.main(arguments, prog_name="python -m pipeline", standalone_mode=False)
        sys.stdout.flush()
    except (Failure, PipelineError) as error:
        click.echo(f"error: {error}", err=True)
        status = error.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        status = error.exit_code
    except click.ClickException as error:
        click.echo(f"error: {error.format_message()}", err=True)
        status = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted: nothing was written", err=True)
        status = 130
    except OSError as error:
        # Whoever read the output is gone, or the disk that it goes to is full; Python would try once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        click.echo(f"error: expected to write to standard output, got {error.strerror}", err=True)
        status = 1
    sys.exit(status)
