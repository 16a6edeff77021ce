"""Every command and program in README.md and docs/ runs, page by page, or has a reason why it cannot run here."""

from __future__ import annotations

import doctest
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from distributed import LocalCluster

from pipeline.cli.main import cli, main
from tests.cases.documents import NOT_TYPED, PAGES, ROOT, SHELL, commands, commands_of, fences, prepare, synopses
from workflows import WORKFLOWS
from workflows.study.registry import STUDIES

SECONDS = 60
GPU = "needs a GPU"
INSTALLS = "installs from the package index; test_wheel.py installs the wheel"
URL = "needs a server; run by tests/pipeline/storage/remote/test_page.py"
SERVICE = "needs a user's systemd; test_night_files.py runs what the units start"

# What cannot run here. A name alone stands for all commands of its page that begin so.
NOT_HERE = {
    ("README.md", "python3 -m venv"): INSTALLS,
    ("README.md", ".venv/bin/pip install"): INSTALLS,
    ("README.md", ".venv/bin/python -m pytest"): "the tests themselves",
    ("start.md", "python3 -m venv"): INSTALLS,
    ("start.md", ".venv/bin/pip install"): INSTALLS,
    ("start.md", ". .venv/bin/activate"): INSTALLS,
    ("batches.md", "systemctl"): SERVICE,
    ("batches.md", "journalctl"): SERVICE,
    ("formats.md", "python -m pipeline histogram s3://"): URL,
    ("formats.md", "python -m pipeline histogram 's3://"): URL,
    ("formats.md", "python -m pipeline reduce s3://"): URL,
    ("formats.md", "python -m pipeline info https://"): URL,
    ("formats.md", "python -m pipeline reduce 'https://"): URL,
    ("formats.md", "python -m pipeline transpose https://"): URL,
    ("kernels.md", "python -m pipeline study histogram"): GPU,
    ("kernels.md", "python -m pipeline study reduce"): GPU,
    ("kernels.md", "python -m pipeline study failures"): GPU,
    ("kernels.md", "python -m pipeline histogram data.bin --kernel"): GPU,
    ("use.md", "python -m pipeline histogram data.bin --kernel"): GPU,
    ("use.md", 'eval "$(_BARU_COMPLETE=zsh_source baru)"'): "for zsh; see tests/pipeline/cli",
    ("performance.md", "python -m tests.benchmarks"): "takes hours; test_benchmarks.py runs each entry in small",
    ("distribution.md", "python3 -m pip wheel"): INSTALLS,
    ("distribution.md", "podman"): "needs a container engine",
    ("distribution.md", "apptainer"): "needs Apptainer",
    ("distribution.md", "rattler-build"): "needs rattler-build and the channels of conda",
    ("distribution.md", "python3 -m venv"): INSTALLS,
    ("distribution.md", "python -m sphinx"): "test_site.py builds these pages",
    ("hosts.md", "sbatch hosts.sh"): "test_hosts.py runs the script",
    ("hosts.md", "openssl"): "test_hosts.py runs the same",
    ("hosts.md", "dask"): "test_hosts.py runs the same",
    ("hosts.md", "python -m pipeline"): "needs such a cluster; test_hosts.py has one",
    ("own-job.md", "python docs/examples/clipping.py"): "test_api.py runs this program",
    ("distribution.md", "sbom/bin/"): "needs cyclonedx-bom; test_distribution.py runs it where it is installed",
    ("watch.md", "dask scheduler"): "ends when it is told to; the fixture `cluster` is such a scheduler, with a worker",
    ("watch.md", "nsys"): "needs a GPU and Nsight Systems",
}
HERE = {("kernels.md", "python -m pipeline study histogram --variant cpu_numpy")}  # although its beginning is above
STATUSES = {  # other than 0
    "python -m pipeline diff monday.json tuesday.json": 1,  # they differ
    "python -m pipeline compare data/ecg.npy changed.npy": 1,
}
FIRST = {  # before the commands of a page: what it takes for granted
    "use.md": ("gzip -c run-1.bin > trace.gz",),
}
GIVEN = {  # names that a page's programs take for granted
    "use.md": "import numpy, pipeline\narray = numpy.arange(30, dtype='int32').reshape(5, 6)",
}
PLACES = {"N": "1", "R": "1", "OPERATION": "add", "JOB": "histogram"}  # in synopses
PARTS = {"kernels.md": ROOT / "docs/examples/clipping.py"}  # shows lines of this program, which test_api.py runs


RUNNABLE = [
    page for page in PAGES if {"python", *SHELL} & {fence.language for fence in fences(page.read_text("utf-8"))}
]


def name_of(page: Path) -> str:
    return page.name


def reason(page: str, command: str) -> str | None:
    """Why a command does not run here."""
    if (page, command) in HERE:
        return None
    return next((why for (of, begin), why in NOT_HERE.items() if of == page and command.startswith(begin)), None)


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """A scheduler with a worker, as text of a scheduler's file."""
    with LocalCluster(n_workers=1, processes=False, protocol="tcp://", dashboard_address="127.0.0.1:0") as cluster:
        yield json.dumps({"address": cluster.scheduler_address})


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with all files that commands read."""
    prepare(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


@pytest.fixture
def folder(files: Path, cluster: str) -> Path:
    """And what they call by name, by the interpreter of the tests."""
    (files / "cluster.json").write_text(cluster)
    call = shlex.quote(sys.executable)
    baru = f"{call} -c 'import sys; sys.argv[0] = \"baru\"; from pipeline.baru import main; main()'"
    # sbatch only reads the script, as bash would
    for name, words in {"python": call, "baru": baru, "sbatch": "bash -n", "../.venv/bin/python": call}.items():
        script = files / "bin" / name
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        script.chmod(0o755)
    (files / ".config/fish/completions").mkdir(parents=True)
    return files


def ran(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Its home is the folder, but what was compiled is found."""
    environment = os.environ | {
        "PATH": f"{folder}/bin:{os.environ['PATH']}", "HOME": str(folder), "PYTHONPATH": str(ROOT), "MPLBACKEND": "agg",
        "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")),
    }  # fmt: skip
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS,
                          stdin=subprocess.DEVNULL)  # fmt: skip


def called(words: list[str], capfd: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Status and messages of a command of ours, in this process: most of a command's time is that of its imports."""
    with pytest.raises(SystemExit) as caught:
        main(words)
    return int(caught.value.code or 0), capfd.readouterr().err


def run_command(command: str, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What the page says, but for the port, which somebody else may have."""
    asked = command.replace(":8787", ":0")
    if asked.startswith("python -m pipeline ") and not re.search(r"[|>$]", asked.replace('">', "")):
        status, told = called(shlex.split(asked)[3:], capfd)
    else:
        done = ran(["bash", "-o", "pipefail", "-c", asked], folder)
        status, told = done.returncode, done.stderr
    assert status == STATUSES.get(command, 0), f"{command}\n{told}"
    assert "Traceback" not in told, f"{command}\n{told}"


def run_programs(page: Path, text: str, folder: Path) -> None:
    """All blocks of Python, one after another in one process; or a part of a program has the program's lines."""
    blocks = [fence.text for fence in fences(text) if fence.language == "python"]
    if page.name in PARTS:
        whole = {line.strip() for line in PARTS[page.name].read_text(encoding="utf-8").splitlines()}
        assert {line.strip() for block in blocks for line in block.splitlines()} <= whole | {""}
    else:
        done = ran([sys.executable, "-c", "\n".join([GIVEN.get(page.name, ""), *blocks])], folder)
        assert done.returncode == 0, done.stderr


@pytest.mark.filterwarnings("ignore")  # of Dask's clusters
@pytest.mark.parametrize("page", RUNNABLE, ids=name_of)
def test_page_runs(page: Path, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """In the order of the page; programs where the first of them stands."""
    text = page.read_text(encoding="utf-8")
    batches = [fence.text for fence in fences(text) if fence.language == "toml"]
    for batch in batches:
        (folder / "night.toml").write_text(batch)
    assert len(batches) <= 1, "expected one night.toml on a page"
    for command in FIRST.get(page.name, ()):
        run_command(command, folder, capfd)
    programs = False
    for fence in fences(text):
        for command in commands_of(fence):
            if reason(page.name, command) is None:
                run_command(command, folder, capfd)
        if fence.language == "python" and not programs:
            programs = True
            run_programs(page, text, folder)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if any(fence.language == "pycon" for fence in fences(page.read_text()))],
    ids=name_of,
)
def test_sessions_show_what_they_print(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib").use("agg")
    monkeypatch.chdir(tmp_path)
    result = doctest.testfile(str(page), module_relative=False)
    assert result.attempted > 0 and not result.failed


def test_no_reason_is_left_over() -> None:
    """Each beginning is that of a command on its page, and no command has two."""
    every = [(page.name, command) for page in PAGES for command in commands(page.read_text(encoding="utf-8"))]
    begun = {one: [begin for name, begin in NOT_HERE if name == one[0] and one[1].startswith(begin)] for one in every}
    assert set(NOT_HERE) == {(of, begin) for (of, _), begins in begun.items() for begin in begins}
    assert [one for one, begins in begun.items() if len(begins) > 1] == []
    assert HERE - set(every) == set()
    assert set(STATUSES) - {command for _, command in every} == set()
    assert {*FIRST, *GIVEN, *PARTS} <= {page.name for page in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_is_of_a_known_kind(page: Path) -> None:
    """Another language would run nowhere; a block without one is output, or begins with a command as a synopsis."""
    known = {"", *SHELL, *NOT_TYPED, "python", "pycon", "toml"}
    for fence in fences(page.read_text(encoding="utf-8")):
        assert fence.language in known or fence.language.startswith("{"), f"{page.name}:{fence.line}"
        assert fence.language != "toml" or tomllib.loads(fence.text)


# --- what does not run here is parsed ---------------------------------------------------------------------------------


def parse(words: list[str]) -> None:
    """Jobs, options and their values, as the command line does it, but nothing runs."""
    command: click.Command = cli
    while isinstance(command, click.Group):
        name, words = words[0], words[1:]
        assert name in command.commands, f"no command {name!r}"
        command = command.commands[name]
    context = command.make_context(command.name, list(words))
    if command.name == "slurm":
        parse(context.params["words"])
    if command.name == "study":
        assert words[0] in STUDIES, words
    if command.name == "inspect":
        assert words[0] in {*WORKFLOWS, *(f"study/{job}" for job in STUDIES)}, words


def ours(command: str) -> list[str] | None:
    """Words behind `python -m pipeline` or `baru`, if that is what a command calls; options of brackets are given."""
    words = shlex.split(re.sub(r"[\[\]](?=\s|-|$)", " ", command))
    words = words[: next((at for at, word in enumerate(words) if word in ("|", ">", "2>")), None)]
    if "pipeline" in words and words[words.index("pipeline") - 1] in ("-m", "dask"):
        return words[words.index("pipeline") + 1 :]
    return words[1:] if words[0] == "baru" else None


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_parse(page: Path) -> None:
    """Also those that do not run here, and those that are only named, with each of `a|b`."""
    text = page.read_text(encoding="utf-8")
    for command in (*commands(text), *synopses(text)):
        words = [PLACES.get(word, word) for word in ours(command) or ()]
        for number in range(max([word.count("|") + 1 for word in words], default=0)):
            parse([(word.split("|") * 9)[number] for word in words])


@pytest.mark.parametrize("wrong", ["histogram a --binz 3", "histograms a", "histogram a --verify most", "plan sort a",
                                   "study nothing", "inspect study/nothing", "histogram a --range 3",
                                   "slurm --gpus-per-node 2 histogram a --binz 3"])  # fmt: skip
def test_wrong_commands_do_not_parse(wrong: str) -> None:
    with pytest.raises((AssertionError, click.ClickException)):
        parse(wrong.split())
