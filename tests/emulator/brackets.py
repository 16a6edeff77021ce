"""Brackets in C++ without comments: where they end, and what lies between separators outside of them."""

from __future__ import annotations

import re
from collections.abc import Iterator


def end_of(text: str, at: int, letters: str) -> int:
    """Position of the first of these letters from `at` on, outside brackets that open there; without one, the end."""
    depth = 0
    while at < len(text) and (depth or text[at] not in letters):
        depth += (text[at] in "([{") - (text[at] in ")]}")
        at += 1
    return at


def closing(text: str, at: int) -> int:
    """Position of the bracket that closes the one before `at`."""
    return end_of(text, at, ")]}")


def opening(text: str, end: int) -> int:
    """Start of the condition that ends at `end`: after an assignment, a comma, `return` or an open bracket."""
    depth, at = 0, end
    while at:
        letter = text[at - 1]
        depth += (letter in ")]}") - (letter in "([{")
        if depth < 0:
            return at
        if not depth:
            assigned = letter == "=" and text[at - 2] not in "<>=!" and text[at] != "="
            if letter in ",;:?" or assigned or re.search(r"\breturn $", text[max(0, at - 8) : at]):
                return at
        at -= 1
    return at


def trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """A span without the white space at its ends."""
    stretch = text[start:end]
    return start + len(stretch) - len(stretch.lstrip()), start + len(stretch.rstrip())


def parts(text: str, start: int, end: int, operator: str) -> Iterator[tuple[int, int]]:
    """Spans between operators outside brackets, without surrounding white space."""
    begin = start
    while True:
        at = begin
        while (at := end_of(text, at, operator[0])) < end and not text.startswith(operator, at):
            at += 1
        yield trimmed(text, begin, min(at, end))
        if at >= end:
            return
        begin = at + len(operator)


def loop_header(text: str, at: int) -> list[tuple[int, int]]:
    """The three parts of a loop's header from `at` on; none if it is over a range, or not plain."""
    spans = list(parts(text, at, closing(text, at), ";"))
    return spans if len(spans) == 3 and not any(re.search(r'[{}"#]', text[slice(*span)]) for span in spans) else []
