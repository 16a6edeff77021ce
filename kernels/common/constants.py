"""Reads constants from CUDA and C++ sources, so that facts shared with Python are written once."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

NUMBER = r"-?(?:0[xX][0-9a-fA-F]+|\d+)(?:\s*<<\s*\d+)?"


def constant(source: Path, name: str) -> int:
    """Value of ``constexpr int NAME = number``, at namespace scope or in a class.

    Parameters
    ----------
    source
        Path of the file that declares it.
    name
        Of the constant. It may be one of several in a declaration; its value is an integer literal or ``a << b``.

    Raises
    ------
    ValueError
        If the file has no such declaration, or more than one.
    """
    return _evaluated(_initializer(source, name, rf"\b{name}\s*=\s*({NUMBER})\s*[,;]"))


def constant_array(source: Path, name: str) -> tuple[int, ...]:
    """Values of ``constexpr int NAME[] = {number, …}``; otherwise as `constant`."""
    numbers = _initializer(source, name, rf"\b{name}\s*\[\d*\]\s*=\s*\{{((?:\s*{NUMBER}\s*,?)+)\}}")
    return tuple(_evaluated(number) for number in numbers.split(",") if number.strip())


def _initializer(source: Path, name: str, pattern: str) -> str:
    matches = [match for declaration in _declarations(source) for match in re.findall(pattern, declaration)]
    if len(matches) != 1:
        raise ValueError(f"expected one constexpr {name} with numbers for its value in {source}, got {len(matches)}")
    return str(matches[0])


def _evaluated(number: str) -> int:
    base, _, shift = number.partition("<<")
    return int(base, 0) << int(shift or 0)


@cache
def _declarations(source: Path) -> list[str]:
    """Declarations of constants in a file, without comments."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", source.read_text("utf-8"), flags=re.DOTALL)
    return re.findall(r"\bconstexpr\s[\w\s:]+(?:\[\d*\]\s*)?=[^;]*;", text)
