"""Turns a `.cu` file and its template arguments into a callable kernel; the only place that compiles.

NVRTC is called directly and not through CuPy, which appends ``-ftz=true`` to the options of every kernel: with it
float32 comparisons take subnormal numbers for zero, so that -1e-40 >= 0 holds, and counts and sums come out wrong.
It also means that a machine without a GPU compiles exactly what a GPU runs.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

OPTIONS = ("--std=c++17", "-default-device", "--ftz=false", "--prec-div=true", "--prec-sqrt=true", "--fmad=false")
SOURCES = Path(__file__).parent
HOPPER = "sm_90a"


@dataclass(frozen=True)
class Kernel:
    """A kernel on the current device.

    Attributes
    ----------
    function
        CuPy's handle of it.
    registers
        Per thread.
    static_shared
        Bytes of shared memory that it declares itself.
    """

    function: Any
    registers: int
    static_shared: int

    def __call__(
        self, grid: tuple[int, ...], block: tuple[int, ...], arguments: Sequence[Any], *, shared_mem: int = 0
    ) -> None:
        """Launch on the current stream; arguments are device arrays and NumPy scalars of the exact C type."""
        self.function(grid, block, tuple(arguments), shared_mem=shared_mem)


@dataclass(frozen=True)
class Limits:
    """What a device allows: threads, registers and bytes of shared memory, per block and per multiprocessor.

    `hopper`: it has the instructions that only Hopper has.
    """

    multiprocessors: int
    threads_per_block: int
    threads_per_multiprocessor: int
    registers_per_multiprocessor: int
    shared_per_multiprocessor: int
    shared_per_block: int
    hopper: bool = False

    def resident_blocks(self, threads: int, registers: int, shared: int) -> int:
        """Blocks that fit on the whole device at once (at least one a multiprocessor).

        Parameters
        ----------
        threads
            Per block.
        registers
            Per thread.
        shared
            Bytes of shared memory per block.
        """
        by_threads = self.threads_per_multiprocessor // threads
        by_registers = self.registers_per_multiprocessor // (threads * (-(-registers // 8) * 8))
        # Each resident block also pays 1 KiB of shared memory to the system on sm_80 and newer.
        by_shared = self.shared_per_multiprocessor // (shared + 1024)
        return self.multiprocessors * max(1, min(by_threads, by_registers, by_shared))


def load(stem: str | Path, instance: str) -> Kernel:
    """Kernel `instance` of `kernels/<stem>.cu`, e.g. ``"histogram_shift<int, 1>"``, on the current device.

    A kernel of your own: the path of its `.cu` file in place of the stem.

    Raises
    ------
    RuntimeError
        If the source does not compile for it.
    """
    import cupy

    return _load(stem, instance, int(cupy.cuda.runtime.getDevice()))


@cache
def _load(stem: str | Path, instance: str, device: int) -> Kernel:
    from cupy.cuda import driver
    from cupy.cuda.function import Module

    name, cubin = _cached(stem, instance, architecture_of(device))
    module = Module()
    module.load(cubin)
    function = module.get_function(name)
    static_shared = driver.funcGetAttribute(driver.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function.ptr)
    registers = driver.funcGetAttribute(driver.CU_FUNC_ATTRIBUTE_NUM_REGS, function.ptr)
    # Above 48 KiB dynamic shared memory has to be asked for once per kernel.
    dynamic = _limits(device).shared_per_block - static_shared
    driver.funcSetAttribute(function.ptr, driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, dynamic)
    return Kernel(function, registers, static_shared)


# Modules have to be unloaded while CuPy still can, not when the interpreter takes itself apart.
atexit.register(_load.cache_clear)


def architecture_of(device: int) -> str:
    """What machine code for a device is compiled for: for Hopper with instructions that no later device has."""
    import cupy

    found = f"sm_{cupy.cuda.Device(device).compute_capability}"
    return HOPPER if found == "sm_90" else found


def compile_source(stem: str | Path, instances: Sequence[str], architecture: str) -> tuple[dict[str, str], bytes, str]:
    """Compile instances of `kernels/<stem>.cu`; needs NVRTC but no GPU.

    Parameters
    ----------
    stem
        Or the path of another `.cu` file.
    instances
        Names of kernels with their template arguments.
    architecture
        Like ``"sm_90"``.

    Returns
    -------
    names
        Mangled name of each instance.
    cubin
        Machine code.
    log
        What the compiler said; empty where it had nothing to warn of.

    Raises
    ------
    RuntimeError
        If it does not compile, with the log.
    """
    from cuda.bindings import nvrtc

    path, headers = _source(stem), _headers()
    included, texts = [name.encode() for name in headers], list(headers.values())
    program = _done(nvrtc.nvrtcCreateProgram(path.read_bytes(), path.name.encode(), len(headers), texts, included))
    for instance in instances:
        _done(nvrtc.nvrtcAddNameExpression(program, instance.encode()))
    options = [option.encode() for option in (*OPTIONS, f"--gpu-architecture={architecture}")]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    log = _text(program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog).rstrip(b"\0").decode()
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise RuntimeError(f"{path} does not compile for {architecture}:\n{log}")
    names = {name: _done(nvrtc.nvrtcGetLoweredName(program, name.encode())).decode() for name in instances}
    cubin = _text(program, nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN)
    _done(nvrtc.nvrtcDestroyProgram(program))
    return names, cubin, log.strip()


def _source(stem: str | Path) -> Path:
    return stem if isinstance(stem, Path) else SOURCES / f"{stem}.cu"


def _headers() -> dict[str, bytes]:
    """What a source may include: the headers beside it."""
    return {path.name: path.read_bytes() for path in sorted(SOURCES.glob("*.cuh"))}


def _text(program: Any, size: Any, fill: Any) -> bytes:
    text = bytes(_done(size(program)))
    _done(fill(program, text))
    return text


def _done(answer: tuple[Any, ...]) -> Any:
    """The value of an NVRTC call, once its status is checked."""
    if int(answer[0]):
        raise RuntimeError(f"NVRTC: {answer[0].name}")
    return answer[1] if len(answer) > 1 else None


def _cached(stem: str | Path, instance: str, architecture: str) -> tuple[str, bytes]:
    """Mangled name and machine code, compiled once per source, options, compiler and architecture."""
    from cuda.bindings import nvrtc

    content = repr((OPTIONS, instance, architecture, nvrtc.nvrtcVersion())).encode()
    sources = b"".join([_source(stem).read_bytes(), *_headers().values()])
    key = hashlib.sha256(sources + content).hexdigest()
    path = cache_folder() / f"{_source(stem).stem}-{key}.cubin"
    if path.is_file():
        name, _, cubin = path.read_bytes().partition(b"\n")
        return name.decode(), cubin
    names, cubin, _ = compile_source(stem, (instance,), architecture)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(names[instance].encode() + b"\n" + cubin)
    os.replace(file.name, path)  # whole or not at all, whoever else compiles it at the same time
    return names[instance], cubin


def cache_folder() -> Path:
    """Where machine code is kept: a folder that only this user may write to, since it is loaded unseen.

    Where there can be none below XDG_CACHE_HOME or the home folder, one that lasts as long as the process.
    """
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "baru"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
        if status.st_uid == os.getuid() and not status.st_mode & 0o022 and os.access(folder, os.W_OK | os.X_OK):
            return folder
    except (OSError, RuntimeError):  # RuntimeError: there is no home folder
        pass
    return Path(_own_folder().name)


@cache
def _own_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="baru-")


def limits() -> Limits:
    """Limits of the current CUDA device."""
    import cupy

    return _limits(int(cupy.cuda.runtime.getDevice()))


@cache
def _limits(device: int) -> Limits:
    import cupy

    attributes = cupy.cuda.Device(device).attributes
    return Limits(
        multiprocessors=attributes["MultiProcessorCount"],
        threads_per_block=attributes["MaxThreadsPerBlock"],
        threads_per_multiprocessor=attributes["MaxThreadsPerMultiProcessor"],
        registers_per_multiprocessor=attributes["MaxRegistersPerMultiprocessor"],
        shared_per_multiprocessor=attributes["MaxSharedMemoryPerMultiprocessor"],
        shared_per_block=attributes["MaxSharedMemoryPerBlockOptin"],
        hopper=architecture_of(device) == HOPPER,
    )
