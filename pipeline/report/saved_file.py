"""Reads result files: the numbers and the record of the run that they come from, if it is that of these numbers."""

from __future__ import annotations

import json
import os
import zipfile
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from pipeline.errors import PipelineError, UsageError
from pipeline.report.library_files import LIBRARIES, read_hdf5, read_zip
from pipeline.report.record import Record, record_in
from pipeline.storage.identity import open_to_read
from workflows.saved import fingerprint, loaded

SUFFIXES = (".json", ".zip", ".h5")
MOST_BYTES = 2**31  # of a result file


@dataclass(frozen=True)
class Saved:
    """A result from a file; `foreign`: why its record is left out, if there is one."""

    path: str
    result: Any
    record: Record | None
    foreign: str = ""

    @property
    def parts(self) -> list[Record]:
        """The records of the runs that it comes from: several if it was merged."""
        return [] if self.record is None else list(self.record.get("merged", [self.record]))

    @property
    def job(self) -> str:
        """Name of the job; without a record, what the numbers are."""
        if self.record is not None:
            return str(self.record["job"]["name"])
        return type(self.result).__name__.removesuffix("Result").removesuffix("Rows").lower()

    def known(self) -> Record:
        """The record; UsageError if there is none, with how to get one."""
        if self.record is None:
            why = self.foreign or "it was written by an earlier version or another program"
            raise UsageError(f"{self.path}: expected a result that says where it comes from, but {why}; run the job "
                             "again with -o")  # fmt: skip
        return self.record


def read_result(path: str) -> Saved:
    """A result that `-o` wrote.

    Raises
    ------
    UsageError
        If it is no such file; PipelineError if it cannot be read.
    """
    suffix = os.path.splitext(path)[1]
    if suffix not in SUFFIXES:
        raise UsageError(f"{path}: expected a result in {', '.join(SUFFIXES)}, got {suffix or 'no suffix'}; other "
                         "formats have no record; use -o with one of these")  # fmt: skip
    try:
        document = _json(path) if suffix == ".json" else _uhi(path)
        if not isinstance(document, dict):
            raise ValueError(f"a {type(document).__name__}, and no object")
        if {"job", "result", "verification"} <= document.keys():
            raise UsageError(f"{path}: expected a result that -o wrote, got what --json prints; run the job again with "
                             "-o FILE.json")  # fmt: skip
        record = record_in(document)
        asked = {} if record is None else record["job"]["options"]
        result = loaded(document, {name: asked[name] for name in ("where", "mask", "missing") if name in asked})
        if record is not None and record["numbers"] != fingerprint(result):
            return Saved(path, result, None, "its numbers are not those that this record was written with: "
                         "another program has changed them or added others")  # fmt: skip
        return Saved(path, result, record)
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            raise UsageError(f"{path}: expected a result, found no file there; check the path") from None
        raise PipelineError(f"{path}: expected a readable result, got {error.strerror or error}; check its "
                            "permissions") from None  # fmt: skip
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, zipfile.BadZipFile) as error:
        why = f" (no {error})" if isinstance(error, KeyError) else f" ({error})"
        raise UsageError(f"{path}: expected a result that -o wrote, got something else{why}") from None


def _json(path: str) -> Any:
    with os.fdopen(open_to_read(path), "rb") as file:
        if (size := os.fstat(file.fileno()).st_size) > MOST_BYTES:
            raise ValueError(f"{size:,} bytes")
        return json.load(file)


def _uhi(path: str) -> Any:
    module, advice = LIBRARIES[os.path.splitext(path)[1]]
    try:
        import_module(module)
    except ImportError:
        raise UsageError(f"{path}: {advice}") from None
    with os.fdopen(open_to_read(path), "rb") as file:
        return (read_zip if path.endswith(".zip") else read_hdf5)(file)
