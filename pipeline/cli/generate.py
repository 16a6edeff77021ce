"""The command `generate`: a file of samples to try things on."""

from __future__ import annotations

import click

from pipeline.cli.flags import Command
from pipeline.cli.help import complete_files
from pipeline.errors import UsageError
from pipeline.storage.generate import DISTRIBUTIONS
from pipeline.storage.generate import generate as write_samples
from pipeline.storage.output_format import HDF5, NOT_WRITTEN, ZARR
from pipeline.storage.paths import STDIN
from pipeline.storage.sources import DTYPES


@click.command(cls=Command, example="data.bin --dtype int16 --distribution gaussian")
@click.argument("file", shell_complete=complete_files)
@click.option("--samples", type=int, default=2**25, show_default=True, metavar="N", help="Number of samples.")
@click.option("--dtype", default="int32", show_default=True, metavar="DTYPE", help=f"One of {', '.join(DTYPES)}.")
@click.option("--distribution", default="uniform", show_default=True, metavar="NAME",
              help=f"One of {', '.join(DISTRIBUTIONS)}.")  # fmt: skip
@click.option(
    "--seed", type=int, default=0, show_default=True, metavar="N", help="The same seed writes the same bytes."
)
def generate(file: str, samples: int, dtype: str, distribution: str, seed: int) -> None:
    """Write a file of 10-bit samples to try things on: by default 2^25 of int32, 128 MiB, as in the course.

    FILE is .npy, or raw samples if its suffix belongs to no other format.
    """
    if file == STDIN or file.endswith((*HDF5, ZARR, *NOT_WRITTEN)):
        raise UsageError(f"{file}: expected a file that ends in .npy, or a raw one with a suffix of no other format, "
                         "got another name; choose one of these")  # fmt: skip
    write_samples(file, samples=samples, dtype=dtype, distribution=distribution, seed=seed)
