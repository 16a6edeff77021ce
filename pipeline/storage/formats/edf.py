"""Signals of EDF and BDF files: digital values of 16 and 24 bits, in data records of all signals side by side."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from pipeline.storage.array_file import ArrayFile, read_region
from pipeline.storage.files import Files, SourceFile, open_regular, whole
from pipeline.storage.formats.common import choose, readable
from pipeline.storage.formats.wav import unpack_24
from pipeline.storage.piece_source import PieceSource
from pipeline.storage.pieces import FilledPiece
from pipeline.storage.protocol import Member, Opening, Source
from workflows.regions import Spec

WHAT = "an EDF or BDF file"
BLOCK = 256  # bytes of the header, and of each signal in it
BEFORE_SAMPLES = 216  # bytes of a signal in the header before its number of samples: label, units, limits, filters
ANNOTATIONS = ("EDF Annotations", "BDF Annotations")
STEP = 2**18  # samples that are read at once
NUMBER = re.compile(rb" *(-?[0-9]{1,8}) *")


@dataclass(frozen=True)
class Signal:
    """A signal: its name, its first byte in a data record, and its samples there."""

    name: str
    first: int
    samples: int


@dataclass(frozen=True)
class Header:
    """Bytes of a sample, first byte of the data, number of data records, their bytes, and the signals."""

    width: int
    offset: int
    records: int
    record_bytes: int
    signals: tuple[Signal, ...]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the samples of all signals."""
        return np.dtype("<i2" if self.width == 2 else "<i4")


def _header(file: BinaryIO, size: int) -> Header:
    """Header of a file of a size; ValueError says what is wrong."""
    fixed = file.read(BLOCK)
    if len(fixed) < BLOCK or fixed[:8] not in (b"0       ", b"\xffBIOSEMI"):
        raise ValueError("another header")
    width = 3 if fixed[0] == 0xFF else 2
    offset, records, number = (_number(fixed[at:end]) for at, end in ((184, 192), (236, 244), (252, 256)))
    if number < 1 or offset != BLOCK * (number + 1):
        raise ValueError(f"a header of {offset} bytes with {number} signals")
    if records < 0:
        raise ValueError("a recording that was not finished: its number of data records is missing")
    described = file.read(BLOCK * number)
    if len(described) < BLOCK * number:
        raise ValueError(f"{BLOCK + len(described)} bytes of a header of {offset}")
    labels = [_text(described[16 * at : 16 * at + 16]) or f"signal {at + 1}" for at in range(number)]
    of_label, first, signals = Counter(labels), 0, []
    for at, label in enumerate(labels):
        place = BEFORE_SAMPLES * number + 8 * at
        samples = _number(described[place : place + 8])
        if samples < 1:
            raise ValueError(f"{samples} samples of the signal {label!r} in a data record")
        signals.append(Signal(label if of_label[label] == 1 else f"{label}#{at + 1}", first, samples))
        first += width * samples
    if size - offset != records * first:
        raise ValueError(f"{size - offset} bytes where {records} data records of {first} bytes were expected")
    return Header(width, offset, records, first, tuple(signals))


def _number(text: bytes) -> int:
    if (match := NUMBER.fullmatch(text)) is None:
        raise ValueError(f"{text!r} where a number was expected")
    return int(match[1])


def _text(text: bytes) -> str:
    try:
        return text.decode().strip(" \0")
    except UnicodeDecodeError:
        return text.decode("latin-1").strip(" \0")


def _read(path: str, size: int) -> Header:
    with readable(path, WHAT), open_regular(path)[0] as file:
        return _header(file, size)


def _members(header: Header) -> list[Member]:
    several = header.records * header.width
    problem = "expected a signal, got annotations, which are texts; name another one"
    return [
        Member(signal.name, header.dtype, (header.records * signal.samples,), stored=several * signal.samples,
               problem=problem if signal.name.partition("#")[0] in ANNOTATIONS else "")
        for signal in header.signals
    ]  # fmt: skip


def members_of(path: str) -> Sequence[Member]:
    """Signals of a file."""
    return _members(_read(path, whole(path).nbytes))


@dataclass(frozen=True)
class _Filler:
    """Reads a signal on a worker: its columns of the data records, as an array of bytes."""

    records: ArrayFile
    signal: Signal
    width: int

    def fill(self, start: int, buffer: NDArray[Any]) -> None:
        """The samples from an index on."""
        samples, at, end = self.signal.samples, start, start + len(buffer)
        while at < end:
            record, inside = divmod(at, samples)
            records, part = min(end - at, STEP) // samples, samples
            if inside or not records:
                records, part = 1, min(samples - inside, end - at, STEP)
            first = self.signal.first + inside * self.width
            region = (record, record + records), (first, first + part * self.width)
            stored = read_region(self.records, region).reshape(-1)
            values = stored.view("<i2") if self.width == 2 else unpack_24(stored.data)
            buffer[at - start : at - start + len(values)] = values
            at += len(values)


def open_edf(path: str, opening: Opening) -> Source:
    """A signal of an EDF or BDF file, as its digital values.

    Raises
    ------
    UsageError
        If it cannot be read, or the user has to choose one.
    """
    file = whole(path)
    header = _read(path, file.nbytes)
    member = choose(path, _members(header), opening)
    signal = next(signal for signal in header.signals if signal.name == member.name)
    name = f"{path}::{member.name}"
    opening.check(name, header.dtype, member.shape)
    data = file.cut(header.offset, header.records * header.record_bytes)
    if len(header.signals) == 1 and header.width == 2:
        assert file.identity is not None
        stored = SourceFile(path, data.offset, data.nbytes, file.identity, member.shape, label=name)
        return Files((stored,), header.dtype)
    records = ArrayFile(Spec((header.records, header.record_bytes), np.dtype(np.uint8)), (data,))
    samples = math.prod(member.shape)
    piece = FilledPiece(_Filler(records, signal, header.width), 0, samples, header.dtype.itemsize, name)
    return PieceSource(name, header.dtype, member.shape, (piece,) if samples else (), (file,))
