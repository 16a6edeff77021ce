"""A web server with faults: what passes is repeated, the rest is one line, and nothing is written."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import pipeline
from pipeline.cli.flags import Failure
from pipeline.cli.main import cli
from pipeline.errors import PipelineError, UsageError
from pipeline.storage.sources import open_source
from tests.cases.web_server import Answer, Fault, WebServer
from tests.pipeline.storage.remote.samples import COUNTS, JOB, SAMPLES

ROOT = Path(__file__).parents[4]


def at(number: int, change: Fault) -> Fault:
    """A fault of one request, counted from 0, or of all from it on if it is negative."""

    def fault(answer: Answer, before: int) -> None:
        if before == number or (number < 0 and before >= -number):
            change(answer, before)

    return fault


def status(code: int, text: bytes = b"") -> Fault:
    def change(answer: Answer, _: int) -> None:
        answer.status, answer.headers, answer.body = code, {}, text

    return change


def cut(answer: Answer, _: int) -> None:
    answer.sent = len(answer.body) // 2


def stall(answer: Answer, _: int) -> None:
    answer.sent, answer.stalls = len(answer.body) // 2, True


def silent(answer: Answer, before: int) -> None:
    stall(answer, before)
    answer.sent = 0


def shorter(answer: Answer, _: int) -> None:
    answer.body = answer.body[:-2]


def without_ranges(answer: Answer, _: int) -> None:
    answer.status, answer.body = 200, SAMPLES.tobytes()


def closed(answer: Answer, _: int) -> None:
    raise ConnectionAbortedError


def reset(answer: Answer, _: int) -> None:
    answer.headers["Connection"] = answer.headers["Content-Length"] = "nonsense"


def shifted(answer: Answer, _: int) -> None:
    answer.headers["Content-Range"] = "bytes 2-513/999999"


def no_range(answer: Answer, _: int) -> None:
    del answer.headers["Content-Range"]


def gzip(answer: Answer, _: int) -> None:
    answer.headers["Content-Encoding"] = "gzip"


def header(name: str, value: str) -> Fault:
    def change(answer: Answer, _: int) -> None:
        answer.headers[name] = value

    return change


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("first", [0, 2])
@pytest.mark.parametrize("fault", [status(503), status(500), status(429), cut, stall, silent, closed])
def test_what_passes_is_repeated(server: WebServer, fault: Fault, first: int) -> None:
    """Twice, at the first look and in the middle of a run."""

    def twice(answer: Answer, before: int) -> None:
        if first <= before < first + 2:
            fault(answer, before)

    server.faults["/a.bin"] = twice
    assert pipeline.run("histogram", server.url("/a.bin"), **JOB).counts.tolist() == COUNTS.tolist()


REFUSALS: list[tuple[Fault, str, type[Exception]]] = [
    (status(404), r"expected an object, got none there \(404\); check its name", UsageError),
    (status(403, b"<Error><Code>AccessDenied</Code></Error>"), "to be allowed to read it, got 403 AccessDenied; check",
     PipelineError),
    (status(403, b"<Error><Code>ExpiredToken</Code></Error>"), "got 403 ExpiredToken; .* a new link", PipelineError),
    (status(400, b"<Error><Code>ExpiredToken</Code></Error>"), "got 400 ExpiredToken; .* a new link", PipelineError),
    (status(401), "to be allowed to read it, got 401; check", PipelineError),
    (status(503), "expected to read it, got 503, repeatedly; run again later", PipelineError),
    (status(400), "expected to read it, got 400; check its address", PipelineError),
    (cut, "got an answer that ended early, repeatedly; run again", PipelineError),
    (closed, "got an answer that ended early, repeatedly; run again", PipelineError),
    (reset, "expected to read it, got 'HTTP error: error sending request'; check its address", PipelineError),
    (stall, r"got nothing for 0\.5 s, or no whole .*, repeatedly; is the server overloaded", PipelineError),
    (silent, r"got nothing for 0\.5 s, or no whole .*, repeatedly; is the server overloaded", PipelineError),
    (shorter, "expected 520 bytes from byte 0 on, got 518; the server, or a proxy, is faulty", PipelineError),
    (shifted, "got another range than the requested one; the server", PipelineError),
    (no_range, "got another range than the requested one; the server", PipelineError),
    (without_ranges, r"answers range requests, got one that does not; .* curl -fsS URL \| python -m pipeline histogram",
     UsageError),
    (gzip, "expected samples as they are, got content in gzip; .* curl -fsS --compressed URL", UsageError),
]  # fmt: skip


@pytest.mark.parametrize(("fault", "text", "kind"), REFUSALS)
def test_what_cannot_be_read(server: WebServer, fault: Fault, text: str, kind: type[Exception]) -> None:
    """One line, without the signature."""
    server.faults["/a.bin"] = fault
    with pytest.raises(PipelineError, match=text) as caught:
        open_source((server.url("/a.bin?X-Amz-Signature=SECRET"),))
    assert type(caught.value) is kind or (kind is UsageError and isinstance(caught.value, UsageError))
    assert str(caught.value).startswith(server.url("/a.bin?…: ")) and "SECRET" not in str(caught.value)
    assert "\n" not in str(caught.value)


LATER: list[tuple[Fault, str]] = [
    (status(404), "was removed while it was read; run again"),
    (status(403, b"<Code>ExpiredToken</Code>"), r"got 403 ExpiredToken at byte \d+; check"),
    (status(503), r"expected to read it at byte \d+, got 503, repeatedly; run again later"),
    (cut, r"at byte \d+, got an answer that ended early, repeatedly"),
    (stall, r"at byte \d+, got nothing for 0\.5 s, or no whole .*, repeatedly"),
    (shorter, r"expected \d+ bytes from byte \d+ on, got \d+; the server, or a proxy, is faulty"),
    (shifted, "got another range than the requested one"),
    (without_ranges, "answers range requests, got one that does not"),
    (header("ETag", '"other"'), 'was replaced while it was read: expected the ETag ".*", got "other"; run again when'),
    (status(416), "was replaced while it was read: expected .* bytes, got fewer; run again"),
    (header("Content-Range", "bytes 0-99999999/100000000"), "another range than the requested one"),
]


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize(("fault", "text"), LATER)
def test_what_goes_wrong_later(server: WebServer, tmp_path: Path, fault: Fault, text: str) -> None:
    """One line, and nothing is written."""
    server.faults["/a.bin"] = at(-2, fault)
    with pytest.raises(Failure, match=text) as caught:
        cli.main(["histogram", server.url("/a.bin?SECRET"), "--dtype", "int16", "-o", str(tmp_path / "r.json")],
                 standalone_mode=False)  # fmt: skip
    assert "SECRET" not in str(caught.value) and "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("given", ["etag", "weak", "time"])
def test_object_that_is_replaced(server: WebServer, given: str) -> None:
    """By one of the same size, after a first chunk was read: by a condition, or by comparing answers."""

    def changed(answer: Answer, before: int) -> None:
        new = before >= 3
        if given == "etag" and new:
            server.files["/a.bin"] = bytes(SAMPLES.nbytes)
        elif given == "weak":
            answer.headers["ETag"] = f'W/"{new}"'
        elif given == "time":
            answer.headers.pop("ETag", None)
            answer.headers["Last-Modified"] = f"Mon, 23 Nov 2026 09:00:0{new:d} GMT"

    server.faults["/a.bin"] = changed
    with pytest.raises(PipelineError, match=r"a\.bin: was replaced while it was read: expected the .*; run again when"):
        pipeline.run("histogram", server.url("/a.bin"), **JOB, chunk_bytes=200_000)


@pytest.mark.parametrize("first", [0, 2])
def test_interrupted_while_a_server_stalls(server: WebServer, tmp_path: Path, first: int) -> None:
    """Ctrl-C ends the command at once, although requests would go on for a minute: before the run, and in it."""
    server.faults["/a.bin"] = lambda answer, before: stall(answer, before) if before >= first else None
    words = ["histogram", server.url("/a.bin"), "--dtype", "int16", "--device", "cpu", "-o", str(tmp_path / "r.json")]
    command = [sys.executable, "-m", "pipeline", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    while len(server.requests) <= first:
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and errors == "interrupted: nothing was written\n", errors
    assert time.monotonic() - began < 15  # far below the minute
    assert list(tmp_path.iterdir()) == []
