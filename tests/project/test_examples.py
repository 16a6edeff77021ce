"""Examples in the documents: what a command prints is what the page shows below it."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = re.compile(r"^```sh\n([^`]*)^```\n\n```text\n(.*?)^```", re.DOTALL | re.MULTILINE)  # of one block
SECONDS = 60

EXAMPLES = [
    pytest.param(command, shown, id=f"{page.name}-{number}")
    for page in sorted((ROOT / "docs").glob("*.md"))
    for number, (command, shown) in enumerate(EXAMPLE.findall(page.read_text(encoding="utf-8")))
]


@pytest.mark.parametrize(("command", "shown"), EXAMPLES)
def test_it_prints_what_the_page_shows(tmp_path: Path, command: str, shown: str) -> None:
    """The lines in the order of the page, which may leave some out."""
    (tmp_path / "data").symlink_to(ROOT / "data")
    words = shlex.split(command.removeprefix("python "))
    settings = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, *words], cwd=tmp_path, env=settings, capture_output=True, text=True,
                          timeout=SECONDS)  # fmt: skip
    printed = iter(done.stdout.splitlines())
    missing = [line for line in shown.splitlines() if line not in printed]
    assert (missing, done.returncode) == ([], 0), done.stdout + done.stderr


def test_examples_are_found() -> None:
    assert len(EXAMPLES) >= 1
