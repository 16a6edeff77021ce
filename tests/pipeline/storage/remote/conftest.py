"""A web server on loopback, which clients leave soon."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pipeline.storage.remote import objects
from tests.cases.format_case import package_of
from tests.cases.web_server import WebServer, web_server
from tests.pipeline.storage.remote.samples import SAMPLES


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[WebServer]:
    """With short limits of time."""
    package_of("obstore")
    monkeypatch.setattr(objects, "SILENT_SECONDS", 0.5)
    monkeypatch.setattr(objects, "RETRIES", 2)
    monkeypatch.setattr(objects, "PAUSE_SECONDS", 0.05)
    objects._store.cache_clear()
    with web_server() as server:
        server.files["/a.bin"] = SAMPLES.tobytes()
        yield server
    objects._store.cache_clear()
