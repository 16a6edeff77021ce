"""Records what wrappers launch: the emulator's CuPy, with launches recorded instead of run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kernels.common import device, nvrtc
from tests.emulator.build import stem_of
from tests.emulator.cupy import OutOfMemoryError, forget, module

H200 = device.Limits(132, 1024, 2048, 65536, 233472, 232448)


class Launch(NamedTuple):
    """A launch of a kernel; `shared_mem` in bytes."""

    instance: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    arguments: tuple[Any, ...]
    shared_mem: int


def recorded(monkeypatch: pytest.MonkeyPatch, *stems: str) -> list[Launch]:
    """Every launch from now on of kernels of these sources, on an H200 that has 5 bytes free; results are zeros."""
    launches: list[Launch] = []

    def load(source: Path, instance: str) -> nvrtc.Kernel:
        def launch(grid: Any, block: Any, arguments: Any, *, shared_mem: int) -> None:
            launches.append(Launch(instance, grid, block, arguments, shared_mem))

        assert stem_of(source) in stems
        return nvrtc.Kernel(launch, registers=32, static_shared=256)

    cupy: Any = module()
    cupy.empty = cupy.zeros
    cupy.cuda.runtime.memGetInfo = lambda: (5, 10)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(device, "limits", lambda: H200)
    monkeypatch.setattr(nvrtc, "load", load)
    forget()
    return launches


def fill_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on every allocation fails."""

    def full(shape: Any, dtype: Any) -> Any:
        raise OutOfMemoryError

    for name in ("empty", "zeros"):
        monkeypatch.setattr(sys.modules["cupy"], name, full)
