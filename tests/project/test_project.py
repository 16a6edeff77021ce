"""Repository-wide rules: ruff and mypy pass, a job has one name everywhere, modules are short."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from pipeline.cli.main import cli
from tests.conftest import LONGEST
from workflows import WORKFLOWS

ROOT = Path(__file__).parents[2]
PACKAGES = ("pipeline", "workflows", "kernels")
SUFFIXES = (".py", ".cu", ".cuh", ".cpp", ".hpp", ".h")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
MOST_LINES = 300


def files(*folders: str) -> list[Path]:
    """Sources of these folders of the repository."""
    paths = (path for folder in folders for path in (ROOT / folder).rglob("*"))
    return sorted(path for path in paths if path.suffix in SUFFIXES)


MODULES = [path for path in files(*PACKAGES) if path.suffix == ".py"]


@pytest.mark.timeout(600)  # without a cache mypy takes a minute of CPU time, on a machine that may be busy
@pytest.mark.parametrize("command", ["ruff check", "ruff format --check", "mypy"])
def test_tool_is_content(command: str) -> None:
    """As in pyproject.toml; mypy is strict."""
    done = subprocess.run(
        [sys.executable, "-m", *command.split()], cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert done.returncode == 0, done.stdout


def test_types_of_results(tmp_path: Path) -> None:
    """A user's type checker knows what a job returns, unless rows or conditions change that."""
    lines = ["import pipeline", 'reveal_type(pipeline.run("histogram", "a"))',
             'reveal_type(pipeline.run("histogram", "a", segment=5))',
             'reveal_type(pipeline.run("map", "a", output="b"))',
             'reveal_type(pipeline.submit("reduce", "a").result(5))']  # fmt: skip
    (tmp_path / "user.py").write_text("\n".join(lines))
    words = [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", str(tmp_path / "user.py")]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    types = [line.split('"')[1].rpartition(".")[2] for line in done.stdout.splitlines() if "Revealed type" in line]
    assert types == ["HistogramResult", "Any", "ArrayResult", "ReduceResult"], done.stdout


def test_tools_are_told_what_to_check() -> None:
    assert PROJECT["tool"]["mypy"]["strict"] is True
    assert set(PROJECT["tool"]["mypy"]["packages"]) == set(PACKAGES)
    assert "exclude" not in PROJECT["tool"]["ruff"]
    assert PROJECT["tool"]["pytest"]["ini_options"]["filterwarnings"] == ["error"]


def test_files_are_short() -> None:
    lines = {path: len(path.read_text().splitlines()) for path in files(*PACKAGES, "tests", "docs")}
    assert {path: number for path, number in lines.items() if number > MOST_LINES} == {}


def test_modules_begin_with_one_sentence() -> None:
    """The first line says what the module is; then the docstring ends, or a blank line follows."""
    for path in MODULES:
        first, *rest = (ast.get_docstring(ast.parse(path.read_text())) or "").split("\n")
        assert first.endswith((".", "`")) and not any(rest[:1]), path


def test_files_that_come_first_are_there() -> None:
    assert [path for path in LONGEST if not (ROOT / "tests" / path).is_file()] == []


@pytest.mark.parametrize("job", WORKFLOWS)
def test_a_job_has_one_name_everywhere(job: str) -> None:
    assert WORKFLOWS[job].name == job
    assert job in cli.commands
    paths = (f"kernels/{job}/gpu.py", f"kernels/{job}/gpu.cu", f"workflows/{job}.py", f"tests/workflows/test_{job}.py")
    assert [path for path in paths if not (ROOT / path).is_file()] == []


def test_every_family_of_kernels_is_a_job() -> None:
    folders = {path.parent.name for path in (ROOT / "kernels").glob("*/__init__.py")}
    prepare = {"calibrate", "select"}  # samples for a job
    assert folders - {"common", "study"} - prepare == set(WORKFLOWS)


def test_tests_mirror_the_folders() -> None:
    folders = [path for package in PACKAGES for path in (ROOT / "tests" / package).rglob("*/") if path.is_dir()]
    mirrored = [path.relative_to(ROOT / "tests") for path in folders if path.name != "__pycache__"]
    assert mirrored and [path for path in mirrored if not (ROOT / path).is_dir()] == []
    assert {f"pipeline/{path.parent.name}" for path in (ROOT / "pipeline").glob("*/__init__.py")} <= {
        str(path) for path in mirrored
    }


def test_all_packages_are_packed_and_typed() -> None:
    """Built by hatchling, which packs whole folders, including other files next to the modules."""
    assert set(PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]) == set(PACKAGES)
    assert [name for name in PACKAGES if not (ROOT / name / "py.typed").is_file()] == []
