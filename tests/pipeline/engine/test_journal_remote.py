"""Runs over remote objects are continued as long as the object is the same one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from pipeline.errors import UsageError
from tests.cases.format_case import package_of
from tests.cases.web_server import WebServer, web_server
from tests.pipeline.engine.journaled import CHUNKS, PLAIN, SAMPLES, Runner


@pytest.fixture
def server() -> Iterator[WebServer]:
    package_of("obstore")
    with web_server() as server:
        server.files["/a.bin"] = SAMPLES.tobytes()
        yield server


@pytest.mark.parametrize("etag", [True, False])
def test_same_object(runner: Runner, server: WebServer, etag: bool) -> None:
    """Also through another link to it: signatures expire."""

    def without(answer: Any, _: int) -> None:
        answer.headers.pop("ETag", None)

    if not etag:
        server.faults["/a.bin"] = without
    path: Any = server.url("/a.bin?signature=1")
    assert runner.aggregate(PLAIN, path, CHUNKS // 2) is None
    assert all(b"signature" not in file.read_bytes() for file in runner.journals())
    path = server.url("/a.bin?signature=2")
    continued = runner.aggregate(PLAIN, path, resume=True)
    assert continued is not None and 0 < len(runner.logged) < CHUNKS
    np.testing.assert_array_equal(continued.result.counts, np.histogram(SAMPLES, 1024, (0, 1024))[0])


def test_another_object(runner: Runner, server: WebServer) -> None:
    path: Any = server.url("/a.bin")
    assert runner.aggregate(PLAIN, path, CHUNKS // 2) is None
    server.files["/a.bin"] = SAMPLES[::-1].tobytes()
    with pytest.raises(UsageError, match=r"a\.bin was replaced: expected the ETag .*, got .*; leave --resume out"):
        runner.aggregate(PLAIN, path, resume=True)


def test_object_that_nothing_identifies(runner: Runner, server: WebServer) -> None:
    def bare(answer: Any, _: int) -> None:
        answer.headers = {name: answer.headers[name] for name in answer.headers if name == "Content-Range"}

    server.faults["/a.bin"] = bare
    path: Any = server.url("/a.bin")
    assert runner.aggregate(PLAIN, path, CHUNKS // 2) is None and runner.journals() == []
    with pytest.raises(UsageError, match="or an object that its server does not identify"):
        runner.aggregate(PLAIN, path, resume=True)
