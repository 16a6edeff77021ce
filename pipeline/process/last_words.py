"""The end of the command: one line for an error, the exit status, and no wait for what may never end."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from typing import Any, NoReturn, TextIO

from pipeline.errors import PipelineError, PipelineWarning, unexpected
from pipeline.process import log_lines, supervisor
from pipeline.process.signals import Stopped, ignore, stopped_by

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
MOST_CHARACTERS = 4000  # of a line about an error, which may quote any input

_abandoned = False


def abandon() -> None:
    """Something of this process, like a thread, cannot be ended: at the end of the command, do not wait for it."""
    global _abandoned
    _abandoned = True


def say(*lines: str) -> None:
    """Print lines on stderr, if there is anybody to read them."""
    if sys.stderr is not None:
        lines = tuple(line if len(line) <= MOST_CHARACTERS else f"{line[:MOST_CHARACTERS]} …" for line in lines)
        lines = tuple(map(log_lines.rendered, lines))
        with suppress(OSError, ValueError):
            print(*(_shown(line, sys.stderr) for line in lines), sep="\n", file=sys.stderr, flush=True)


def _shown(line: str, stream: TextIO) -> str:
    """A line with escapes for control characters, which could drive a terminal, and for unknown ones."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    line = CONTROL.sub(lambda match: repr(match[0])[1:-1], line)
    return line.encode(encoding, "backslashreplace").decode(encoding)


def show_warning(message: Warning | str, category: type[Warning], filename: str, line: int, *rest: Any) -> None:
    """Print our own warnings in one line: the command's user has nothing to do with the place in the code."""
    shown = message if issubclass(category, PipelineWarning) else f"{filename}:{line}: {category.__name__}: {message}"
    say(f"warning: {shown}")


def emit(*lines: str, whole: bool = True) -> None:
    """Print lines with what the command was run for on stdout.

    Parameters
    ----------
    lines
    whole
        Whether it matters that all are read; else the reader may leave, as `head` does.

    Raises
    ------
    PipelineError
        If nobody can read it, or there is no space for it.
    """
    try:
        if sys.stdout is None:
            raise OSError(0, "a closed file")
        print(*(_shown(line, sys.stdout) for line in lines), sep="\n", flush=True)
    except (OSError, ValueError) as error:
        unwritten = _unwritten(error)
        if whole or not isinstance(error, BrokenPipeError):
            raise unwritten from None


def _unwritten(error: Exception) -> PipelineError:
    """The error of a standard output that cannot be written, which is closed: Python would try again at exit."""
    reason = getattr(error, "strerror", None) or str(error)
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return PipelineError(f"expected to write to standard output, got {reason}; keep its reader running")


def tell(error: BaseException) -> int:
    """Print why the command ends, in one line and the notes of the error; return the exit status.

    Under `python -X dev` an error that nobody foresaw keeps its traceback.
    """
    notes = getattr(error, "__notes__", ())
    if not isinstance(error, PipelineError):
        error = stopped_by() or error
    if isinstance(error, Stopped):
        say(str(error), *notes)
        return error.status
    if isinstance(error, PipelineError):
        say(f"error: {error}", *notes)
        return error.exit_code
    if sys.flags.dev_mode:
        raise error
    say(f"error: {unexpected(error)}", *notes)
    return 1


def leave(status: int) -> NoReturn:
    """Flush what was printed, and end this process; signals come too late now."""
    ignore()
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OSError, ValueError) as error:
        status = status or tell(_unwritten(error))
    supervisor.done(status)
    if _abandoned:
        os._exit(status)
    sys.exit(status)
