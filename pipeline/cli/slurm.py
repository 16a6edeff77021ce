"""The command `slurm`: a batch script for `sbatch` that runs a job, and queues itself again if time runs out."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Sequence

import click
from click.shell_completion import CompletionItem

from pipeline.cli.batch import run_command
from pipeline.cli.flags import Command
from pipeline.cli.help import PLACE, Flag, complete_files
from pipeline.cli.job_file import read_jobs
from pipeline.cli.jobs import job_command
from pipeline.errors import UsageError, meant
from pipeline.process.last_words import emit
from pipeline.storage.remote.address import redacted
from workflows import WORKFLOWS

WARNING_SECONDS = 120  # before the end of the reservation: for the last commit, and to be queued again
TIME = re.compile(r"(\d+-)?\d+(:\d{1,2}){0,2}", re.ASCII)  # as sbatch takes it: minutes, H:M, H:M:S, D-H:M:S

# A shell handles a signal only between commands, so the job runs beside it. Without --requeue on the cluster's side
# `scontrol requeue` fails, and the job ends with 75.
SCRIPT = """\
#!/usr/bin/env bash
{directives}
cd {folder} || exit 1
{command} &
child=$!
told=0
trap 'told=$((told + 1)); kill -USR1 "$child" 2> /dev/null' USR1
trap 'told=$((told + 1)); kill -TERM "$child" 2> /dev/null' TERM
wait "$child"
status=$?
for ((seen = 0; seen < told; seen++)); do wait "$child"; status=$?; done # a signal ends a wait, not the job
if ((status == 75)) && scontrol requeue "$SLURM_JOB_ID"; then
    sleep 60 # until it is ended, to begin again
fi
exit "$status\""""


@click.pass_context
def _slurm(
    ctx: click.Context, /, words: tuple[str, ...], time: str, gpus: int | None, cpus: int | None, memory: str | None,
    directive: tuple[str, ...],
) -> None:  # fmt: skip
    name = _checked(words)
    if not TIME.fullmatch(time):
        raise UsageError(f"--time: expected a time as sbatch takes it, like 8:00:00 or 2-0:00:00, got {time!r}")
    about = [f"job-name=baru-{name}", "nodes=1", "ntasks=1", f"time={time}", f"signal=B:USR1@{WARNING_SECONDS}",
             "requeue", "open-mode=append"]  # fmt: skip
    about += [f"{flag}={value}" for flag, value in (("gpus-per-node", gpus), ("cpus-per-task", cpus), ("mem", memory))
              if value is not None]  # fmt: skip
    about += [one.removeprefix("--") for one in directive]
    if wrong := next((one for one in about if not one.isprintable()), None):
        raise UsageError(f"--directive: expected one line, got {wrong!r}")
    resume = [] if "--resume" in words else ["--resume"]
    command = shlex.join([sys.executable, "-m", "pipeline", words[0], *resume, *words[1:]])
    script = SCRIPT.format(directives="\n".join(f"#SBATCH --{one}" for one in about), folder=shlex.quote(os.getcwd()),
                           command=command)  # fmt: skip
    emit(*script.splitlines())


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str] | list[CompletionItem]:
    """Jobs, then files."""
    if ctx.params.get("words"):
        return complete_files(ctx, param, incomplete)
    return [name for name in ("run", *WORKFLOWS) if name.startswith(incomplete)]


def _checked(words: Sequence[str]) -> str:
    """Name of the job of a command line, once it is parsed as it will be; UsageError if that fails."""
    name, *rest = words
    if any(redacted(word) != word for word in words):
        raise UsageError("expected addresses without signatures, which others could read in the script; use the "
                         "variables of the object store instead")  # fmt: skip
    if "-" in rest or "--spool" in rest:
        raise UsageError("expected files, got standard input, which a batch script does not have")
    if name == run_command.name:
        ctx = run_command.make_context(name, list(rest))
        path = str(ctx.params["path"])
        read_jobs(path)
        return os.path.splitext(os.path.basename(path))[0]
    if name not in WORKFLOWS:
        raise UsageError(
            f"expected run or one of {', '.join(WORKFLOWS)}, got {name!r}{meant(name, ('run', *WORKFLOWS))}"
        )
    job_command(WORKFLOWS[name]).make_context(name, list(rest))
    return name


slurm_command = Command(
    "slurm",
    params=[
        click.Argument(["words"], nargs=-1, required=True, type=click.UNPROCESSED, metavar="JOB...",
                       shell_complete=_complete),
        Flag(["--time"], group=PLACE, default="1:00:00", show_default=True, metavar="TIME", help="Reservation, as "
             "sbatch takes it."),
        Flag(["--gpus-per-node", "gpus"], group=PLACE, type=click.IntRange(1), metavar="N",
             help="GPUs to reserve; the job uses the number that finishes first, unless it has --gpus."),
        Flag(["--cpus-per-task", "cpus"], group=PLACE, type=click.IntRange(1), metavar="N", help="Cores to reserve."),
        Flag(["--mem", "memory"], group=PLACE, metavar="SIZE", help="Memory to reserve, as sbatch takes it."),
        Flag(["--directive"], group=PLACE, multiple=True, metavar="TEXT", help="Another line for sbatch, like "
             "partition=long; may be given several times."),
    ],
    callback=_slurm,
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False},
    help="Print a batch script for sbatch that runs a job, or `run JOBS.toml`. SLURM warns the job two minutes before "
         "the end of the reservation; it then stops, requeues itself and resumes.",
    example="--gpus-per-node 2 --time 8:00:00 histogram 'run-*.bin' -o counts.json | sbatch",
)  # fmt: skip
