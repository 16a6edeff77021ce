"""CuPy or the emulator's, with what arrays in memory need of it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.pipeline.in_memory.exchange import extend


@pytest.fixture
def cp(cp: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """CuPy; the emulator's is extended."""
    if not hasattr(cp.cuda, "Event"):
        extend(cp, monkeypatch)
    return cp
