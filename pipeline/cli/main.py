"""The command line: a subcommand for every job of the registry, and a few that need no cluster."""

from __future__ import annotations

import warnings

import click

from pipeline import __version__
from pipeline.cli import COMMAND, COMPLETE
from pipeline.cli.batch import run_command
from pipeline.cli.compare import compare_command
from pipeline.cli.configuration import configuration
from pipeline.cli.demo import demo
from pipeline.cli.devices import devices
from pipeline.cli.doctor import doctor
from pipeline.cli.flags import Command
from pipeline.cli.help import SectionedGroup, complete_files, program
from pipeline.cli.info import info
from pipeline.cli.jobs import CONTEXT, job_command
from pipeline.cli.plan import plan
from pipeline.cli.results import COMMANDS as RESULTS
from pipeline.cli.runs import runs
from pipeline.cli.slurm import slurm_command
from pipeline.cli.study import COMMANDS
from pipeline.cli.usage import told
from pipeline.errors import PipelineWarning
from pipeline.process import signals
from pipeline.process.last_words import emit, leave, say, show_warning, tell
from pipeline.storage.generate import DISTRIBUTIONS
from pipeline.storage.generate import generate as write_samples
from pipeline.storage.sources import DTYPES
from workflows import WORKFLOWS


def _show_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        emit(f"baru {__version__}")
        ctx.exit()


START = (
    "baru: histograms, exact sums, quantiles, products, stencils and maps over files larger than memory.",
    "On every GPU or on the CPU: the same bits on any number of them, and every number checked.",
    "",
    "Three commands to try:",
    "  {program} demo            # makes data, counts it, plants an error, shows that it is caught",
    "  {program} doctor          # whether this machine is ready, and what to do if it is not",
    "  {program} histogram FILE  # of your own data; before a long run: plan histogram FILE",
    "",
    "All jobs and commands: {program} --help. The options of one: {program} histogram --help.",
)


@click.group(name="pipeline", cls=SectionedGroup, context_settings=CONTEXT, invoke_without_command=True)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version,
              help="Show the version and exit.")  # fmt: skip
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Batch jobs over files larger than memory, on every GPU.

    The same bits on any number of GPUs, and every number checked.

    \b
    Try it:
      python -m pipeline demo
      python -m pipeline generate data.bin
      python -m pipeline histogram data.bin

    Exit status: 0 verified, 1 failed, 2 wrong usage, 3 verification found a mismatch, 75 stopped by a batch system's
    warning or --time-limit, 129, 130, 143 by a signal.
    """
    if ctx.invoked_subcommand is None:
        emit(*(line.format(program=program()) for line in START))


for _workflow in WORKFLOWS.values():
    cli.add_command(job_command(_workflow))


@cli.command(cls=Command, short_help="Write a file of samples to try things on.",
             example="data.bin --dtype int16 --distribution gaussian")  # fmt: skip
@click.argument("file", shell_complete=complete_files)
@click.option("--samples", type=int, default=2**25, show_default=True, metavar="N", help="Number of samples.")
@click.option("--dtype", default="int32", show_default=True, metavar="DTYPE", help=f"One of {', '.join(DTYPES)}.")
@click.option("--distribution", default="uniform", show_default=True, metavar="NAME",
              help=f"One of {', '.join(DISTRIBUTIONS)}.")  # fmt: skip
@click.option(
    "--seed", type=int, default=0, show_default=True, metavar="N", help="The same seed writes the same bytes."
)
def generate(file: str, samples: int, dtype: str, distribution: str, seed: int) -> None:
    """Write a file of 10-bit samples to try things on: by default 2^25 of int32, 128 MiB, as in the course."""
    write_samples(file, samples=samples, dtype=dtype, distribution=distribution, seed=seed)


_OTHERS = demo, doctor, plan, compare_command, configuration, devices, info, runs, *COMMANDS
for _command in (run_command, slurm_command, *RESULTS, *_OTHERS):
    cli.add_command(_command)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line: every error is one line on stderr, and the exit status tells its kind."""
    with signals.handled(), warnings.catch_warnings():
        warnings.simplefilter("always", PipelineWarning)
        warnings.showwarning = show_warning  # type: ignore[assignment]
        try:
            name = program()
            variable = COMPLETE if name == COMMAND else None  # a shell completes by the first word of a command
            status = cli.main(arguments, prog_name=name, complete_var=variable, standalone_mode=False) or 0
        except click.exceptions.NoArgsIsHelpError as error:
            say(*error.format_message().splitlines())
            status = error.exit_code
        except click.ClickException as error:
            say(f"error: {told(error)}", *getattr(error, "__notes__", ()))
            status = error.exit_code
        except (click.Abort, KeyboardInterrupt):  # where signals are not handled
            say("interrupted: nothing was written")
            status = 130
        except (signals.Stopped, Exception) as error:
            status = tell(error)
        leave(status)
