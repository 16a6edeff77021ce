"""List files: `@FILE` stands for the names in a file, one a line, in their order."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TypeVar

from pipeline.errors import PipelineError, UsageError
from pipeline.storage.paths import is_stdin
from pipeline.storage.remote.address import is_url

MARK = "@"  # before the name of a list
COMMENT = "#"  # at the beginning of a line
MOST_BYTES = 2**26
BOM = "\ufeff"

Item = TypeVar("Item")


def is_list(item: str) -> bool:
    """Whether an input is a list; an existing file whose name begins with the mark is not."""
    return item.startswith(MARK) and "\0" not in item and not os.path.lexists(item)


def with_lists(inputs: Iterable[Item | str]) -> Iterator[Item | str]:
    """Inputs, with the names in each list in its place.

    Raises
    ------
    UsageError
        If a list is missing, no text, too long or empty, or names standard input or another list; PipelineError if it
        cannot be read.
    """
    for item in inputs:
        if isinstance(item, str) and is_list(item):
            yield from _names(item.removeprefix(MARK))
        else:
            yield item


def list_paths(items: Iterable[str]) -> list[str]:
    """Paths of the lists among inputs."""
    return [item.removeprefix(MARK) for item in items if is_list(item)]


def _names(path: str) -> list[str]:
    """Names in a list, without blank lines and comments; relative ones are meant from the current folder."""
    if is_url(path):
        raise UsageError(f"{MARK}{path}: expected a list on this machine, got a URL; fetch the list first")
    if not os.path.isfile(path):
        got = "something else" if os.path.lexists(path) else "none there"
        raise UsageError(f"{MARK}{path}: expected a text file with a path on each line, got {got}; check the path "
                         f"after {MARK}")  # fmt: skip
    try:
        with open(path, "rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise PipelineError(f"{path}: expected a list that can be read, got {error.strerror!r}; check its "
                            "permissions") from None  # fmt: skip
    if b"\0" in content or len(content) > MOST_BYTES:
        got = "null bytes" if b"\0" in content else f"more than {MOST_BYTES >> 20} MiB"
        raise UsageError(f"{path}: expected a text file with a path on each line, got {got}; samples are named without "
                         f"{MARK}")  # fmt: skip
    lines = [line.strip() for line in os.fsdecode(content).removeprefix(BOM).split("\n")]
    numbered = [(number, line) for number, line in enumerate(lines, 1) if line and not line.startswith(COMMENT)]
    for number, line in numbered:
        if is_list(line) or is_stdin(line):
            what = "standard input" if is_stdin(line) else "another list"
            raise UsageError(f"{path}: expected files, got {what} on line {number}, {line!r}; name it on the command "
                             "line")  # fmt: skip
    if not numbered:
        raise UsageError(f"{path}: expected a path on each line, got none; a list of no files is an error")
    return [line for _, line in numbered]
