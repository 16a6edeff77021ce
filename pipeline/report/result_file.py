"""Writes results in the format of the file's suffix; a file appears under its name whole or not at all."""

from __future__ import annotations

import csv
import io
import json
import os
import secrets
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from kernels.common.private import write_private_file
from pipeline.errors import PipelineError, UsageError
from pipeline.report.record import Record, with_record
from pipeline.report.tables import LIBRARIES, write_hdf5, write_parquet, write_zip
from pipeline.storage.atomic_file import Target
from pipeline.storage.check_place import check_place
from pipeline.storage.sources import Source
from pipeline.storage.state import open_state, state_path
from workflows.aggregation import Drawn, Mapped, Result

RESULTS = "results"  # in the state folder
MOST_COLUMNS = 700  # of a heat map: about its pixels
MOST_NAMES, MOST_CHARACTERS = 24, 20  # of rows beside it


def _json(result: Result, file: BinaryIO, record: Record | None = None) -> None:
    file.write(json.dumps(with_record(result.document(), record)).encode() + b"\n")


def _npz(result: Result, file: BinaryIO) -> None:
    np.savez(file, allow_pickle=False, **result.arrays())


def _csv(result: Result, file: BinaryIO) -> None:
    header, rows = result.table()
    text = io.TextIOWrapper(file, encoding="ascii", newline="", write_through=True)
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    text.detach()


def _png(result: Result, file: BinaryIO) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4.5), layout="constrained")
    axes = figure.add_subplot()
    if isinstance(result, Mapped):
        _heat_map(axes, *result.heat())
        figure.savefig(file, format="png", dpi=120)
        return
    assert isinstance(result, Drawn)
    values, edges = result.steps()
    axes.stairs(values, edges, fill=True)
    scale = getattr(result, "scale", "linear")
    axes.set(xlabel="sample value", ylabel="samples per bin", xscale=scale, xlim=(edges[0], edges[-1]), ylim=(0, None))
    if scale == "log":
        for formatted in (axes.xaxis.set_major_formatter, axes.xaxis.set_minor_formatter):
            formatted("{x:g}")
    figure.savefig(file, format="png", dpi=120)


def _heat_map(axes: Any, values: NDArray[Any], edges: NDArray[Any], what: str, names: Sequence[str]) -> None:
    """Rows from top to bottom, darker where there is more; of many columns those that share a pixel are added up."""
    step = -(-values.shape[1] // MOST_COLUMNS)
    starts = np.arange(0, values.shape[1], step)
    values = np.add.reduceat(values, starts, axis=1)
    edges = np.append(edges[starts], edges[-1])
    drawn = axes.pcolormesh(edges, np.arange(len(values) + 1) - 0.5, values, cmap="Greys", rasterized=True)
    axes.set(xlabel="sample value", ylabel=what, ylim=(len(values) - 0.5, -0.5))
    if len(names) <= MOST_NAMES:
        axes.set_yticks(range(len(names)), [os.path.basename(name)[-MOST_CHARACTERS:] for name in names])
    axes.figure.colorbar(drawn, label="samples per bin" if step == 1 else f"samples per {step} bins")


WRITERS: dict[str, Callable[..., None]] = {
    ".json": _json, ".npz": _npz, ".csv": _csv, ".parquet": write_parquet, ".zip": write_zip, ".h5": write_hdf5,
    ".png": _png,
}  # fmt: skip
RECORDED = (".json", ".parquet", ".zip", ".h5")  # whose writers take a record, too
NEEDS = {".png": ("matplotlib.figure", "a picture needs matplotlib; install the extra plot")} | LIBRARIES


def check_output(path: str, source: Source | None, formats: Collection[str] = tuple(WRITERS)) -> None:
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
    module, advice = NEEDS.get(suffix, ("", ""))
    try:
        if module:
            import_module(module)
    except ImportError:
        raise UsageError(f"{path}: {advice}") from None


def render(path: str, result: Result, record: Record | None = None) -> bytes:
    """The content of a result file, in the format of the suffix of its name, with the record of its run if it has room.

    Nothing is in the file yet when this fails.
    """
    content = io.BytesIO()
    suffix = os.path.splitext(path)[1]
    WRITERS[suffix](result, content, *([record] if record and suffix in RECORDED else []))
    return content.getvalue()


def write_output(target: Target, result: Result, record: Record | None = None) -> None:
    """Write a result in the format of the file's suffix.

    Raises
    ------
    PipelineError
        If it cannot be written; an existing file of that name is left unchanged. The message then says where the result
        is kept.
    """
    content = render(target.path, result, record)
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
