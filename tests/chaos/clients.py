"""Connects to everything that a run in two processes listens on, without its certificates, all the time that it lasts.

All sockets of its processes are walked again and again. Each that listens is tried, in random order: Dask's first
bytes and random ones over plain TCP; TLS without a certificate and with one by another authority; Dask's connections
and clients in each of these ways, with code to run; pages over HTTP; connections on which nothing or a byte at a time
comes, which last until the run has ended. By the same user and, where this runs as root, by user 65534, who also tries
to list, read, write and remove everything in the scratch folders, the state folder and the kernel cache. It must show:

- nothing gets in: no code is run, nothing is answered, no page is shown, no file is opened;
- no process listens on another address than loopback, TCP or UDP, nor on an abstract Unix socket;
- the run ends with the same SHA-256 as undisturbed, and says nothing; nothing is left.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from ipaddress import ip_address
from pathlib import Path
from random import Random
from threading import Thread
from typing import Any

import psutil

from tests.chaos.tools.processes import JOBS, Sandbox
from tests.chaos.tools.stranger import SOCKET_KINDS

SHORT = 1
SLOW_SECONDS = "0.25"  # of a chunk more, while somebody tries
NOBODY = 65534
LEAVE_SECONDS = 30  # for a stranger, when its input has ended
WALK_SECONDS = 0.2


class Stranger:
    """A process that tries to get in."""

    def __init__(self, user: int, folder: Path) -> None:
        self.user, self.marker, self.tried = user, folder / f"marker-{user}", 0
        self.answers: list[Any] = []
        words = [sys.executable, "-m", "tests.chaos.tools.stranger", str(user), str(self.marker)]
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         stderr=subprocess.DEVNULL, text=True, env=environment)  # fmt: skip
        assert self._process.stdin and self._process.stdout
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self._stdout.readline()  # it is ready, or has ended
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._stdout:
            self.answers.append(json.loads(line))

    def ask(self, *what: Any) -> None:
        """Have it try something."""
        self.tried += 1
        print(json.dumps(what), file=self._stdin, flush=True)

    def end(self) -> list[str]:
        """What it got."""
        self._stdin.close()
        try:
            self._process.wait(LEAVE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(LEAVE_SECONDS)
        self._stdout.close()
        who = "another user" if self.user >= 0 else "the same user"
        lines = [f"{who}, {what}: {got}" for what, got in self.answers if got is not None]
        lines += [f"{who}: code was run"] * self.marker.exists()
        if len(self.answers) != self.tried:
            lines.append(f"{who}: {self.tried} tried, {len(self.answers)} answered")
        self.marker.unlink(missing_ok=True)
        return lines


@contextmanager
def _strangers(folder: Path) -> Iterator[list[Stranger]]:
    with ExitStack() as stack:
        strangers = [Stranger(-1, folder)]
        if not os.geteuid():
            strangers.append(Stranger(NOBODY, folder))
        for stranger in strangers:
            stack.callback(stranger._process.kill)
        yield strangers


def _walk(session: int) -> tuple[set[tuple[str, int]], set[str]]:
    """Addresses on which processes of a session listen, and what is wrong with any."""
    listeners, wrong = set[tuple[str, int]](), set[str]()
    for process in Sandbox.members(session):
        try:
            sockets = process.net_connections("all")
        except psutil.Error:
            continue
        for one in sockets:
            if one.family == socket.AF_UNIX:
                if str(one.laddr).startswith(("@", "\0")):
                    wrong.add(f"an abstract Unix socket {one.laddr}")
                continue
            if one.laddr and (one.status == psutil.CONN_LISTEN or one.type == socket.SOCK_DGRAM):
                host, port = one.laddr
                if not ip_address(host).is_loopback:
                    wrong.add(f"listens on {host}:{port}")
                elif one.type == socket.SOCK_STREAM:
                    listeners.add((host, port))
    return listeners, wrong


def _private(sandbox: Sandbox) -> set[str]:
    """Everything that nobody else may reach."""
    paths = set()
    for base in ("tmp", "state", "cache"):
        for folder, folders, files in os.walk(sandbox.folder / base):
            paths |= {os.path.join(folder, name) for name in (*folders, *files)}
    return paths


def _trial(sandbox: Sandbox, name: str, random: Random) -> tuple[list[str], Counter[str]]:
    wrong, seen = set[str](), Counter[str]()
    known, paths = set[tuple[str, int]](), set[str]()
    with _strangers(sandbox.folder) as strangers:
        command = sandbox.start(name, SLOW=SLOW_SECONDS)
        while command.poll() is None:
            listeners, bad = _walk(command.pid)
            wrong |= bad
            tries = [(stranger, "socket", kind, *one) for stranger in strangers for kind in SOCKET_KINDS
                     for one in sorted(listeners - known)]  # fmt: skip
            private = _private(sandbox)
            tries += [(stranger, "file", path) for stranger in strangers[1:] for path in sorted(private - paths)]
            known, paths = known | listeners, paths | private
            random.shuffle(tries)
            for stranger, *what in tries:
                stranger.ask(*what)
            time.sleep(WALK_SECONDS)
        status, out, err = sandbox.finish(command)
        for stranger in strangers:
            wrong |= set(stranger.end())
            seen["tried by another user" if stranger.user >= 0 else "tried by the same user"] += stranger.tried
    seen += Counter({"listeners": len(known), "private files and folders": len(paths)})
    if len(known) < 8:  # of the scheduler, two nannies and two workers, web servers included
        wrong.add(f"expected 8 listeners, saw {len(known)}")
    if status:
        wrong.add(f"status {status}: {err[-500:]}")
    elif sandbox.digest(name, out) != sandbox.expected[name]:
        wrong.add("another result")
    if err:
        wrong.add(f"said {err[:500]!r}")
    wrong |= {f"left {what}" for what in sandbox.left(command.pid, resumable=bool(status))}
    sandbox.forget()
    return sorted(wrong), seen


def run(seed: int, trials: int) -> dict[str, Any]:
    """Figures of so many trials, each of a random job in two processes."""
    random, failures, seen = Random(seed), list[str](), Counter[str]()
    names = ["histogram"] if trials == SHORT else [name for name in JOBS if name != "survey"]
    with tempfile.TemporaryDirectory(prefix="clients-") as folder:
        os.chmod(folder, 0o755)  # what the run itself makes has to be private
        sandbox = Sandbox(Path(folder), 2, slow=0, jobs=names)
        for trial in range(trials):
            name = random.choice(names)
            wrong, counts = _trial(sandbox, name, random)
            seen += counts
            failures += [f"trial {trial}, {name}: {what}" for what in wrong]
    return {"failures": failures, **seen}
