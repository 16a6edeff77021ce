"""Writes results in the format of the file's suffix; a file appears under its name whole or not at all."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Collection
from typing import BinaryIO

import numpy as np

from pipeline.errors import UsageError
from pipeline.storage.atomic_file import check_place, whole_file
from pipeline.storage.sources import Source
from workflows.aggregation import Drawn, Result


def _json(result: Result, file: BinaryIO) -> None:
    file.write(json.dumps(result.document()).encode() + b"\n")


def _npz(result: Result, file: BinaryIO) -> None:
    np.savez(file, allow_pickle=False, **result.arrays())


def _csv(result: Result, file: BinaryIO) -> None:
    header, rows = result.table()
    text = io.TextIOWrapper(file, encoding="ascii", newline="", write_through=True)
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    text.detach()


def _png(result: Result, file: BinaryIO) -> None:
    from matplotlib.figure import Figure

    assert isinstance(result, Drawn)
    values, edges = result.steps()
    figure = Figure(figsize=(9, 4.5), layout="constrained")
    axes = figure.add_subplot()
    axes.stairs(values, edges, fill=True)
    axes.set(xlabel="sample value", ylabel="samples per bin", xlim=(edges[0], edges[-1]), ylim=(0, None))
    figure.savefig(file, format="png", dpi=120)


WRITERS: dict[str, Callable[[Result, BinaryIO], None]] = {".json": _json, ".npz": _npz, ".csv": _csv, ".png": _png}


def check_output(path: str, source: Source, formats: Collection[str] = tuple(WRITERS)) -> None:
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
    if suffix == ".png":
        try:
            import matplotlib.figure  # noqa: F401
        except ImportError:
            raise UsageError(f"{path}: a picture needs matplotlib; install the extra plot") from None


def write_output(path: str, result: Result) -> None:
    """Write a result in the format of the file's suffix.

    Raises
    ------
    PipelineError
        If it cannot be written; an existing file of that name is left unchanged.
    """
    with whole_file(path) as file:
        WRITERS[os.path.splitext(path)[1]](result, file)
