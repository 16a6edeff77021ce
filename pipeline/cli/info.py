"""The command `info`: what files are, and the command that reads them."""

from __future__ import annotations

import json
from collections.abc import Iterator

import click

from pipeline.cli.flags import Command
from pipeline.cli.help import complete_files, program
from pipeline.cli.usage import errors_have_status_2
from pipeline.errors import UsageError
from pipeline.process.last_words import emit
from pipeline.storage.describe import (
    UNREADABLE,
    Description,
    byteorder_of,
    describe,
    name_of,
    nbytes_of,
    problem_of,
)
from pipeline.storage.protocol import Member
from pipeline.storage.raw import RAW, RAW_DTYPE
from workflows.shown import how_many

SHOWN = 20  # arrays of a file; --json has all


@click.command(cls=Command, example="recording.h5 'run-*.npy'")
@click.argument("files", nargs=-1, required=True, shell_complete=complete_files)
@click.option("--recursive", is_flag=True, help="All files below a folder.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def info(files: tuple[str, ...], recursive: bool, as_json: bool) -> None:
    """Say what files are, from their headers only, and which command reads them.

    FILES are paths, patterns or @LIST; FILE::MEMBER is one array of a file, FILE[SLICE] a slice of it. Exit status 2 if
    one of them cannot be read.
    """
    with errors_have_status_2("info"):
        described = list(describe(*files, recursive=recursive))
    if as_json:
        emit(json.dumps({"files": [description.to_json() for description in described]}))
    else:
        emit(*(line for description in described for line in _lines(description)))
    if any(description.format == UNREADABLE for description in described):
        click.get_current_context().exit(UsageError.exit_code)


def _lines(description: Description) -> Iterator[str]:
    size = "" if description.nbytes is None else f", {description.nbytes:,} bytes"
    several = f", {len(description.members)} arrays" if len(description.members) != 1 else ""
    yield f"{description.path}: {description.format}{several}{size}"
    for member in description.members[:SHOWN]:
        if about := _about(member):
            yield f"  {about}"
        if description.format == RAW.name and member.dtype is not None:
            yield f"    no header: {RAW_DTYPE} is a guess, --dtype says what the samples are"
        if (command := description.command(member)) is not None:
            yield f"    {command.replace('python -m pipeline', program(), 1)}"
        else:
            yield f"    cannot be read: {problem_of(member)}"
    if len(description.members) > SHOWN:
        yield f"  and {len(description.members) - SHOWN} more, which --json lists"


def _about(member: Member) -> str:
    if member.dtype is None:
        return member.name
    order = byteorder_of(member)
    words = [f"{member.name}  {name_of(member.dtype)}" if member.name else name_of(member.dtype)]
    words[0] += f" {order} endian" if order else ""
    shape = " × ".join(f"{length:,}" for length in member.shape)
    words.append(how_many(*member.shape) if len(member.shape) == 1 else shape or "a scalar")
    words.append(f"{nbytes_of(member):,} bytes")
    if member.chunks:
        words.append(f"in chunks of {' × '.join(map(str, member.chunks))}")
    if member.compression:
        stored = "" if member.stored is None else f" to {member.stored:,} bytes"
        words.append(f"{member.compression}{stored}")
    return ", ".join(words)
