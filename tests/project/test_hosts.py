"""The script for many hosts runs a job on a cluster with certificates, where `srun` starts two workers on this one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "docs" / "examples" / "hosts.sh"
SECONDS = 110
# Two tasks of a reservation; as of SLURM it ends when they have.
SRUN = """#!/bin/bash
"$@" & first=$!
"$@" & second=$!
trap 'kill "$first" "$second"' TERM
wait; wait
"""


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_script(tmp_path: Path) -> None:
    np.random.default_rng(0).integers(0, 1024, 100_000).astype("<i4").tofile(tmp_path / "data.bin")
    (tmp_path / "bin").mkdir()
    for name, text in (("srun", SRUN), ("python", f'#!/bin/sh\nexec {sys.executable} "$@"\n')):
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    settings = os.environ | {
        "PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "BARU_PYTHON": f"{tmp_path}/bin/python", "SLURM_NNODES": "2",
        "BARU_WORKER": "worker --nthreads 1", "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    done = subprocess.run(["bash", SCRIPT, "histogram", "data.bin", "-o", "counts.json"], cwd=tmp_path, env=settings,
                          capture_output=True, text=True, timeout=SECONDS)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "on 2 workers at" in done.stdout and "100 % of 100,000 samples checked" in done.stdout
    counts = json.loads((tmp_path / "counts.json").read_text())["histogram"]["storage"]["values"][1:-1]
    np.testing.assert_array_equal(counts, np.bincount(np.fromfile(tmp_path / "data.bin", "<i4"), minlength=1024))
    assert sorted(os.listdir(tmp_path)) == ["bin", "counts.json", "data.bin"]  # the key is gone


def test_a_script_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """No scheduler starts, no key is left, and it says so by its status."""
    settings = os.environ | {
        "BARU_PYTHON": "/bin/false",
        "SLURM_NNODES": "1",
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
    }
    (tmp_path / "timeout").write_text("#!/bin/sh\nexit 124\n")
    (tmp_path / "timeout").chmod(0o755)
    done = subprocess.run(["bash", SCRIPT, "histogram", "x.bin"], cwd=tmp_path, env=settings, capture_output=True,
                          text=True, timeout=SECONDS)  # fmt: skip
    assert done.returncode != 0 and os.listdir(tmp_path) == ["timeout"]
