"""Adds saved results up, exactly, and refuses what would count samples twice or round twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

from pipeline.errors import UsageError
from pipeline.report.record import FORMAT, Record
from pipeline.report.saved_file import Saved
from workflows.saved import fingerprint, merged

# Options that may differ: rows are compared themselves, masks and columns belong to the samples, and of a histogram the
# axis is compared instead of what it was made from.
MAY_DIFFER = ("rows", "mask", "columns")
BY_AXES = ("bins", "range", "edges", "scale")
READ_AS = ("part", "layout")  # flags that say which numbers the samples are
LIMITS = "offset", "bytes"


class Merged(NamedTuple):
    """A result and its record."""

    result: Any
    record: Record


def merge(every: Sequence[Saved]) -> Merged:
    """The result of all samples, as if the files of each followed those of the one before.

    Raises
    ------
    UsageError
        If they cannot be added up: which, and why.
    """
    first, *others = every
    for saved in every:
        saved.known()
    result = first.result
    for other in others:
        if difference := _different(first, other):
            raise UsageError(f"{first.path} and {other.path}: expected results of one request, got {difference}")
        try:
            result = merged(result, other.result)
        except ValueError as error:
            raise UsageError(f"{first.path} and {other.path}: expected results that can be added up, got {error}; run "
                             "the job over all files at once") from None  # fmt: skip
    _check_apart(every)
    parts = [part for saved in every for part in saved.parts]
    job, asked = first.known()["job"], first.known()["asked"]
    record = {"format": FORMAT, "asked": asked, "numbers": fingerprint(result), "job": job, "merged": parts}
    return Merged(result, record)


def _different(first: Saved, other: Saved) -> str:
    """The first difference between two requests, in words."""
    ours, theirs = first.known(), other.known()
    if ours["job"]["name"] != theirs["job"]["name"]:
        return f"{ours['job']['name']} and {theirs['job']['name']}"
    for part in (*first.parts, *other.parts):
        if kernel := part["job"]["kernel"]:
            return f"one by {kernel}, whose partials are not those of the job"
        if part["input"]["dtype"] != first.parts[0]["input"]["dtype"]:
            return f"samples of {first.parts[0]['input']['dtype']} and of {part['input']['dtype']}"
    mine, yours = _options(ours), _options(theirs)
    for name in sorted(mine.keys() | yours.keys()):
        if mine.get(name) != yours.get(name):
            return f"--{name} {mine.get(name)} and {yours.get(name)}"
    return ""


def _options(record: Record) -> Mapping[str, Any]:
    """The options that have to be equal; what makes an axis is compared as one."""
    left_out = (*MAY_DIFFER, *(BY_AXES if record["job"]["name"] == "histogram" else ()))
    options = {name: value for name, value in record["job"]["options"].items() if name not in left_out}
    return options | {name: value for name, value in record["asked"].items() if name in READ_AS}


def _check_apart(every: Sequence[Saved]) -> None:
    """Refuse results that counted the same bytes, as far as their records tell."""
    for one, other in combinations(every, 2):
        for a in _files(one):
            for b in _files(other):
                if _overlap(a, b):
                    raise UsageError(f"{one.path} and {other.path}: expected results of different files, but both "
                                     f"include {a['path']}, which would count twice; leave one out")  # fmt: skip


def _files(saved: Saved) -> list[Mapping[str, Any]]:
    return [one for part in saved.parts for one in part["input"].get("identity", ())]


def _overlap(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Whether both read a byte of the same file; of slices and members, whose bytes are not known, one of one name."""
    if "inode" in a and "inode" in b and "device" in a and a.get("machine") == b.get("machine"):
        same = (a["inode"], a.get("device")) == (b["inode"], b.get("device"))
    else:
        same = a["path"] == b["path"]
    if not same or not all(name in one for one in (a, b) for name in LIMITS):
        return bool(same and a["path"] == b["path"])
    return bool(a["offset"] < b["offset"] + b["bytes"] and b["offset"] < a["offset"] + a["bytes"])
