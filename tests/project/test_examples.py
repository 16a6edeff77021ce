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
    pytest.param(page, commands, shown, id=f"{page.name}-{number}")
    for page in sorted((ROOT / "docs").glob("*.md"))
    for number, (commands, shown) in enumerate(EXAMPLE.findall(page.read_text(encoding="utf-8")))
]


@pytest.mark.parametrize(("page", "commands", "shown"), EXAMPLES)
def test_it_prints_what_the_page_shows(tmp_path: Path, page: Path, commands: str, shown: str) -> None:
    """The last of some commands, the lines in the order of the page, which may leave some out."""
    (tmp_path / "data").symlink_to(ROOT / "data")
    settings = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(ROOT),
                "DASK_PIPELINE__VERIFY": "full"}  # fmt: skip  # on a busy machine there may be no time for all of it
    makes = [line for line in page.read_text(encoding="utf-8").splitlines() if " generate " in line]
    for command in [*makes, *commands.splitlines()]:
        words = shlex.split(command.removeprefix("python "))
        done = subprocess.run([sys.executable, *words], cwd=tmp_path, env=settings, capture_output=True, text=True,
                              timeout=SECONDS)  # fmt: skip
    printed = iter(done.stdout.splitlines())
    missing = [line for line in shown.splitlines() if line not in printed]
    assert (missing, done.returncode) == ([], 0), done.stdout + done.stderr


def test_examples_are_found() -> None:
    assert len(EXAMPLES) >= 1
