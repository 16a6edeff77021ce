"""Where the values of a column lie in an Arrow file, whose footer and messages are flatbuffers.

The layout is that of the Arrow columnar format, "IPC file format", with `Message.fbs` and `File.fbs`. pyarrow tells
addresses only in a mapped file, and a mapped file that shrinks ends the process.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from pipeline.storage.pieces import Piece

END = b"ARROW1"
MOST_METADATA = 2**26  # bytes
MOST_BATCHES = 100_000
RECORD_BATCH = 3  # of the union MessageHeader
BYTE, OFFSET, PAIR = struct.Struct("<B"), struct.Struct("<I"), struct.Struct("<qq")
BLOCK = struct.Struct("<qi4xq")  # offset of a message, bytes before its body, bytes of that

# Buffers of columns by the number of their type in the union Type of Schema.fbs: Null; Int, FloatingPoint, Bool,
# Decimal, Date, Time, Timestamp, Interval, FixedSizeBinary, Duration; Binary and Utf8, also Large.
INT, FLOAT = 2, 3
BUFFERS = {1: 0, **dict.fromkeys((INT, FLOAT, 6, 7, 8, 9, 10, 11, 15, 18), 2), **dict.fromkeys((4, 5, 19, 20), 3)}


class Run(NamedTuple):
    """Values of a column in a record batch: first byte in the file; None if they are compressed."""

    rows: int
    nulls: int
    offset: int | None


@dataclass(frozen=True)
class Table:
    """A flatbuffer's table: fields by number, each at a place that a table of offsets says."""

    data: bytes
    at: int

    @staticmethod
    def root(data: bytes) -> Table:
        """The table that a flatbuffer begins with."""
        return Table(data, _number("<I", data, 0))

    def _field(self, number: int) -> int | None:
        offsets = self.at - _number("<i", self.data, self.at)
        if 4 + 2 * number + 2 > _number("<H", self.data, offsets):
            return None
        offset = _number("<H", self.data, offsets + 4 + 2 * number)
        return self.at + offset if offset else None

    def number(self, number: int, form: str) -> int:
        """A scalar; 0 if it is absent."""
        at = self._field(number)
        return 0 if at is None else _number(form, self.data, at)

    def table(self, number: int) -> Table | None:
        """A table within this one."""
        at = self._field(number)
        return None if at is None else Table(self.data, at + _number("<I", self.data, at))

    def string(self, number: int) -> str:
        """A string; empty if it is absent."""
        return bytes(chain.from_iterable(self.structs(number, BYTE))).decode()

    def tables(self, number: int) -> list[Table]:
        """A vector of tables."""
        at = self._field(number)
        places = self.structs(number, OFFSET)
        start = 0 if at is None else at + _number("<I", self.data, at) + 4
        return [Table(self.data, start + 4 * place + offset) for place, (offset,) in enumerate(places)]

    def structs(self, number: int, layout: struct.Struct) -> list[tuple[int, ...]]:
        """A vector of structs."""
        at = self._field(number)
        if at is None:
            return []
        start = at + _number("<I", self.data, at)
        length = _number("<I", self.data, start) * layout.size
        if start + 4 + length > len(self.data):
            raise ValueError("a list beyond the end of its metadata")
        return list(layout.iter_unpack(self.data[start + 4 : start + 4 + length]))


def _number(form: str, data: bytes, at: int) -> int:
    if not 0 <= at <= len(data) - struct.calcsize(form):
        raise ValueError("an offset beyond the end of its metadata")
    value: int = struct.unpack_from(form, data, at)[0]
    return value


class Field(NamedTuple):
    """A column: its dtype, or None if it has no numbers that are samples as they are; the number of its buffers, or
    None if that depends on what is in it."""

    name: str
    dtype: np.dtype[Any] | None
    buffers: int | None


def _field_of(field: Table) -> Field:
    kind, described, dtype = field.number(2, "<B"), field.table(3), None
    if described is not None and kind == INT:
        bits, signed = described.number(0, "<i"), described.number(1, "<B")
        dtype = np.dtype(f"<{'i' if signed else 'u'}{bits // 8}") if bits in (8, 16, 32, 64) else None
    elif described is not None and kind == FLOAT:
        precision = described.number(0, "<h")
        dtype = np.dtype(f"<f{2 << precision}") if precision in (0, 1, 2) else None
    if field.table(4) is not None:  # numbers in a dictionary
        return Field(field.string(0), None, 2)
    return Field(field.string(0), dtype, BUFFERS.get(kind))


class Layout:
    """The footer of a file, which says what is where.

    Parameters
    ----------
    opened
        The file, open to read bytes.
    file
        The whole file.

    Raises
    ------
    ValueError
        If it is not laid out as it has to be, there or where it is read later.
    """

    def __init__(self, opened: Any, file: Piece) -> None:
        self._opened, self._file = opened, file
        size, end = struct.unpack("<i6s", self._read(file.nbytes - 10, 10))
        if end != END:
            raise ValueError("no footer")
        footer = Table.root(self._read(file.nbytes - 10 - size, size))
        schema, self._blocks = footer.table(1), footer.structs(3, BLOCK)
        if schema is None or schema.number(0, "<h") or len(self._blocks) > MOST_BATCHES:
            raise ValueError(f"big endian values or {len(self._blocks)} record batches")
        self.fields = [_field_of(field) for field in schema.tables(1)]

    def _read(self, start: int, nbytes: int) -> bytes:
        if start < 0 or not 0 <= nbytes <= min(MOST_METADATA, self._file.nbytes - start):
            raise ValueError(f"metadata of {nbytes} bytes at byte {start}")
        self._opened.seek(start)
        data: bytes = self._opened.read(nbytes)
        return data

    def runs(self, column: int) -> Iterator[Run]:
        """Where the values of a column of numbers lie, batch by batch."""
        dtype, before_it = self.fields[column].dtype, [field.buffers for field in self.fields[:column]]
        if dtype is None or None in before_it:
            raise ValueError("buffers whose lengths only their content tells")
        buffer = sum(number or 0 for number in before_it) + 1
        for at, before, nbytes in self._blocks:
            message = self._read(at, before)
            if message[:4] != b"\xff" * 4:
                raise ValueError("messages of an old format version")
            header = Table.root(message[8:])
            batch = header.table(2)
            if header.number(1, "<B") != RECORD_BATCH or batch is None:
                raise ValueError("another message where a record batch was expected")
            rows, nulls = batch.structs(1, PAIR)[column]
            first, length = batch.structs(2, PAIR)[buffer]
            if rows != batch.number(0, "<q"):
                raise ValueError("record batches whose columns differ in length")
            if batch.table(3) is not None:
                yield Run(rows, nulls, None)
                continue
            first += at + before
            needed = rows * dtype.itemsize
            if rows < 0 or length < needed or not at + before <= first <= at + before + nbytes - length:
                raise ValueError(f"{length} bytes at byte {first} for {rows} values")
            if first + length > self._file.nbytes:
                raise ValueError(f"values beyond its end, at byte {first}")
            yield Run(rows, nulls, first)
