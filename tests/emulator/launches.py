"""What wrappers launch, where NumPy stands for CuPy and no kernel runs."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

from kernels.common import device, nvrtc
from tests.emulator.build import stem_of

H200 = device.Limits(132, 1024, 2048, 65536, 233472, 232448)


class Launch(NamedTuple):
    """A launch of a kernel; `shared_mem` in bytes."""

    instance: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    arguments: tuple[Any, ...]
    shared_mem: int


class Fake(np.ndarray[Any, Any]):
    """A host array with the address of a device array."""

    @property
    def data(self) -> Any:  # type: ignore[override]
        return SimpleNamespace(ptr=int(self.ctypes.data))


class OutOfMemoryError(MemoryError):
    """CuPy's."""


def fake(array: Any) -> Any:
    """The array at an address on 32 bytes, as every allocation on a device begins."""
    array = np.asarray(array)
    room = np.zeros(array.nbytes + 32, np.uint8)
    start = -room.ctypes.data % 32
    found = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    found[...] = array
    return found.view(Fake)


def fake_zeros(shape: Any, dtype: Any) -> Any:
    """Zeros there."""
    return fake(np.zeros(shape, dtype))


def recorded(monkeypatch: pytest.MonkeyPatch, *stems: str) -> list[Launch]:
    """Every launch on an H200 from now on, of kernels of these sources; of its memory 5 bytes are free."""
    found: list[Launch] = []

    def load(source: Path, instance: str) -> nvrtc.Kernel:
        def launch(grid: Any, block: Any, arguments: Any, *, shared_mem: int) -> None:
            found.append(Launch(instance, grid, block, arguments, shared_mem))

        assert stem_of(source) in stems
        return nvrtc.Kernel(launch, registers=32, static_shared=256)

    runtime = SimpleNamespace(memGetInfo=lambda: (5, 10), getDevice=lambda: 0, streamIsCapturing=lambda stream: False)
    cuda = SimpleNamespace(
        runtime=runtime,
        memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
        get_current_stream=lambda: SimpleNamespace(ptr=0),
    )
    names = {name: getattr(np, name) for name in ("asarray", "uint64", "int64")}
    cupy = SimpleNamespace(cuda=cuda, empty=fake_zeros, zeros=fake_zeros, **names)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(device, "limits", lambda: H200)
    monkeypatch.setattr(nvrtc, "load", load)
    return found


def fill_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can be allocated any more."""

    def full(shape: Any, dtype: Any) -> Any:
        raise OutOfMemoryError

    for name in ("empty", "zeros"):
        monkeypatch.setattr(sys.modules["cupy"], name, full)
