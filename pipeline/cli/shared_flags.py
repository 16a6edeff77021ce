"""Flags that jobs share: how to read the input, what to check, what to print and write, where to run."""

from __future__ import annotations

from typing import Any

import click

from pipeline.cli.flags import Duration, Gpus, Lengths, Size, Written
from pipeline.cli.help import COMPUTATION, OUTPUT, PLACE, Flag
from pipeline.cli.inputs import input_flags
from pipeline.process.heartbeat import STALL_SECONDS
from pipeline.process.log_lines import FORMATS
from pipeline.settings import VERIFY
from pipeline.storage.output_format import KNOWN
from workflows.aggregation import Aggregation
from workflows.array_job import ArrayJob
from workflows.pictures import HOW, SUFFIXES

DIGEST = "digest"  # the job whose result --with-digest names


def _flags_of_samples() -> list[click.Option]:
    """Imported when needed: jobs that write arrays take a twentieth of a second less to start."""
    from pipeline.cli.rows import row_flags
    from pipeline.cli.selection import preparation_flags

    return [*preparation_flags(), *row_flags()]


def shared_flags(workflow: Aggregation[Any] | ArrayJob[Any]) -> list[click.Option]:
    """Flags of all jobs: how to read the input, what to check, what to print, where to run."""
    aggregation = isinstance(workflow, Aggregation)
    flags = [
        *input_flags(),
        *(_flags_of_samples() if aggregation else ()),
        Flag(["--also"], group=COMPUTATION, multiple=True, metavar="JOB", help="Another job over the same samples, "
             "which are read once for all: 'reduce --op sum,std -o sums.json', with its own options and its own "
             "output. May be given several times.") if aggregation else None,
        Flag(["--with-digest"], group=COMPUTATION, is_flag=True,
             help="Add the BLAKE3 of all samples to the result, from the same read.")
        if aggregation and workflow.name != DIGEST else None,
        kernel_flag(),
        Flag(["--verify"], group=COMPUTATION, type=click.Choice(VERIFY), default="auto", shown="auto",
             help=_checked(workflow)),
        Flag(["--replay"], group=COMPUTATION, type=float, default=0.0, shown="0", metavar="SHARE", help="Compute this "
             f"share of the {'chunks' if aggregation else 'tasks'} a second time, on another GPU if there is one, and "
             "require the same bits."),
        output_flag(workflow),
        Flag(["--draw"], group=OUTPUT, type=click.Choice(HOW), default="counts", shown="counts", help="What a picture "
             "of -o shows: counts; log, the same on a logarithmic scale; or cumulative, the share of the samples up to "
             "a value.") if aggregation else None,
        None if aggregation else Flag(["--chunks"], group=OUTPUT, type=Lengths(), metavar="N,N", shown="whole rows",
                                      help="Shape of the chunks of a Zarr store."),
        Flag(["--json", "as_json"], group=OUTPUT, is_flag=True, help="Print one JSON object instead of the panel."),
        Flag(["--trace"], group=OUTPUT, type=Written(".json", *SUFFIXES), metavar="FILE", help="Write when every block "
             "was read, copied and computed, for Perfetto or chrome://tracing (.json), or draw it (.png, .svg, .pdf), "
             "and print a summary on stderr."),
        Flag(["--performance-report"], group=OUTPUT, type=Written(".html"), metavar="FILE", help="Write Dask's report "
             "of the run, an HTML file with its task stream and profiles."),
        Flag(["--log-format"], group=OUTPUT, type=click.Choice(FORMATS), default="text", shown="text", help="Format "
             "of stderr: lines for people, or one JSON object per line, with progress every ten seconds."),
        Flag(["-q", "--quiet"], group=OUTPUT, is_flag=True, help="Show no progress on stderr, and print the "
             "verdict in one line instead of the panel."),
        Flag(["--dry-run"], group=PLACE, is_flag=True,
             help="Run nothing; say what the run would need, like `plan`: chunks, memory, disk and seconds."),
        Flag(["--resume"], group=PLACE, is_flag=True, help="Continue the unfinished run of exactly this request, if "
             "there is one."),
        Flag(["--device"], group=PLACE, type=click.Choice(["auto", "gpu", "cpu"]), default="auto", shown="auto",
             help="What to compute on; the result is the same."),
        Flag(["--gpus"], group=PLACE, type=Gpus(), metavar="N|all|idle|LIST", shown="as many as finish first",
             help="GPUs to use: how many, all, the idle ones, or a list of UUIDs or of nvidia-smi's indices, like 0,2. "
                  "A comma makes a single number an index: `2,`."),
        Flag(["-c", "--chunk-size"], group=PLACE, type=Size(), metavar="SIZE", shown="by input size and workers",
             help=f"Bytes per {'chunk' if aggregation else 'region, inputs and output together'}, like 256MiB."),
        Flag(["--device-memory-limit"], group=PLACE, type=Size(), metavar="SIZE",
             help="Memory that tasks may use on each GPU."),
        None if aggregation else Flag(["--memory-limit"], group=PLACE, type=Size(), metavar="SIZE", help="Memory that "
                                      "the tasks of a process may use."),
        Flag(["--scheduler"], group=PLACE, metavar="ADDRESS", help="Run on this existing Dask cluster."),
        Flag(["--scheduler-file"], group=PLACE, metavar="FILE", help="Run on the cluster whose scheduler wrote this "
             "file."),
        Flag(["--tls-ca-file"], group=PLACE, metavar="FILE", help="Certificate authority of that cluster (PEM)."),
        Flag(["--tls-cert"], group=PLACE, metavar="FILE", help="Your certificate for it."),
        Flag(["--tls-key"], group=PLACE, metavar="FILE", help="The key of your certificate."),
        Flag(["--time-limit"], group=PLACE, type=Duration(), metavar="DURATION", help="Stop after 90s, 30m or 2h, with "
             "exit status 75."),
        Flag(["--stall-timeout"], group=PLACE, type=Duration(), metavar="DURATION", default=STALL_SECONDS, shown="10m",
             help="Kill a process without progress for this long, and repeat its task."),
        Flag(["--dashboard-address"], group=PLACE, metavar=":PORT", help="Serve the Dask dashboard on 127.0.0.1, at "
             ":8787 for example, or at any free port with :0."),
    ]  # fmt: skip
    return [flag for flag in flags if flag is not None]


def kernel_flag() -> click.Option:
    """The flag for a variant of the courses."""
    return Flag(["--kernel"], group=COMPUTATION, metavar="NAME", help="Compute on GPUs with this kernel of the courses "
                "(see `study`). A request that it does not support is refused.")  # fmt: skip


def _checked(workflow: Aggregation[Any] | ArrayJob[Any]) -> str:
    """What `--verify` checks, in the order of its values."""
    if isinstance(workflow, ArrayJob) and workflow.whole:
        return "Independent code on the CPU checks every element, unless this is off."
    cut = "region" if isinstance(workflow, ArrayJob) else "chunk"
    text = (
        f"What independent code on the CPU checks: auto, as much as possible in the time of the run, at least 1 % of "
        f"each {cut}; full, everything; sample, a random 1/256 of each {cut}; off, nothing."
    )
    return text if isinstance(workflow, ArrayJob) else f"{text} Invariants are checked in every mode."


def output_flag(workflow: Aggregation[Any] | ArrayJob[Any]) -> click.Option:
    """The flag for the file that a job writes: optional for a result, required for an array."""
    if isinstance(workflow, ArrayJob):
        text = f"Where the array goes: {KNOWN}. It appears once it is verified."
    else:
        text = f"Write the result in the format of the suffix: {', '.join(workflow.formats)}."
    required = isinstance(workflow, ArrayJob)
    return Flag(["-o", "--output"], group=OUTPUT, metavar="FILE", required=required, help=text)
