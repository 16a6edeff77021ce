"""Errors that end a run with one line for the user: expected, got, what to do."""

from __future__ import annotations

import errno
import os
import re
import resource
import sysconfig
import traceback
from collections.abc import Iterable
from difflib import get_close_matches

PACKAGES = "pipeline", "kernels", "workflows"
MOST_REASON = 300  # characters of another library's message
DYNAMIC = "<dynamic-code>"  # the file of functions that cloudpickle sent by value: of a script or a notebook


class PipelineError(Exception):
    """The run failed: exit status 1.

    Examples
    --------
    >>> import numpy, pipeline
    >>> from pipeline.errors import PipelineError
    >>> try:
    ...     pipeline.run("reduce", numpy.arange(3), op="product")
    ... except PipelineError as error:
    ...     print(error.exit_code, str(error)[:30])
    2 reduce: --op: expected some of
    """

    exit_code = 1


class PipelineWarning(RuntimeWarning):
    """Something failed that the result does not depend on; nothing has to be done.

    Examples
    --------
    >>> import warnings
    >>> from pipeline.errors import PipelineWarning
    >>> warnings.simplefilter("ignore", PipelineWarning)  # in the caller's program
    """


class UsageError(PipelineError):
    """The command asked for something impossible: exit status 2.

    Examples
    --------
    >>> import pipeline
    >>> pipeline.run("histogramm", "data.bin")
    Traceback (most recent call last):
    pipeline.errors.UsageError: expected a job, one of ...; did you mean 'histogram'?
    """

    exit_code = 2


class VerificationError(PipelineError):
    """A number disagrees with its reference or breaks an invariant: exit status 3, no result is written.

    Examples
    --------
    A job whose reference counts otherwise:

    >>> import dataclasses, numpy, pipeline
    >>> from workflows import WORKFLOWS
    >>> wrong = dataclasses.replace(WORKFLOWS["digest"], name="wrong", check=lambda options, dtype: None,
    ...                             reference=lambda *given: WORKFLOWS["digest"].reference(*given) + 1)
    >>> wrong = pipeline.register(wrong)
    >>> pipeline.run("wrong", numpy.arange(5))
    Traceback (most recent call last):
    pipeline.errors.VerificationError: wrong: a number is wrong in ...
    """

    exit_code = 3


def meant(name: str, known: Iterable[str], least: float = 0.6) -> str:
    """What to add to a message about an unknown name: the nearest known one, if one is at least so similar."""
    close = get_close_matches(name, [*known], 1, least)
    return f"; did you mean {close[0]!r}?" if close else ""


def with_nearest(text: str) -> str:
    """A message that ends with an unknown name, completed with the nearest known one."""
    found = re.search(r"expected (?:one|some) of (.+?)(?:, separated by commas)?, got '(\w+)'$", text)
    return text if found is None else text + meant(found[2], found[1].split(", "))


def failure(name: str, error: Exception) -> PipelineError:
    """A one-line error for users: something of this name failed, by an internal error or one in the user's job."""
    reason = str(error).partition("\n")[0]
    return PipelineError(f"{name} failed: {type(error).__name__}: {reason}{_place(error)}")


def _place(error: BaseException) -> str:
    """Where the user's own code raised an error: neither ours nor an installed package's; empty if it did not."""
    frames = [] if error.__traceback__ is None else traceback.extract_tb(error.__traceback__)
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    own = *(os.path.join(root, name, "") for name in PACKAGES), *sysconfig.get_paths().values()
    for frame in reversed(frames):
        path = frame.filename
        if path == DYNAMIC:
            return f" ({frame.name}, line {frame.lineno})"
        if os.path.isabs(path) and not path.startswith(own) and "site-packages" not in path:
            return f" ({os.path.basename(path)}, line {frame.lineno})"
    return ""


def _in_a_folder() -> bool:
    """Whether the working folder still exists."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True


def unexpected(error: BaseException) -> str:
    """One line about an error that nobody foresaw."""
    if isinstance(error, MemoryError):
        return (
            f"expected more memory, got none ({str(error) or 'MemoryError'}); raise the limit (ulimit -v), or free some"
        )
    line, _, rest = str(error).strip().partition("\n")
    reason = (f"{line} {' '.join(rest.split())}"[:MOST_REASON] if line.endswith(":") else line) or "no reason"
    space, _ = resource.getrlimit(resource.RLIMIT_AS)
    if isinstance(error, ImportError) and space != resource.RLIM_INFINITY:  # perhaps a library that cannot be mapped
        return (f"expected to import all modules, got {reason!r} under a limit of {space:,} bytes; if the module is "
                "installed, raise the limit (ulimit -v)")  # fmt: skip
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return f"expected to open one more file, got {error.strerror}; raise the limit (ulimit -n)"
    if isinstance(error, RuntimeError) and "can't start new thread" in reason:
        return f"expected one more thread, got none ({reason}); raise the limits (ulimit -u, -v, tasks of a container)"
    if isinstance(error, FileNotFoundError) and error.filename is None and not _in_a_folder():
        return "expected a working folder, got one that was removed; go to another one (cd), or name whole paths"
    return f"{type(error).__name__}: {reason}; `python -X dev -m pipeline ...` shows where"
