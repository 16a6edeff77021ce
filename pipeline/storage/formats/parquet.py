"""Columns of Parquet files; nulls are refused, since no job has a place for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import PipelineError
from pipeline.storage.files import whole
from pipeline.storage.formats.common import check_block, choose, library, readable
from pipeline.storage.formats.slabs import block_piece
from pipeline.storage.piece_source import PieceSource
from pipeline.storage.pieces import Piece
from pipeline.storage.planned_file import file_for_library
from pipeline.storage.protocol import Member, Opening, Source
from workflows.shown import how_many

NULLS = "drop or fill them (pyarrow.compute.drop_null, fill_null) and write the file again"
NUMBERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "halffloat", "float", "double"]
BLOCK_BYTES = 2**22  # of samples of small row groups that are read at once


@contextmanager
def opened_file(file: Piece) -> Iterator[Any]:
    """The planned file, whatever has its name now, as pyarrow sees it."""
    with library(file.path, "Parquet and Arrow files", "parquet"):
        import pyarrow
    with file_for_library(file) as name, _native(pyarrow, name) as opened:
        yield opened


def _native(pyarrow: Any, name: str | BinaryIO) -> Any:
    return pyarrow.OSFile(name, "rb") if isinstance(name, str) else pyarrow.PythonFile(name, "r")


def _dtype(type_: Any) -> np.dtype[Any] | None:
    if str(type_) == "bool":  # stored in bits
        return np.dtype(np.uint8)
    return np.dtype(type_.to_pandas_dtype()) if str(type_) in NUMBERS else None


def member_of(field: Any, rows: int, chunks: int | None, compression: str = "") -> Member:
    """A column, by its field of the schema."""
    dtype = _dtype(field.type)
    problem = "" if dtype else f"expected a column of numbers, got one of {field.type}; cast it"
    return Member(field.name, dtype, (rows,), None if chunks is None else (chunks,), compression, None, problem)


def values_of(column: Any, name: str) -> NDArray[Any]:
    """A column as an array, without nulls; PipelineError if there are some."""
    if column.null_count:
        raise PipelineError(f"{name}: expected numbers, got {how_many(column.null_count, 'null')}; {NULLS}")
    parts = [part.to_numpy(zero_copy_only=False) for part in column.chunks]
    return np.concatenate([np.empty(0, _dtype(column.type)), *parts])


def _rows(parquet: Any) -> list[int]:
    """Rows of each row group.

    Nothing is asked of the metadata of columns, such as the number of nulls: where they are damaged, pyarrow 26 ends
    the process, by a C++ exception that nobody catches. Reading a column turns such errors into Python's.
    """
    metadata = parquet.metadata
    rows = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
    if min(rows, default=0) < 0 or sum(rows) != metadata.num_rows:
        raise ValueError(f"row groups of {sum(rows)} rows where {metadata.num_rows} were expected")
    return rows


def _parquet_members(parquet: Any) -> list[Member]:
    rows = _rows(parquet)
    return [member_of(field, sum(rows), max(rows, default=0), "encoded") for field in parquet.schema_arrow]


def members_of(path: str) -> list[Member]:
    """Columns of a Parquet file."""
    with readable(path, "a Parquet file"), opened_file(whole(path)) as file:
        return _parquet_members(_parquet(file))


def _parquet(file: Any, footer: Any = None) -> Any:
    import pyarrow.parquet

    return pyarrow.parquet.ParquetFile(file, metadata=footer, memory_map=False, pre_buffer=False)


def open_parquet(path: str, opening: Opening) -> Source:
    """A column of a Parquet file; a row group is read at once.

    Raises
    ------
    UsageError
        If it cannot be read, or the user has to choose a column; nulls end the run when they are read.
    """
    stored = whole(path)
    with readable(path, "a Parquet file"), opened_file(stored) as file:
        parquet = _parquet(file)
        member = choose(path, _parquet_members(parquet), opening)
        name, dtype = f"{path}::{member.name}", member.dtype
        assert dtype is not None
        opening.check(name, dtype, member.shape)
        parts, start = [], 0
        for groups, rows in together(_rows(parquet), dtype.itemsize):
            check_block(name, rows * dtype.itemsize)
            block = _RowGroups(stored, member.name, groups, name)
            parts.append(block_piece(name, ((start, start + rows),), dtype, block))
            start += rows
    return PieceSource(name, dtype, member.shape, tuple(parts), (stored,))


def together(lengths: list[int], itemsize: int) -> Iterator[tuple[range, int]]:
    """Row groups or batches that are read at once, and their rows: each read begins with the footer."""
    first, rows = 0, 0
    for number, length in enumerate(lengths):
        if rows and (rows + length) * itemsize > BLOCK_BYTES:
            yield range(first, number), rows
            first, rows = number, 0
        rows += length
    if rows:
        yield range(first, len(lengths)), rows


@lru_cache(maxsize=4)
def _footer(file: Piece) -> Any:
    """The metadata of a file, which of 10,000 row groups take longer to read than their samples."""
    with opened_file(file) as opened:
        return _parquet(opened).metadata


@dataclass(frozen=True)
class _RowGroups:
    """Reads a column of some row groups."""

    file: Piece
    column: str
    groups: range
    name: str

    def read(self) -> NDArray[Any]:
        """Its samples."""
        footer = _footer(self.file)
        with opened_file(self.file) as file:
            table = _parquet(file, footer).read_row_groups(self.groups, columns=[self.column], use_threads=False)
        named = table.schema.get_all_field_indices(self.column)  # pyarrow reads field b of a column a for a.b, too
        if len(named) != 1:
            raise ValueError(f"{len(named)} columns of this name")
        return values_of(table.column(named[0]), self.name)
