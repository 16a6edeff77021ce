"""Reads the runs of a region of a remote array: neighbours by one request."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pipeline.storage.pieces import Piece
from pipeline.storage.remote.ahead import PART_BYTES, read_ahead

GAP_BYTES = 2**16  # read in vain rather than asked around: a request takes longer than these bytes


def read_runs_of_object(piece: Piece, first: int, runs: NDArray[np.int64], memory: NDArray[np.uint8]) -> None:
    """Read runs into memory.

    Parameters
    ----------
    piece
    first
        Byte of the piece from which runs count.
    runs : int64 array, shape (n, 3)
        First byte, in ascending order; first byte in memory; number of bytes.
    memory
    """
    requests = list(_requests(runs))
    pieces = (piece.cut(first + start, stop - start) for start, stop, _ in requests)
    for (start, _, wanted), data in zip(requests, read_ahead(pieces), strict=True):
        stored = np.frombuffer(data, np.uint8)
        for at, to, nbytes in wanted:
            memory[to : to + nbytes] = stored[at - start : at - start + nbytes]


def _requests(runs: NDArray[np.int64]) -> Iterator[tuple[int, int, list[tuple[int, int, int]]]]:
    """First byte and end of each request, with the runs in it: long ones in parts, short ones together."""
    wanted: list[tuple[int, int, int]] = []
    start = stop = 0
    for at, to, nbytes in _parts(runs):
        if wanted and (at - stop > GAP_BYTES or at + nbytes - start > PART_BYTES):
            yield start, stop, wanted
            wanted = []
        start = start if wanted else at
        wanted.append((at, to, nbytes))
        stop = at + nbytes
    if wanted:
        yield start, stop, wanted


def _parts(runs: NDArray[np.int64]) -> Iterator[tuple[int, int, int]]:
    for at, to, nbytes in runs.tolist():
        for done in range(0, nbytes, PART_BYTES):
            yield at + done, to + done, min(PART_BYTES, nbytes - done)
