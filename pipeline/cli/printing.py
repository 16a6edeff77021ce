"""Text for terminals and logs, whatever names files have: no control characters, no characters that cannot be shown."""

from __future__ import annotations

import errno
import os
import re
import sys
from typing import TextIO

import click

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
MOST_CHARACTERS = 4000  # of a line about an error


def print_error(text: str) -> None:
    """Print one line on stderr."""
    line = text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]} …"
    click.echo(_shown(line, sys.stderr), err=True)


def print_lines(lines: list[str]) -> None:
    """Print lines on stdout; OSError if that is closed or cannot take them."""
    if sys.stdout is None:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    click.echo("\n".join(_shown(line, sys.stdout) for line in lines))


def _shown(line: str, stream: TextIO | None) -> str:
    """A line with escapes for control characters, which could end it or drive a terminal, and for unknown ones."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    line = CONTROL.sub(lambda match: repr(match[0])[1:-1], line)
    return line.encode(encoding, "backslashreplace").decode(encoding)


def silence_stdout() -> None:
    """Have Python's flush at exit succeed after stdout failed, because its reader is gone or its disk full."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
