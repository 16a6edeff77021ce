"""C++ kernels for the CPU: compiled at first use by the machine's own compiler, called without the GIL.

Without a compiler, or if it fails, NumPy computes the same bits, slower.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from threading import Lock

from kernels.common.cache import open_cache, open_cached, write_cached
from kernels.common.messages import warn_once
from kernels.common.private import temporary_folder
from kernels.common.seconds import compiling

# No -ffast-math and no contraction: floats are added in the order written, and no multiply-add is fused.
# -O3 takes twice as long to compile, and saves a tenth of the time of counting at most.
OPTIONS: tuple[str, ...] = ("-O2", "-ftree-vectorize", "-fopenmp-simd", "-march=native", "-std=c++17",
                            "-ffp-contract=off", "-fno-exceptions", "-fno-rtti", "-fPIC", "-shared")  # fmt: skip
# Some compilers prefer half of the width of AVX-512, for CPUs that ran slower with all of it: checks lost a quarter.
if platform.machine() == "x86_64":
    OPTIONS += ("-mprefer-vector-width=512",)
COMPILERS = ("c++", "g++", "clang++")
SECONDS = 30  # limit for the compiler, which takes about one
PATIENCE_SECONDS = 4  # after which the user is told what is waited for

# Functions that begin a line after `extern "C"`, or after `extern "C" {` up to the end of the file.
EXTERN = re.compile(r'^extern "C" [^\n{(]*?(\w+)\(', re.MULTILINE)
FUNCTION = re.compile(r"^\w[^\n{(;]*?(\w+)\(", re.MULTILINE)

_locks: dict[Path, Lock] = {}
_hung: set[tuple[str, ...]] = set()  # compilers that did not end in time


def library(source: Path) -> ctypes.CDLL | None:
    """The functions of a `.cpp` file, which may include the `.hpp` files beside it.

    None if it cannot be compiled. One thread compiles a source while others wait for it.
    """
    with _locks.setdefault(source, Lock()):
        return _library(source)


def expected(source: Path) -> bool:
    """Whether `library` will probably succeed, without compiling: there are a source and a compiler."""
    return os.path.isfile(source) and compiler() is not None  # False for a path that is too long


@cache
def _library(source: Path) -> ctypes.CDLL | None:
    words = compiler()
    if words is None:
        return None
    try:
        texts = [path.read_bytes() for path in (source, *sorted(source.parent.glob("*.hpp")))]
        tool = os.stat(words[0])
        made_by = words, OPTIONS, os.path.realpath(words[0]), tool.st_size, tool.st_mtime_ns, features()
        name = f"{source.stem}-{hashlib.sha256(repr((texts, made_by)).encode()).hexdigest()}.so"
        with open_cache() as folder:
            file = open_cached(folder, name)
            if file is None:
                file = _keep(folder, name, _compile(words, source))
        # The descriptor that was checked, so that nothing can have taken the file's place. It stays open: the loader
        # would take the next library of the same number for this one.
        loaded = ctypes.CDLL(f"/proc/self/fd/{file}")
    except (OSError, subprocess.SubprocessError):
        return None
    return loaded if all(hasattr(loaded, function) for function in functions(texts[0].decode())) else None


def _keep(folder: int, name: str, content: bytes) -> int:
    """Descriptor of a new library: in the cache or, if that is full, in memory."""
    try:
        write_cached(folder, name, content)
        if (file := open_cached(folder, name)) is not None:
            return file
    except OSError:
        pass
    file = os.memfd_create(name)
    with open(file, "wb", closefd=False) as stream:
        stream.write(content)
    return file


def functions(text: str) -> list[str]:
    """Names of the functions that a source exports."""
    head, _, block = text.partition('extern "C" {')
    return EXTERN.findall(head) + FUNCTION.findall(block)


@cache
def compiler() -> tuple[str, ...] | None:
    """The path of the compiler, with the options that CXX adds to it; None without a compiler."""
    named = os.environ.get("CXX")
    try:
        candidates = [shlex.split(named)] if named else [[name] for name in COMPILERS]
    except ValueError as error:
        warn_once("CXX", f"CXX: expected a compiler and its options, got {named!r}: {error}; NumPy computes instead, "
                         "slower, the same bits")  # fmt: skip
        return None
    for words in candidates:
        if words and (path := shutil.which(words[0])):
            return (path, *words[1:])
    if named:
        warn_once("CXX", f"CXX: expected a compiler, found no {named!r}; NumPy computes instead, slower, the same bits")
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


def _compile(words: tuple[str, ...], source: Path) -> bytes:
    """The library of a source."""
    if words in _hung:
        raise subprocess.TimeoutExpired(words, 0)
    with temporary_folder() as folder, compiling.counted():
        made = folder / "kernel.so"
        try:
            _run([*words, *OPTIONS, str(source), "-o", str(made)])
        except subprocess.TimeoutExpired:
            _hung.add(words)  # it would hang for the next source, too
            raise
        return made.read_bytes()


def _run(command: Sequence[str]) -> None:
    """Run the compiler silently; on an error or an interrupt its whole process group is killed."""
    none = subprocess.DEVNULL
    # Its own temporary files go where its library goes: one that is killed leaves them.
    variables = os.environ | {"TMPDIR": os.path.dirname(command[-1])}
    with subprocess.Popen(
        command, stdin=none, stdout=none, stderr=none, start_new_session=True, env=variables
    ) as process:
        try:
            status = _wait(process, command[0])
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    if status:
        raise subprocess.CalledProcessError(status, command)


def _wait(process: subprocess.Popen[bytes], name: str) -> int:
    """Exit status; the user is told if it takes long."""
    try:
        return process.wait(min(PATIENCE_SECONDS, SECONDS))
    except subprocess.TimeoutExpired:
        left = SECONDS - PATIENCE_SECONDS
        if left <= 0:
            raise
        warn_once("compiler", f"waiting up to {SECONDS} s for {name} to compile; without it NumPy computes, slower, "
                              "the same bits")  # fmt: skip
        return process.wait(left)
