"""Columns of Arrow (Feather) files: byte runs of the file, unless their buffers are compressed; nulls are refused."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import UsageError
from pipeline.storage.files import Files, SourceFile, whole
from pipeline.storage.formats.arrow_layout import MOST_BATCHES, Layout, Run
from pipeline.storage.formats.common import check_block, choose, readable
from pipeline.storage.formats.parquet import NULLS, member_of, opened_file, together, values_of
from pipeline.storage.formats.slabs import block_piece
from pipeline.storage.piece_source import PieceSource
from pipeline.storage.pieces import AnyPiece, Piece
from pipeline.storage.planned_file import file_for_library, stored_bytes
from pipeline.storage.protocol import Member, Opening, Source
from workflows.shown import how_many

WHAT = "an Arrow file"
STREAM, FEATHER_1 = b"\xff" * 4, b"FEA1"  # what other files of these names begin with


def _reader(file: Any, *columns: int) -> Any:
    """Reads these columns only."""
    import pyarrow.ipc

    file.seek(0)
    options = pyarrow.ipc.IpcReadOptions(included_fields=list(columns), use_threads=False)
    reader = pyarrow.ipc.open_file(file, options=options)
    if reader.num_record_batches > MOST_BATCHES:
        raise ValueError(f"{reader.num_record_batches} record batches")
    return reader


def _lengths(file: Any) -> list[int]:
    reader = _reader(file)
    return [reader.get_batch(number).num_rows for number in range(reader.num_record_batches)]


def members_of(path: str) -> list[Member]:
    """Columns of an Arrow file."""
    with readable(path, WHAT), opened_file(whole(path)) as file:
        rows = sum(_lengths(file))
        return [member_of(field, rows, None) for field in _reader(file).schema]


def open_arrow(path: str, opening: Opening) -> Source:
    """A column of an Arrow file.

    Raises
    ------
    UsageError
        If it cannot be read, has nulls, or the user has to choose a column.
    """
    stored = whole(path)
    with readable(path, WHAT):
        _check_kind(path, stored)
        laid = _laid_out(stored, opening.member)
        if laid is None or any(run.offset is None for run in laid[2]):  # only pyarrow can read it, or say why not
            return _read_by_pyarrow(path, stored, opening, laid)
    name, dtype, runs = f"{path}::{laid[0]}", laid[1], laid[2]
    opening.check(name, dtype, (sum(run.rows for run in runs),))
    _check_nulls(name, runs)
    parts = [stored.cut(run.offset, run.rows * dtype.itemsize) for run in runs if run.rows and run.offset is not None]
    if parts and (identity := stored.identity) is not None:
        files = [SourceFile(path, run.offset, run.nbytes, identity, (run.nbytes // dtype.itemsize,), label=name,
                            follows=run is not parts[0]) for run in parts]  # fmt: skip
        return Files(tuple(files), dtype)
    return PieceSource(name, dtype, (0,), (), (stored,))


def _check_kind(path: str, file: Piece) -> None:
    head = bytes(next(stored_bytes((file.cut(0, min(len(STREAM), file.nbytes)),))))
    if head in (STREAM, FEATHER_1):
        kind = "a stream of record batches" if head == STREAM else "Feather of version 1"
        raise UsageError(f"{path}: expected an Arrow file, got {kind}; write it by pyarrow.ipc.new_file")


Laid = tuple[str, np.dtype[Any], list[Run]]


def _laid_out(file: Piece, member: str | None) -> Laid | None:
    """Name and dtype of a column, or of the only one, and where its values lie, without pyarrow, which takes as long
    to import as a GB to count; None if that is not all there is to know."""
    with file_for_library(file) as name, open(name, "rb") if isinstance(name, str) else nullcontext(name) as opened:
        try:
            layout = Layout(opened, file)
            columns = [number for number, field in enumerate(layout.fields) if member in (None, field.name)]
            if len(columns) != 1 or (dtype := layout.fields[columns[0]].dtype) is None:
                return None
            return layout.fields[columns[0]].name, dtype, list(layout.runs(columns[0]))
        except (ValueError, IndexError):
            return None


def _check_nulls(name: str, runs: Sequence[Run]) -> None:
    if nulls := sum(run.nulls for run in runs):
        raise UsageError(f"{name}: expected numbers, got {how_many(nulls, 'null')}; {NULLS}")


def _read_by_pyarrow(path: str, stored: Piece, opening: Opening, laid: Laid | None) -> Source:
    with opened_file(stored) as file:
        schema, lengths = _reader(file).schema, _lengths(file)
        member = choose(path, [member_of(field, sum(lengths), None) for field in schema], opening)
        name, dtype = f"{path}::{member.name}", member.dtype
        assert dtype is not None
        opening.check(name, dtype, member.shape)
        column = schema.get_field_index(member.name)
        if column < 0:
            raise UsageError(f"{path}: expected one column {member.name!r}, got several; rename them")
    if laid is not None:
        if [run.rows for run in laid[2]] != lengths:
            raise ValueError("record batches whose columns differ in length")
        _check_nulls(name, laid[2])
    parts: list[AnyPiece] = []
    start = 0
    for numbers, rows in together(lengths, dtype.itemsize):
        check_block(name, rows * dtype.itemsize)
        block = _Batches(stored, column, numbers, name)
        parts.append(block_piece(name, ((start, start + rows),), dtype, block))
        start += rows
    return PieceSource(name, dtype, (start,), tuple(parts), (stored,))


@dataclass(frozen=True)
class _Batches:
    """Reads a column of some record batches."""

    file: Piece
    column: int
    numbers: range
    name: str

    def read(self) -> NDArray[Any]:
        """Its samples."""
        import pyarrow

        with opened_file(self.file) as file:
            reader = _reader(file, self.column)
            columns = [reader.get_batch(number).column(0) for number in self.numbers]
            return values_of(pyarrow.chunked_array(columns), self.name)
