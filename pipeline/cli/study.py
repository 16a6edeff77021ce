"""Commands for kernels: `study` checks and times variants on a GPU, `inspect` disassembles kernels without one."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import click

from pipeline.cli.flags import Command, Gpus
from pipeline.cli.help import complete_names
from pipeline.errors import UsageError, VerificationError, meant
from pipeline.process.last_words import emit, say
from workflows.study.registry import JOBS, STUDIES

NAMES = f"JOB is one of {', '.join(JOBS)}"


@click.command(
    cls=Command,
    epilog=f"{NAMES}; or architecture: latency and divergence; or failures: what went wrong in the courses.",
    example="histogram --quick",
)
@click.argument("job", shell_complete=complete_names(STUDIES))
@click.option("--quick", is_flag=True, help="Only a few cases of each table: less than a minute on one GPU.")
@click.option(
    "--variant", "variants", multiple=True, metavar="NAME", help="Only this variant; may be given several times."
)
@click.option("--gpus", type=Gpus(), metavar="N|all|idle|LIST",
              help="Run every case on these GPUs at once, and show the sum of their rates.")  # fmt: skip
@click.option("-o", "--output-directory", metavar="DIR",
              help="Where JOB.md, .csv, .json and the pictures go.  [default: study-JOB]")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the summary.")
def study(
    job: str, quick: bool, variants: tuple[str, ...], gpus: str | None, output_directory: str | None, as_json: bool
) -> None:
    """Check and time every variant of a job's kernels, beside the figures of the course and loops on the CPU.

    Needs a GPU, except for CPU baselines: --variant cpu_numpy.

    Exit status 3: a correct variant disagreed with its reference, or a deliberately broken one was not caught.
    """
    from pipeline.study.device import open_device
    from pipeline.study.profile import profile
    from pipeline.study.report import open_folder, summary, to_json, write_reports
    from pipeline.study.run import VERIFIED, choose_cases, run_study
    from workflows.study.study import label

    if job not in STUDIES:
        raise UsageError(f"expected a job, one of {', '.join(STUDIES)}, got {job!r}{meant(job, STUDIES)}")
    chosen = STUDIES[job]
    cases = choose_cases(chosen, variants, quick)
    device = open_device(chosen, cases) if gpus is None else None
    folder = output_directory or f"study-{job}"
    open_folder(folder)
    with click.progressbar(length=len(cases), label=f"{job}, {len(cases)} cases", file=sys.stderr) as bar:
        if device is None:
            from pipeline.study.together import run_together

            run = run_together(chosen, cases, str(gpus), progress=bar.update)
        else:
            run = run_study(chosen, cases, device, progress=lambda _: bar.update(1))
    verified = [finding.row.case for finding in run.findings if finding.status == VERIFIED]
    if device and any(not chosen.variants[case.variant].on_host for case in verified):
        failures: tuple[type[Exception], ...] = (*device.errors, MemoryError)
        try:
            run = replace(run, profile=profile(chosen, verified, device.tracer()))
        except failures as error:  # what was measured is kept
            say(f"no profile: {error}")
    paths, skipped = write_reports(run, folder)
    emit(*([json.dumps(to_json(run))] if as_json else summary(run)))
    say(f"wrote {', '.join(paths)}")
    if skipped:
        say(skipped)
    if run.failures:
        first = run.failures[0]
        raise VerificationError(
            f"{len(run.failures)} of {len(cases)} cases failed verification, the first is {label(first.row.case)}: "
            f"{first.status}, {first.row.note}"
        )


@click.command(
    cls=Command,
    epilog=f"{NAMES}, quantile or digest, or study/JOB for the variants of its course, study/roofline for kernels that "
    "measure limits, select for those that copy selected samples, or common for those that unpack and unshuffle them.",
    example="histogram",
)
@click.argument("target", metavar="JOB", shell_complete=complete_names(JOBS))
@click.option(
    "--kernel",
    "--variant",
    "names",
    multiple=True,
    metavar="NAME",
    help="Only this kernel or variant, or this instance of one, like 'merge<2>'; two are shown side by side.",
)
@click.option("--all", "every", is_flag=True, help="All instances, instead of one per kernel.")
@click.option("--arch", default="sm_86", show_default=True, metavar="SM", help="Compute capability to compile for.")
@click.option("--sass", is_flag=True, help="Also print the machine code.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the table.")
def inspect(target: str, names: tuple[str, ...], every: bool, arch: str, sass: bool, as_json: bool) -> None:
    """Compile the kernels of a job and count registers, memory and instructions. Needs no GPU."""
    from pipeline.study import inspection, instances
    from pipeline.study.report import aligned

    choices = instances.choose(target, names, every)
    kernels, left_out = inspection.inspect_all(choices, arch)
    if left_out:
        say(f"left out, because only sm_90a has the instructions: {', '.join(one.name for one in left_out)}")
    if as_json:
        emit(json.dumps(inspection.to_json(target, arch, kernels, sass)))
        return
    emit(f"{target} for {arch}")
    further = {choice.name: len(choice.further) for choice in choices}
    for kernel in kernels:
        more = f", one of {further[kernel.name] + 1} instances" if further[kernel.name] else ""
        emit(f"{kernel.name} is {kernel.instance} in {kernel.source}{more}")
    if kernels:
        emit("", *aligned(inspection.table(kernels)))
    for kernel in kernels if sass else []:
        emit("", f"{kernel.name}:", *kernel.listing)


COMMANDS: tuple[click.Command, ...] = (study, inspect)
