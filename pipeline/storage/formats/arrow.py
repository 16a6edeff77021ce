"""Columns of Arrow (Feather) files: byte runs of the file, unless their buffers are compressed; nulls are refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import UsageError
from pipeline.storage.files import Files, SourceFile, whole
from pipeline.storage.formats.arrow_layout import MOST_BATCHES, Run, place_of, runs
from pipeline.storage.formats.common import check_block, choose, readable
from pipeline.storage.formats.parquet import NULLS, member_of, opened_file, values_of
from pipeline.storage.formats.slabs import block_piece
from pipeline.storage.piece_source import PieceSource
from pipeline.storage.pieces import AnyPiece, Piece
from pipeline.storage.protocol import Member, Opening, Source

WHAT = "an Arrow file"


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
    with readable(path, WHAT), opened_file(stored) as file:
        schema, lengths = _reader(file).schema, _lengths(file)
        member = choose(path, [member_of(field, sum(lengths), None) for field in schema], opening)
        name, dtype = f"{path}::{member.name}", member.dtype
        assert dtype is not None
        opening.check(name, dtype, member.shape)
        column = schema.get_field_index(member.name)
        place = None if str(schema.field(column).type) == "bool" else place_of(schema, column)
        batches = list(_runs(file, stored, place, dtype)) if place is not None else []
        if not batches:  # nobody knows before they are read
            batches = [Run(rows, 0, None) for rows in lengths]
        if [batch.rows for batch in batches] != lengths:
            raise ValueError("batches of other lengths than their columns")
    if nulls := sum(batch.nulls for batch in batches):
        raise UsageError(f"{name}: expected numbers, got {nulls} nulls; {NULLS}")
    parts: list[AnyPiece] = []
    start = 0
    for number, (rows, _, offset) in enumerate(batches):
        if rows and offset is not None:
            parts.append(stored.cut(offset, rows * dtype.itemsize))
        elif rows:
            check_block(name, rows * dtype.itemsize)
            block = _Batch(stored, column, number, name)
            parts.append(block_piece(name, ((start, start + rows),), dtype, block))
        start += rows
    runs_only = [part for part in parts if isinstance(part, Piece)]
    if parts and len(runs_only) == len(parts) and stored.identity is not None:
        identity, size = stored.identity, dtype.itemsize
        files = (SourceFile(path, run.offset, run.nbytes, identity, (run.nbytes // size,)) for run in runs_only)
        return Files(tuple(files), dtype)
    return PieceSource(name, dtype, (start,), tuple(parts), (stored,))


def _runs(opened: Any, file: Piece, place: tuple[int, int], dtype: np.dtype[Any]) -> Iterator[Run]:
    """Where the values lie; nothing if only pyarrow can tell."""
    try:
        yield from list(runs(opened, file, place, dtype.itemsize))
    except (ValueError, IndexError):
        return


@dataclass(frozen=True)
class _Batch:
    """Reads a column of a record batch."""

    file: Piece
    column: int
    number: int
    name: str

    def read(self) -> NDArray[Any]:
        """Its samples."""
        import pyarrow

        with opened_file(self.file) as file:
            column = _reader(file, self.column).get_batch(self.number).column(0)
            return values_of(pyarrow.chunked_array([column]), self.name)
