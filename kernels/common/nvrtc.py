"""Compiles a `.cu` file for one set of template arguments and loads the kernel; nothing else calls NVRTC.

NVRTC is called directly and not through CuPy, which appends ``-ftz=true`` to the options of every kernel: with it
float32 comparisons flush subnormal numbers to zero: -1e-40 >= 0 holds, and counts and sums come out wrong.
Besides, a machine without a GPU compiles exactly what a GPU runs.
"""

from __future__ import annotations

import atexit
import hashlib
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from kernels.common.cache import open_cache, read_cached, write_cached
from kernels.common.device import architecture_of, limits_of
from kernels.common.seconds import compiling

OPTIONS = ("--std=c++17", "-default-device", "--ftz=false", "--prec-div=true", "--prec-sqrt=true", "--fmad=false")
KERNELS = Path(__file__).parents[1]  # where `#include "family/header.cuh"` starts
NO_DEFINES: Mapping[str, int] = {}


@dataclass(frozen=True)
class Kernel:
    """A kernel on the current device.

    Attributes
    ----------
    function
        CuPy's handle.
    registers
        Per thread.
    static_shared
        Bytes of static shared memory.
    """

    function: Any
    registers: int
    static_shared: int

    def __call__(
        self, grid: tuple[int, ...], block: tuple[int, ...], arguments: Sequence[Any], *, shared_mem: int = 0
    ) -> None:
        """Launch on the current stream; arguments are device arrays and NumPy scalars of the exact C type."""
        self.function(grid, block, tuple(arguments), shared_mem=shared_mem)


def load(source: Path, instance: str, defines: Mapping[str, int] = NO_DEFINES) -> Kernel:
    """A kernel of a `.cu` file on the current device, compiled at first use and kept in the cache folder.

    Parameters
    ----------
    source
        Path of the `.cu` file: ``Path(__file__).with_suffix(".cu")`` for the one beside a module.
    instance
        Kernel with its template arguments, e.g. ``"histogram_shift<int, 1>"``.
    defines
        Macros and their values: facts that the launching module shares with the source.

    Raises
    ------
    RuntimeError
        If the source does not compile for it.

    Examples
    --------
    >>> import cupy, numpy
    >>> from pathlib import Path
    >>> from kernels import load
    >>> source = Path("add.cu")
    >>> size = source.write_text('''
    ... template <typename T>
    ... __global__ void add(T* elements, long long n, T value) {
    ...     long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    ...     if (i < n) elements[i] += value;
    ... }
    ... ''')
    >>> elements = cupy.asarray(numpy.arange(5, dtype="int32"))
    >>> load(source, "add<int>")((1,), (32,), (elements, numpy.int64(5), numpy.int32(10)))
    >>> elements.tolist()
    [10, 11, 12, 13, 14]
    """
    import cupy

    return _load(source, instance, tuple(defines.items()), int(cupy.cuda.runtime.getDevice()))


@cache
def _load(source: Path, instance: str, defines: tuple[tuple[str, int], ...], device: int) -> Kernel:
    from cupy.cuda import driver
    from cupy.cuda.function import Module

    name, cubin = _cached(source, instance, dict(defines), architecture_of(device))
    module = Module()
    module.load(cubin)
    function = module.get_function(name)
    static_shared = driver.funcGetAttribute(driver.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function.ptr)
    registers = driver.funcGetAttribute(driver.CU_FUNC_ATTRIBUTE_NUM_REGS, function.ptr)
    # More than 48 KiB of dynamic shared memory needs an opt-in, once per kernel.
    dynamic = limits_of(device).shared_per_block - static_shared
    driver.funcSetAttribute(function.ptr, driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, dynamic)
    return Kernel(function, registers, static_shared)


# Unload modules at exit while CuPy still works, before interpreter shutdown.
atexit.register(_load.cache_clear)


def compile_source(
    source: Path, instances: Sequence[str], architecture: str, defines: Mapping[str, int] = NO_DEFINES
) -> tuple[dict[str, str], bytes, str]:
    """Compile kernels of a `.cu` file; needs NVRTC but no GPU.

    Parameters
    ----------
    source
        Path of the `.cu` file.
    instances
        Names of kernels with their template arguments.
    architecture
        Like ``"sm_90"``.
    defines
        Macros and their values.

    Returns
    -------
    names
        Mangled name of each instance.
    cubin
        Machine code.
    log
        Warnings of the compiler, if any.

    Raises
    ------
    RuntimeError
        If it does not compile, with the log.
    """
    from cuda.bindings import nvrtc

    headers = include_closure(source)
    text = headers.pop(source.name)
    included = [name.encode() for name in headers]
    program = _done(
        nvrtc.nvrtcCreateProgram(text, source.name.encode(), len(headers), list(headers.values()), included)
    )
    for instance in instances:
        _done(nvrtc.nvrtcAddNameExpression(program, instance.encode()))
    macros = [f"-D{name}={value}" for name, value in defines.items()]
    options = [option.encode() for option in (*OPTIONS, *macros, f"--gpu-architecture={architecture}")]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    log = _text(program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog).rstrip(b"\0").decode()
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise RuntimeError(f"{source} does not compile for {architecture}:\n{log}")
    names = {name: _done(nvrtc.nvrtcGetLoweredName(program, name.encode())).decode() for name in instances}
    cubin = _text(program, nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN)
    _done(nvrtc.nvrtcDestroyProgram(program))
    return names, cubin, log.strip()


def include_closure(source: Path) -> dict[str, bytes]:
    """A source and the headers that it includes, directly or through others, by the name that `#include` gives them.

    A quoted name is looked up beside the file that includes it, then under `kernels/`, as a compiler with
    ``-I kernels`` does. Names found in neither place are left to the compiler.
    """
    texts = {source.name: source.read_bytes()}
    waiting = [source]
    while waiting:
        path = waiting.pop()
        for name in re.findall(rb'^\s*#\s*include\s+"([^"]+)"', path.read_bytes(), re.MULTILINE):
            header = find_header(path, name.decode())
            if header is not None and name.decode() not in texts:
                texts[name.decode()] = header.read_bytes()
                waiting.append(header)
    return texts


def find_header(includer: Path, name: str) -> Path | None:
    """Path of a quoted include; None if it is in neither folder."""
    return next((path for path in (includer.parent / name, KERNELS / name) if path.is_file()), None)


def _text(program: Any, size: Any, fill: Any) -> bytes:
    text = bytes(_done(size(program)))
    _done(fill(program, text))
    return text


def _done(answer: tuple[Any, ...]) -> Any:
    """The value of an NVRTC call, after a check of its status."""
    if int(answer[0]):
        raise RuntimeError(f"NVRTC: {answer[0].name}")
    return answer[1] if len(answer) > 1 else None


def _cached(source: Path, instance: str, defines: Mapping[str, int], architecture: str) -> tuple[str, bytes]:
    """Mangled name and machine code, compiled once per include closure, options, compiler and architecture."""
    from cuda.bindings import nvrtc

    made_from = include_closure(source), OPTIONS, instance, dict(defines), architecture, nvrtc.nvrtcVersion()
    name = f"{source.stem}-{hashlib.sha256(repr(made_from).encode()).hexdigest()}.cubin"
    with open_cache() as folder:
        content = read_cached(folder, name)
        if content is None:
            with compiling.counted():
                names, cubin, _ = compile_source(source, (instance,), architecture, defines)
            content = names[instance].encode() + b"\n" + cubin
            with suppress(OSError):  # a full disk costs time, not the run
                write_cached(folder, name, content)
    mangled, _, cubin = content.partition(b"\n")
    return mangled.decode(), cubin
