"""Runs that can be interrupted and continued."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipeline.engine.journaled import SAMPLES, Runner


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Runner:
    return Runner(monkeypatch, tmp_path / "state")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file of `SAMPLES`."""
    SAMPLES.tofile(tmp_path / "data.bin")
    return tmp_path / "data.bin"
