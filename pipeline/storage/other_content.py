"""Content that is not meant as raw samples: text, archives, pictures."""

from __future__ import annotations

import re

from pipeline.errors import UsageError
from pipeline.storage.protocol import Opening

# What other content begins with: nobody means its bytes as samples, unless they say --dtype or --offset.
OTHERS = {
    b"\x1f\x8b\x08": "gzip", b"\x28\xb5\x2f\xfd": "Zstandard", b"\xfd7zXZ\0": "xz", b"BZh": "bzip2",
    b"\x04\x22\x4d\x18": "LZ4", b"PK\3\4": "zip", b"\x89PNG": "PNG", b"%PDF": "PDF",
    b"MATLAB 5.0 MAT": "MATLAB 5", b"CDF\1": "NetCDF-3", b"CDF\2": "NetCDF-3", b"CDF\5": "NetCDF-3",
    b"\x0e\x03\x13\x01": "HDF4", b"SIMPLE  =": "FITS", b"root\0": "ROOT", b"GRIB": "GRIB", b"Obj\1": "Avro",
    b"riff\x2e\x91\xcf\x11": "Wave64", b"RIFX": "RIFX", b"FORM": "AIFF", b"caff": "CAF", b"OggS": "Ogg", b".snd": "AU",
    b"ORC": "ORC", b"ID3": "MP3", b"\xff\xd8\xff": "JPEG", b"GIF8": "GIF", b"SQLite format 3\0": "SQLite",
}  # fmt: skip
TEXT = "text"
PRINTABLE = re.compile(rb"[\t\n\r -~]+")  # and with a digit and the end of a line: numbers, CSV
FOREIGN = re.compile(rb"[\x80-\xff]")  # in names and units
WIDE = (b"\xff\xfe", b"\xfe\xff")  # byte order marks of UTF-16
TAR = slice(257, 262), b"ustar"


class OtherContent(UsageError):
    """A file without samples: `what` it is, and what to do with it."""

    def __init__(self, path: str, what: str) -> None:
        super().__init__(f"{path}: expected samples, got {what}; {advice_on(what)}")
        self.what = what


def other_of(head: bytes, opening: Opening) -> str | None:
    """What a file is, by its beginning, if it is not samples and the user has not said that it is raw."""
    if opening.dtype is not None or opening.offset is not None:
        return None
    if _is_text(head):
        return TEXT
    if head[TAR[0]] == TAR[1]:
        return "tar"
    return next((name for magic, name in OTHERS.items() if head.startswith(magic)), None)


def _is_text(head: bytes) -> bool:
    """Whether there are lines with digits, or JSON, in ASCII but for a few letters, or in UTF-16."""
    text = head[2:].replace(b"\0", b"") if head.startswith(WIDE) else head
    plain = FOREIGN.sub(b"", text)
    few = 8 * (len(text) - len(plain)) <= len(text)
    lines = b"\n" in plain or plain.startswith(b'{"')
    return bool(few and PRINTABLE.fullmatch(plain) and lines and re.search(rb"\d", plain))


def advice_on(other: str) -> str:
    """What to do with it."""
    how = "convert it (numpy.save of numpy.loadtxt, say)" if other == TEXT else "unpack or convert it"
    return f"{how}; if its bytes are samples, say --dtype"
