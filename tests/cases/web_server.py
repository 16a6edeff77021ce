"""A web server on loopback with range requests, faults on request, and an object store that answers as S3 does."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from typing import Any
from urllib.parse import unquote

STARTS_SECONDS = 60


class Answer:
    """What a server sends; a fault changes it.

    Attributes
    ----------
    status, headers, body
        Of a right answer.
    sent
        Bytes of the body that are sent; None for all.
    stalls
        Whether the connection then stays open, until the server is closed.
    """

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body
        self.sent: int | None = None
        self.stalls = False


# A change of an answer, given how many requests for the path came before.
Fault = Callable[[Answer, int], None]


class WebServer(ThreadingHTTPServer):
    """Serves byte strings, or objects with a length and slices, by their paths.

    Attributes
    ----------
    files
    faults
        By path.
    requests
        Path, with query, range and condition of each request.
    """

    daemon_threads = True
    request_queue_size = 128  # connections that come at once; others would be tried again after a second

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, Any] = {}
        self.faults: dict[str, Fault] = {}
        self.requests: list[tuple[str, str | None, str | None]] = []
        self.seen: Counter[str] = Counter()
        self.lock, self.closing = Lock(), Event()

    def url(self, path: str) -> str:
        """Address of a path."""
        return f"http://127.0.0.1:{self.server_address[1]}{path}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that leave are no errors."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: WebServer

    def log_message(self, *_: Any) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        given, condition = self.headers.get("Range"), self.headers.get("If-Match")
        with self.server.lock:
            before = self.server.seen[path]
            self.server.seen[path] += 1
            self.server.requests.append((self.path, given, condition))
        content = self.server.files.get(path, self.server.files.get(unquote(path)))
        answer = self._answer(content, given, condition)
        if fault := self.server.faults.get(path, self.server.faults.get(unquote(path))):
            fault(answer, before)
        self.send_response(answer.status)
        for name, value in {"Content-Length": str(len(answer.body)), **answer.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.body[: answer.sent])
        self.wfile.flush()
        if answer.stalls:
            self.server.closing.wait(60)
        if answer.stalls or answer.sent is not None:
            self.close_connection = True

    def _answer(self, content: Any, given: str | None, condition: str | None) -> Answer:
        if content is None:
            return Answer(404, {}, b"")
        etag = f'"{sha256(content).hexdigest()[:16]}"' if isinstance(content, bytes) else '"made"'
        if condition not in (None, etag):
            return Answer(412, {}, b"")
        headers = {"ETag": etag, "Last-Modified": "Mon, 23 Nov 2026 09:00:00 GMT"}
        if given is None:
            return Answer(200, headers, bytes(content[:]))
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", given)
        assert match, given
        first, last = int(match[1]), min(int(match[2]), len(content) - 1)
        if first > last:
            return Answer(416, {"Content-Range": f"bytes */{len(content)}"}, b"")
        return Answer(
            206, headers | {"Content-Range": f"bytes {first}-{last}/{len(content)}"}, content[first : last + 1]
        )


@contextmanager
def web_server() -> Iterator[WebServer]:
    """A server for the body of the `with` statement."""
    server = WebServer()
    thread = Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server
    finally:
        server.closing.set()
        server.shutdown()
        server.server_close()
        thread.join(60)


@contextmanager
def object_store(*buckets: str) -> Iterator[dict[str, str]]:
    """Environment variables for an object store with empty buckets: moto's server, in a process of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + STARTS_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                if server.poll() is not None or time.monotonic() > until:
                    raise
                time.sleep(0.05)
        for bucket in buckets:
            request = urllib.request.Request(f"http://127.0.0.1:{port}/{bucket}", method="PUT")
            urllib.request.urlopen(request, timeout=STARTS_SECONDS).close()
        yield {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_ACCESS_KEY_ID": "test", "AWS_REGION": "us-east-1",
            "AWS_SECRET_ACCESS_KEY": "test",
        }  # fmt: skip
    finally:
        server.kill()  # has nothing to lose, and would ignore another signal that this process ignores
        server.wait(60)
