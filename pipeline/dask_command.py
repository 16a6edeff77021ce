"""`dask pipeline`: the same command as `python -m pipeline`, with its own process, signals and limits."""

from __future__ import annotations

import click

from pipeline.__main__ import main

LEFT_TO_IT = {"ignore_unknown_options": True, "allow_interspersed_args": False}


@click.command("pipeline", add_help_option=False, context_settings=LEFT_TO_IT)
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def dask_command(words: tuple[str, ...]) -> None:
    """Batch jobs over files larger than memory, on every GPU."""
    main(list(words))
