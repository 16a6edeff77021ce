"""The command line: a subcommand for every job of the registry, and a few that need no cluster."""

from __future__ import annotations

import warnings
from functools import partial

import click

from pipeline import __version__
from pipeline.cli import COMMAND, COMPLETE
from pipeline.cli.command_list import JOBS, LISTED
from pipeline.cli.help import CONTEXT, SectionedGroup, program
from pipeline.cli.usage import told
from pipeline.errors import PipelineWarning
from pipeline.process import signals
from pipeline.process.last_words import emit, leave, say, show_warning, tell
from workflows.on_demand import OnDemand


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


def _of_job(name: str) -> click.Command:
    from pipeline.cli.jobs import job_command
    from workflows import WORKFLOWS

    return job_command(WORKFLOWS[name])


# In the order in which help lists them.
COMMANDS: OnDemand[click.Command] = OnDemand(
    {name: partial(_of_job, name) for name, (section, _) in LISTED.items() if section == JOBS}
    | {
        "generate": "pipeline.cli.generate:generate", "run": "pipeline.cli.batch:run_command",
        "slurm": "pipeline.cli.slurm:slurm_command",
        **{name: f"pipeline.cli.results:{name}_command" for name in ("show", "merge", "diff", "verify")},
        "demo": "pipeline.cli.demo:demo", "doctor": "pipeline.cli.doctor:doctor", "plan": "pipeline.cli.plan:plan",
        "compare": "pipeline.cli.compare:compare_command", "config": "pipeline.cli.configuration:configuration",
        "devices": "pipeline.cli.devices:devices", "info": "pipeline.cli.info:info",
        "runs": "pipeline.cli.unfinished:runs",
        "study": "pipeline.cli.study:study", "inspect": "pipeline.cli.study:inspect",
    }
)  # fmt: skip


@click.group(name="pipeline", cls=SectionedGroup, commands=COMMANDS, listed=LISTED, context_settings=CONTEXT,
             invoke_without_command=True)  # fmt: skip
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


def main(arguments: list[str] | None = None) -> None:
    """Run the command line: every error is one line on stderr, and the exit status tells its kind."""
    with signals.handled(), warnings.catch_warnings():
        warnings.simplefilter("always", PipelineWarning)
        # Of Dask, on a machine without a network: runs there need none.
        warnings.filterwarnings("ignore", "Couldn't detect a suitable IP address", RuntimeWarning)
        warnings.filterwarnings("ignore", "Sending large graph", UserWarning)  # of many rows: nobody can send less
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
