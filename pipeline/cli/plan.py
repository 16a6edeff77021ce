"""The command `plan`: says what the run of a job would need, and runs nothing."""

from __future__ import annotations

from functools import partial

import click

from pipeline.cli.command_list import LISTED
from pipeline.cli.help import SectionedGroup
from pipeline.cli.jobs import job_command
from workflows import WORKFLOWS
from workflows.on_demand import OnDemand


def _of_job(name: str) -> click.Command:
    return job_command(WORKFLOWS[name], planned=True)


@click.group(
    cls=SectionedGroup,
    commands=OnDemand({name: partial(_of_job, name) for name in WORKFLOWS}),
    listed={name: one for name, one in LISTED.items() if name in WORKFLOWS},
)
def plan() -> None:
    """Say what a run of a job will need: chunks, passes, memory, disk and seconds, without running it.

    Write `plan` before a job and its options; JOB --dry-run is the same. What cannot fit is refused,
    with status 2. The first plan of a job measures this machine for some seconds.
    """
