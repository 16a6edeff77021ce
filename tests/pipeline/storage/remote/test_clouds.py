"""Objects of the stores of Google and Azure, from a server on loopback: what is asked for, and its answers."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import pipeline
from pipeline.errors import PipelineError
from pipeline.storage.remote import objects
from tests.cases.web_server import Answer, WebServer
from tests.pipeline.storage.remote.samples import SAMPLES

KEY = "run 1/a.bin"


@pytest.fixture(params=["gs", "az"])
def url(request: pytest.FixtureRequest, server: WebServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Of the samples; the store's endpoint is the server."""
    for name in [name for name in os.environ if name.startswith(objects.SETTINGS)]:
        monkeypatch.delenv(name)
    endpoint = server.url("")
    account = {"gcs_base_url": endpoint, "disable_oauth": True, "client_email": "", "private_key": "",
               "private_key_id": ""}  # fmt: skip
    (tmp_path / "account.json").write_text(json.dumps(account))
    settings = {
        "gs": {"GOOGLE_SERVICE_ACCOUNT": str(tmp_path / "account.json"), "GOOGLE_ALLOW_HTTP": "true"},
        "az": {"AZURE_STORAGE_ENDPOINT": endpoint, "AZURE_STORAGE_ACCOUNT_NAME": "a", "AZURE_SKIP_SIGNATURE": "true"},
    }  # fmt: skip
    for name, value in settings[request.param].items():
        monkeypatch.setenv(name, value)
    objects._store.cache_clear()
    server.files[f"/box/{KEY}"] = SAMPLES.tobytes()
    return f"{request.param}://box/{KEY}"


@pytest.mark.usefixtures("shared")
def test_job_agrees_with_numpy(url: str, server: WebServer) -> None:
    result = pipeline.run("reduce", url, dtype=SAMPLES.dtype.name, op="sum,argmax", device="cpu", verify="full")
    assert result.values == {"sum": int(SAMPLES.sum(dtype=np.int64)), "argmax": int(SAMPLES.argmax())}
    _, *ranges = server.requests
    assert any(condition for _, _, condition in ranges)


def refused(answer: Answer, before: int) -> None:
    answer.status, answer.body = 403, b"<Error><Code>AuthorizationFailure</Code></Error>"


def replaced(answer: Answer, before: int) -> None:
    if before:
        answer.headers["ETag"] = '"another"'


def short(answer: Answer, before: int) -> None:
    if before > 1:
        answer.sent = len(answer.body) // 2


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize(
    ("fault", "expected"),
    [(refused, "expected to be allowed to read it, got 403"), (replaced, "was replaced while it was read"),
     (short, "an answer that ended early, repeatedly")],
)  # fmt: skip
def test_faults(url: str, server: WebServer, fault: Callable[[Answer, int], None], expected: str) -> None:
    server.faults[f"/box/{KEY}"] = fault
    with pytest.raises(PipelineError, match=expected) as caught:
        pipeline.run("reduce", url, dtype=SAMPLES.dtype.name, op="sum", device="cpu")
    assert "\n" not in str(caught.value)
