"""Batches of consecutive slabs: their chunks cross the bus compressed, and the device decompresses them at once.

Some lanes of a warp decompress a chunk at 3 to 80 MB/s, so only thousands of chunks at once keep a device busy. Checks
read and decompress the same chunks on the host, by other libraries.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from pipeline.gpu.decoding import Batch, Room
from pipeline.gpu.loads import DECODED
from pipeline.gpu.slabs import Plan, counts_of, plan_of
from pipeline.gpu.transfer import PINNED, transfer_path
from pipeline.storage.pieces import AnyPiece, Piece
from pipeline.threads import cores

# Of a batch, for each core that would decode them. Where there are few, an H200 decompresses a chunk of LZ4 at 50 to 80
# MB/s, of Zstandard at 40, of deflate at 3. A thread decodes 1.3 to 2.6 GB/s of LZ4, 0.6 to 0.9 of Zstandard and 0.4 of
# deflate. Fewer chunks, such as those so large that memory has no room for more, are therefore for the host.
LEAST_PER_CORE = {"Sized": 20, "Blocks": 20, "Zstd": 20, "Zlib": 128, "Gzip": 128}
WINDOW = 256  # slabs that are planned at a time, at least: 1 GiB of samples where a slab has 4 MiB
MEMORY = 8  # that decompressing a batch takes at most, in buffers for blocks
DECOMPRESSED = "decompressed on the device"


def batches(
    pieces: Iterable[AnyPiece], dtype: np.dtype[Any], nbytes: int, spare: int = sys.maxsize, limit: int = sys.maxsize
) -> Iterator[Batch | AnyPiece]:
    """Pieces in order, where possible in batches for the current device, each as large as memory allows.

    Parameters
    ----------
    pieces, dtype
    nbytes
        Bytes of a buffer for blocks, which has to hold the stored chunks of a batch.
    spare
        Bytes of the device that decompressing may take besides. Where they are enough for `DECODED` batches of the
        largest size, the next batch is decompressed while one is counted.
    limit
        Bytes that CuPy's pool may have there.
    """
    if transfer_path() != PINNED:
        yield from pieces
        return
    most = int(MEMORY * nbytes)
    ahead = spare // DECODED >= most  # smaller batches are slower than one after another
    room = Room(nbytes, min(spare, most), ahead, limit)
    waiting, before, full, window = list[Plan](), None, WINDOW, WINDOW
    for piece in pieces:
        plan = plan_of(piece, dtype, before)
        if waiting and (plan is None or plan.scheme != waiting[0].scheme):
            yield from (part for part, _ in _Slabs(waiting, room).batches(more=False))
            waiting, full, window = [], WINDOW, WINDOW
        elif len(waiting) == full:  # the first batches are read while further slabs are planned
            planned = 0
            for part, end in _Slabs(waiting, room).batches(more=True):
                yield part
                planned = end
            window = WINDOW if planned else 2 * window  # all that wait are looked at again
            del waiting[:planned]
            full = len(waiting) + window
        if plan is None:
            yield piece
        else:
            before = plan
            waiting.append(plan)
    if waiting:
        yield from (part for part, _ in _Slabs(waiting, room).batches(more=False))


class _Slabs:
    """Slabs of the same scheme, one after another; their places as one table, since there are thousands of chunks.

    Parameters
    ----------
    plans
    room
        For each batch.
    """

    def __init__(self, plans: list[Plan], room: Room) -> None:
        self._plans, self._room = plans, room
        scheme = plans[0].scheme
        self._least = LEAST_PER_CORE[scheme.codec] * cores()
        stored, counts = [plan.slab.stored for plan in plans], counts_of(plans)
        self._ends = ends = np.cumsum(counts)
        numbers, of_slabs, begins = dict[Piece, int](), list[int](), list[int]()
        files: tuple[Piece, ...] | None = None
        for one in stored:
            if one.files is not files:  # slabs that follow one another often have them in common
                files, begin = one.files, len(of_slabs) + 1  # the place before is that of missing chunks
                of_slabs += [-1, *[numbers.setdefault(file, len(numbers)) for file in files]]
            begins.append(begin)
        places = np.frombuffer(b"".join([one.places for one in stored]), np.int64).reshape(-1, 3)
        # Each column is contiguous, since NumPy goes through such ones several times as fast.
        table = np.empty((3, len(places)), np.int64).T
        table[:, 1:] = places[:, 1:]
        np.take(of_slabs, places[:, 0] + np.repeat(begins, counts), out=table[:, 0], mode="clip")
        self._files, self._table = tuple(numbers), table
        absent, small = np.flatnonzero(table[:, 0] < 0), np.flatnonzero(table[:, 2] <= scheme.tail)
        self._unsound = np.searchsorted(ends, small[table[small, 0] >= 0], "right")
        present = counts - np.bincount(np.searchsorted(ends, absent, "right"), minlength=len(plans))
        self._decoded = counts * scheme.chunk_bytes
        # Before each slab, and after the last one: chunks that are not missing, bytes as stored, and decoded.
        stored_bytes = np.add.reduceat(table[:, 2], ends - counts)
        sums = np.cumsum(present), np.cumsum(stored_bytes), ends * scheme.chunk_bytes
        self._present, self._stored, self._all_decoded = (np.concatenate([[0], sum_]) for sum_ in sums)

    def batches(self, more: bool) -> Iterator[tuple[Batch | AnyPiece, int]]:
        """All slabs in order, those that no batch has as their pieces; and after each, how many these were.

        If there are `more` slabs, the last batch, which these may fit into, is left out.
        """
        end = 0
        while (first := end) < len(self._plans):
            fitting = self._fitting(first)
            end = first + max(fitting, 1)
            if more and end == len(self._plans):
                return
            if fitting and self._present[end] - self._present[first] >= self._least:
                rows = slice(self._ends[first - 1] if first else 0, self._ends[end - 1])
                yield Batch(self._plans[first:end], self._files, self._table[rows], self._room), end
            else:
                yield from ((self._plans[number].piece, number + 1) for number in range(first, end))

    def _fitting(self, first: int) -> int:
        """Number of slabs, from one on, that a buffer and memory have room for; 0 if there is none for this one."""
        unsound = self._unsound[np.searchsorted(self._unsound, first) :]
        buffer, most, *_ = self._room
        limits = (
            np.searchsorted(self._stored, self._stored[first] + buffer, "right") - 1,
            np.searchsorted(self._all_decoded, self._all_decoded[first] + most, "right") - 1, *unsound[:1],
        )  # fmt: skip
        inside = slice(first, max(int(min(limits)), first))
        decoded = self._all_decoded[1:][inside] - self._all_decoded[first]
        copies = decoded + 2 * self._decoded[inside]  # in order, and two of a slab before
        beyond = decoded + copies > most
        return int(beyond.argmax()) if beyond.any() else len(beyond)
