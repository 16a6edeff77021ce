"""What is asked for ahead: in order, bounded by number and bytes; runs of a region by few requests."""

from __future__ import annotations

import time
from threading import Lock
from typing import Any

import numpy as np
import pytest

from pipeline.storage.array_file import runs_of
from pipeline.storage.pieces import Piece
from pipeline.storage.remote import runs
from pipeline.storage.remote.ahead import AHEAD, AHEAD_BYTES, PART_BYTES, in_order
from pipeline.storage.remote.runs import GAP_BYTES, read_runs_of_object
from workflows.regions import Bounds


@pytest.mark.parametrize(
    ("nbytes", "most"), [(0, AHEAD), (AHEAD_BYTES // 4, 4), (AHEAD_BYTES, 1), (3 * AHEAD_BYTES, 1)]
)
def test_bounded(nbytes: int, most: int) -> None:
    """What is used counts as held until the next one is asked for."""
    begun: list[int] = []
    results = in_order(lambda item: begun.append(item) or item, range(100), lambda _: nbytes)  # type: ignore[func-returns-value]
    for number in range(3):
        assert next(results) == number
        time.sleep(0.05)
        assert len(begun) <= number + most
    results.close()
    time.sleep(0.05)
    assert len(begun) <= 2 + most


def test_order_and_errors() -> None:
    """The first error in the order, whichever came first; results before it are there."""

    def slow(item: int) -> int:
        time.sleep(0.02 * (5 - item))
        if item >= 3:
            raise ValueError(str(item))
        return item

    results = in_order(slow, range(6))
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="3"):
        next(results)
    assert list(in_order(slow, ())) == []


@pytest.mark.parametrize(
    ("shape", "region", "requests"),
    [
        ((100, 1000), ((10, 20), (0, 1000)), 1),
        ((100, 1000), ((10, 20), (5, 7)), 1),  # rows of 4 kB: what is between is read in vain
        ((100, 50_000), ((10, 20), (5, 7)), 10),  # of 200 kB: by one request each
        ((3, PART_BYTES // 2), ((0, 2), (0, PART_BYTES // 2)), 4),
        ((3, PART_BYTES // 2), ((0, 2), (1, PART_BYTES // 2)), 4),
        ((9, 9, 9), ((1, 8), (2, 3), (4, 9)), 1),
    ],
)
def test_runs(monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], region: Bounds, requests: int) -> None:
    array = np.random.default_rng(0).integers(0, 2**31, shape, dtype="i4")
    stored, asked, lock = memoryview(array.tobytes()), [], Lock()

    def read(pieces: Any) -> Any:
        for piece in pieces:
            with lock:
                asked.append(piece.nbytes)
            yield stored[piece.offset : piece.offset + piece.nbytes]

    monkeypatch.setattr(runs, "read_ahead", read)
    expected = array[tuple(slice(*bounds) for bounds in region)]
    length, starts = runs_of(shape, 4, region)
    places = np.stack([starts, length * np.arange(len(starts)), np.full(len(starts), length)], axis=1)
    memory = np.empty(expected.nbytes, np.uint8)
    read_runs_of_object(Piece("a", 0, array.nbytes, None), 0, places, memory)
    assert memory.tobytes() == expected.tobytes()
    assert len(asked) == requests and max(asked) <= PART_BYTES + GAP_BYTES
