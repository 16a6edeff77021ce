"""The kernels that a source defines, found by its text."""

from __future__ import annotations

import re
from pathlib import Path

from kernels.common import nvrtc

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_WORD = re.compile(r"\s*(\w+)\s*")


def kernels_of(source: Path) -> list[str]:
    """Names of the `__global__` functions of a source and of the headers that it includes, in their order."""
    names = []
    for text in nvrtc.include_closure(source).values():
        plain = _COMMENT.sub(" ", text.decode()).replace("\\\n", " ")
        names += [_function_name(plain, match.end()) for match in re.finditer(r"\b__global__\b", plain)]
    return list(dict.fromkeys(names))


def _function_name(text: str, at: int) -> str:
    """Name of the function whose declaration continues at a position: the word before the parameter list.

    Parentheses after any other word belong to an attribute or a macro, as in ``__launch_bounds__(f(a, b))``.
    """
    while word := _WORD.match(text, at):
        at = word.end()
        if not text.startswith("(", at):
            continue
        depth, at = 1, at + 1
        while depth and at < len(text):
            depth += {"(": 1, ")": -1}.get(text[at], 0)
            at += 1
        if text[at:].lstrip()[:1] in ("{", ";"):
            return word[1]
    raise ValueError(f"expected a function after __global__, got {text[at : at + 40].split()}")
