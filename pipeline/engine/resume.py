"""Whether a run continues an unfinished run, and how far the unfinished run had come."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from time import time

from pipeline.engine import journal_file
from pipeline.engine.journal import FORMAT, Journal
from pipeline.engine.journal_file import DamagedError, Row
from pipeline.engine.journal_request import Request, difference
from pipeline.errors import PipelineError, UsageError
from pipeline.storage.leftovers import remove_part


@contextmanager
def open_journal(
    request: Request, resume: bool, ask: Callable[[str], bool] | None, say: Callable[[str], None]
) -> Iterator[Journal]:
    """The journal of a request; that of an unfinished run is continued if the user wants that.

    Parameters
    ----------
    request
    resume
        Whether to continue without asking.
    ask
        (question) -> whether to; None where nobody can be asked.
    say
        Shows a line to the user.

    Raises
    ------
    UsageError
        If a run cannot be continued, because something differs, or its journal is damaged.
    PipelineError
        If it is to be continued, and another run has it or it cannot be opened.
    """
    if request.files is None:
        if resume:
            raise UsageError("--resume: expected files, which can be recognized later, got other inputs (standard "
                             "input, packed or decoded samples, a slice with gaps, or an object that its server does "
                             "not identify); leave it out")  # fmt: skip
        yield Journal()
        return
    journal = Journal(request, say)
    try:
        try:
            if there := journal.key in journal_file.journals():
                journal.lock()
        except (OSError, PipelineError) as error:
            reason = (isinstance(error, OSError) and error.strerror) or error
            if resume:
                raise PipelineError(f"--resume: expected a journal that no other run uses, got: {reason}") from None
            say(f"this run cannot be continued if it is interrupted: its journal cannot be opened ({reason})")
            journal, there = Journal(), False
        if there:
            _continue(journal, request, resume, ask, say)
        elif resume:
            none = "--resume: there is no unfinished run of exactly this request; it starts over"
            journal.on_begun = lambda: say(none)
        yield journal
    finally:
        journal.close()


def _continue(
    journal: Journal, request: Request, resume: bool, ask: Callable[[str], bool] | None, say: Callable[[str], None]
) -> None:
    """Have a journal, which is locked, continue the run that left it; or forget that run once this one begins.

    A request may still be refused: then its error is all that is said, and the unfinished run stays.
    """
    rows: list[Row] | None = None
    told = ""
    try:
        rows = journal_file.read(journal.key)
        problem = difference(rows[0].header, request) if rows else None
        if rows and rows[0].header["format"] != FORMAT:
            problem = "its journal has another format"
    except (DamagedError, KeyError, TypeError, ValueError) as error:
        problem = f"its journal is damaged: {error}"
    if problem is not None:
        if resume:
            raise UsageError(f"--resume: expected inputs, parameters and code of the unfinished run, but {problem}; "
                             "leave --resume out to start over")  # fmt: skip
        told = f"the unfinished run of this request cannot be continued ({problem}); it starts over"
    elif rows:
        state = f"An unfinished run of this exists ({progress_of(rows)})"
        if resume or (ask is not None and ask(f"{state}. Continue it?")):
            journal.take(rows)
            continues = f"continues an unfinished run ({progress_of(rows)})"
            journal.on_begun = lambda: say(continues)
            return
        if ask is None:
            told = f"{state}; this one starts over, --resume would have continued it"

    def begun() -> None:
        if told:
            say(told)
        with suppress(OSError):
            journal_file.remove(journal.key)
        part = rows[0].header.get("part") if rows else None
        if isinstance(part, str) and part != journal.part:  # else this run has its place
            remove_part(part)

    journal.on_begun, journal.replaces = begun, True


def progress_of(rows: Sequence[Row]) -> str:
    """How far a run had come, for a message."""
    done, items = finished_share(rows)
    ago = max(0.0, time() - rows[0].header["time"])
    text = f"begun {_duration(ago)} ago"
    return f"{100 * done // items} % of it done, {text}" if items else text


def finished_share(rows: Sequence[Row]) -> tuple[int, int]:
    """Items done and items in all of the last pass that was begun."""
    passes = [row.header for row in rows if row.kind == "pass"]
    done = sum(len(row.header["regions"]) for row in rows if row.kind == "regions")
    return (passes[-1]["done"] if passes[-1]["done"] is not None else done, passes[-1]["items"]) if passes else (0, 0)


def _duration(seconds: float) -> str:
    for unit, name in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds // unit:.0f} {name}"
    return f"{seconds:.0f} s"
