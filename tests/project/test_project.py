"""What holds for the whole repository: clean by its own tools, imports one way, short modules, one stem everywhere."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from pipeline.cli.main import cli
from tests.conftest import LONGEST
from workflows import WORKFLOWS

ROOT = Path(__file__).parents[2]
PACKAGES = ("pipeline", "workflows", "kernels")
MODULES = sorted(path for name in PACKAGES for path in (ROOT / name).glob("**/*.py"))
TESTS = sorted((ROOT / "tests").glob("**/*.py"))
CUDA = sorted(path for suffix in ("cu", "cuh") for path in ROOT.glob(f"[!.]*/**/*.{suffix}"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CPP = sorted(
    path
    for name in ("kernels", "pipeline")
    for suffix in ("cpp", "hpp")
    for path in (ROOT / name).glob(f"**/*.{suffix}")
)
MOST_LINES = 300
# What each folder may import besides the standard library; pipeline may import anything but the tests.
MAY_IMPORT = {
    "kernels": {"kernels", "numpy", "cupy", "cuda"},  # cuda: NVRTC's bindings
    "workflows": {"workflows", "kernels", "numpy"},
}


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("command", ["ruff check", "ruff format --check", "mypy"])
def test_tool_is_content(command: str) -> None:
    """As in pyproject.toml; mypy is strict."""
    done = subprocess.run(
        [sys.executable, "-m", *command.split()], cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert done.returncode == 0, done.stdout


def test_tools_are_told_what_to_check() -> None:
    assert PROJECT["tool"]["mypy"]["strict"] is True
    assert set(PROJECT["tool"]["mypy"]["packages"]) == set(PACKAGES)
    assert "exclude" not in PROJECT["tool"]["ruff"]
    assert PROJECT["tool"]["pytest"]["ini_options"]["filterwarnings"] == ["error"]


def imported(path: Path) -> Iterator[str]:
    """Top-level name of every import in the order of lines, also inside functions and by a name that is computed."""
    tree = ast.parse(path.read_text(), str(path))
    for node in sorted(ast.walk(tree), key=lambda node: getattr(node, "lineno", 0)):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." if node.level else str(node.module).partition(".")[0]
        elif isinstance(node, ast.Call) and re.search(r"\b(import_module|__import__)$", ast.unparse(node.func)):
            here = dotted(node.args[0]) or dotted(tree) or ["anything"]
            yield from (name.partition(".")[0] for name in here)


def dotted(tree: ast.AST) -> list[str]:
    """Texts that can be (the beginning of) the name of a module in a package."""
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return [text for text in texts if re.fullmatch(r"[a-z_]\w*(\.\w*)+", text)]


def test_imports_are_found(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    source = """
        import numpy as np, dask.array
        from pipeline.engine.aggregate import run
        from . import neighbour
        def function():
            import cupy
            import_module(f"kernels.{name}")
            importlib.import_module("rich.table")
            __import__("click.core")
            import_module(computed())
    """
    path.write_text(dedent(source))
    found = ["numpy", "dask", "pipeline", ".", "cupy", "kernels", "rich", "click"]
    # What is computed may be any that is spelt out.
    assert list(imported(path))[: len(found)] == found
    assert set(list(imported(path))[len(found) :]) == {"kernels", "rich", "click"}
    path.write_text("import_module(computed())")
    assert list(imported(path)) == ["anything"]


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_point_one_way(path: Path) -> None:
    """pipeline -> workflows -> kernels, never back, and nobody but pipeline knows of Dask or a terminal."""
    folder = path.relative_to(ROOT).parts[0]
    foreign = set(imported(path)) - sys.stdlib_module_names
    if folder == "pipeline":
        assert foreign & {"tests", "pytest", "hypothesis"} == set()
    else:
        assert foreign - MAY_IMPORT[folder] == set()
    assert "." not in foreign  # one spelling of every module


@pytest.mark.parametrize(
    ("package", "forbidden"),
    [("kernels", "pipeline workflows dask distributed rich click cupy"),
     ("workflows", "pipeline dask distributed rich click cupy"), ("pipeline.cli.main", "dask distributed cupy")],
)  # fmt: skip
def test_what_is_not_needed_is_not_loaded(package: str, forbidden: str) -> None:
    code = f"import sys, {package}; print(*[name for name in {forbidden.split()} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, text=True, capture_output=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize("path", [*MODULES, *TESTS, *CUDA, *CPP], ids=name_of)
def test_module_is_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MOST_LINES


@pytest.mark.parametrize("path", [path for path in MODULES if path.name != "__main__.py"], ids=name_of)
def test_module_says_what_it_is(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text()))


def test_files_that_come_first_are_there() -> None:
    assert set(LONGEST) <= {str(path.relative_to(ROOT / "tests")) for path in TESTS}


def test_every_workflow_is_a_command_of_the_same_stem() -> None:
    assert set(WORKFLOWS) <= set(cli.commands)
    assert WORKFLOWS
    for name, workflow in WORKFLOWS.items():
        assert workflow.name == name
        own = (
            f"kernels/{name}/gpu.py",
            f"kernels/{name}/gpu.cu",
            f"workflows/{name}.py",
            f"tests/workflows/test_{name}.py",
        )
        for path in own:
            assert (ROOT / path).is_file(), f"{name}: expected {path}"


def test_every_package_is_installed_with_its_sources_of_kernels() -> None:
    """By hatchling, which packs a folder whole: what is beside the modules goes along."""
    assert set(PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]) == set(PACKAGES)
