"""Where the values of a column lie in an Arrow file, whose footer and messages are flatbuffers.

The layout is that of the Arrow columnar format, "IPC file format", with `Message.fbs` and `File.fbs`. pyarrow tells
addresses only in a mapped file, and a mapped file that shrinks ends the process.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from pipeline.storage.pieces import Piece

END = b"ARROW1"
MOST_METADATA = 2**26  # bytes
MOST_BATCHES = 100_000
RECORD_BATCH = 3  # of the union MessageHeader
BLOCK = struct.Struct("<qi4xq")  # offset of a message, bytes before its body, bytes of that


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
        raise ValueError("a place beyond the end of its metadata")
    value: int = struct.unpack_from(form, data, at)[0]
    return value


def place_of(schema: Any, index: int) -> tuple[int, int] | None:
    """Numbers of nodes and buffers of the columns before one; None if that depends on what is in them."""
    import pyarrow.types as types

    buffers = 0
    for field in list(schema)[:index]:
        if types.is_null(field.type):
            continue
        if types.is_string(field.type) or types.is_binary(field.type) or types.is_large_string(field.type):
            buffers += 3
        elif types.is_primitive(field.type) or types.is_dictionary(field.type) or types.is_decimal(field.type):
            buffers += 2
        else:
            return None
    return index, buffers


def runs(opened: Any, file: Piece, place: tuple[int, int], itemsize: int) -> Iterator[Run]:
    """Where the values of a column of numbers lie, batch by batch.

    Parameters
    ----------
    opened
        The file as pyarrow has it open.
    file
        The whole file.
    place
        As of `place_of`.
    itemsize

    Raises
    ------
    ValueError
        If it is not laid out as it has to be.
    """
    node, buffer = place

    def read(start: int, nbytes: int) -> bytes:
        if start < 0 or not 0 <= nbytes <= min(MOST_METADATA, file.nbytes - start):
            raise ValueError(f"metadata of {nbytes} bytes at byte {start}")
        opened.seek(start)
        data: bytes = opened.read(nbytes)
        return data

    size, end = struct.unpack("<i6s", read(file.nbytes - 10, 10))
    if end != END:
        raise ValueError("no footer")
    footer = Table.root(read(file.nbytes - 10 - size, size))
    schema, blocks = footer.table(1), footer.structs(3, BLOCK)
    if schema is None or schema.number(0, "<h") or len(blocks) > MOST_BATCHES:
        raise ValueError(f"big endian values or {len(blocks)} record batches")
    for at, before, nbytes in blocks:
        message = read(at, before)
        if message[:4] != b"\xff" * 4:
            raise ValueError("messages of an old version")
        header = Table.root(message[8:])
        batch = header.table(2)
        if header.number(1, "<B") != RECORD_BATCH or batch is None:
            raise ValueError("another message where a record batch should be")
        rows, nulls = batch.structs(1, struct.Struct("<qq"))[node]
        first, length = batch.structs(2, struct.Struct("<qq"))[buffer + 1]
        if batch.table(3) is not None:
            yield Run(rows, nulls, None)
            continue
        first += at + before
        if rows < 0 or length < rows * itemsize or not at + before <= first <= at + before + nbytes - length:
            raise ValueError(f"{length} bytes at byte {first} for {rows} values")
        if first + length > file.nbytes:
            raise ValueError(f"values beyond its end, at byte {first}")
        yield Run(rows, nulls, first)
