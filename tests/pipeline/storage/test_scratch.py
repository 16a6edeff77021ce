"""Scratch memory that is reused: never shared while in use."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest

from pipeline.storage import scratch as module
from pipeline.storage.scratch import ALIGNED, aligned_empty, scratch

INT64 = np.dtype(np.int64)


@pytest.mark.parametrize("shape", [0, 7, 2**21 + 1, (), (3, 0), (5, 2**19)])
def test_memory_to_read_into_begins_at_a_cache_line(shape: int | tuple[int, ...]) -> None:
    for dtype in ("u1", ">i4", "V5"):
        array = aligned_empty(shape, np.dtype(dtype))
        expected = np.empty(shape, dtype)
        assert (array.shape, array.dtype, array.nbytes) == (expected.shape, expected.dtype, expected.nbytes)
        assert array.ctypes.data % ALIGNED == 0 and array.flags.c_contiguous and array.flags.writeable
        array.reshape(-1).view(np.uint8)[...] = 255


def test_arrays_lie_beside_each_other_until_the_end() -> None:
    with scratch() as allocate:
        kinds = ((3, 5), "u1"), ((), "f8"), ((0, 4), "i2"), ((7,), "V5"), ((2, 2), ">i4"), ((9,), "S3")
        arrays = [allocate(shape, np.dtype(dtype)) for shape, dtype in kinds]
        for number, array in enumerate(arrays):
            array.reshape(-1).view(np.uint8)[...] = number
        for number, array in enumerate(arrays):
            assert array.flags.c_contiguous and array.ctypes.data % ALIGNED == 0
            assert (array.reshape(-1).view(np.uint8) == number).all()
        assert [array.shape for array in arrays] == [(3, 5), (), (0, 4), (7,), (2, 2), (9,)]
        assert arrays[4].dtype == np.dtype(">i4")


def test_memory_is_used_again() -> None:
    places = []
    for _ in range(2):
        with scratch() as allocate:
            places.append(allocate((1000,), INT64).ctypes.data)
    assert places[0] == places[1]


def test_no_two_users_share_it() -> None:
    """One inside of another, as of threads."""
    with scratch() as outer:
        kept = outer((1000,), INT64)
        with scratch() as inner:
            assert not np.shares_memory(kept, inner((1000,), INT64))
    both = Barrier(2)

    def place() -> int:
        with scratch() as allocate:
            address = allocate((1000,), INT64).ctypes.data
            both.wait(20)
            return address

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.submit(place), pool.submit(place)
        assert abs(first.result() - second.result()) >= 8000


def test_where_there_is_no_room_left_it_is_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_BYTES", 8192)
    module.forget()
    with scratch() as allocate:
        arrays = [allocate((600,), INT64), allocate((600,), INT64), allocate((424,), INT64), allocate((1,), INT64)]
        for number, array in enumerate(arrays):
            array[...] = number
        assert [array.tolist() for array in arrays] == [[0] * 600, [1] * 600, [2] * 424, [3]]
        assert [array.base is not arrays[0].base for array in arrays] == [False, True, False, True]
    module.forget()  # too short for the others


def test_no_more_of_it_than_users_at_a_time() -> None:
    """Whichever threads they are; none once it is forgotten."""
    module.forget()
    with ThreadPoolExecutor(8) as pool:
        for _ in range(8):
            pool.submit(test_memory_is_used_again).result()
    assert len(module._spare) == 1
    module.forget()
    assert module._spare == []


def test_it_is_given_back_after_an_error() -> None:
    with pytest.raises(ValueError), scratch() as allocate:
        place = allocate((1,), INT64).ctypes.data
        raise ValueError
    with scratch() as allocate:
        assert allocate((1,), INT64).ctypes.data == place
