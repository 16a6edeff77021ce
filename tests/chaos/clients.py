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
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path
from random import Random
from threading import Thread
from typing import Any

import psutil

from kernels.common.cache import cache_folder
from pipeline.cluster.processes import environment
from tests.chaos.tools.processes import JOBS, Sandbox
from tests.chaos.tools.stranger import SOCKET_KINDS

SHORT = 1
SLOW_SECONDS = "0.07"  # of a chunk more, while somebody tries
LISTENERS = 8  # of the scheduler, two nannies and two workers, web servers included
NOBODY = 65534
ANSWER_SECONDS = 60  # for all that a stranger was asked to try
WALK_SECONDS = 0.2
MOST_FILES = 20  # of a folder that are tried


class Stranger:
    """A process that tries to get in, as user 65534 or as the same one."""

    def __init__(self, user: int, folder: Path) -> None:
        self.user, self.tried, self._marker = user, 0, folder / f"marker-{user}"
        self.answers: list[Any] = []
        words = [sys.executable, "-m", "tests.chaos.tools.stranger", str(user), str(self._marker)]
        variables = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         stderr=subprocess.DEVNULL, text=True, env=variables)  # fmt: skip
        assert self._process.stdin and self._process.stdout
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._stdout:
            self.answers.append(json.loads(line))

    def ask(self, *what: Any) -> None:
        """Have it try something, or forget its connections."""
        self.tried += bool(what)
        print(json.dumps(what), file=self._stdin, flush=True)

    def got(self) -> list[str]:
        """What it got since the last call; its connections are closed."""
        until = time.monotonic() + ANSWER_SECONDS
        while len(self.answers) < self.tried and time.monotonic() < until:
            time.sleep(0.01)
        self.ask()
        who = "another user" if self.user >= 0 else "the same user"
        lines = [f"{who}, {what}: {got}" for what, got in self.answers if got is not None]
        lines += [f"{who}: code was run"] * self._marker.exists()
        if len(self.answers) != self.tried:
            lines.append(f"{who}: {self.tried} tried, {len(self.answers)} answered")
        self._marker.unlink(missing_ok=True)
        self.tried, self.answers[:] = 0, []
        return lines

    def end(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        self._stdin.close()
        self._stdout.close()


@contextmanager
def _strangers(folder: Path) -> Iterator[list[Stranger]]:
    strangers = [Stranger(user, folder) for user in ((-1, NOBODY) if os.geteuid() == 0 else (-1,))]
    try:
        yield strangers
    finally:
        for stranger in strangers:
            stranger.end()


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


def _copy_cache(cache: Path) -> None:
    """A kernel cache for these runs, with what may be theirs of this user's own: compiling takes seconds."""
    cache.mkdir(0o700)
    for library in cache_folder().glob("*.so"):
        if library.name.startswith(("check-", "cpu-", "feed-")):
            shutil.copy(library, cache)


def _private(sandbox: Sandbox) -> set[str]:
    """Everything that nobody else may reach."""
    paths = set()
    for base in ("tmp", "state", "cache"):
        for folder, folders, files in os.walk(sandbox.folder / base):
            paths |= {os.path.join(folder, name) for name in (*folders, *files[:MOST_FILES])}
    return paths


def _trial(sandbox: Sandbox, strangers: list[Stranger], name: str, random: Random) -> tuple[list[str], Counter[str]]:
    """What went wrong, and numbers of what was tried."""
    wrong, seen = set[str](), Counter[str]()
    known, paths = set[tuple[str, int]](), set[str]()
    command = sandbox.start(name, SLOW=SLOW_SECONDS)
    while command.poll() is None:
        listeners, bad = _walk(command.pid)
        private = _private(sandbox)
        tries = [(stranger, "socket", kind, *one) for stranger in strangers for kind in SOCKET_KINDS
                 for one in sorted(listeners - known)]  # fmt: skip
        tries += [(stranger, "file", path) for stranger in strangers[1:] for path in sorted(private - paths)]
        known, paths, wrong = known | listeners, paths | private, wrong | bad
        random.shuffle(tries)
        for stranger, *what in tries:
            stranger.ask(*what)
        time.sleep(WALK_SECONDS)
    seen["answered before the end"] = sum(len(stranger.answers) for stranger in strangers)
    status, out, err = sandbox.finish(command)
    for stranger in strangers:
        seen["tried by another user" if stranger.user >= 0 else "tried by the same user"] += stranger.tried
        wrong |= set(stranger.got())
    seen += Counter({"listeners": len(known), "private files and folders": len(paths)})
    if len(known) < LISTENERS:
        wrong.add(f"expected {LISTENERS} listeners, saw {len(known)}")
    if status or err:
        wrong.add(f"status {status}: {err[-500:]}")
    if status == 0 and sandbox.digest(name, out) != sandbox.expected[name]:
        wrong.add("another result")
    wrong |= {f"left {what}" for what in sandbox.left(command.pid, resumable=bool(status))}
    sandbox.forget()
    return sorted(wrong), seen


def run(seed: int, trials: int) -> dict[str, Any]:
    """Figures of so many trials, each of a random job in two processes."""
    random, failures, seen = Random(seed), list[str](), Counter[str]()
    names = ["histogram"] if trials == SHORT else [name for name in JOBS if name != "survey"]
    with tempfile.TemporaryDirectory(prefix="clients-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # what the run itself makes has to be private
        (folder / "cache").mkdir()
        _copy_cache(folder / "cache" / "baru")
        with environment({"XDG_CACHE_HOME": str(folder / "cache")}), _strangers(folder) as strangers:
            sandbox = Sandbox(folder, 2, slow=0, jobs=names)
            for trial in range(trials):
                name = random.choice(names)
                wrong, counts = _trial(sandbox, strangers, name, random)
                seen += counts
                failures += [f"trial {trial}, {name}: {what}" for what in wrong]
    return {"failures": failures, **seen}
