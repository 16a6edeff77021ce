"""Where a result comes from, as its file says: the request, the inputs, the verdict, times, devices and versions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pipeline.engine.outcome import Outcome
from pipeline.report.panel import facts_of
from pipeline.storage.complex_parts import PartSource
from pipeline.storage.files import Files, SourceFile
from pipeline.storage.identity import Identity, this_machine
from pipeline.storage.piece_source import PieceSource
from pipeline.storage.protocol import Source
from pipeline.storage.remote.address import ObjectIdentity
from pipeline.storage.sliced import ViewSource
from pipeline.storage.sources import Joined
from workflows.saved import fingerprint

Record = Mapping[str, Any]

FORMAT = 1
KEY = "baru"  # of the record in a document
MACHINE = f"{this_machine():016x}"  # on which the number of a device means something
RUN = "run"  # in the UHI writer_info of the histogram, whose values are text and numbers only


def record_of(outcome: Outcome) -> dict[str, Any]:
    """The record of a run: its JSON object without the result, what was asked for, and which files were read."""
    about = facts_of(outcome)
    if isinstance(outcome.source, Source):
        about["input"] = about["input"] | {"identity": list(identities(outcome.source))}
    return {"format": FORMAT, "asked": dict(outcome.asked), "numbers": fingerprint(outcome.result)} | about


def identities(source: Source) -> Iterator[dict[str, Any]]:
    """What tells each file from another one, and which of its bytes were read, if they follow each other."""
    for part in source.sources if isinstance(source, Joined) else (source,):
        if isinstance(part, Files):
            yield from map(_identity, part.files)
        else:
            name = part.names[0] if len(part.names) == 1 else ""
            known = _planned(part)
            for path in part.paths:
                if (identity := known.get(path)) is not None:  # a stream has none
                    yield {"path": name or path} | _about(identity)


def _planned(source: Source) -> dict[str, Identity | ObjectIdentity | None]:
    """Every file of a source by path, as it was when it was planned: since then the name may mean another file."""
    if isinstance(source, ViewSource | PartSource):
        return _planned(source.whole)
    if isinstance(source, Joined):
        return {path: known for part in source.sources for path, known in _planned(part).items()}
    return {file.path: file.identity for file in source.files} if isinstance(source, Files | PieceSource) else {}


def _identity(file: SourceFile) -> dict[str, Any]:
    return {"path": file.label or str(file.path), "offset": file.offset, "bytes": file.nbytes} | _about(file.identity)


def _about(identity: Identity | ObjectIdentity) -> dict[str, Any]:
    known = identity._asdict()
    about = {name: known[name] for name in ("size", "mtime_ns", "inode", "device", "etag", "modified")
             if known.get(name) is not None}  # fmt: skip
    if "device" in about:
        about["machine"] = MACHINE
    return about


def with_record(document: Mapping[str, Any], record: Record | None) -> dict[str, Any]:
    """The document of a result with its record."""
    if record is None:
        return dict(document)
    if "histogram" not in document:
        return {**document, KEY: record}
    histogram = document["histogram"]
    info = histogram["writer_info"]
    about = {**info, KEY: {**info[KEY], RUN: json.dumps(record)}}
    return {**document, "histogram": {**histogram, "writer_info": about}}


def record_in(document: Mapping[str, Any]) -> dict[str, Any] | None:
    """The record in a document; None if there is none.

    Raises
    ------
    ValueError
        If it cannot be read.
    """
    record = document.get(KEY)
    if "histogram" in document:
        text = document["histogram"].get("writer_info", {}).get(KEY, {}).get(RUN)
        record = None if text is None else json.loads(text)
    if record is None:
        return None
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise ValueError(f"expected a record of format {FORMAT}, got another one; was it written by a newer version?")
    return record
