"""Other jobs over the same samples: `--also "reduce --op sum,std"`, parsed as their own subcommands would be."""

from __future__ import annotations

import shlex
from typing import Any, NamedTuple

import click

from pipeline.cli.flags import Command, build_options, from_configuration, option_flags
from pipeline.engine.aggregate_plan import Job
from workflows import WORKFLOWS
from workflows.aggregation import Aggregation


class Found(NamedTuple):
    """A job that returns what it found, and the file that this is written to, if any."""

    job: Job
    output: str | None


def also_flag() -> click.Option:
    """The flag of every job that returns what it found."""
    return click.Option(["--also"], multiple=True, metavar="JOB", help="Another job over the same samples, which are "
                        "read once for all: 'reduce --op sum,std -o sums.json', with its own options and its own "
                        "output. May be given several times.")  # fmt: skip


def output_flag(workflow: Aggregation[Any]) -> click.Option:
    """Where a job writes what it found."""
    formats = ", ".join(workflow.formats)
    return click.Option(["-o", "--output"], metavar="FILE", help=f"Write the result: {formats}.")


def parse_also(text: str) -> Found:
    """A job from the words of `--also`.

    Raises
    ------
    click.UsageError
        If there is no such job, it writes an array, or an option is not its own.
    """
    try:
        name, *words = shlex.split(text)
    except ValueError as error:  # a quote that is not closed; no word at all
        raise click.UsageError(f"--also: expected a job and its options, got {text!r}") from error
    workflow = WORKFLOWS.get(name)
    if not isinstance(workflow, Aggregation):
        known = ", ".join(name for name, other in WORKFLOWS.items() if isinstance(other, Aggregation))
        raise click.UsageError(f"--also: expected a job out of {known}, got {name!r}")
    arguments, flags = option_flags(workflow.options)
    command = Command(name, params=[*arguments, *flags, output_flag(workflow)], add_help_option=False)
    try:
        values = from_configuration(command.make_context(name, words))
        return Found(Job(workflow, build_options(workflow.options, values)), values["output"])
    except click.ClickException as error:
        raise click.UsageError(f"--also {name}: {error.format_message()}") from None
