"""Consecutive slabs whose chunks cross the bus as they are stored and are decompressed on the device at once.

A warp decompresses a chunk at some 30 MB/s of samples on an H200, so only thousands of chunks at once keep a device
busy. Checks read and decompress the same chunks on the host, by other libraries. Where a device cannot decompress a
chunk, or reports a failure, the host decodes it: its decoders name the error.
"""

from __future__ import annotations

import sys
from bisect import bisect
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain, groupby, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common.decode import unshuffle
from kernels.common.memory import empty, zeros
from pipeline.gpu import nvcomp
from pipeline.gpu.loads import DECODED, Begun, to_native
from pipeline.gpu.slabs import Plan, Scheme, plan_of
from pipeline.gpu.transfer import PINNED, gather, transfer_path
from pipeline.storage.pieces import AnyPiece, Piece

# Of a batch. In any codec 512 chunks of 256 KiB took an H200 9 ms, so that 32 are decompressed at 1 GB/s, whatever
# their size. A thread decodes 1.3 to 2.6 GB/s of LZ4, 0.6 to 0.9 of Zstandard and 0.4 of deflate. Chunks so large that
# memory has no room for 32 are therefore for the host.
LEAST_CHUNKS = 32
WINDOW = 256  # slabs that are planned at a time, at least: mostly those of 1 GiB of samples
MEMORY = 8  # that decompressing a batch takes at most, in buffers for blocks
DECOMPRESSED = "decompressed by nvCOMP"


class Batch:
    """Slabs that one call of nvCOMP decompresses.

    Parameters
    ----------
    plans
        In order, at least one, all of the same scheme.
    files
        That their chunks are stored in, and perhaps others.
    table
        Where these are, as `pipeline.storage.formats.slabs.Stored.table` has it.
    """

    def __init__(self, plans: Sequence[Plan], files: Sequence[Piece], table: NDArray[np.int64]) -> None:
        self.plans, self.scheme, self.table = plans, plans[0].scheme, table.copy()
        self.counts = np.array([plan.chunks for plan in plans])
        used = np.flatnonzero(np.bincount(table[:, 0] + 1)[1:])
        self.files = tuple(files[number] for number in used.tolist())
        there = table[:, 0] >= 0
        self.table[there, 0] = np.searchsorted(used, table[there, 0])
        _ = self.runs, self.in_order  # while nothing waits for it

    @cached_property
    def present(self) -> NDArray[np.int64]:
        """Numbers of the chunks that are not missing, by file and offset."""
        there = np.flatnonzero(self.table[:, 0] >= 0)
        files, offsets, _ = self.table[there].T
        follows = (files[1:] > files[:-1]) | ((files[1:] == files[:-1]) & (offsets[1:] >= offsets[:-1]))
        return there if follows.all() else there[np.lexsort((offsets, files))]

    @cached_property
    def places(self) -> NDArray[np.int64]:
        """File, offset and bytes of these chunks, shape (chunks, 3)."""
        return self.table[self.present]

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Where each of them begins in the buffer, and where the last one ends."""
        padded = _padded(self.places[:, 2], self.scheme)
        return _first(self.scheme) + np.concatenate([[0], np.cumsum(padded)])

    @cached_property
    def runs(self) -> NDArray[np.int64]:
        """Byte runs of these chunks, as `pipeline.gpu.transfer.gather` takes them; each is padded with bytes behind it,
        or of its own beginning. Those that lie one after another are one: thousands of reads of some KiB each would
        take longer than the bus."""
        runs = self.places
        if self.scheme.codec.alignment > 1:
            files, offsets, sizes = runs.T
            padded = np.diff(self.starts)
            inside = offsets + padded <= np.array([file.nbytes for file in self.files])[files]
            own = np.where(inside, padded, sizes)
            runs = np.stack([files, offsets, own, files, offsets, padded - own], 1).reshape(-1, 3)
            runs = np.concatenate([[[files[0], offsets[0], self.starts[0]]], runs])
            runs = runs[runs[:, 2] > 0]
        files, offsets, sizes = runs.T
        apart = (files[1:] != files[:-1]) | (offsets[1:] != (offsets + sizes)[:-1])
        begins = np.flatnonzero(np.concatenate([[True], apart]))
        return np.stack([files[begins], offsets[begins], np.add.reduceat(sizes, begins)], 1)

    def begin(self, order: int, slot: Any) -> Begun:
        """Start to read the stored chunks into a buffer on the device; `order` as `pipeline.gpu.transfer.opened` has
        it."""
        return gather(self.files, self.runs, slot[: int(self.starts[-1])], order), self.decoding

    def decoding(self, stored: Any) -> Decoding:
        """Start to decompress stored chunks on the device, after what is on the current stream."""
        return Decoding(self, stored)

    @cached_property
    def in_order(self) -> bool:
        """Whether the samples of all pieces lie one after another in the decoded chunks."""
        whole = all(plan.piece.nbytes == plan.decoded for plan in self.plans[:-1])
        return whole and all(plan.in_order for plan in self.plans)


class Decoding:
    """Chunks of a batch that the device decompresses."""

    ahead = True

    def __init__(self, batch: Batch, stored: Any) -> None:
        import cupy

        scheme, starts = batch.scheme, batch.starts[:-1]
        head, sizes = scheme.codec.head, batch.places[:, 2] - scheme.codec.head - scheme.tail
        self._batch, self._sizes = batch, sizes
        # What the heads say is looked at when nvCOMP has ended: until then, nothing waits for the device.
        self._heads = stored[cupy.asarray(starts[:, None] + np.arange(head))] if head else None
        self._absent = np.flatnonzero(batch.table[:, 0] < 0)
        allocated = zeros if len(self._absent) else empty
        self._flat = allocated("nvCOMP", len(batch.table) * scheme.chunk_bytes, np.uint8)
        self._under_way = nvcomp.decompress(
            scheme.codec.algorithm, stored, starts + head, sizes, self._flat, batch.present, scheme.chunk_bytes
        )

    def get(self) -> None:
        """Wait until the device has ended."""
        self._under_way.get()

    def samples(self) -> Any:
        """Samples of all pieces, in native byte order; on the current stream."""
        batch, dtype = self._batch, self._batch.scheme.dtype
        flat, right = self._decompressed()
        if right.all() and batch.in_order:
            last = (len(batch.table) - batch.counts[-1]) * batch.scheme.chunk_bytes // dtype.itemsize
            wanted = slice(batch.plans[0].wanted.start, int(last) + batch.plans[-1].wanted.stop)
            return to_native(flat.view(dtype.newbyteorder("="))[wanted], dtype)
        ends = (np.cumsum(batch.counts) * batch.scheme.chunk_bytes).tolist()
        parts = (
            to_native(plan.samples(flat[begin:end]), dtype) if good else plan.decoded_on_host()
            for plan, begin, end, good in zip(batch.plans, [0, *ends], ends, right, strict=False)
        )
        if len(batch.plans) == 1:
            return next(parts)
        nbytes, native = sum(plan.piece.nbytes for plan in batch.plans), dtype.newbyteorder("=")
        out = empty("nvCOMP", nbytes // dtype.itemsize, native)
        filled = 0
        for part in parts:
            out[filled : filled + len(part)] = part
            filled += len(part)
        return out

    def _decompressed(self) -> tuple[Any, NDArray[np.bool_]]:
        """Bytes of all chunks, one after another, and of each slab whether all its chunks are right."""
        import cupy

        batch, scheme, flat = self._batch, self._batch.scheme, self._flat
        right = np.ones(len(batch.table), bool)
        right[batch.present] = self._under_way.right()
        if self._heads is not None:
            right[batch.present] &= scheme.codec.fits(self._heads.get(), self._sizes, scheme.chunk_bytes)
        if scheme.unshuffled:
            flat = unshuffle(flat, scheme.unshuffled, scheme.chunk_bytes)
        if len(self._absent):
            itemsize = scheme.dtype.itemsize
            samples = flat.reshape(-1, scheme.chunk_bytes // itemsize, itemsize)
            samples[cupy.asarray(self._absent)] = cupy.asarray(np.frombuffer(scheme.fill, np.uint8))
        return flat, np.logical_and.reduceat(right, np.cumsum(batch.counts) - batch.counts)


def batches(
    pieces: Iterable[AnyPiece], dtype: np.dtype[Any], nbytes: int, spare: int = sys.maxsize
) -> Iterator[Batch | AnyPiece]:
    """Pieces in order, where possible in batches for the current device, each as large as memory allows.

    Parameters
    ----------
    pieces, dtype
    nbytes
        Bytes of a buffer for blocks, which has to hold the stored chunks of a batch.
    spare
        Bytes of the device that decompressing `DECODED` of them may take besides.
    """
    if transfer_path() != PINNED or nvcomp.library() is None:
        yield from pieces
        return
    most = min(spare // DECODED, int(MEMORY * nbytes))
    for scheme, some in groupby(_planned(pieces, dtype), lambda one: None if isinstance(one, AnyPiece) else one.scheme):
        if scheme is None:
            yield from (one for one in some if isinstance(one, AnyPiece))
        else:
            yield from _in_batches((one for one in some if isinstance(one, Plan)), nbytes, most)


def _planned(pieces: Iterable[AnyPiece], dtype: np.dtype[Any]) -> Iterator[Plan | AnyPiece]:
    """How each piece is decompressed, or the piece itself if it cannot be."""
    plan = None
    for piece in pieces:
        planned = plan_of(piece, dtype, plan)
        plan = planned or plan
        yield planned or piece


def _in_batches(plans: Iterator[Plan], nbytes: int, most: int) -> Iterator[Batch | AnyPiece]:
    """Slabs of the same scheme, as `_Slabs` has them: the first batches are read while further ones are planned."""
    waiting, window = list[Plan](), WINDOW
    while added := [*islice(plans, window)]:
        waiting += added
        planned = 0
        for part, end in _Slabs(waiting, nbytes, most).batches():
            if end == len(waiting) and len(added) == window:
                break  # the next slabs may fit into this batch
            yield part
            planned = end
        window = WINDOW if planned else 2 * window
        del waiting[:planned]
    if waiting:
        yield from (part for part, _ in _Slabs(waiting, nbytes, most).batches())


class _Slabs:
    """Slabs of the same scheme, one after another; their places as one table, since there are thousands of chunks.

    Parameters
    ----------
    plans
    nbytes, most
        Of a buffer, and of the device, which decompressing a batch may take.
    """

    def __init__(self, plans: list[Plan], nbytes: int, most: int) -> None:
        self._plans, self._nbytes, self._most = plans, nbytes, most
        self._scheme = scheme = plans[0].scheme
        counts = np.array([plan.chunks for plan in plans])
        self._ends = np.cumsum(counts)
        begins = self._ends - counts
        self._table = np.frombuffer(b"".join(plan.slab.stored.places for plan in plans), np.int64).reshape(-1, 3).copy()
        there, sizes = self._table[:, 0] >= 0, self._table[:, 2]
        numbers: dict[Piece, int] = {}
        of_slabs = [[numbers.setdefault(file, len(numbers)) for file in plan.slab.stored.files] for plan in plans]
        before = np.repeat(np.cumsum([0, *map(len, of_slabs[:-1])]), counts)
        self._table[there, 0] = np.array([*chain.from_iterable(of_slabs), -1])[(self._table[:, 0] + before)[there]]
        self._files = tuple(numbers)
        self._decoded = counts * scheme.chunk_bytes
        too_small = there & (sizes <= max(scheme.codec.head + scheme.tail, scheme.codec.alignment))
        self._unsound = np.flatnonzero(np.logical_or.reduceat(too_small, begins))
        # Before each slab, and after the last one: chunks that are not missing, bytes as stored, and decoded.
        sums = np.add.reduceat(there, begins, dtype=np.int64), np.add.reduceat(_padded(sizes, scheme), begins)
        self._present, self._stored, self._all_decoded = (
            np.concatenate([[0], np.cumsum(sum_)]) for sum_ in (*sums, self._decoded)
        )

    def batches(self) -> Iterator[tuple[Batch | AnyPiece, int]]:
        """All slabs in order, those that no batch has as their pieces; and after each, how many these were."""
        end = 0
        while (first := end) < len(self._plans):
            fitting = self._fitting(first)
            end = first + max(fitting, 1)
            if fitting and self._present[end] - self._present[first] >= LEAST_CHUNKS:
                rows = slice(self._ends[first - 1] if first else 0, self._ends[end - 1])
                yield Batch(self._plans[first:end], self._files, self._table[rows]), end
            else:
                yield from ((self._plans[number].piece, number + 1) for number in range(first, end))

    def _fitting(self, first: int) -> int:
        """Number of slabs, from one on, that a buffer and memory have room for; 0 if there is none for this one."""
        scheme, unsound = self._scheme, self._unsound[np.searchsorted(self._unsound, first) :]
        limits = (
            np.searchsorted(self._stored, self._stored[first] + self._nbytes - _first(scheme), "right") - 1,
            np.searchsorted(self._all_decoded, self._all_decoded[first] + self._most, "right") - 1, *unsound[:1],
        )  # fmt: skip
        inside = slice(first, max(int(min(limits)), first))
        decoded = self._all_decoded[1:][inside] - self._all_decoded[first]
        copies = decoded + 2 * self._decoded[inside]  # once the workspace is free: in order, and two of a slab before
        beyond = decoded + copies > self._most
        number = int(beyond.argmax()) if beyond.any() else len(beyond)

        def has_no_workspace(last: int) -> bool:
            chunks = max(int(self._present[first + last + 1] - self._present[first]), 1)
            nbytes = nvcomp.workspace_bytes(scheme.codec.algorithm, chunks, scheme.chunk_bytes)
            return nbytes is None or decoded[last] + nbytes > self._most

        if number and not has_no_workspace(number - 1):
            return number
        return bisect(range(number), False, key=has_no_workspace)


def _padded(sizes: NDArray[np.int64], scheme: Scheme) -> NDArray[np.int64]:
    """Bytes of stored chunks, each aligned."""
    return sizes + (scheme.codec.alignment - 1) & -scheme.codec.alignment


def _first(scheme: Scheme) -> int:
    """Where the first chunk begins in a buffer, so that what is behind its head is aligned."""
    return -scheme.codec.head % scheme.codec.alignment
