"""The pool of zeros: no two results share memory, whatever their thread, stream or size."""

from __future__ import annotations

import sys
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from time import sleep
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kernels.common import memory


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """NumPy stands for CuPy; `cleared` are the launches that write zeros."""
    state = SimpleNamespace(stream=0, number=0, capturing=False, cleared=[])

    def zeros(shape: Any, dtype: Any) -> Any:
        state.cleared.append(shape)
        return np.zeros(shape, dtype)

    runtime = SimpleNamespace(getDevice=lambda: state.number, streamIsCapturing=lambda stream: state.capturing)
    cuda = SimpleNamespace(runtime=runtime, get_current_stream=lambda: SimpleNamespace(ptr=state.stream))
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda, zeros=zeros, empty=np.empty))
    monkeypatch.setattr(memory, "_pools", {})
    return state


def take(count: int) -> Any:
    """Zeros, overwritten after the check."""
    zeros = memory.pooled_zeros(count)
    assert (zeros.shape, zeros.dtype, zeros.flags.c_contiguous) == ((count,), np.uint64, True)
    assert not zeros.any()
    zeros += np.uint64(1)
    return zeros


def test_one_launch_clears_many(device: SimpleNamespace) -> None:
    taken = [take(1027) for _ in range(500)]
    assert len({array.ctypes.data for array in taken}) == 500
    rows = memory.POOL_BYTES // (8 * 1040)
    assert device.cleared == [rows * 1040] * -(-500 // rows)
    starts = {(array.ctypes.data - array.base.ctypes.data) % memory.ALIGNMENT for array in taken}
    assert starts == {0}


LARGEST = memory.POOL_BYTES // 8  # numbers of a result that shares memory with others


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 16387, LARGEST // 2, LARGEST, LARGEST + 1])
def test_any_size(device: SimpleNamespace, count: int) -> None:
    taken = [take(count) for _ in range(5)]
    assert all(not np.shares_memory(one, other) for one in taken for other in taken if one is not other)
    if count > LARGEST:  # large results get their own arrays
        assert device.cleared == [count] * 5
    else:
        assert len(device.cleared) <= 3


def test_kinds_and_dtypes_have_their_own(device: SimpleNamespace) -> None:
    """Numbers that are not cleared are never taken for cleared ones."""
    written, signed, stream = memory.pooled_empty(10, np.uint64), memory.pooled_zeros(10, np.int64), (0, 0, 0)
    written[:], signed[:] = 1, -1
    assert signed.dtype == np.int64 and not memory.pooled_zeros(10, np.int64, stream).any()
    take(10)
    assert len(device.cleared) == 2
    further = memory.pooled_empty(10, np.uint64, stream)
    assert further.ctypes.data - written.ctypes.data == memory.ALIGNMENT and further.base is written.base


def test_streams_and_devices_have_their_own(device: SimpleNamespace) -> None:
    take(10)
    for name in ("stream", "number"):
        setattr(device, name, 1)
        take(10)
    assert len(device.cleared) == 3
    device.stream = device.number = 0
    take(10)
    assert len(device.cleared) == 3


@pytest.mark.parametrize(("stream", "cleared"), [(memory.PER_THREAD_STREAM, 2), (7, 1)])
def test_threads_have_their_own_where_their_stream_is(device: SimpleNamespace, stream: int, cleared: int) -> None:
    device.stream = stream
    take(10)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(take, 10).result()
    take(10)
    assert len(device.cleared) == cleared


def test_threads_that_share_a_stream_get_their_own(device: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever one thread stops while it looks at what is left, another one goes on."""

    class Slow(deque[int]):
        def __getitem__(self, number: Any) -> Any:
            found = super().__getitem__(number)
            sleep(0.001)
            return found

        def __len__(self) -> int:
            left = super().__len__()
            sleep(0.001)
            return left

    monkeypatch.setattr(memory, "deque", Slow)
    with ThreadPoolExecutor(8) as pool:
        taken = list(pool.map(lambda _: memory.pooled_zeros(20_000), range(200)))
    assert len({array.ctypes.data for array in taken}) == len(taken)


def test_what_is_captured_is_cleared_each_time(device: SimpleNamespace) -> None:
    take(10)
    device.capturing = True
    take(10)
    assert device.cleared[1:] == [10]


def test_few_are_kept(device: SimpleNamespace) -> None:
    for count in range(1, 3 * memory.MAX_POOLS):
        take(count)
    assert len(memory._pools) == memory.MAX_POOLS
    before = len(device.cleared)
    take(3 * memory.MAX_POOLS - 1)
    assert len(device.cleared) == before
    take(1)
    assert len(device.cleared) == before + 1


def test_what_is_not_taken_is_given_up(device: SimpleNamespace) -> None:
    kept = take(10)
    memory.release_pool()
    assert not memory._pools
    assert not np.shares_memory(take(10), kept.base)
    assert len(device.cleared) == 2
