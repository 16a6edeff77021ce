"""Unfinished runs: continuing them, and the commands that list and remove them."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from pipeline.cli.flags import Command
from pipeline.cli.help import SectionedGroup
from pipeline.cli.outputs import Named
from pipeline.engine.journal import Journal
from pipeline.engine.journal_request import Request
from pipeline.engine.resume import open_journal
from pipeline.engine.unfinished import Unfinished, remove, unfinished
from pipeline.errors import UsageError
from pipeline.process import log_lines, supervisor
from pipeline.process.last_words import MOST_CHARACTERS, emit, say
from pipeline.storage.remote.address import redacted
from pipeline.storage.sources import Source

SHOWN = 8  # characters of a key


@contextmanager
def journal_of(
    jobs: tuple[tuple[str, Any], ...], sources: tuple[Source, ...], outputs: Sequence[Named], values: dict[str, Any]
) -> Iterator[Journal]:
    """The journal of a run: removed once the body has succeeded; else the error tells how to continue.

    None of a run over a spooled input, which nothing can continue.
    """
    if values["spooled"]:
        yield Journal()
        return
    request = Request(jobs, sources, tuple(one.path for one in outputs), values["verify"], values["chunk_size"])
    person = sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty() and not log_lines.as_json()
    ask = _ask if person else None
    tell = say if values["told"] is None else _in_a_batch
    with open_journal(request, values["resume"], ask, tell) as journal:
        advice = f"to continue: {_command()}"
        journal.on_saved = lambda saved: supervisor.advise(advice if saved else "")
        journal.on_saved(journal.saved)
        try:
            yield journal
        except UsageError:
            raise
        except BaseException as error:
            if journal.saved:
                error.add_note(advice)
            raise
        journal.remove()


def _in_a_batch(*lines: str) -> None:
    """The message about a job of a batch; most jobs of a batch have nothing to continue."""
    if kept := [line for line in lines if not line.startswith("--resume: there is no")]:
        say(*kept)


def _ask(question: str) -> bool:
    return click.confirm(question, default=True, err=True)


def _command() -> str:
    """This command with --resume, for a shell; signatures in addresses are to be filled in."""
    program, words = sys.argv[0], [redacted(word) for word in sys.argv[1:] if word != "--resume"]
    start = ["python", "-m", "pipeline"] if os.path.basename(program) == "__main__.py" else [os.path.basename(program)]
    command = shlex.join([*start, *words, "--resume"])
    return command if len(command) <= MOST_CHARACTERS // 2 else "the same command with --resume"


@click.group(cls=SectionedGroup)
def runs() -> None:
    """List or remove what unfinished runs have left. To continue a run, repeat its command with --resume."""


@runs.command("list", cls=Command, short_help="List unfinished runs.")
def list_runs() -> None:
    """List unfinished runs: identifier, state, what was done, and bytes of temporary files."""
    emit(*([_line(one) for one in unfinished()] or ["no unfinished runs"]))


@runs.command(cls=Command, short_help="Remove what unfinished runs have left.")
@click.argument("identifiers", nargs=-1, metavar="[ID...]")
def clean(identifiers: tuple[str, ...]) -> None:
    """Remove unfinished runs, those of the given identifiers or all, with their temporary files.

    Runs that are in progress stay.
    """
    every = unfinished()
    for identifier in identifiers:
        if not any(one.key.startswith(identifier) for one in every):
            raise UsageError(f"expected an identifier from `runs list`, got {identifier!r}")
    for one in every:
        if (not identifiers or one.key.startswith(identifiers)) and remove(one):
            emit(f"removed {_line(one)}")


def _line(one: Unfinished) -> str:
    temporary = f", {one.nbytes / 1e9:.1f} GB in {one.part}" if one.part and one.nbytes else ""
    return f"{one.key[:SHOWN]}  {one.state}  {one.what}{temporary}"
