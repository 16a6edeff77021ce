"""From what the user names to files: patterns, folders with all files below them, members, and slices."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple, NoReturn

from pipeline.errors import PipelineError, UsageError
from pipeline.storage.formats.table import DATA, META, is_store
from pipeline.storage.remote.address import is_url, split_url
from pipeline.storage.view import parse, split_brackets

MEMBER = "::"  # between a file and a member of it
STDIN = "-"  # standard input


def is_stdin(item: str) -> bool:
    """Whether an input is standard input, or an array or a slice of it."""
    name, text = split_brackets(item)
    return (name if text is not None and parse(text) is not None else item).partition(MEMBER)[0] == STDIN


def split_member(item: str) -> tuple[str, str | None]:
    """Path or pattern, and the member after ``::``, if any; a file whose name has a ``::`` is meant itself."""
    if is_url(item):
        return split_url(item)
    if "\0" in item or os.path.lexists(item) or MEMBER not in item:
        return item, None
    path, _, member = item.partition(MEMBER)
    return path, member


class Item(NamedTuple):
    """What the user names: a path, pattern or address, the member of each file, and the text of a slice of it."""

    pattern: str
    member: str | None
    slice: str | None = None


def split_item(item: str) -> Item:
    """An input in its parts. Brackets at its end are a slice if something has the name before them, or matches it.

    Raises
    ------
    UsageError
        If there is something else than a slice between brackets after the name of a file.
    """
    name, text = split_brackets(item)
    if text is None or (not is_url(item) and ("\0" in item or os.path.lexists(item))):
        return Item(*split_member(item))
    pattern, member = split_member(name)
    fits = parse(text) is not None
    if member is not None:
        return Item(pattern, member, text) if fits else Item(*split_member(item))
    if is_url(item):
        there = fits and "/" in name.partition("://")[2] and _is_remote(name)
    else:
        there = os.path.lexists(name) or (glob.has_magic(name) and any(_matches(name)))
        if there and not fits:
            if not any(_matches(item)):
                raise not_a_slice(name, text)
            there = False
    return Item(pattern, None, text) if there else Item(item, None)


def _is_remote(name: str) -> bool:
    """Whether an address is that of an object or a pattern; nobody else's brackets end that of a web server."""
    from pipeline.storage.remote.address import address
    from pipeline.storage.remote.patterns import is_there

    url = address(name)
    return url.web or is_there(url)


def not_a_slice(name: str, text: str) -> UsageError:
    """The error for brackets with something else in them."""
    return UsageError(f"{name}[{text}]: expected a slice like [1000:5000], [:, 3] or [::10], got [{text}]; between the "
                      "commas is an index, start:stop:step, or ... for all other axes")  # fmt: skip


def expand(pattern: str, recursive: bool = False) -> list[str]:
    """Paths that match a pattern, or the path itself; absolute paths: workers may run in another folder.

    Parameters
    ----------
    pattern
    recursive
        Whether a folder stands for all files below it, if it is no file of some format itself.

    Raises
    ------
    UsageError
        If there are none; PipelineError if a folder cannot be read.
    """
    if is_url(pattern):
        from pipeline.storage.remote.patterns import expand_url

        return list(expand_url(pattern))
    if not pattern:  # as a path it would be the current folder
        raise UsageError("expected a path or a pattern, got an empty one; is a variable of the shell not set?")
    if "\0" in pattern or os.path.lexists(pattern) or not glob.has_magic(pattern):
        paths = [pattern]
    else:
        paths = [*_recordings(sorted({*_matches(pattern)}))]
        if not paths:
            raise UsageError(f"{pattern}: expected at least one file to match, got none; check the pattern")
    if recursive:
        paths = _once(path for name in paths for path in _below(name))
    return list(map(_absolute, paths))


def _matches(pattern: str) -> Iterator[str]:
    """Paths that match a pattern, some of them several times; one that ends with `**` means the folder.

    `**` follows no link to a folder: below two that lead back, `glob` would list 2^40 paths.
    """
    above, *below = re.split(r"(?<![^/])(?:\*\*/+)*\*\*(?:/+|$)", pattern, maxsplit=1)  # several mean the same as one
    for top in glob.iglob(above) if above else [os.curdir]:
        if below in ([], [""]):
            yield top
            continue
        for folder, folders, _ in os.walk(top, onerror=_unreadable):
            folders[:] = [name for name in folders if not name.startswith(".")]
            yield from _matches(os.path.join(glob.escape(folder), below[0]))


def _unreadable(error: OSError) -> NoReturn:
    """What is below would be left out."""
    raise PipelineError(f"{error.filename}: expected a folder that can be read, got {error.strerror!r}; check its "
                        "permissions, or name the files") from None  # fmt: skip


def _once(paths: Iterable[str]) -> list[str]:
    """Paths without those of a file that an earlier one names."""
    first: dict[tuple[int, int] | str, str] = {}
    for path in paths:
        first.setdefault(_file_of(path), path)
    return [*first.values()]


def _absolute(path: str) -> str:
    """Absolute path of a file; `..` is left to the system, to which it means the folder above a link's target."""
    return os.path.join(os.getcwd(), path) if os.pardir in path.split(os.sep) else os.path.abspath(path)


def _recordings(paths: Iterable[str]) -> Iterator[str]:
    """Paths without the metadata of SigMF recordings whose samples are there, too, which would count twice."""
    every = set(paths := [*paths])
    return (path for path in paths if not (path.endswith(META) and path.removesuffix(META) + DATA in every))


def _below(path: str) -> list[str]:
    """A file itself, or all files below a folder, sorted; hidden names and links to folders are left out."""
    if "\0" in path or not os.path.isdir(path) or is_store(path):
        return [path]
    paths = []
    for folder, folders, files in os.walk(path, onerror=_unreadable):
        shown = [os.path.join(folder, name) for name in folders if not name.startswith(".")]
        stores = [name for name in shown if not os.path.islink(name) and is_store(name)]
        folders[:] = [os.path.basename(name) for name in shown if name not in stores]
        paths += [*stores, *(os.path.join(folder, name) for name in files if not name.startswith("."))]
    if not paths:
        raise UsageError(f"{path}: expected files below this folder, got none; hidden ones do not count")
    return [*_recordings(sorted(paths))]


def _file_of(path: str) -> tuple[int, int] | str:
    """A key that all names of a file share; for a dangling link its own name."""
    try:
        status = os.stat(path)
    except OSError:
        return path
    return status.st_dev, status.st_ino
