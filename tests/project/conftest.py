"""The wheel, built once for the tests of a process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LEFTOVERS = ("build", "dist", "*.egg-info")


def python(*words: str, cwd: Path, **environment: str) -> str:
    """Standard output of a Python process that must succeed."""
    done = subprocess.run(
        [sys.executable, *words], cwd=cwd, env=os.environ | environment, capture_output=True, text=True, timeout=180
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def leftovers() -> set[Path]:
    """What building leaves in a checkout."""
    return {path for pattern in LEFTOVERS for path in ROOT.glob(pattern)}


def dependencies() -> list[str]:
    """PYTHONPATH of this process without the checkout."""
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return [path for path in paths if path and Path(path).resolve() != ROOT]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as `pip install .` does, but by the hatchling of this environment."""
    folder, before = tmp_path_factory.mktemp("wheel"), leftovers()
    python("-m", "hatchling", "build", "-t", "wheel", "-d", str(folder), cwd=ROOT)
    assert leftovers() == before
    (path,) = folder.iterdir()
    return path


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that pip has installed the wheel into."""
    target = tmp_path_factory.mktemp("target")
    python("-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile", "--disable-pip-version-check",
           "--target", str(target), str(wheel), cwd=target)  # fmt: skip
    return target
