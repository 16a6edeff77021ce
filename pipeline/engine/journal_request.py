"""What a journal is bound to: the request, the inputs as they were, and the code."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from itertools import chain
from typing import Any

import numpy as np

from pipeline.packages import code_version
from pipeline.storage.files import Files, SourceFile
from pipeline.storage.identity import this_machine
from pipeline.storage.planned_file import open_planned
from pipeline.storage.protocol import Source
from pipeline.storage.remote.address import ObjectIdentity
from pipeline.storage.sources import Joined

# Regions of the inputs that are hashed, over all files, and the bytes of each: a disk with heads takes 0.2 s for them.
SAMPLES = 16
SAMPLE_BYTES = 2**12


@dataclass(frozen=True)
class Request:
    """What was asked for.

    Attributes
    ----------
    jobs
        Name and options of each.
    sources
    outputs
        Paths.
    verify, chunk_size
        As asked for: what is continued must have the same.
    """

    jobs: tuple[tuple[str, Any], ...]
    sources: tuple[Source, ...]
    outputs: tuple[str, ...]
    verify: str
    chunk_size: int | None

    @property
    def files(self) -> list[SourceFile] | None:
        """Files of all sources; None if one is something else, or an object that nothing tells from another one."""
        files: list[SourceFile] = []
        for source in self.sources:
            for part in source.sources if isinstance(source, Joined) else (source,):
                if not isinstance(part, Files):
                    return None
                files += part.files
        return None if any(isinstance(one.identity, ObjectIdentity) and one.identity.weak for one in files) else files

    def key(self) -> str:
        """The name of its journal."""
        asked = [_plain(list(self.jobs)), self._inputs(), [os.path.abspath(path) for path in self.outputs]]
        return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:32]

    def _inputs(self) -> list[Any]:
        dtypes = [source.dtype.str for source in self.sources]
        files = self.files or ()
        return [dtypes, *([file.path, file.offset, *([file.label] if file.label else [])] for file in files)]

    def describe(self) -> str:
        """Jobs and inputs, for a line on a terminal."""
        names = list(chain.from_iterable(source.names for source in self.sources))
        more = f" and {len(names) - 2} more" if len(names) > 2 else ""
        return f"{', '.join(name for name, _ in self.jobs)} of {', '.join(names[:2])}{more}"

    def parameters(self) -> dict[str, Any]:
        """Everything else that has to be the same when a run is continued, but the inputs."""
        return {"--verify": self.verify, "--chunk-size": self.chunk_size, "the code of baru": code_version()}


def _plain(value: Any) -> Any:
    """Options as JSON, the same in every process."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, np.ndarray):
        return [value.dtype.str, list(value.shape), hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()]
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return [[_plain(key), _plain(item)] for key, item in value.items()]
    return value if isinstance(value, str | int | bool | None) else repr(value)


def identities(files: Sequence[SourceFile]) -> list[dict[str, Any]]:
    """What tells each file from another one, and from itself before a change, with hashes of a few regions.

    Raises
    ------
    PipelineError
        If a file is no longer the one that was planned.
    """
    places = _places(files)
    return [
        {"path": file.path, **file.identity._asdict(), "hashes": list(_hashes(file, places.get(number, [])))}
        for number, file in enumerate(files)
    ]


def _places(files: Sequence[SourceFile]) -> dict[int, list[int]]:
    """Offsets of the regions to hash, by file: evenly spaced over all samples, the first and the last included."""
    ends = np.cumsum([file.nbytes for file in files], dtype=np.int64)
    places: dict[int, list[int]] = {}
    last = max(int(ends[-1]) - SAMPLE_BYTES, 0) if len(files) else 0
    for place in sorted({last * number // (SAMPLES - 1) for number in range(SAMPLES)}):
        number = int(np.searchsorted(ends, place, "right"))
        if number < len(files):
            start = place - (int(ends[number - 1]) if number else 0)
            places.setdefault(number, []).append(files[number].offset + start)
    return places


def _hashes(file: SourceFile, places: Sequence[int]) -> Iterator[tuple[int, str]]:
    if places and not file.piece().remote:
        with open_planned(file.piece()) as fd:
            for place in places:
                yield place, hashlib.sha256(os.pread(fd, SAMPLE_BYTES, place)).hexdigest()


def difference(then: dict[str, Any], request: Request) -> str | None:
    """The first difference between the request of a journal and one of now; None if there is none."""
    for name, now in request.parameters().items():
        if (before := then["parameters"][name]) != now:
            return f"{name} was {_shown(before)}, and is {_shown(now)}"
    files = request.files or []
    if len(then["inputs"]) != len(files):
        return f"{len(then['inputs'])} input files, and now {len(files)}"
    for before, file in zip(then["inputs"], files, strict=True):
        if (changed := _changed(before, file)) is not None:
            return f"{file.path} {changed}"
    for before, after in zip(then["inputs"], identities(files), strict=True):
        if list(map(tuple, before["hashes"])) != after["hashes"]:
            return f"{after['path']} has other content"
    return None


def _changed(before: dict[str, Any], file: SourceFile) -> str | None:
    now = file.identity
    if isinstance(now, ObjectIdentity):
        then = ObjectIdentity(now.url, before["size"], before["etag"], before["modified"])
        return None if (different := then.differs(now)) is None else f"was replaced: expected {different}"
    if before["size"] != now.size:
        return f"had {before['size']} bytes, and has {now.size}"
    if before["inode"] != now.inode or (before["machine"] == this_machine() and before["device"] != now.device):
        return "is another file"
    if before["mtime_ns"] != now.mtime_ns:
        return "has been written to"
    if before["ctime_ns"] != now.ctime_ns:
        return "has been written to, or given another name, mode or owner"
    return None


def _shown(value: Any) -> str:
    return "by default" if value is None else str(value)
