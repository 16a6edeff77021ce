"""Writes results in the format of the file's suffix; a file appears under its name whole or not at all."""

from __future__ import annotations

import csv
import io
import json
import os
import secrets
import tempfile
import time
from collections.abc import Callable, Collection
from importlib import import_module
from pathlib import Path
from typing import BinaryIO

import numpy as np

from kernels.common.private import write_private_file
from pipeline.errors import PipelineError, UsageError
from pipeline.report.library_files import LIBRARIES, write_hdf5, write_parquet, write_zip
from pipeline.report.pictures import check_picture, picture
from pipeline.report.record import Record, with_record
from pipeline.storage.atomic_file import Target
from pipeline.storage.check_place import check_place
from pipeline.storage.sources import Source
from pipeline.storage.state import open_state, state_path
from workflows.aggregation import Result
from workflows.pictures import SUFFIXES

RESULTS = "results"  # in the state folder


def _json(result: Result, file: BinaryIO, record: Record | None = None) -> None:
    file.write(json.dumps(with_record(result.document(), record)).encode() + b"\n")


def _npz(result: Result, file: BinaryIO) -> None:
    np.savez(file, allow_pickle=False, **result.arrays())


def _csv(result: Result, file: BinaryIO) -> None:
    header, rows = result.table()
    text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    text.detach()


WRITERS: dict[str, Callable[..., None]] = {
    ".json": _json, ".npz": _npz, ".csv": _csv, ".parquet": write_parquet, ".zip": write_zip, ".h5": write_hdf5,
}  # fmt: skip
RECORDED = (".json", ".parquet", ".zip", ".h5")  # whose writers take a record, too


def check_output(path: str, source: Source | None, formats: Collection[str] = (*WRITERS, *SUFFIXES)) -> None:
    """Refuse, before anything is computed, a result file that cannot be written or whose format the job lacks.

    Raises
    ------
    UsageError
        If the job does not support the suffix, the folder is missing or not writable, or the file is an input.
    """
    suffix = os.path.splitext(path)[1]
    if suffix not in formats:
        raise UsageError(f"{path}: expected an output ending in {', '.join(formats)}, got {suffix or 'no suffix'}")
    check_place(path, source)
    if suffix in SUFFIXES:
        check_picture(path)
    module, advice = LIBRARIES.get(suffix, ("", ""))
    try:
        if module:
            import_module(module)
    except ImportError:
        raise UsageError(f"{path}: {advice}") from None


def render(path: str, result: Result, record: Record | None = None, how: str = "counts") -> bytes:
    """The content of a result file, in the format of the suffix of its name; nothing is in the file yet if this fails.

    Parameters
    ----------
    path, result
    record
        Of its run, for formats that have room for it.
    how
        It is drawn in a picture.
    """
    suffix = os.path.splitext(path)[1]
    if suffix in SUFFIXES:
        return picture(result, suffix, how)
    content = io.BytesIO()
    WRITERS[suffix](result, content, *([record] if record and suffix in RECORDED else []))
    return content.getvalue()


def write_output(target: Target, result: Result, record: Record | None = None, how: str = "counts") -> None:
    """Write a result in the format of the file's suffix, as `render` makes it.

    Raises
    ------
    PipelineError
        If it cannot be written; an existing file of that name is left unchanged. The message then says where the result
        is kept.
    """
    content = render(target.path, result, record, how)
    try:
        target.write(content)
    except PipelineError as error:
        raise type(error)(f"{error}; {keep(os.path.basename(target.path), content)}") from error


def keep(name: str, content: bytes) -> str:
    """Keep what was computed and verified but cannot be written where it belongs, in the state folder.

    Returns
    -------
    Where it is, as the end of a message.
    """
    stem, suffix = os.path.splitext(name)
    name = f"{stem[:100]}-{time.strftime('%Y%m%dT%H%M%S')}-{secrets.token_hex(2)}{suffix}"
    try:
        with open_state(RESULTS) as folder:
            write_private_file(folder, name, content)
            os.fsync(folder)
        path = state_path(RESULTS) / name
    except OSError:  # no home folder, or it is full, too
        try:
            path = Path(tempfile.mkdtemp(prefix="verified-result-"), name)
            path.write_bytes(content)
        except OSError as error:
            return f"nor could it be kept elsewhere ({error.strerror})"
    return f"the verified result is kept as {path}"
