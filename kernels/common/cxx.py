"""C++ kernels of the CPU: compiled at first use by the machine's own compiler, called while others hold Python's lock.

Where there is no compiler, or it fails, NumPy does the same, slower: the same bits.
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

from kernels.common.cache import cache_folder

# Floats are added in the order written, and no product is fused with a sum: without -ffast-math, which is not exact.
# With -O3 compiling takes twice as long, for a tenth of the time of counting at most.
OPTIONS = ("-O2", "-ftree-vectorize", "-march=native", "-std=c++17", "-ffp-contract=off", "-fno-exceptions",
           "-fno-rtti", "-fPIC", "-shared")  # fmt: skip
COMPILERS = ("c++", "g++", "clang++")
SECONDS = 30  # for the compiler, which takes one
SEAL = hashlib.sha256().digest_size  # bytes behind a library, which tell one that was cut short

_lock = Lock()


def library(source: Path) -> ctypes.CDLL | None:
    """The functions of a `.cpp` file, which may include the `.hpp` files beside it.

    None where they cannot be had. One thread compiles, while others wait for it.
    """
    with _lock:
        return _library(source)


def expected(source: Path) -> bool:
    """Whether there are a source and a compiler for it: a guess at `library`, which takes no time."""
    return source.is_file() and compiler() is not None


@cache
def _library(source: Path) -> ctypes.CDLL | None:
    words = compiler()
    if words is None:
        return None
    try:
        texts = [path.read_bytes() for path in (source, *sorted(source.parent.glob("*.hpp")))]
        tool = os.stat(words[0])
        made_by = words, OPTIONS, os.path.realpath(words[0]), tool.st_size, tool.st_mtime_ns, features()
        path = cache_folder() / f"{source.stem}-{hashlib.sha256(repr((texts, made_by)).encode()).hexdigest()}.so"
        if not _whole(path):
            _compile(words, source, path)
        return ctypes.CDLL(str(path))
    except (OSError, subprocess.SubprocessError):
        return None


@cache
def compiler() -> tuple[str, ...] | None:
    """The path of the compiler, and what CXX says behind it; None where there is none."""
    named = os.environ.get("CXX")
    for words in [shlex.split(named)] if named else [[name] for name in COMPILERS]:
        if words and (path := shutil.which(words[0])):
            return (path, *words[1:])
    return None


@cache
def features() -> str:
    """What the CPU can do: machines that share a folder of machine code may differ in that."""
    try:
        with open("/proc/cpuinfo") as lines:
            found = next((line for line in lines if line.lower().startswith(("flags", "features"))), platform.node())
    except OSError:
        found = platform.node()
    return platform.machine() + found


def _whole(path: Path) -> bool:
    """Whether a library is there up to its last byte: to load half of one may end the process."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return False
    return content[-SEAL:] == hashlib.sha256(content[:-SEAL]).digest()


def _compile(words: Sequence[str], source: Path, path: Path) -> None:
    """Put a library where it belongs: whole or not at all, whoever else compiles it at the same time."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        made = Path(folder, "kernel.so")
        _run([*words, *OPTIONS, str(source), "-o", str(made)])
        with made.open("ab") as file:
            file.write(hashlib.sha256(made.read_bytes()).digest())
        os.replace(made, path)


def _run(command: Sequence[str]) -> None:
    """Run the compiler, which says nothing, and whose own processes end with it."""
    none = subprocess.DEVNULL
    with subprocess.Popen(command, stdin=none, stdout=none, stderr=none, start_new_session=True) as process:
        try:
            status = process.wait(SECONDS)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    if status:
        raise subprocess.CalledProcessError(status, command)
