"""The commands about kernels: `study` checks and times their variants on a GPU, `inspect` disassembles them without."""

from __future__ import annotations

import json
import sys

import click

from pipeline.cli.flags import Command
from pipeline.errors import UsageError, VerificationError
from workflows.study.registry import FAMILIES, STUDIES

NAMES = f"FAMILY is one of {', '.join(FAMILIES)}."


@click.command(cls=Command, epilog=NAMES, short_help="Check and time the variants of a kernel family on a GPU.")
@click.argument("family")
@click.option("--quick", is_flag=True, help="Only a few cases of each table: less than a minute on one GPU.")
@click.option(
    "--variant", "variants", multiple=True, metavar="NAME", help="Only this variant; may be given several times."
)
@click.option("-o", "--output-directory", metavar="DIR",
              help="Where FAMILY.md, .csv, .json and the pictures go.  [default: study-FAMILY]")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the summary.")
def study(family: str, quick: bool, variants: tuple[str, ...], output_directory: str | None, as_json: bool) -> None:
    """Check and time every variant of a kernel family, beside the figures of the course. Needs a GPU.

    Exit status 3: a correct variant disagreed with its reference, or a deliberately broken one was not caught.
    """
    from pipeline.study.device import open_device
    from pipeline.study.report import open_folder, summary, to_json, write_reports
    from pipeline.study.run import choose_cases, label, run_study

    if family not in STUDIES:
        raise UsageError(f"expected a family out of {', '.join(STUDIES)}, got {family}")
    chosen = STUDIES[family]
    cases = choose_cases(chosen, variants, quick)
    device = open_device()
    folder = output_directory or f"study-{family}"
    open_folder(folder)
    with click.progressbar(length=len(cases), label=f"{family}, {len(cases)} cases", file=sys.stderr) as bar:
        run = run_study(chosen, cases, device, progress=lambda _: bar.update(1))
    paths, skipped = write_reports(run, folder)
    click.echo(json.dumps(to_json(run)) if as_json else "\n".join(summary(run)))
    click.echo(f"wrote {', '.join(paths)}", err=True)
    if skipped:
        click.echo(skipped, err=True)
    if run.failures:
        first = run.failures[0]
        raise VerificationError(
            f"{len(run.failures)} of {len(cases)} cases failed verification, the first is {label(first.row.case)}: "
            f"{first.status}, {first.row.note}"
        )


@click.command(cls=Command, epilog=NAMES, short_help="Count registers, memory and instructions of kernels.")
@click.argument("family")
@click.option("--variant", "variants", multiple=True, metavar="NAME",
              help="Only this variant; two are shown side by side.")  # fmt: skip
@click.option("--arch", default="sm_86", show_default=True, metavar="SM", help="Compute capability to compile for.")
@click.option("--sass", is_flag=True, help="Also print the machine code.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the table.")
def inspect(family: str, variants: tuple[str, ...], arch: str, sass: bool, as_json: bool) -> None:
    """Compile the kernels of a family and count registers, memory and instructions. Needs no GPU."""
    from pipeline.study import inspection
    from pipeline.study.report import aligned

    instances, left_out = inspection.choose_instances(family, variants)
    kernels = inspection.inspect(family, instances, arch)
    if left_out:
        click.echo(f"left out, because kernels/{family}.py names no INSTANCES of them: {', '.join(left_out)}", err=True)
    if as_json:
        click.echo(json.dumps(inspection.to_json(family, arch, kernels, sass)))
        return
    click.echo(f"{family} for {arch}")
    for kernel in kernels:
        click.echo(f"{kernel.variant} is {kernel.instance}")
    click.echo("\n".join(["", *aligned(inspection.table(kernels))]))
    for kernel in kernels if sass else []:
        click.echo("\n".join(["", f"{kernel.variant}:", *kernel.listing]))


COMMANDS: tuple[click.Command, ...] = (study, inspect)
