"""Messages for users, from the syntax trees of the sources: text with `{expression}` where a value goes."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SOURCES = [path for folder in ("pipeline", "workflows") for path in sorted((ROOT / folder).rglob("*.py"))]
OURS = ("PipelineError", "UsageError", "VerificationError", "click.UsageError")


class Message(NamedTuple):
    """Where it is made, as an error of which class, and its text."""

    place: str
    kind: str
    text: str


def texts(node: ast.expr) -> list[str]:
    """All that an expression may say: a condition in it has two texts."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value]
    if isinstance(node, ast.JoinedStr):
        parts = [texts(value) for value in node.values]
        return ["".join(chosen) for chosen in itertools.product(*parts)]
    if isinstance(node, ast.FormattedValue):
        return texts(node.value)
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.JoinedStr):  # its first characters
        return texts(node.value)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [first + second for first in texts(node.left) for second in texts(node.right)]
    if isinstance(node, ast.IfExp):
        return [*texts(node.body), *texts(node.orelse)]
    said = _constants().get(ast.unparse(node).rpartition(".")[2])
    return [f"{{{ast.unparse(node)}}}" if said is None else said]


@cache
def _constants() -> dict[str, str]:
    """Texts that have a name in capitals which means the same in every module."""
    named: dict[str, set[str]] = {}
    for path in SOURCES:
        text = path.read_text(encoding="utf-8")
        for name, value in re.findall(r"^([A-Z_]+) = (.*)$", text, re.MULTILINE):
            named.setdefault(name, set()).add(value)
    texts_of = ((name, said.pop()) for name, said in named.items() if len(said) == 1)
    return {name: ast.literal_eval(text) for name, text in texts_of if re.fullmatch(r'"[^"]*"', text)}


def messages(source: str, place: str, kinds: tuple[str, ...]) -> Iterator[Message]:
    """Of errors of these classes, raised, returned or passed on."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in kinds and node.args:
            for text in texts(node.args[0]):
                yield Message(f"{place}:{node.lineno}", ast.unparse(node.func), text)


def all_messages() -> list[Message]:
    """Of the command line, of clusters and files; of jobs, which raise ValueError for options that they do not take."""
    every: list[Message] = []
    for path in SOURCES:
        place = str(path.relative_to(ROOT))
        every += messages(path.read_text("utf-8"), place, OURS if place.startswith("pipeline") else ("ValueError",))
    return every
