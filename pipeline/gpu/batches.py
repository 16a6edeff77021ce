"""Consecutive slabs whose chunks cross the bus as they are stored and are decompressed on the device at once.

A warp decompresses a chunk, at some 30 MB/s of samples on an H200: a device is busy only with thousands at once. Checks
read and decompress the same chunks on the host, by other libraries. Where a device cannot do it, or says that it
failed, the host does: its decoders name what is wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common.decode import unshuffle
from kernels.common.memory import empty, zeros
from pipeline.gpu import nvcomp
from pipeline.gpu.loads import Begun, Loading, to_native
from pipeline.gpu.slabs import Plan, plan_of
from pipeline.gpu.transfer import PINNED, transfer_path
from pipeline.storage.pieces import AnyPiece, Piece

# Of a batch. In any codec 512 chunks of 256 KiB took an H200 9 ms, so that 32 are decompressed at 1 GB/s, whatever
# their size. A thread decodes 1.3 to 2.6 GB/s of LZ4, 0.6 to 0.9 of Zstandard and 0.4 of deflate. Chunks so large that
# memory has no room for 32 are therefore for the host.
LEAST_CHUNKS = 32
MEMORY = 8  # that decompressing a batch takes at most, in buffers for blocks
DECOMPRESSED = "decompressed by nvCOMP"


class Batch:
    """Slabs that one call of nvCOMP decompresses.

    Parameters
    ----------
    plans
        In order, at least one, all of the same scheme.
    """

    def __init__(self, plans: list[Plan]) -> None:
        self.plans, self.scheme = plans, plans[0].scheme
        numbers: dict[Piece, int] = {}
        tables = []
        for plan in plans:
            of_files = [numbers.setdefault(file, len(numbers)) for file in plan.slab.stored.files]
            table = plan.table.copy()
            table[:, 0] = np.array([*of_files, -1])[table[:, 0]]  # -1 stays as it is
            tables.append(table)
        self.files, self.table = tuple(numbers), np.concatenate(tables)
        self.counts = np.array([len(table) for table in tables])  # chunks of each slab

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
        alignment = self.scheme.codec.alignment
        padded = -(-self.places[:, 2] // alignment) * alignment
        return -self.scheme.codec.head % alignment + np.concatenate([[0], np.cumsum(padded)])

    def begin(self, order: int, slot: Any) -> Begun:
        """Start to read the stored chunks into a buffer on the device; `order` as `pipeline.gpu.transfer.opened` has
        it."""
        loading = Loading(slot[: int(self.starts[-1])])
        first = np.searchsorted(self.places[:, 0], np.arange(len(self.files) + 1))
        try:
            for file, begin, end in zip(self.files, first[:-1], first[1:], strict=True):
                if begin < end:
                    start = self.starts[begin] if begin else 0
                    target = slot[int(start) : int(self.starts[end])]
                    loading.add(file, 0, self._runs(file, begin, end), target, order)
        except BaseException:
            loading.get()
            raise
        return loading, self.samples

    def _runs(self, file: Piece, begin: int, end: int) -> NDArray[np.int64]:
        """Byte runs of these chunks of a file; each is padded with bytes behind it, or of its own beginning. Those that
        lie one after another are one: thousands of reads of some KiB each would take longer than the bus."""
        _, offsets, sizes = self.places[begin:end].T
        padded = np.diff(self.starts[begin : end + 1])
        inside = offsets + padded <= file.nbytes
        own = np.where(inside, padded, sizes)
        runs = np.stack([offsets, own, offsets, padded - own], 1).reshape(-1, 2)
        if not begin and (skipped := self.starts[0]):
            runs = np.concatenate([[[offsets[0], skipped]], runs])
        runs = runs[runs[:, 1] > 0]
        begins = np.flatnonzero(np.concatenate([[True], runs[1:, 0] != runs[:-1].sum(1)]))
        return np.stack([runs[begins, 0], np.add.reduceat(runs[:, 1], begins)], 1)

    def samples(self, stored: Any) -> Any:
        """Samples of all pieces, in native byte order, of stored chunks on the device; on the current stream."""
        dtype = self.scheme.dtype
        flat, right = self._decompressed(stored)
        if right.all() and self._in_order:
            last = (len(self.table) - self.counts[-1]) * self.scheme.chunk_bytes // dtype.itemsize
            wanted = slice(self.plans[0].wanted.start, int(last) + self.plans[-1].wanted.stop)
            return to_native(flat.view(dtype.newbyteorder("="))[wanted], dtype)
        ends = (np.cumsum(self.counts) * self.scheme.chunk_bytes).tolist()
        parts = (
            to_native(plan.samples(flat[begin:end]), dtype) if good else plan.decoded_on_host()
            for plan, begin, end, good in zip(self.plans, [0, *ends], ends, right, strict=False)
        )
        if len(self.plans) == 1:
            return next(parts)
        out = empty("nvCOMP", sum(plan.piece.nbytes for plan in self.plans) // dtype.itemsize, dtype.newbyteorder("="))
        filled = 0
        for part in parts:
            out[filled : filled + len(part)] = part
            filled += len(part)
        return out

    @property
    def _in_order(self) -> bool:
        """Whether the samples of all pieces lie one after another in the decoded chunks."""
        whole = all(plan.piece.nbytes == plan.decoded for plan in self.plans[:-1])
        return whole and all(plan.in_order for plan in self.plans)

    def _decompressed(self, stored: Any) -> tuple[Any, NDArray[np.bool_]]:
        """Bytes of all chunks, one after another, and of each slab whether all its chunks are right."""
        import cupy

        scheme, starts = self.scheme, self.starts[:-1]
        head, sizes = scheme.codec.head, self.places[:, 2] - scheme.codec.head - scheme.tail
        right = np.ones(len(self.table), bool)
        if head:
            heads = stored[cupy.asarray(starts[:, None] + np.arange(head))].get()
            right[self.present] = scheme.codec.fits(heads, sizes, scheme.chunk_bytes)
        absent = np.flatnonzero(self.table[:, 0] < 0)
        flat = (zeros if len(absent) else empty)("nvCOMP", len(self.table) * scheme.chunk_bytes, np.uint8)
        chosen = right[self.present]
        if chosen.any():
            places = self.present[chosen]
            right[places] = nvcomp.decompress(
                scheme.codec.algorithm, stored, starts[chosen] + head, sizes[chosen], flat, places, scheme.chunk_bytes
            )
        if scheme.unshuffled:
            flat = unshuffle(flat, scheme.unshuffled, scheme.chunk_bytes)
        if len(absent):
            itemsize = scheme.dtype.itemsize
            samples = flat.reshape(-1, scheme.chunk_bytes // itemsize, itemsize)
            samples[cupy.asarray(absent)] = cupy.asarray(np.frombuffer(scheme.fill, np.uint8))
        return flat, np.logical_and.reduceat(right, np.cumsum(self.counts) - self.counts)


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
        Bytes of the device that decompressing it may take besides.
    """
    most = min(spare, int(MEMORY * nbytes))
    pinned, plans, sums = transfer_path() == PINNED, list[Plan](), _Sums(nbytes, most)
    for piece in pieces:
        plan = plan_of(piece, dtype) if pinned else None
        if plan and plans and plan.scheme == plans[0].scheme and sums.add(plan):
            plans.append(plan)
            continue
        yield from _closed(plans, sums)
        sums = _Sums(nbytes, most)
        plans = [plan] if plan and sums.add(plan) else []
        if not plans:
            yield piece
    yield from _closed(plans, sums)


def _closed(plans: list[Plan], sums: _Sums) -> Iterator[Batch | AnyPiece]:
    if sums.present >= LEAST_CHUNKS:
        yield Batch(plans)
    else:
        yield from (plan.piece for plan in plans)


class _Sums:
    """What the slabs of a batch take together."""

    def __init__(self, nbytes: int, most: int) -> None:
        self.nbytes, self.most, self.present = nbytes, most, 0
        self._stored = self._decoded = 0

    def add(self, plan: Plan) -> bool:
        """Count a slab, if a buffer and memory have room for it."""
        scheme, present = plan.scheme, self.present + plan.present
        stored, decoded = self._stored + plan.stored, self._decoded + plan.decoded
        if stored + -scheme.codec.head % scheme.codec.alignment > self.nbytes:
            return False
        workspace = nvcomp.workspace_bytes(scheme.codec.algorithm, max(present, 1), scheme.chunk_bytes)
        copies = decoded + 2 * plan.decoded  # once the workspace is free: in order, and two of a slab before
        if workspace is None or decoded + max(workspace, copies) > self.most:
            return False
        self.present, self._stored, self._decoded = present, stored, decoded
        return True
