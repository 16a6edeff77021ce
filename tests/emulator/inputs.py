"""Hashes the inputs of a test result: CUDA, C++ and Python sources without comments, and plain values.

Comments and docstrings are left out, so that rewording them re-runs nothing. Python is followed from module to module
by its imports. `pipeline` is not followed: it carries data to kernels and computes nothing.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from textwrap import dedent
from typing import Any

from kernels.common import nvrtc

ROOT = Path(__file__).parents[2]
FOLLOWED = ("kernels", "tests", "workflows")
C_COMMENT = re.compile(r'("(?:\\.|[^"\\\n])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
# A string of either quote, which may hold a `#`, or a comment.
PYTHON_COMMENT = re.compile(
    r'("""(?:\\.|[^\\])*?"""|' r"'''(?:\\.|[^\\])*?'''|" r'"(?:\\.|[^"\\\n])*"|' r"'(?:\\.|[^'\\\n])*')|#[^\n]*",
    re.DOTALL,
)


def digest(*values: Any) -> str:
    """A short hash of plain values, the same in every process and Python version."""
    return hashlib.sha256(repr(values).encode()).hexdigest()[:16]


def c_code(text: str) -> str:
    """CUDA or C++ without comments and blank lines."""
    return _lines(C_COMMENT.sub(lambda match: match[1] or " ", text))


def python_code(text: str, tree: ast.Module | None = None) -> str:
    """Python without comments, docstrings and blank lines."""
    lines = PYTHON_COMMENT.sub(lambda match: match[1] or "", text).splitlines()  # the number of lines stays the same
    for node in _statements(tree or ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node, False) is not None:
            statement = node.body[0]
            for row in range(statement.lineno, (statement.end_lineno or statement.lineno) + 1):
                lines[row - 1] = ""
    return _lines("\n".join(lines))


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """A node and all statements below it: enough for imports and docstrings, and much faster than all nodes."""
    yield node
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for child in getattr(node, field, ()):
            yield from _statements(child)


def _lines(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.splitlines() if line.strip())


@cache
def cuda_texts(source: Path) -> tuple[tuple[str, str], ...]:
    """A `.cu` file and every header that it includes, by name."""
    texts = nvrtc.include_closure(source).items()
    return tuple(sorted((name, c_code(text.decode())) for name, text in texts))


def function_texts(*functions: Callable[..., Any]) -> list[str]:
    """The code of functions, where the rest of their module does not matter."""
    return [python_code(dedent(inspect.getsource(function))) for function in functions]


def python_texts(modules: Iterable[str], without: Iterable[str] = ()) -> list[tuple[str, str]]:
    """Modules and their imports from this repository, by name, except those in `without` and theirs."""
    seen, waiting = set(without), sorted(modules)
    texts = []
    while waiting:
        name = waiting.pop()
        path = path_of(name)
        if name in seen or path is None:
            continue
        seen.add(name)
        code, imported = _module(path)
        texts.append((name, code))
        waiting += imported
    return sorted(texts)


@cache
def _module(path: Path) -> tuple[str, tuple[str, ...]]:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    return python_code(text, tree), tuple(_imported(tree))


def imported_by(function: Callable[..., Any]) -> set[str]:
    """Modules, including `pipeline`, that a function imports, or that functions of its module that it names import."""
    modules: set[str] = set()
    seen: set[Callable[..., Any]] = set()
    waiting = [function]
    while waiting:
        function = waiting.pop()
        if function in seen:
            continue
        seen.add(function)
        modules |= set(_imported(ast.parse(dedent(inspect.getsource(function))), (*FOLLOWED, "pipeline")))
        named = map(function.__globals__.get, function.__code__.co_names)
        waiting += [one for one in named if inspect.isfunction(one) and one.__module__ == function.__module__]
    return modules


def _imported(tree: ast.Module, packages: tuple[str, ...] = FOLLOWED) -> Iterator[str]:
    """Modules of these packages that are imported anywhere, including inside functions."""
    for node in _statements(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            below = [f"{node.module}.{alias.name}" for alias in node.names]
            modules = [name for name in below if path_of(name)]
            names = modules if len(modules) == len(below) else [node.module, *modules]
        yield from (name for name in names if name.partition(".")[0] in packages)


@cache
def path_of(module: str) -> Path | None:
    """The file of a module of this repository; None for a symbol, and for a module from elsewhere."""
    if module.partition(".")[0] not in (*FOLLOWED, "pipeline"):
        return None
    base = ROOT.joinpath(*module.split("."))
    return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()), None)
