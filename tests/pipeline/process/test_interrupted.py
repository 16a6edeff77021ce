"""Ctrl-C in a program that catches it and goes on: no run leaves anything half started, and later ones work."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

from pipeline.process.signals import uninterrupted

SECONDS = 60  # of the whole program, which takes three
SOURCE = """
import signal, sys
import pipeline

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "MODULE":
            sys.meta_path.remove(self)
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
try:
    pipeline.run("reduce", "a.npy")
except KeyboardInterrupt:
    print("interrupted")
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
print(pipeline.run("reduce", "a.npy", op="sum").values)
"""


@contextmanager
def events(seen: list[str], interrupt: str = "", times: int = 1) -> Iterator[str]:
    """Notes where it was, and sends signals where it is told to."""

    def at(where: str) -> None:
        if where == interrupt:
            for _ in range(times):
                signal.raise_signal(signal.SIGINT)
        seen.append(where)

    at("begins")
    try:
        at("begun")
        yield "value"
    except BaseException as error:
        seen.append(type(error).__name__)
        raise
    finally:
        at("ends")
        at("ended")


@pytest.mark.parametrize(
    ("interrupt", "times", "expected"),
    [
        ("", 1, ["begins", "begun", "body", "ends", "ended"]),
        ("begins", 1, ["begins", "begun", "KeyboardInterrupt", "ends", "ended"]),
        ("begun", 1, ["begins", "begun", "KeyboardInterrupt", "ends", "ended"]),
        ("ends", 1, ["begins", "begun", "body", "ends", "ended"]),
        ("ended", 1, ["begins", "begun", "body", "ends", "ended"]),
        ("begins", 2, []),
        ("ends", 2, ["begins", "begun", "body"]),
    ],
)
def test_it_waits_for_the_beginning_and_the_end(interrupt: str, times: int, expected: list[str]) -> None:
    """A second one does not."""
    seen: list[str] = []
    handler = signal.getsignal(signal.SIGINT)
    raises = pytest.raises(KeyboardInterrupt) if interrupt else nullcontext()
    with raises, uninterrupted(events(seen, interrupt, times)) as value:
        seen.append("body")
        assert value == "value" and signal.getsignal(signal.SIGINT) is handler
    assert seen == expected and signal.getsignal(signal.SIGINT) is handler


def test_it_interrupts_the_body() -> None:
    """The handler may be the program's own."""
    seen: list[Any] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    try:
        with uninterrupted(events(seen, "begun")):
            signal.raise_signal(signal.SIGINT)
            seen.append("body")
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == ["begins", "begun", signal.SIGINT, signal.SIGINT, "body", "ends", "ended"]
    with pytest.raises(KeyboardInterrupt), uninterrupted(events(seen)):
        signal.raise_signal(signal.SIGINT)
    assert seen[-3:] == ["KeyboardInterrupt", "ends", "ended"]


def test_threads_have_no_handlers() -> None:
    seen: list[str] = []

    def use() -> None:
        with uninterrupted(events(seen)):
            seen.append("body")

    thread = Thread(target=use)
    thread.start()
    thread.join(SECONDS)
    assert seen == ["begins", "begun", "body", "ends", "ended"]


@pytest.mark.parametrize("module", ["distributed", "distributed.comm.inproc", "distributed.worker"])
def test_first_run_interrupted_while_it_imports(tmp_path: Path, module: str) -> None:
    """Dask was left half imported, and every later run failed."""
    np.save(tmp_path / "a.npy", np.arange(100))
    words = [sys.executable, "-W", "ignore", "-c", SOURCE.replace("MODULE", module)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS)
    assert (done.stderr, done.stdout) == ("", "interrupted\n{'sum': 4950}\n")
