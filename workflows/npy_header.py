"""Reads the header of a `.npy` file in time proportional to its length, whatever it contains; evaluates nothing.

The format is NumPy's (`numpy.lib.format`): a magic string, a version, a length, and a Python dictionary as text.
NumPy's own reader takes a minute for 16,000 spaces before a `$`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import prod
from typing import Any, BinaryIO, NamedTuple

import numpy as np

MAX_HEADER = 2**16  # bytes of a header; a real one has 128
MAX_DIMENSIONS = 64  # NumPy's own limit
MAX_DEPTH = 16  # of fields within fields

KEYS = {"descr", "fortran_order", "shape"}
WORDS = {"True": True, "False": False, "None": None}
# Possessive, so that no text is looked at twice. The long integers of Python 2 end in L.
TOKEN = re.compile(
    r"""[ \t\r\n\f]*+(?:'(?P<single>[^'\\\n]*+)'|"(?P<double>[^"\\\n]*+)"|(?P<number>-?\d++)L?|(?P<word>[A-Za-z]++)|"""
    r"""(?P<sign>[][(){}:,]))""",
    re.ASCII,
)
# As NumPy writes them, e.g. <i4, |S10, <M8[25s], or a name. A comma or a shape in it would have NumPy parse a language.
DESCR = re.compile(
    r"[<>|=]?[biufcmMOSUV]\d{0,9}(\[\d{0,9}[A-Za-z]{1,7}\])?|(bool|u?int|float|complex)\d{0,3}", re.ASCII
)
CLOSING = {"[": "]", "(": ")", "{": "}"}

Token = tuple[str, str]  # kind and text
END: Token = ("end", "")


class Header(NamedTuple):
    """What a header says, and the number of bytes before the first element."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]
    offset: int


def read_header(file: BinaryIO) -> Header:
    """Header of a `.npy` file, read from its beginning; the file is left at the first element.

    Raises
    ------
    ValueError
        If it is not one, in one line that continues "expected a .npy header, got".
    """
    magic = file.read(8)
    if len(magic) < 8 or not magic.startswith(np.lib.format.MAGIC_PREFIX):
        raise ValueError("something else" if len(magic) == 8 else f"a file of {len(magic)} bytes")
    version = magic[6], magic[7]
    if version not in ((1, 0), (2, 0), (3, 0)):
        raise ValueError(f"one of the unknown version {version[0]}.{version[1]}")
    digits = 2 if version == (1, 0) else 4
    length = int.from_bytes(file.read(digits), "little")
    if length > MAX_HEADER:
        raise ValueError(f"a header of {length} bytes")
    text = file.read(length)
    if len(text) < length:
        raise ValueError(f"the first {len(text)} of {length} bytes of one")
    values = _parse(text.decode("utf-8" if version == (3, 0) else "latin1"))
    if not isinstance(values, dict) or values.keys() != KEYS:
        raise ValueError("one without exactly the keys descr, fortran_order and shape")
    shape, fortran = values["shape"], values["fortran_order"]
    if not isinstance(fortran, bool):
        raise ValueError("one whose fortran_order is neither True nor False")
    if not isinstance(shape, tuple) or not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError("one whose shape is not a tuple of lengths")
    if len(shape) > MAX_DIMENSIONS:
        raise ValueError(f"{len(shape)} dimensions")
    dtype = _dtype(values["descr"])
    if prod(shape) * dtype.itemsize >= 2**63:
        raise ValueError("one whose shape takes more bytes than any file has")
    return Header(shape, fortran, dtype, 8 + digits + length)


def _dtype(descr: Any) -> np.dtype[Any]:
    """The dtype that a description stands for; ValueError if there is none."""
    _check_descr(descr)
    try:
        return np.lib.format.descr_to_dtype(descr)
    except Exception as error:  # NumPy raises almost anything
        raise ValueError(f"an unknown dtype, {str(descr)[:50]!r}") from error


def _check_descr(descr: Any) -> None:
    """Refuse what is neither the name of a dtype nor a list of fields: (name, description) or with a shape."""
    if isinstance(descr, str):
        if DESCR.fullmatch(descr):
            return
    elif isinstance(descr, tuple) and len(descr) == 2:  # a dtype with a shape
        return _check_descr(descr[0])
    elif isinstance(descr, list) and all(isinstance(field, tuple) and len(field) in (2, 3) for field in descr):
        for field in descr:
            _check_descr(field[1])
        return
    raise ValueError(f"an unknown dtype, {str(descr)[:50]!r}")


def _parse(text: str) -> Any:
    """A dictionary, tuple, list, string, integer, True, False or None, written as in Python, without escapes."""
    tokens = _tokens(text)
    value = _value(tokens, next(tokens, END), 0)
    if next(tokens, END) is not END:
        raise ValueError("one that goes on after its end")
    return value


def _tokens(text: str) -> Iterator[Token]:
    at, end = 0, len(text.rstrip(" \t\r\n\f"))
    while at < end:
        match = TOKEN.match(text, at)
        if match is None:
            raise _unexpected(("", text[at:].lstrip()))
        at = match.end()
        kind = str(match.lastgroup)
        yield kind, match[kind]


def _value(tokens: Iterator[Token], token: Token, depth: int) -> Any:
    kind, text = token
    if kind in ("single", "double"):
        return text
    if kind == "number" and len(text) < 20:
        return int(text)
    if kind == "word" and text in WORDS:
        return WORDS[text]
    if kind != "sign" or text not in CLOSING or depth == MAX_DEPTH:
        raise _unexpected(token)
    return _items(tokens, text, depth + 1)


def _items(tokens: Iterator[Token], opening: str, depth: int) -> Any:
    """A list, tuple or dictionary, after its opening bracket; or what is in brackets without a comma."""
    keys: list[Any] = []
    items: list[Any] = []
    token, comma = next(tokens, END), False
    while token != ("sign", CLOSING[opening]):
        if opening == "{":
            keys.append(_value(tokens, token, depth))
            if not isinstance(keys[-1], str) or next(tokens, END) != ("sign", ":"):
                raise ValueError("one that is no dictionary")
            token = next(tokens, END)
        items.append(_value(tokens, token, depth))
        token = next(tokens, END)
        comma = token == ("sign", ",")
        if comma:
            token = next(tokens, END)
        elif token != ("sign", CLOSING[opening]):
            raise _unexpected(token)
    if opening == "{":
        if len(set(keys)) < len(keys):
            raise ValueError("one with a key twice")
        return dict(zip(keys, items, strict=True))
    if opening == "(" and len(items) == 1 and not comma:
        return items[0]
    return tuple(items) if opening == "(" else items


def _unexpected(token: Token) -> ValueError:
    return ValueError(f"one with {token[1][:10]!r} in it" if token is not END else "one that ends early")
