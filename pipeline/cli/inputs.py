"""Flags that describe the input of every job, and the source that they describe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from pipeline.cli.help import INPUT, Flag
from pipeline.cli.outputs import Named
from pipeline.errors import UsageError
from pipeline.storage.list_file import list_paths
from pipeline.storage.sources import BYTEORDERS, NAMES, PARTS, RAW_DTYPE, Source, open_source

DESCRIBED = ("dtype", "byteorder", "offset", "part", "recursive")


def complete_dtypes(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Dtypes that begin with a word."""
    return [name for name in NAMES if name.startswith(incomplete)]


def input_flags() -> list[click.Option]:
    """How to read the input."""
    return [
        Flag(["--dtype"], group=INPUT, metavar="DTYPE", shown=RAW_DTYPE, shell_complete=complete_dtypes,
             help=f"Dtype of raw files: {', '.join(NAMES)}; those that end in p are packed."),
        Flag(["--byteorder"], group=INPUT, type=click.Choice(BYTEORDERS), shown="little",
             help="Byte order of raw files."),
        Flag(["--offset"], group=INPUT, type=int, metavar="N", shown="0", help="Bytes to skip at the start of raw "
             "files."),
        Flag(["--spool"], group=INPUT, is_flag=True, help="Write standard input to a temporary file first, so that "
             "a job can read it twice or in another order."),
        Flag(["--part"], group=INPUT, type=click.Choice(PARTS),
             help="The part of complex samples that counts; abs is the magnitude, phase the angle in radians."),
        Flag(["--recursive"], group=INPUT, is_flag=True,
             help="A folder stands for all files below it, sorted by path, except hidden ones."),
    ]  # fmt: skip


def opened(files: Sequence[str], values: dict[str, Any], **accepts: bool) -> Source:
    """The source of files, as the flags describe it."""
    described = {name: values[name] for name in DESCRIBED} | accepts
    source = open_source(files, **described, stall_seconds=values["stall_timeout"])
    if not values["spooled"]:
        return source
    from pipeline.storage.spool import called

    return called(source, values["spooled"])


def inputs(sources: Sequence[Source], values: dict[str, Any]) -> list[Named]:
    """Files that are read: of samples, and lists of those."""
    paths = [path for source in sources for path in source.paths]
    return [Named("", path) for path in (*paths, *list_paths(values["files"]))]


@contextmanager
def spool(values: dict[str, Any]) -> Iterator[None]:
    """Replace standard input by a file, if `--spool` asks for it; `values["spooled"]` is its path, or empty.

    Raises
    ------
    UsageError
        If the run is to be continued: nothing is left of its input.
    """
    values["spooled"] = ""
    if not values["spool"]:
        yield
        return
    if values["resume"]:
        raise UsageError("--spool: expected no --resume, since the next run would not have the same input; write "
                         "standard input to a file first")  # fmt: skip
    from pipeline.storage.spool import spooled

    with spooled(values["files"], values["stall_timeout"]) as (files, path):
        values |= {"files": files, "spooled": path}
        yield
