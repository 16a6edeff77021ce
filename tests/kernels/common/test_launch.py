"""Arguments of launches, as the driver reads them, through a stand-in for the driver."""

from __future__ import annotations

import ctypes
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kernels.common.launch import Launch
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
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(driver=made)))
    return made


class Function:
    """CuPy's function."""

    ptr = 7

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def __call__(self, grid: Any, block: Any, arguments: Any, shared_mem: int) -> None:
        self.calls.append((grid, block, arguments, shared_mem))


@pytest.mark.parametrize("own", [0, 3, len(ARGUMENTS)])
def test_every_argument_arrives(driver: Driver, own: int) -> None:
    launch = Launch(Kernel(function := Function(), 32, 0), (32, 2), own, 1000, ARGUMENTS[own:])
    for _ in range(3):
        launch(5, ARGUMENTS[:own], 99)
    assert function.calls == [((5,), (32, 2), ARGUMENTS, 1000)]  # the first one binds a context to the thread
    assert driver.launches == 2 * [([7, 5, 1, 1, 32, 2, 1, 1000, 99], contents(ARGUMENTS))]


def test_each_launch_has_its_own_arguments(driver: Driver) -> None:
    kernel = Kernel(Function(), 32, 0)
    launch, of_others = (Launch(kernel, (1,), 2, 0, (np.uint32(number), *ARGUMENTS[3:])) for number in (8, 9))
    other = ARGUMENTS[0], np.int64(6)
    for arguments in (ARGUMENTS[:2], other, ARGUMENTS[:2]):
        for one in (launch, of_others):
            one(1, arguments, 0)
    assert [values for _, values in driver.launches] == [
        contents((*arguments, np.uint32(number), *ARGUMENTS[3:]))
        for arguments in (other, ARGUMENTS[:2]) for number in (8, 9)
    ]  # fmt: skip


@pytest.mark.parametrize("own", [0, 1, 2])
def test_what_only_cupy_can_pass(driver: Driver, own: int) -> None:
    """Structures, pointers that are not arrays, Python's numbers."""
    kernel = Kernel(function := Function(), 32, 0)
    for one in (np.zeros(1, "i4,i4"), 5, 2.5, SimpleNamespace(ptr=3), np.float16(1), np.zeros(1)):
        arguments = one, *ARGUMENTS[1:]
        launch = Launch(kernel, (1,), own, 0, arguments[own:])
        for _ in range(2):
            launch(1, arguments[:own], 0)
    assert len(function.calls) == 12 and not driver.launches


def test_each_thread_begins_with_cupy(driver: Driver) -> None:
    launch = Launch(Kernel(function := Function(), 32, 0), (1,), 2, 0, ARGUMENTS[2:])
    for _ in range(2):
        with ThreadPoolExecutor(1) as pool:
            for _ in range(2):
                pool.submit(launch, 1, ARGUMENTS[:2], 0).result()
    assert len(function.calls) == len(driver.launches) == 2


def test_threads_do_not_share_arguments(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread's arguments stay until its launch reads them, whatever others launch in between."""
    launch, inside, go_on = Launch(Kernel(Function(), 32, 0), (1,), 2, 0, ARGUMENTS[2:]), Event(), Event()
    launch_kernel = driver.launchKernel

    def slowly(*given: int) -> None:
        if not inside.is_set():
            inside.set()
            assert go_on.wait(30)
        launch_kernel(*given)

    monkeypatch.setattr(driver, "launchKernel", slowly)

    def twice(number: int) -> None:
        for _ in range(2):
            launch(1, (ARRAY, np.int64(number)), 0)

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(twice, 1)
        assert inside.wait(30)
        pool.submit(twice, 2).result()
        go_on.set()
        first.result()
    assert [values[1] for _, values in driver.launches] == [np.int64(number).tobytes() for number in (2, 1)]


def test_kernels_without_a_driver_are_called(driver: Driver) -> None:
    calls: list[Any] = []
    launch = Launch(Kernel(lambda *given, shared_mem: calls.append(given), 32, 0), (1,), 1, 0, [2])
    for _ in range(2):
        launch(1, [1], 0)
    assert calls == 2 * [((1,), (1,), (1, 2))] and not driver.launches
