"""C++ kernels of the CPU: compiled at first use by the machine's own compiler, loaded by ctypes, which frees Python's lock.

Where there is no compiler, or it fails, callers have NumPy do the same: the same bits, slower.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from threading import Lock

from kernels import build

# Exact as written: no -ffast-math, and no product that is fused with a sum. -O3 takes twice as long for nothing.
OPTIONS = ("-O2", "-ftree-vectorize", "-march=native", "-std=c++17", "-ffp-contract=off", "-fno-exceptions",
           "-fno-rtti", "-fPIC", "-shared")  # fmt: skip
COMPILERS = ("c++", "g++", "clang++")
SECONDS = 30  # for the compiler, which takes one
SEAL = hashlib.sha256().digest_size  # bytes behind a library, from which one that was cut short is known

_lock = Lock()


def library(stem: str | Path) -> ctypes.CDLL | None:
    """The functions of `kernels/<stem>.cpp`, or of the source at a path; None where they cannot be had.

    Compiled by one thread, while others wait.
    """
    with _lock:
        return _library(stem)


def expected(stem: str | Path) -> bool:
    """Whether there is a source to compile and a compiler for it: a guess at `library`, which takes no time."""
    return _source(stem).is_file() and compiler() is not None


def _source(stem: str | Path) -> Path:
    return stem if isinstance(stem, Path) else build.SOURCES / f"{stem}.cpp"


@cache
def _library(stem: str | Path) -> ctypes.CDLL | None:
    command = compiler()
    if command is None:
        return None
    source = _source(stem).read_bytes()
    status = os.stat(command[0])
    tool = command, os.path.realpath(command[0]), status.st_size, status.st_mtime_ns
    key = hashlib.sha256(repr((source, OPTIONS, tool, features())).encode()).hexdigest()
    path = build.cache_folder() / f"{_source(stem).stem}-{key}.so"
    try:
        if not _whole(path):
            _compile(command, source, path)
        return ctypes.CDLL(str(path))
    except (OSError, subprocess.SubprocessError):
        return None


@cache
def compiler() -> tuple[str, ...] | None:
    """The words that begin a command line of the compiler: those of CXX, else the first that is found; None without."""
    for words in [shlex.split(os.environ["CXX"])] if os.environ.get("CXX") else [[name] for name in COMPILERS]:
        if words and (path := shutil.which(words[0])):
            return (path, *words[1:])
    return None


@cache
def features() -> str:
    """What the CPU can do: a folder of machine code may be shared by machines, of which not all run what one compiled."""
    try:
        with open("/proc/cpuinfo") as lines:
            found = next((line for line in lines if line.lower().startswith(("flags", "features"))), platform.node())
    except OSError:
        found = platform.node()
    return platform.machine() + found


def _whole(path: Path) -> bool:
    """Whether a library is there, up to its last byte: to load one that was cut short may end the process."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return False
    return content[-SEAL:] == hashlib.sha256(content[:-SEAL]).digest()


def _compile(command: Sequence[str], source: bytes, path: Path) -> None:
    """Put a library where it belongs: whole or not at all, whoever else compiles it at the same time."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        text, made = Path(folder, "kernel.cpp"), Path(folder, "kernel.so")
        text.write_bytes(source)
        words = [*command, *OPTIONS, str(text), "-o", str(made)]
        # What it says nobody reads; its own children, which do the work, end with it.
        quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        with subprocess.Popen(words, **quiet, start_new_session=True) as process:
            try:
                status = process.wait(SECONDS)
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        if status:
            raise subprocess.CalledProcessError(status, words)
        with made.open("ab") as file:
            file.write(hashlib.sha256(made.read_bytes()).digest())
        os.replace(made, path)
