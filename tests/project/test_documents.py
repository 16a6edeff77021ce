"""The documents refer to existing paths, links, modules and commands."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
from pathlib import Path

import click
import pytest

from pipeline.cli.main import cli
from workflows import WORKFLOWS
from workflows.study.registry import STUDIES

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").glob("**/*.md"), *(ROOT / "data").glob("*.md")], key=lambda path: path.name
)
TOP = ("kernels", "workflows", "pipeline", "tests", "docs", "data")
MOST_CHARACTERS = 9000


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def named_paths(text: str) -> list[str]:
    """Paths in backticks that begin with a folder of the repository; `<job>` stands for every job, `*` for anything."""
    return [
        code.rstrip("/")
        for code in re.findall(r"`([^`\n]+)`", text)
        if re.fullmatch(rf"(?:{'|'.join(TOP)})/[\w./<>*-]*", code)
    ]


def commands(text: str) -> list[list[str]]:
    """Commands in shell blocks, as words, without comments."""
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return [words for line in "".join(blocks).splitlines() if (words := shlex.split(line, comments=True))]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_named_paths_are_there(page: Path) -> None:
    missing = []
    for name in named_paths(prose(page)):
        for job in WORKFLOWS if "<job>" in name else ("",):
            if not list(ROOT.glob(name.replace("<job>", job))):
                missing.append(name.replace("<job>", job))
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_named_symbols_are_in_their_files(page: Path) -> None:
    """References of the forms `NAME` in `path` and `NAME` of `path`."""
    missing = []
    for symbol, path in re.findall(rf"`([\w.]+)`,? (?:in|of)\s+`((?:{'|'.join(TOP)})/[\w/]+\.\w+)`", prose(page)):
        words = set(re.findall(r"\w+", (ROOT / path).read_text(encoding="utf-8"))) if (ROOT / path).is_file() else set()
        if not set(symbol.split(".")) <= words:
            missing.append((symbol, path))
    assert missing == []


def test_paths_are_recognized() -> None:
    text = "`kernels/common/nvrtc.py` (`pipeline/`, `tests.emulator`, `wgmma`), `tests/*.json`, `kernels/<job>/gpu.cu`."
    assert named_paths(text) == ["kernels/common/nvrtc.py", "pipeline", "tests/*.json", "kernels/<job>/gpu.cu"]


def headings(page: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        path, _, anchor = link.partition("#")
        if path.startswith(("http:", "https:")):
            continue
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in headings(target)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_shell_is_valid(page: Path) -> None:
    for block in re.findall(r"^```sh\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
        done = subprocess.run(["bash", "-n"], input=block, text=True, capture_output=True)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_exist(page: Path) -> None:
    """Every subcommand of `python -m pipeline` with its flags; every other module that is run."""
    for words in commands(page.read_text(encoding="utf-8")):
        while "-m" in words:
            module, *words = words[words.index("-m") + 1 :]
            if module == "pipeline":
                command = cli.commands[words[0]]
                if isinstance(command, click.Group):  # a job behind `plan`
                    command, words = command.commands[words[1]], words[1:]
                every = [command, *(cli.commands.values() if words[0] == "slurm" else ())]  # which takes those of a job
                known = {name for one in every for parameter in one.params for name in parameter.opts}
                flags = [word.partition("=")[0] for word in words[1:] if re.match(r"--?[a-z]", word)]
                assert set(flags) <= known | {"--help"}, words
                if words[0] in ("study", "inspect"):
                    of_inspect = {f"study/{job}" for job in STUDIES} if words[0] == "inspect" else set()
                    assert words[1] in {*(STUDIES if words[0] == "study" else WORKFLOWS), *of_inspect}, words
            elif module.startswith("tests."):
                path = ROOT / module.replace(".", "/")
                assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file(), module


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_python_is_valid(page: Path) -> None:
    for block in re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
        ast.parse(block)


def test_readme_is_short() -> None:
    assert len(README.read_text(encoding="utf-8")) < MOST_CHARACTERS


def test_readme_has_one_test_command() -> None:
    """`.ci/run` runs what it finds behind the marker."""
    (block,) = re.findall(r"^<!-- tests -->\n```sh\n(.*?)^```", README.read_text(encoding="utf-8"), re.DOTALL | re.M)
    assert len(block.splitlines()) == 1 and block.startswith("python3 -m venv")
