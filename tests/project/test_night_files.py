"""The night's batch as files: its jobs run, and systemd understands its units."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"
SECONDS = 100


def environment(folder: Path) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(folder / "state"), "HOME": str(folder)}


def service_command() -> list[str]:
    """Words of the command that the unit starts, for the interpreter of the tests."""
    (line,) = re.findall(r"^ExecStart=(.*)$", (EXAMPLES / "baru-night.service").read_text(), re.M)
    words = shlex.split(line)
    assert words[:2] == ["/usr/bin/env", "python"]
    return [sys.executable, *words[2:]]


def cron_line() -> str:
    (line,) = re.findall(r"^30 22 \* \* 1-5 +(.*)$", (ROOT / "docs" / "batches.md").read_text(), re.M)
    return str(line)


@pytest.mark.parametrize("how", ["service", "cron"])
def test_the_batch_runs(tmp_path: Path, how: str) -> None:
    """By the very words of the unit, and of the line for cron, whose shell is sh."""
    (tmp_path / "recordings").mkdir()
    (tmp_path / "results").mkdir()
    for number in (1, 2):
        np.random.default_rng(number).integers(0, 1024, 4000).astype("<i2").tofile(
            tmp_path / "recordings" / f"r{number}.bin"
        )
    shutil.copy(EXAMPLES / "night.toml", tmp_path)
    words = service_command()
    if how == "cron":
        (tmp_path / "baru/.venv/bin").mkdir(parents=True)
        python = tmp_path / "baru/.venv/bin/python"
        python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
        python.chmod(0o755)
        words = ["sh", "-c", cron_line()]
    done = subprocess.run(words, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True,
                          timeout=SECONDS)  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    written = done.stdout if how == "service" else (tmp_path / "night.jsonl").read_text()
    assert [json.loads(line)["status"] for line in written.splitlines()] == [0, 0, 0]
    assert json.loads((tmp_path / "results/r2.json").read_text())["count"] == 4000


def test_systemd_understands_the_units(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze")
    units = [EXAMPLES / f"baru-night.{kind}" for kind in ("service", "timer")]
    where = environment(tmp_path) | {"XDG_RUNTIME_DIR": str(tmp_path)}

    def verified(*paths: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["systemd-analyze", "verify", "--user", *paths], env=where, capture_output=True,
                              text=True, timeout=SECONDS)  # fmt: skip

    done = verified(*units)
    assert (done.returncode, done.stderr) == (0, "")
    broken = tmp_path / "broken.service"
    broken.write_text(units[0].read_text().replace("Nice=10", "Nise=10"))
    assert "Nise" in verified(broken).stderr
