"""Lists of a bucket's objects, as a server may send them that nobody vouches for."""

from __future__ import annotations

import os

import pytest

from pipeline.errors import PipelineError
from pipeline.storage.remote import objects
from pipeline.storage.sources import open_source
from tests.cases.listings import listing, store
from tests.cases.web_server import WebServer


@pytest.fixture
def bucket(server: WebServer, monkeypatch: pytest.MonkeyPatch) -> WebServer:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in store(server).items():
        monkeypatch.setenv(name, value)
    objects._store.cache_clear()
    return server


@pytest.mark.parametrize("pattern", ["p/*.bin", "p/**"])
def test_list_of_one_page(bucket: WebServer, pattern: str) -> None:
    assert open_source((f"s3://samples/{pattern}",), "uint8").names == ("s3://samples/p/a.bin", "s3://samples/p/b.bin")


@pytest.mark.parametrize("keys", [("p/a.bin",), ()])
@pytest.mark.parametrize("pattern", ["p/*.bin", "p/**"])
def test_list_without_end(
    bucket: WebServer, monkeypatch: pytest.MonkeyPatch, pattern: str, keys: tuple[str, ...]
) -> None:
    """Each page says that there is another one, and names the same."""
    monkeypatch.setattr(objects, "LISTING_SECONDS", 0.5)
    bucket.files["/samples"] = listing(keys, "again")
    expected = (
        r"^s3://samples/p/\*.*: expected the list of its objects, got no end of it within 0.5 s; narrow the pattern"
    )
    try:
        with pytest.raises(PipelineError, match=expected):
            open_source((f"s3://samples/{pattern}",), "uint8")
    finally:
        bucket.files["/samples"] = listing(())  # which ends the calls that were left to themselves
