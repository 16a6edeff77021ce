"""Objects of a bucket whose keys match a pattern."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

from pipeline.errors import UsageError
from pipeline.storage.remote.address import Url, address
from pipeline.storage.remote.ahead import in_order
from pipeline.storage.remote.objects import folder, listed, look

MAGIC = re.compile(r"[*?[]")
ANY_DEPTH = "**"


def expand_url(text: str) -> Iterator[Url]:
    """The objects that match a pattern, sorted, or the address itself; web servers list no objects.

    Raises
    ------
    UsageError
        If none matches.
    """
    url = address(text)
    if url.web or not MAGIC.search(url.key) or exists(url):
        yield url
        return
    matches = sorted(_matches(url, "", url.key.split("/")), key=lambda match: match.key)
    if not matches:
        raise UsageError(f"{url}: expected at least one object to match, got none; check the pattern")
    for match, _ in zip(matches, in_order(_seen, matches), strict=True):
        yield match


def exists(url: Url) -> bool:
    """Whether there is an object, or the failure has another cause than a wrong name."""
    try:
        return bool(look(url))
    except UsageError:
        return False


def is_there(url: Url) -> bool:
    """Whether an object of a bucket has this name, or matches it."""
    return exists(url) or (bool(MAGIC.search(url.key)) and any(_matches(url, "", url.key.split("/"))))


def _seen(url: Url) -> None:
    """Look at an object beside others; what is wrong with it is reported when it is opened."""
    exists(url)


def _matches(url: Url, prefix: str, segments: list[str]) -> Iterator[Url]:
    """Objects below a prefix that match segments of a pattern, listed a folder at a time."""
    plain = next(at for at, segment in enumerate(segments) if MAGIC.search(segment))
    prefix, (first, *others) = "/".join([*([prefix] if prefix else []), *segments[:plain]]), segments[plain:]
    if ANY_DEPTH in (first, *others):
        start = len(prefix) + 1 if prefix else 0
        for identity in listed(url, prefix):
            if _fits(identity.url.key[start:].split("/"), [first, *others]):
                yield identity.url
        return
    objects, folders = folder(url, prefix)
    if others:
        for key in folders:
            if not _fits([_name(key)], [first]):
                continue
            if any(map(MAGIC.search, others)):
                yield from _matches(url, key, others)
            elif exists(match := _at(url, "/".join([key, *others]))):
                yield match
        return
    stores = [key for key in folders if key.endswith(".zarr")]
    yield from (_at(url, key) for key in objects + stores if _fits([_name(key)], [first]))


def _fits(names: list[str], segments: list[str]) -> bool:
    """Whether names of folders and of an object match segments of a pattern, as those of files do."""
    if not segments or not names:
        return not names and segments in ([], [ANY_DEPTH])
    if segments[0] == ANY_DEPTH:
        return any(_fits(names[skipped:], segments[1:] or ["*"]) for skipped in range(len(names)))
    hidden = names[0].startswith(".") and not segments[0].startswith(".")
    return not hidden and fnmatchcase(names[0], segments[0]) and _fits(names[1:], segments[1:])


def _name(key: str) -> str:
    return key.rpartition("/")[2]


def _at(url: Url, key: str) -> Url:
    return Url(f"{url.base}/{key}", url.base, key)
