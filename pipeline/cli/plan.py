"""The command `plan`: each job, which runs nothing and says what its run would need."""

from __future__ import annotations

import click

from pipeline.cli.help import SectionedGroup
from pipeline.cli.jobs import job_command
from workflows import WORKFLOWS


@click.group(cls=SectionedGroup, short_help="Say what a run will need, and how long it will take, before it starts.")
def plan() -> None:
    """Say what a run of a job will need: chunks, passes, memory, disk and seconds, without running it.

    Write `plan` before the job, and its own options behind it; JOB --dry-run is the same. What cannot fit is refused,
    with status 2. The first plan of a job measures this machine for some seconds.
    """


for _workflow in WORKFLOWS.values():
    plan.add_command(job_command(_workflow, planned=True))
