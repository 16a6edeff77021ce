"""Columns of Parquet and Arrow (Feather) files; nulls are refused, since no job has a place for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import PipelineError, UsageError
from pipeline.storage.files import Files, SourceFile
from pipeline.storage.formats.common import PieceSource, check_block, choose, library, readable, whole
from pipeline.storage.formats.slabs import block_piece
from pipeline.storage.pieces import AnyPiece, Piece
from pipeline.storage.planned_file import open_planned
from pipeline.storage.protocol import Format, Member, Opening, Source

PARQUET_MAGIC, ARROW_MAGIC = b"PAR1", b"ARROW1\0\0"
MOST_BATCHES = 100_000
NULLS = "drop or fill them (pyarrow.compute.drop_null, fill_null) and write the file again"
NUMBERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "halffloat", "float", "double"]


@contextmanager
def _file(file: Piece) -> Iterator[Any]:
    """The planned file, whatever has its name now, as pyarrow sees it."""
    with library(file.path, "Parquet and Arrow files", "parquet"):
        import pyarrow
    with open_planned(file) as fd, pyarrow.OSFile(f"/proc/self/fd/{fd}", "rb") as opened:
        yield opened


def _dtype(type_: Any) -> np.dtype[Any] | None:
    return np.dtype(type_.to_pandas_dtype()) if str(type_) in NUMBERS else None


def _member(field: Any, rows: int, chunks: int | None, compression: str = "", stored: int | None = None) -> Member:
    dtype = _dtype(field.type)
    problem = "" if dtype else f"expected a column of numbers, got one of {field.type}; cast it"
    return Member(field.name, dtype, (rows,), None if chunks is None else (chunks,), compression, stored, problem)


def _values(column: Any, name: str) -> NDArray[Any]:
    """A column as an array, without nulls; PipelineError if there are some."""
    if column.null_count:
        raise PipelineError(f"{name}: expected numbers, got {column.null_count} nulls; {NULLS}")
    parts = [part.to_numpy(zero_copy_only=False) for part in column.chunks]
    return np.concatenate([np.empty(0, _dtype(column.type)), *parts])


# --- Parquet ----------------------------------------------------------------------------------------------------------


def _parquet_members(parquet: Any) -> list[Member]:
    schema, metadata = parquet.schema_arrow, parquet.metadata
    leaves = {metadata.schema.column(number).path: number for number in range(metadata.num_columns)}
    rows = max((metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)), default=0)
    members = []
    for field in schema:
        columns = [metadata.row_group(group).column(leaves[field.name]) for group in range(metadata.num_row_groups)
                   if field.name in leaves]  # fmt: skip
        codecs = ", ".join(sorted({column.compression for column in columns})).lower()
        stored = sum(column.total_compressed_size for column in columns)
        members.append(_member(field, metadata.num_rows, rows, codecs, stored))
    return members


def parquet_members(path: str) -> list[Member]:
    """Columns of a Parquet file."""
    with readable(path, "a Parquet file"), _file(whole(path)) as file:
        return _parquet_members(_parquet(file))


def _parquet(file: Any) -> Any:
    import pyarrow.parquet

    return pyarrow.parquet.ParquetFile(file, memory_map=False, pre_buffer=False)


def open_parquet(path: str, opening: Opening) -> Source:
    """A column of a Parquet file; a row group is read at once.

    Raises
    ------
    UsageError
        If it cannot be read, has nulls, or the user has to choose a column.
    """
    stored = whole(path)
    with readable(path, "a Parquet file"), _file(stored) as file:
        parquet = _parquet(file)
        member = choose(path, _parquet_members(parquet), opening)
        name, dtype, metadata = f"{path}::{member.name}", member.dtype, parquet.metadata
        assert dtype is not None
        opening.check(name, dtype, member.shape)
        leaf = next(n for n in range(metadata.num_columns) if metadata.schema.column(n).path == member.name)
        parts, start, nulls = [], 0, 0
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            column = group.column(leaf)
            if column.statistics is not None and column.statistics.has_null_count:
                nulls += column.statistics.null_count
            if group.num_rows < 0 or column.num_values != group.num_rows:
                raise ValueError(f"{column.num_values} values in a row group of {group.num_rows}")
            check_block(name, max(group.num_rows * dtype.itemsize, column.total_uncompressed_size))
            if group.num_rows:
                block = _RowGroup(stored, member.name, number, name, dtype)
                parts.append(block_piece(name, ((start, start + group.num_rows),), dtype, block))
            start += group.num_rows
    if nulls:
        raise UsageError(f"{name}: expected numbers, got {nulls} nulls; {NULLS}")
    if start != member.shape[0]:
        raise UsageError(f"{name}: expected {member.shape[0]} rows, got row groups of {start}; is the file complete?")
    return PieceSource(name, dtype, member.shape, tuple(parts), (stored,))


@dataclass(frozen=True)
class _RowGroup:
    """Reads a column of a row group."""

    file: Piece
    column: str
    number: int
    name: str
    dtype: np.dtype[Any]

    def read(self) -> NDArray[Any]:
        """Its samples."""
        with _file(self.file) as file:
            table = _parquet(file).read_row_group(self.number, columns=[self.column], use_threads=False)
        return _values(table.column(0), self.name)


PARQUET = Format("parquet", open_parquet, lambda path, head: head.startswith(PARQUET_MAGIC), (".parquet", ".pq"),
                 parquet_members)  # fmt: skip


# --- Arrow ------------------------------------------------------------------------------------------------------------


def arrow_members(path: str) -> list[Member]:
    """Columns of an Arrow file."""
    with readable(path, "an Arrow file"), _file(whole(path)) as file:
        import pyarrow.ipc

        reader = pyarrow.ipc.open_file(file)
        file.seek(0)
        lengths = pyarrow.ipc.open_file(file, options=pyarrow.ipc.IpcReadOptions(included_fields=[]))
        rows = sum(lengths.get_batch(number).num_rows for number in range(_batches(lengths)))
        return [_member(field, rows, None) for field in reader.schema]


def _batches(reader: Any) -> int:
    if reader.num_record_batches > MOST_BATCHES:
        raise ValueError(f"{reader.num_record_batches} record batches")
    return int(reader.num_record_batches)


def open_arrow(path: str, opening: Opening) -> Source:
    """A column of an Arrow file: byte runs of it, unless its buffers are compressed.

    Raises
    ------
    UsageError
        If it cannot be read, has nulls, or the user has to choose a column.
    """
    stored = whole(path)
    with library(path, "Arrow files", "parquet"):
        import pyarrow.ipc
    with readable(path, "an Arrow file"), pyarrow.memory_map(path) as mapped:
        base = mapped.read_buffer(stored.nbytes).address
        mapped.seek(0)
        reader = pyarrow.ipc.open_file(mapped)
        batches = range(_batches(reader))
        member = choose(path, [_member(field, 0, None) for field in reader.schema], opening)
        name, dtype = f"{path}::{member.name}", member.dtype
        assert dtype is not None
        index = reader.schema.get_field_index(member.name)
        lengths = pyarrow.ipc.open_file(mapped, options=pyarrow.ipc.IpcReadOptions(included_fields=[]))
        parts: list[AnyPiece] = []
        start = nulls = 0
        inside = True  # until a buffer has been decompressed into memory
        for number in batches:
            rows = lengths.get_batch(number).num_rows if not inside else -1
            if inside:
                column = reader.get_batch(number).column(index)
                column.validate()
                nulls, rows = nulls + column.null_count, len(column)
                offset = column.buffers()[1].address - base + column.offset * dtype.itemsize if rows else 0
                inside = 0 <= offset <= stored.nbytes - rows * dtype.itemsize
            check_block(name, 0 if inside else rows * dtype.itemsize)
            if rows and inside:
                parts.append(stored.cut(offset, rows * dtype.itemsize))
            elif rows:
                block = _Batch(stored, member.name, number, name)
                parts.append(block_piece(name, ((start, start + rows),), dtype, block))
            start += rows
    opening.check(name, dtype, (start,))
    if nulls:
        least = "" if inside else "at least "
        raise UsageError(f"{name}: expected numbers, got {least}{nulls} nulls; {NULLS}")
    if parts and all(isinstance(part, Piece) for part in parts):
        assert stored.identity is not None
        runs = (part for part in parts if isinstance(part, Piece))
        files = [
            SourceFile(path, run.offset, run.nbytes, stored.identity, (run.nbytes // dtype.itemsize,)) for run in runs
        ]
        return Files(tuple(files), dtype)
    return PieceSource(name, dtype, (start,), tuple(parts), (stored,))


@dataclass(frozen=True)
class _Batch:
    """Reads a compressed column of a record batch."""

    file: Piece
    column: str
    number: int
    name: str

    def read(self) -> NDArray[Any]:
        """Its samples."""
        import pyarrow.ipc

        with _file(self.file) as file:
            index = pyarrow.ipc.open_file(file).schema.get_field_index(self.column)
            file.seek(0)
            options = pyarrow.ipc.IpcReadOptions(included_fields=[index], use_threads=False)
            column = pyarrow.ipc.open_file(file, options=options).get_batch(self.number).column(0)
            return _values(pyarrow.chunked_array([column]), self.name)


ARROW = Format("arrow", open_arrow, lambda path, head: head.startswith(ARROW_MAGIC), (".arrow", ".feather"),
               arrow_members)  # fmt: skip
