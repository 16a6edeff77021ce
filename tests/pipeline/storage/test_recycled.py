"""Memory is used again only when nothing refers to it any more."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from pipeline.storage.recycled import SMALL, Recycled

SHAPE = (4, SMALL)


@pytest.mark.parametrize("view", [lambda x: x, lambda x: x[1:3, ::2], lambda x: x.view(np.uint16)[:1].T, memoryview])
def test_views_keep_their_memory(view: object) -> None:
    recycled = Recycled()
    assert callable(view)
    kept = view(recycled.empty(SHAPE, np.uint8))
    gc.collect()
    other = recycled.empty(SHAPE, np.uint8)
    assert not np.shares_memory(np.asarray(kept), other)
    place = np.asarray(kept).__array_interface__["data"][0]
    del kept
    again = recycled.empty(SHAPE, np.uint8)
    assert abs(again.__array_interface__["data"][0] - place) < again.nbytes and not np.shares_memory(again, other)


def test_other_sizes_have_other_memory() -> None:
    recycled = Recycled()
    first = recycled.empty(SHAPE, ">f4")
    assert first.shape == SHAPE and first.dtype == ">f4" and first.flags.writeable and first.flags.c_contiguous
    del first
    assert recycled.empty((3, SMALL), np.float64).shape == (3, SMALL)
    assert recycled.empty((0, 5), np.int16).shape == (0, 5)


def test_threads_never_share_memory() -> None:
    recycled = Recycled()

    def fill(number: int) -> bool:
        array = recycled.empty(SHAPE, np.int32)
        array[...] = number
        return bool((array == number).all())

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(fill, range(200)))
