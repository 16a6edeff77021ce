"""C++ kernels for the CPU: compiled at first use by the machine's own compiler, called without the GIL.

Without a compiler, or if it fails, NumPy computes the same bits, slower.
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

# No -ffast-math and no contraction: floats are added in the order written, and no multiply-add is fused.
# -O3 takes twice as long to compile, and saves a tenth of the time of counting at most.
OPTIONS: tuple[str, ...] = ("-O2", "-ftree-vectorize", "-march=native", "-std=c++17", "-ffp-contract=off",
                            "-fno-exceptions", "-fno-rtti", "-fPIC", "-shared")  # fmt: skip
# Some compilers prefer half of the width of AVX-512, for CPUs that ran slower with all of it: checks lost a quarter.
if platform.machine() == "x86_64":
    OPTIONS += ("-mprefer-vector-width=512",)
COMPILERS = ("c++", "g++", "clang++")
SECONDS = 30  # limit for the compiler, which takes about one
SEAL = hashlib.sha256().digest_size  # bytes of a checksum appended to a library, to detect a truncated one

_lock = Lock()


def library(source: Path) -> ctypes.CDLL | None:
    """The functions of a `.cpp` file, which may include the `.hpp` files beside it.

    None if it cannot be compiled. One thread compiles while others wait for it.
    """
    with _lock:
        return _library(source)


def expected(source: Path) -> bool:
    """Whether `library` will probably succeed, without compiling: there are a source and a compiler."""
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
    """The path of the compiler, with the options that CXX adds to it; None without a compiler."""
    named = os.environ.get("CXX")
    for words in [shlex.split(named)] if named else [[name] for name in COMPILERS]:
        if words and (path := shutil.which(words[0])):
            return (path, *words[1:])
    return None


@cache
def features() -> str:
    """Features of the CPU: machines that share a cache folder may differ in them."""
    try:
        with open("/proc/cpuinfo") as lines:
            flags = next((line for line in lines if line.lower().startswith(("flags", "features"))), platform.node())
    except OSError:
        flags = platform.node()
    return platform.machine() + flags


def _whole(path: Path) -> bool:
    """Whether a library is complete: loading a truncated one may crash the process."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return False
    return content[-SEAL:] == hashlib.sha256(content[:-SEAL]).digest()


def _compile(words: Sequence[str], source: Path, path: Path) -> None:
    """Compile a library and move it into place in one step, whoever else compiles it at the same time."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        made = Path(folder, "kernel.so")
        _run([*words, *OPTIONS, str(source), "-o", str(made)])
        with made.open("ab") as file:
            file.write(hashlib.sha256(made.read_bytes()).digest())
        os.replace(made, path)


def _run(command: Sequence[str]) -> None:
    """Run the compiler silently; on an error or an interrupt its whole process group is killed."""
    none = subprocess.DEVNULL
    with subprocess.Popen(command, stdin=none, stdout=none, stderr=none, start_new_session=True) as process:
        try:
            status = process.wait(SECONDS)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    if status:
        raise subprocess.CalledProcessError(status, command)
