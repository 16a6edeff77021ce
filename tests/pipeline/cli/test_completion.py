"""Completion by shells: what the command answers, and what bash, zsh and fish make of it."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
from pathlib import Path
from time import monotonic

import pytest

from pipeline.storage.sources import NAMES
from tests.pipeline.cli.test_main import NO_DASK_CONFIG

ROOT = Path(__file__).parents[3]
SECONDS = 60.0  # for a shell to answer


def complete(shell: str, words: str, position: int) -> list[str]:
    """What the command answers to a shell that completes a word."""
    program = "import sys; sys.argv[0] = 'baru'; import baru; baru.main()"
    asked = {"_BARU_COMPLETE": f"{shell}_complete", "COMP_WORDS": words, "COMP_CWORD": str(position)}
    if shell == "fish":
        asked["COMP_CWORD"] = words.split(" ")[position]
    done = subprocess.run([sys.executable, "-c", program], env=NO_DASK_CONFIG | asked, text=True, timeout=60,
                          capture_output=True, cwd=ROOT)  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_completion_of_commands_options_and_files() -> None:
    assert complete("bash", "baru hi", 1) == ["plain,histogram"]
    assert complete("bash", "baru plan tr", 2) == ["plain,transpose"]
    assert complete("bash", "baru histogram --bi", 2) == ["plain,--bins", "plain,--bias"]
    assert complete("bash", "baru histogram --verify s", 3) == ["plain,sample"]
    assert complete("bash", "baru histogram --dtype u1", 3) == [f"plain,{n}" for n in NAMES if n.startswith("u1")]
    assert complete("bash", "baru histogram data/e", 2) == ["file,data/e"]
    assert complete("bash", "baru histogram --mask data/e", 3) == ["file,data/e"]
    assert complete("bash", "baru transpose -o x", 3) == ["file,x"]
    for words in ("run jo", "show jo", "verify r.json jo", "merge a.json jo", "diff a.json jo", "info jo",
                  "generate jo", "slurm histogram jo", "show a.json --against jo"):  # fmt: skip
        assert complete("bash", f"baru {words}", len(words.split())) == ["file,jo"], words
    assert complete("bash", "baru slurm tr", 2) == ["plain,transpose"]
    assert complete("bash", "baru study fa", 2) == ["plain,failures"]
    assert complete("zsh", "baru hi", 1)[:2] == ["plain", "histogram"]
    assert complete("fish", "baru hi", 1)[0].startswith("plain,histogram")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_for_a_shell(shell: str) -> None:
    program = "import sys; sys.argv[0] = 'baru'; import baru; baru.main()"
    done = subprocess.run([sys.executable, "-c", program], env=NO_DASK_CONFIG | {"_BARU_COMPLETE": f"{shell}_source"},
                          text=True, timeout=60, capture_output=True)  # fmt: skip
    assert done.returncode == 0 and "_BARU_COMPLETE" in done.stdout
    if path := shutil.which(shell):
        subprocess.run([path, "-n"], input=done.stdout, text=True, check=True, timeout=60)


def shell(name: str) -> str:
    """Where a shell is; skips the test where there is none."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"no {name}")
    return path


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """With a command `baru` in the path, and a home folder without settings."""
    command = tmp_path / "bin" / "baru"
    command.parent.mkdir()
    command.write_text(f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\nimport baru\nbaru.main()\n")
    command.chmod(0o755)
    path = f"{command.parent}{os.pathsep}{os.environ['PATH']}"
    return NO_DASK_CONFIG | {"PATH": path, "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / ".config"),
                             "TERM": "dumb", "ZDOTDIR": str(tmp_path)}  # fmt: skip


def test_bash_completes(environment: dict[str, str]) -> None:
    """With the documented line, in a real shell, through the function that it defines."""
    script = """
eval "$(_BARU_COMPLETE=bash_source baru)"
complete -p baru >&2
COMP_WORDS=(baru reduce --verify f) COMP_CWORD=3
_baru_completion baru f --verify
echo "${COMPREPLY[@]}"
"""
    done = subprocess.run(["bash", "--norc", "-c", script], env=environment, text=True, capture_output=True,
                          timeout=SECONDS)  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "full\n") and "_baru_completion baru" in done.stderr


def test_fish_completes(environment: dict[str, str]) -> None:
    """From the documented file, which fish loads when the command is completed first."""
    script = """
mkdir -p $XDG_CONFIG_HOME/fish/completions
_BARU_COMPLETE=fish_source baru > $XDG_CONFIG_HOME/fish/completions/baru.fish
complete -C "baru reduce --verify f"
complete -C "baru plan tr"
complete -C "baru histogram data/e"
"""
    done = subprocess.run([shell("fish"), "-c", script], env=environment, text=True, capture_output=True, cwd=ROOT,
                          timeout=2 * SECONDS)  # fmt: skip
    words = [line.partition("\t")[0] for line in done.stdout.splitlines()]
    assert (done.returncode, words) == (0, ["full", "transpose", "data/ecg.npy"]), done.stderr


def test_zsh_completes(environment: dict[str, str]) -> None:
    """On a terminal, with the documented line: the Tab key, then one that prints the edited line and empties it."""
    setup = """autoload -U compinit && compinit -u
eval "$(_BARU_COMPLETE=zsh_source baru)"
show() { zle -I; print -r -- "<$BUFFER>"; BUFFER= }
zle -N show
bindkey '^X' show
print -r -- r''eady
"""
    path = shell("zsh")
    terminal, own_side = pty.openpty()
    process = subprocess.Popen([path, "-f", "-i"], stdin=own_side, stdout=own_side, stderr=own_side, cwd=ROOT,
                               env=environment, start_new_session=True)  # fmt: skip
    os.close(own_side)
    try:
        os.write(terminal, setup.encode())
        read_until(terminal, b"\nready")
        for typed, line in (("baru reduce --verify f", "baru reduce --verify full"),
                            ("baru plan tr", "baru plan transpose"),
                            ("baru histogram data/e", "baru histogram data/ecg.npy")):  # fmt: skip
            os.write(terminal, f"{typed}\t\x18".encode())
            assert f"<{line}" in read_until(terminal, b">\r\n").decode()
    finally:
        process.kill()
        process.wait()
        os.close(terminal)


def read_until(terminal: int, end: bytes) -> bytes:
    """What a terminal shows until it shows this."""
    shown, last = b"", monotonic() + SECONDS
    while end not in shown:
        ready, _, _ = select.select([terminal], [], [], max(0.0, last - monotonic()))
        assert ready, shown
        shown += os.read(terminal, 4096)
    return shown
