"""Arguments of launches, as the driver reads them, through a stand-in for the driver."""

from __future__ import annotations

import ctypes
import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kernels.common import packed
from kernels.common.nvrtc import Kernel

# Arguments and the bytes that a kernel gets of each.
ARRAY = SimpleNamespace(data=SimpleNamespace(ptr=0x7F00_1234_5678))
ARGUMENTS = (
    ARRAY, np.int64(-5), np.uint32(2**32 - 1), np.int32(-7), np.float32(-0.1), np.float64(1e300), np.uint64(2**64 - 1),
    np.int16(-2), np.uint8(255), np.int8(-128), np.bool_(True), np.float32(np.nan),
)  # fmt: skip


def contents(arguments: tuple[Any, ...]) -> list[bytes]:
    return [
        np.uint64(one.data.ptr).tobytes() if isinstance(one, SimpleNamespace) else one.tobytes() for one in arguments
    ]


class Driver:
    """Keeps what it is asked to launch, and the bytes behind the parameters."""

    def __init__(self, lengths: list[int]) -> None:
        self.lengths = lengths
        self.launches: list[Any] = []

    def launchKernel(self, *given: int) -> None:
        *how, parameters, extra = given
        assert not extra
        addresses = (ctypes.c_void_p * len(self.lengths)).from_address(parameters)
        values = [ctypes.string_at(address or 0, n) for address, n in zip(addresses, self.lengths, strict=True)]
        self.launches.append((how, values))


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver([len(one) for one in contents(ARGUMENTS)])
    stream = SimpleNamespace(ptr=99)
    cuda = SimpleNamespace(driver=made, get_current_stream=lambda: stream)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda))
    monkeypatch.setattr(packed, "_threads", SimpleNamespace())
    return made


class Function:
    """CuPy's function."""

    ptr = 7

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def __call__(self, grid: Any, block: Any, arguments: Any, shared_mem: int) -> None:
        self.calls.append((grid, block, arguments, shared_mem))


def test_every_argument_arrives(driver: Driver) -> None:
    kernel = Kernel(function := Function(), 32, 0)
    for _ in range(3):
        packed.launch(kernel, (5,), (32, 2), ARGUMENTS, 1000)
    assert function.calls == [((5,), (32, 2), ARGUMENTS, 1000)]  # the first one binds a context to the thread
    assert driver.launches == 2 * [([7, 5, 1, 1, 32, 2, 1, 1000, 99], contents(ARGUMENTS))]


def test_each_launch_has_its_own_arguments(driver: Driver) -> None:
    kernel = Kernel(Function(), 32, 0)
    others = (*ARGUMENTS[:1], np.int64(6), *ARGUMENTS[2:])
    for arguments in (ARGUMENTS, others, ARGUMENTS):
        packed.launch(kernel, (1,), (1,), arguments)
    assert [values for _, values in driver.launches] == [contents(others), contents(ARGUMENTS)]


def test_what_only_cupy_can_pass(driver: Driver) -> None:
    """Structures, pointers that are not arrays, Python's numbers; and another number of arguments."""
    kernel = Kernel(function := Function(), 32, 0)
    for one in (np.zeros(1, "i4,i4"), 5, 2.5, SimpleNamespace(ptr=3), np.float16(1), np.zeros(1)):
        for _ in range(2):
            packed.launch(kernel, (1,), (1,), (one, *ARGUMENTS[1:]))
    packed.launch(kernel, (1,), (1,), ARGUMENTS[1:])
    assert len(function.calls) == 13 and not driver.launches


def test_each_thread_begins_with_cupy(driver: Driver) -> None:
    kernel = Kernel(function := Function(), 32, 0)
    packed._threads = __import__("threading").local()
    for _ in range(2):
        with ThreadPoolExecutor(1) as pool:
            for _ in range(2):
                pool.submit(packed.launch, kernel, (1,), (1,), ARGUMENTS).result()
    assert len(function.calls) == len(driver.launches) == 2


def test_kernels_without_a_driver_are_called(driver: Driver) -> None:
    calls: list[Any] = []
    kernel = Kernel(lambda *given, shared_mem: calls.append(given), 32, 0)
    packed.launch(kernel, (1,), (1,), (1, 2))
    packed.launch(kernel, (1,), (1,), [1, 2])
    assert calls == 2 * [((1,), (1,), (1, 2))] and not driver.launches
