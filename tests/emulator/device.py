"""Runs kernels on the CPU: loads them as `kernels.common.nvrtc.load` does, launches them, reports their faults."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from kernels.common import device, nvrtc
from tests.emulator.build import compile_runtime, compile_unit, flatten, stem_of, unit

# An H200 with few multiprocessors, which keeps grids small.
LIMITS = device.Limits(2, 1024, 2048, 65536, 233472, 232448)
BUDGET = 200_000_000  # accesses per launch; beyond, the kernel is assumed to hang
POINTER, CONST_POINTER = 4, 5
KINDS = {0: "u", 1: "i", 2: "f", 3: "b"}  # HostParameterKind to NumPy's
# Kernels that load whole words or packs, some of whose bytes may be unwritten, and use only the others.
SPECULATIVE = {("transpose/gpu", "tiled")}


class KernelFault(AssertionError):
    """A kernel did something that is an error whatever the result: a race, an access out of bounds, …"""


class _Parameter(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_uint), ("bytes", ctypes.c_uint))


class _Kernel(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p), ("invoke", ctypes.c_void_p), ("parameters", ctypes.POINTER(_Parameter)),
        ("count", ctypes.c_uint),
    )  # fmt: skip


class _Array(ctypes.Structure):
    _fields_ = (("pointer", ctypes.c_void_p), ("bytes", ctypes.c_uint64), ("written", ctypes.c_void_p))


class _Launch(ctypes.Structure):
    _fields_ = (
        ("kernel", ctypes.POINTER(_Kernel)), ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3),
        ("arguments", ctypes.POINTER(ctypes.c_void_p)), ("arrays", ctypes.POINTER(_Array)),
        ("shared_bytes", ctypes.c_uint64), ("seed", ctypes.c_uint64), ("budget", ctypes.c_uint64),
        ("mutant", ctypes.c_int32), ("speculative", ctypes.c_uint32),
    )  # fmt: skip


class _Report(ctypes.Structure):
    _fields_ = (
        ("text", ctypes.c_char * 600), ("place", ctypes.c_uint64), ("accesses", ctypes.c_uint64),
        ("switches", ctypes.c_uint64),
    )  # fmt: skip


@dataclass(frozen=True)
class Loaded:
    """A library of compiled kernels."""

    path: Path
    library: ctypes.CDLL
    kernels: dict[str, Any]


@dataclass
class Host:
    """The emulated device.

    Attributes
    ----------
    seed
        Of the order of threads, warps and blocks in the launches that follow; 0 is the plain order.
    flavour
        ``"watched"`` or ``"sanitized"``: see `build.py`.
    mutant
        Number of the mutant that runs, in kernels built with mutants; 0 is the kernel itself.
    launched
        Instances that ran, with the number of launches.
    replaced
        Libraries that replace a source's own, by stem.
    """

    seed: int = 0
    flavour: str = "watched"
    mutant: int = 0
    launched: dict[tuple[str, str], int] = field(default_factory=dict)
    replaced: dict[str, Loaded] = field(default_factory=dict)

    def load(self, source: Path, instance: str) -> nvrtc.Kernel:
        """In place of `kernels.common.nvrtc.load`; registers are not known, so a typical number is given."""
        loaded = self.replaced.get(stem_of(source)) or _library(source, instance, self.flavour)
        return nvrtc.Kernel(HostFunction(self, source, instance, loaded), 32, 0)


HOST = Host()


@contextmanager
def schedule(seed: int) -> Iterator[None]:
    """Launches within use this seed."""
    before, HOST.seed = HOST.seed, seed
    try:
        yield
    finally:
        HOST.seed = before


def open_library(path: Path) -> Loaded:
    """Load a library of kernels; their runtime has to be loaded."""
    library = ctypes.CDLL(str(path))
    count = ctypes.c_uint.in_dll(library, "host_kernel_count").value
    table = (_Kernel * count).in_dll(library, "host_kernels")
    return Loaded(path, library, {kernel.name.decode(): kernel for kernel in table})


def reached(flavour: str) -> Any:
    """Whether each mutant's site was executed since the flags were last cleared."""
    return (ctypes.c_uint8 * 1024).in_dll(_runtime(flavour), "host_reached")


@cache
def _runtime(flavour: str) -> ctypes.CDLL:
    return ctypes.CDLL(str(compile_runtime(flavour)), mode=ctypes.RTLD_GLOBAL)


@cache
def _library(source: Path, instance: str, flavour: str) -> Loaded:
    _runtime(flavour)
    return open_library(compile_unit(unit(flatten(source), [instance]), flavour))


@dataclass(frozen=True)
class HostFunction:
    """A kernel compiled for the CPU; called like CuPy's functions."""

    host: Host
    source: Path
    instance: str
    loaded: Loaded

    def __call__(
        self, grid: tuple[int, ...], block: tuple[int, ...], arguments: Sequence[Any], shared_mem: int = 0
    ) -> None:
        """Launch and wait.

        Raises
        ------
        TypeError, ValueError
            If the arguments do not match the kernel's parameters, or a driver would refuse the launch.
        KernelFault
            If the kernel is at fault.
        """
        kernel, host = self.loaded.kernels[self.instance], self.host
        check_launch(grid, block, shared_mem)
        if len(arguments) != kernel.count:
            raise TypeError(f"{self.instance}: expected {kernel.count} arguments, got {len(arguments)}")
        arrays, values = (_Array * kernel.count)(), []
        for number, argument in enumerate(arguments):
            parameter = kernel.parameters[number]
            _check_argument(f"{self.instance}, argument {number}", argument, parameter)
            if parameter.kind >= POINTER:
                arrays[number] = (argument.data.ptr, argument.nbytes, argument.has_value.ctypes.data)
            values.append(np.zeros(1, np.uint64) if parameter.kind >= POINTER else np.array([argument]))
        pointers = (ctypes.c_void_p * len(values))(*(value.ctypes.data for value in values))
        speculative = (stem_of(self.source), self.instance.partition("<")[0]) in SPECULATIVE
        launch = _Launch(
            ctypes.pointer(kernel), (*grid, 1, 1)[:3], (*block, 1, 1)[:3], pointers, arrays, shared_mem, host.seed,
            BUDGET, host.mutant, speculative,
        )  # fmt: skip
        report = _Report()
        key = (stem_of(self.source), self.instance)
        host.launched[key] = host.launched.get(key, 0) + 1
        if _runtime(host.flavour).host_launch(ctypes.byref(launch), ctypes.byref(report)):
            text = report.text.decode()
            where = _place(self.loaded, report.place) if report.place else ""
            raise KernelFault(
                f"{self.source.name}, {self.instance}: {self._named(text)}{where}; --schedule-seed {host.seed} "
                f"shows it again"
            )

    def _named(self, text: str) -> str:
        """The message with the source's parameter names in place of numbers."""
        source, name = flatten(self.source), self.instance.partition("<")[0]
        matched = re.search(rf"__global__ void[^;{{]*?\b{name}\s*\(([^)]*(?:\([^)]*\)[^)]*)*)\)\s*{{", source)
        names = [part.split()[-1].lstrip("*&") for part in matched[1].split(",") if part.strip()] if matched else []

        def name_of(match: re.Match[str]) -> str:
            number = int(match[1])
            return f"{names[number]}[{match[2]}]" if number < len(names) else match[0]

        return re.sub(r"argument (\d+), element (-?\d+)", name_of, text)


def check_launch(grid: tuple[int, ...], block: tuple[int, ...], shared_mem: int) -> None:
    """Refuse launches that a driver would refuse."""
    limits = ((2**31 - 1, 65535, 65535), (1024, 1024, 64))
    for sides, most in zip((grid, block), limits, strict=True):
        if any(not 1 <= side <= limit for side, limit in zip(sides, most, strict=False)):
            raise ValueError(f"launch: expected sides of 1 to {most}, got {sides}")
    if np.prod(block) > LIMITS.threads_per_block or shared_mem > LIMITS.shared_per_block:
        raise ValueError(f"launch: a block of {block} with {shared_mem} bytes of shared memory does not fit")


def _check_argument(what: str, argument: Any, parameter: Any) -> None:
    """A driver takes any bytes; the emulator wants the parameter's exact type."""
    if parameter.kind >= POINTER:
        if getattr(argument, "itemsize", None) != parameter.bytes or not hasattr(argument, "has_value"):
            raise TypeError(
                f"{what}: expected an array of {parameter.bytes} bytes an element on the device, got {argument!r}"
            )
    elif not isinstance(argument, np.generic) or (argument.dtype.kind, argument.itemsize) != (
        KINDS[parameter.kind],
        parameter.bytes,
    ):
        expected = f"{KINDS[parameter.kind]}{parameter.bytes}"
        raise TypeError(f"{what}: expected a NumPy scalar of {expected}, got {argument!r}")


def _place(loaded: Loaded, place: int) -> str:
    """File and line of an instruction, if addr2line is installed."""
    inside = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if str(loaded.path) in line]
    base = min(int(words[0].partition("-")[0], 16) for words in inside)
    return _line(loaded.path, place - base - 1)


@cache
def _line(path: Path, offset: int) -> str:
    command = ["addr2line", "-i", "-e", str(path), hex(offset)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    lines = (Path(line.partition(" ")[0]).name for line in done.stdout.splitlines())
    return next((f", at {line}" for line in lines if re.fullmatch(r"\w+\.cuh?:\d+", line)), "")
