"""A process that tries to get in: `python -m tests.chaos.tools.stranger USER MARKER`, without any rights of the run's.

It reads lines of JSON, each a list: ``["socket", kind, host, port]`` or ``["file", path]``; and answers each with one:
what was tried, and what it got, or null. It keeps stalled connections until it reads an empty list. Code that it brings
to run makes the file MARKER. USER is a number, or -1 for the same user.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPException
from threading import Lock, Thread
from typing import Any
from urllib.request import urlopen

from distributed import Client, Security
from distributed.comm import connect
from distributed.protocol.pickle import dumps

SECONDS = 1.0  # limit of each wait
THREADS = 24
# What a Dask process sends first: the length of a frame, and a frame.
HANDSHAKE = (8).to_bytes(8, "little") + bytes(8)
PAGES = ("", "status", "info/main/workers.html", "metrics", "json/counts.json", "sitemap.json", "statics/css/base.css")

_stalled: list[socket.socket] = []
_certificate = Security.temporary()  # by a certificate authority of its own


def _intrude(marker: str) -> None:
    open(marker, "w").close()


class Stranger:
    """Ways to get in; each returns what it got, or None."""

    def __init__(self, marker: str) -> None:
        self.marker = marker

    def plain(self, host: str, port: int) -> str | None:
        """Dask's own first bytes, or any."""
        for content in (HANDSHAKE, os.urandom(300), b"GET / HTTP/1.0\r\n\r\n" + os.urandom(30)):
            with socket.create_connection((host, port), SECONDS) as one:
                one.sendall(content)
                if self._spoke(one):
                    return "an answer of Dask's"
        return None

    def without(self, host: str, port: int) -> str | None:
        """TLS without a certificate."""
        return self._tls(host, port, self._anybody())

    def own(self, host: str, port: int) -> str | None:
        """TLS with a certificate by another authority."""
        return self._tls(host, port, self._with_own())

    def remote(self, host: str, port: int) -> str | None:
        """Dask's own connection in each of these ways, and a call that runs code, as a worker or nanny takes it."""
        for protocol, context in (("tcp", None), ("tls", self._anybody()), ("tls", self._with_own())):
            more = {"ssl_context": context} if context else {}
            with suppress(Exception):
                return str(asyncio.run(asyncio.wait_for(self._call(f"{protocol}://{host}:{port}", more), 2 * SECONDS)))
        return None

    async def _call(self, address: str, more: dict[str, Any]) -> str:
        comm = await connect(address, timeout=SECONDS, **more)
        try:
            function, arguments = dumps(_intrude), dumps((self.marker,))
            await comm.write({"op": "run", "function": function, "args": arguments, "kwargs": dumps({}), "reply": True})
            return f"an answer to a call: {await comm.read()}"
        finally:
            comm.abort()

    def client(self, host: str, port: int) -> str | None:
        """A whole Dask client."""
        for protocol, security in (("tcp", None), ("tls", _certificate)):
            with suppress(Exception):
                address = f"{protocol}://{host}:{port}"
                with Client(address, security=security, timeout=SECONDS, set_as_default=False) as client:
                    client.run_on_scheduler(_intrude, self.marker)
                return "a client that is connected"
        return None

    def http(self, host: str, port: int) -> str | None:
        """Pages of Dask's web servers; the list of them is always shown, and has to be empty but for itself."""
        for page in PAGES:
            with suppress(OSError, HTTPException), urlopen(f"http://{host}:{port}/{page}", timeout=SECONDS) as answer:
                if (content := answer.read()) != b'{"paths": ["/sitemap.json"]}':
                    return f"page /{page}: {content[:100]!r}"
        return None

    def half_open(self, host: str, port: int) -> None:
        """A connection on which nothing is ever sent."""
        _stalled.append(socket.create_connection((host, port), SECONDS))

    def slow(self, host: str, port: int) -> None:
        """The beginning of a TLS handshake, a byte at a time, without an end."""
        one = socket.create_connection((host, port), SECONDS)
        _stalled.append(one)
        hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"

        def drip() -> None:
            with suppress(OSError):
                for byte in hello + bytes(500):
                    one.send(bytes([byte]))
                    time.sleep(0.05)

        Thread(target=drip, daemon=True).start()

    def file(self, path: str) -> str | None:
        """Read, list, write or reach what is there."""
        tries: dict[str, Callable[[], Any]] = {
            "listed": lambda: os.listdir(path),
            "read": lambda: open(path, "rb").close(),
            "opened to write": lambda: os.close(os.open(path, os.O_WRONLY)),
            "written in": lambda: os.close(os.open(os.path.join(path, "stranger"), os.O_WRONLY | os.O_CREAT)),
            "connected": lambda: socket.socket(socket.AF_UNIX).connect(path),
            "removed": lambda: os.unlink(path),
        }
        for what, attempt in tries.items():
            with suppress(OSError):
                attempt()
                return what
        return None

    def _tls(self, host: str, port: int, context: ssl.SSLContext) -> str | None:
        with (
            suppress(OSError),
            socket.create_connection((host, port), SECONDS) as plain,
            context.wrap_socket(plain) as one,
        ):
            one.sendall(HANDSHAKE)
            return "an answer through TLS" if one.recv(100) else None
        return None

    @staticmethod
    def _spoke(one: socket.socket) -> bool:
        """Whether something came back but an alert of TLS, or HTTP's refusal."""
        with suppress(OSError):
            answer = one.recv(1000)
            return bool(answer) and not answer.startswith((b"\x15\x03", b"HTTP/1.1 4"))
        return False

    @staticmethod
    def _anybody() -> ssl.SSLContext:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context

    @staticmethod
    def _with_own() -> ssl.SSLContext:
        context = _certificate.get_connection_args("client")["ssl_context"]
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context  # type: ignore[no-any-return]


SOCKET_KINDS = ("plain", "without", "own", "remote", "client", "http", "half_open", "slow")


def main(user: int, marker: str) -> None:
    """Answer until the input ends."""
    stranger, lock = Stranger(marker), Lock()
    stranger._with_own()  # keys are read from temporary files
    if user >= 0:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)

    def answer(line: str) -> None:
        what, *words = json.loads(line)
        try:
            got = stranger.file(*words) if what == "file" else getattr(stranger, words[0])(*words[1:])
        except OSError:
            got = None
        with lock:
            print(json.dumps([[what, *words], got]), flush=True)

    with ThreadPoolExecutor(THREADS) as threads:
        for line in sys.stdin:
            if json.loads(line):
                threads.submit(answer, line)
                continue
            while _stalled:
                _stalled.pop().close()
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
