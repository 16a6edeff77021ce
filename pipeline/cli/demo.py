"""The command `demo`: makes data, counts it, plants one error, shows that it is caught, and cleans up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from pipeline.cli.flags import Command
from pipeline.cli.help import program
from pipeline.cluster.placement import Placement
from pipeline.errors import PipelineError, VerificationError
from pipeline.process.last_words import emit
from pipeline.process.scratch_folder import scratch_folder
from pipeline.process.signals import Stopped, unseal
from pipeline.settings import Settings
from pipeline.storage.generate import generate
from pipeline.storage.sources import open_source
from workflows.histogram import HISTOGRAM
from workflows.histogram_options import HistogramOptions

SAMPLES = 2**22
RARE = 1023  # the value of one sample


@click.command(cls=Command)
@click.option("--device", type=click.Choice(["auto", "gpu", "cpu"]), default="auto", show_default=True,
              help="What to compute on.")  # fmt: skip
def demo(device: str) -> None:
    """Make data in a temporary folder, count it, plant one error, and show that it is caught; then clean up.

    It takes seconds and 16 MiB. Exit status: 0 if the right run is verified and the planted error is found.
    """
    from pipeline.engine.aggregate import run

    settings = Settings(placement=Placement(device=device, own_process=True), verify="full")
    options = HistogramOptions()
    with _scratch() as folder:
        path = folder / "samples.bin"
        samples = _make(path)
        emit(f"1. made {path}: {SAMPLES:,} samples of 10 bits in int32, one of them {RARE}")

        outcome = run(HISTOGRAM, options, open_source((str(path),)), settings)
        expected, _ = np.histogram(samples, 1024, (0, 1024))
        if not np.array_equal(outcome.result.counts, expected):
            raise PipelineError("demo: expected the counts of numpy.histogram, got others; report this")
        emit(f"2. counted it on {outcome.where}, in {outcome.stages.wall:.2f} s: {outcome.verdict}",
             "   numpy.histogram gives the same 1,024 counts")  # fmt: skip
        unseal()  # the next run can be stopped again

        emit(f"3. planted one error: the kernel's result now has the sample of {RARE} in the bin of {RARE - 1}")
        try:
            run(replace(HISTOGRAM, compute=_wrong), options, open_source((str(path),)), settings)
        except VerificationError as error:
            emit(f"   caught: {str(error).partition('; nothing was written')[0]}",
                 f"   a command writes nothing then, and ends with status {error.exit_code}")  # fmt: skip
        else:
            raise PipelineError("demo: expected the planted error to be caught, got a verified result; report this")
    emit("4. removed what was made", "",
         f"Next: {program()} doctor, then {program()} histogram FILE of your own.")  # fmt: skip


def _make(path: Path) -> Any:
    """A file of samples, exactly one of which is `RARE`."""
    generate(path, SAMPLES, distribution="gaussian")
    samples = np.memmap(path, "<i4", "r+")
    samples[samples == RARE] = RARE - 1
    samples[SAMPLES // 3] = RARE
    samples.flush()
    return samples


def _wrong(block: Any, options: HistogramOptions) -> Any:
    """The counts of a block with one sample in the bin below its own; their sum is right."""
    counts = HISTOGRAM.compute(block, options)
    rare = 1 + RARE  # after the underflow
    counts[rare - 1] += counts[rare]
    counts[rare] = 0
    return counts


@contextmanager
def _scratch() -> Iterator[Path]:
    """A folder that is removed afterwards; after a signal, a line says so."""
    try:
        with scratch_folder() as folder:
            yield folder
    except Stopped as stopped:
        stopped.reason += ": what the demo had made is removed"
        raise
    except OSError as error:
        raise PipelineError(f"demo: expected to write a temporary folder, got {error.strerror or error}; free some "
                            "space, or name another place with TMPDIR") from None  # fmt: skip
