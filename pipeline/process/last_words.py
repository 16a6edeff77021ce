"""The end of the command: one line for an error, the exit status, and no wait for what may never end."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Any, NoReturn

from pipeline.errors import PipelineError, PipelineWarning, unexpected
from pipeline.process import supervisor
from pipeline.process.signals import Stopped, seal

_abandoned = False


def abandon() -> None:
    """Something of this process, like a thread, cannot be ended: at the end of the command, do not wait for it."""
    global _abandoned
    _abandoned = True


def say(*lines: str) -> None:
    """Print lines on stderr, if there is anybody to read them."""
    if sys.stderr is not None:
        with suppress(OSError, ValueError):
            print(*lines, sep="\n", file=sys.stderr, flush=True)


def show_warning(message: Warning | str, category: type[Warning], filename: str, line: int, *rest: Any) -> None:
    """Print our own warnings in one line: the command's user has nothing to do with the place in the code."""
    shown = message if issubclass(category, PipelineWarning) else f"{filename}:{line}: {category.__name__}: {message}"
    say(f"warning: {shown}")


def emit(text: str) -> None:
    """Print what the command was run for on stdout.

    Raises
    ------
    PipelineError
        If nobody can read it, or there is no space for it.
    """
    try:
        if sys.stdout is None:
            raise OSError(0, "a closed file")
        print(text, flush=True)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        with suppress(OSError, ValueError, AttributeError):  # Python would try again at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise PipelineError(f"expected to write to standard output, got {reason}; keep its reader running, or write "
                            "the result to a file with -o") from None  # fmt: skip


def tell(error: BaseException) -> int:
    """Print why the command ends, in one line and the notes of the error; return the exit status.

    Under `python -X dev` an error that nobody foresaw keeps its traceback.
    """
    notes = getattr(error, "__notes__", ())
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
    seal()
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OSError, ValueError):
        with suppress(PipelineError):
            emit("")
        status = status or 1
    supervisor.done(status)
    if _abandoned:
        os._exit(status)
    sys.exit(status)
