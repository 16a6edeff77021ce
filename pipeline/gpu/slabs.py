"""Slabs whose chunks cross the bus as they are stored and are decompressed on the device.

Checks read and decompress the same chunks on the host, by other libraries. Where a device cannot do it, or says that it
failed, the host does: its decoders name what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common.decode import SHUFFLED, unshuffle
from kernels.common.memory import empty, zeros
from pipeline.errors import PipelineError
from pipeline.gpu import nvcomp
from pipeline.gpu.loads import Begun, to_native
from pipeline.gpu.transfer import PINNED, Transfer, finish, opened, transfer, transfer_path
from pipeline.storage.blocks import decode_whole
from pipeline.storage.formats.codecs import GZIP, ZLIB, Decoder, Inflate, Step, Unshuffle, crc32c, lz4, zstd
from pipeline.storage.formats.hdf5_filters import fletcher32, lz4_blocks, zstd_frame
from pipeline.storage.formats.slabs import Slab
from pipeline.storage.pieces import AnyPiece, BlockPiece, Piece

LEAST_CHUNKS = 16  # of a slab: a few warps decompress each, so that the host's cores are faster with fewer
ALIGNMENT = 8  # bytes; compressed chunks begin at multiples
MEMORY = 8  # of a device, in buffers for blocks, that decompressing a slab may take
DECOMPRESSED = "decompressed by nvCOMP"

Heads = NDArray[np.uint8]  # first bytes of chunks, shape (chunks, bytes)


@dataclass(frozen=True)
class Codec:
    """What nvCOMP decompresses of a stored chunk.

    Attributes
    ----------
    algorithm
    head, tail
        Bytes before and after it.
    fits
        (heads, bytes of the compressed chunks, of a decoded one) -> whether all heads are as they have to be.
    """

    algorithm: str
    head: int = 0
    tail: int = 0
    fits: Callable[[Heads, NDArray[np.int64], int], bool] = lambda heads, sizes, chunk_bytes: True


def _sized(heads: Heads, sizes: NDArray[np.int64], chunk_bytes: int) -> bool:
    return bool((heads.view("<u4") == chunk_bytes).all())


def _zlib(heads: Heads, sizes: NDArray[np.int64], chunk_bytes: int) -> bool:
    """Deflated, without a dictionary."""
    return bool((heads[:, 0] & 15 == 8).all() and not (heads[:, 1] & 32).any())


def _one_block(heads: Heads, sizes: NDArray[np.int64], chunk_bytes: int) -> bool:
    """Of HDF5's LZ4: the whole chunk, and compressed."""
    above, declared, most, stored = heads.view(">u4").astype(np.int64).T
    of_all = (above == 0) & (declared == chunk_bytes)
    return bool((of_all & (most >= chunk_bytes) & (stored == sizes) & (stored != chunk_bytes)).all())


CODECS: dict[Step, Codec] = {
    lz4: Codec("LZ4", 4, fits=_sized), lz4_blocks: Codec("LZ4", 16, fits=_one_block),
    zstd: Codec("Zstd"), zstd_frame: Codec("Zstd"),
    Inflate(ZLIB): Codec("Deflate", 2, 4, _zlib), Inflate(GZIP): Codec("Gzip"),
}  # fmt: skip
CHECKSUMS = (crc32c, fletcher32)  # of four bytes behind the chunk; looked at on the host
CHECKSUM_BYTES = 4


@dataclass(frozen=True)
class Plan:
    """How a slab is decompressed on a device.

    Attributes
    ----------
    piece, slab, dtype
    codec
    unshuffled
        Bytes of an item, if bytes are sorted by their place in it; else 0.
    tail
        Bytes behind the compressed ones.
    """

    piece: BlockPiece
    slab: Slab
    dtype: np.dtype[Any]
    codec: Codec
    unshuffled: int
    tail: int

    @cached_property
    def present(self) -> NDArray[np.int64]:
        """Numbers of the chunks that are not missing, by file."""
        files = self.slab.stored.table[:, 0]
        by_file = np.argsort(files, kind="stable")
        return by_file[files[by_file] >= 0]

    @cached_property
    def places(self) -> NDArray[np.int64]:
        """File, offset and bytes of these chunks, shape (chunks, 3)."""
        return self.slab.stored.table[self.present]

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Where each of them begins in the buffer, and where the last one ends."""
        padded = -(-self.places[:, 2] // ALIGNMENT) * ALIGNMENT
        return -self.codec.head % ALIGNMENT + np.concatenate([[0], np.cumsum(padded)])

    @property
    def decoded(self) -> int:
        """Bytes of all chunks, also of missing ones."""
        return len(self.slab.stored.table) * self.slab.grid.chunk_bytes

    def memory(self) -> int | None:
        """Bytes of the device that it takes besides its buffer; None if nvCOMP cannot decompress it."""
        workspace = nvcomp.workspace_bytes(self.codec.algorithm, len(self.present), self.slab.grid.chunk_bytes)
        return None if workspace is None else workspace + 3 * self.decoded  # unshuffled, and in the order of the array

    def runs(self, chosen: NDArray[np.int64]) -> NDArray[np.int64]:
        """Byte runs of these of the chunks, which lie in one file; each is padded with bytes of its own beginning."""
        _, offsets, sizes = self.places[chosen].T
        padding = np.diff(self.starts)[chosen] - sizes
        runs = np.stack([offsets, sizes, offsets, padding], 1).reshape(-1, 2)
        if not chosen[0] and (skipped := self.starts[0]):
            runs = np.concatenate([[[offsets[0], skipped]], runs])
        return runs[runs[:, 1] > 0]

    def begin(self, slot: Any) -> Begun:
        """Start to read the stored chunks into a buffer on the device."""
        loading = _Loading(slot[: int(self.starts[-1])])
        try:
            for number, file in enumerate(self.slab.stored.files):
                chosen = np.flatnonzero(self.places[:, 0] == number)
                start = self.starts[chosen[0]] if chosen[0] else 0
                target = slot[int(start) : int(self.starts[chosen[-1] + 1])]
                loading.add(file, self.runs(chosen), target)
        except BaseException:
            loading.get()
            raise
        return loading, self.samples

    def samples(self, stored: Any) -> Any:
        """Samples of the piece, in native byte order, of stored chunks on the device; on the current stream."""
        import cupy

        samples = self._decompressed(stored)
        if samples is None:
            samples = cupy.asarray(decode_whole(self.piece, self.dtype).astype(self.dtype.newbyteorder("=")))
        first = self.piece.first // self.dtype.itemsize
        return samples[first : first + self.piece.nbytes // self.dtype.itemsize]

    def _decompressed(self, stored: Any) -> Any:
        """Samples of the slab; None if not all chunks can be decompressed on the device."""
        import cupy

        codec, grid, starts = self.codec, self.slab.grid, self.starts[:-1]
        sizes = self.places[:, 2] - codec.head - self.tail
        if codec.head:
            heads = stored[cupy.asarray(starts[:, None] + np.arange(codec.head))].get()
            if not codec.fits(heads, sizes, grid.chunk_bytes):
                return None
        absent = np.setdiff1d(np.arange(len(self.slab.stored.table)), self.present)
        flat = (zeros if len(absent) else empty)("nvCOMP", self.decoded, np.uint8)
        made = nvcomp.decompress(
            codec.algorithm, stored, starts + codec.head, sizes, flat, self.present, grid.chunk_bytes
        )
        if not made.all():
            return None
        if self.unshuffled:
            flat = unshuffle(flat, self.unshuffled, grid.chunk_bytes)
        if len(absent):
            samples = flat.reshape(-1, grid.chunk_bytes // self.dtype.itemsize, self.dtype.itemsize)
            samples[cupy.asarray(absent)] = cupy.asarray(np.frombuffer(self.slab.fill, np.uint8))
        return to_native(self._in_order(flat.view(self.dtype.newbyteorder("="))), self.dtype)

    def _in_order(self, flat: Any) -> Any:
        """Samples of the region in C order, of whole chunks one after another."""
        import cupy

        region, grid = self.slab.region, self.slab.grid
        rank = len(region)
        assert isinstance(self.slab.decode, Decoder)
        order = self.slab.decode.order or tuple(range(rank))
        begins = [start // chunk * chunk for (start, _), chunk in zip(region, grid.chunks, strict=True)]
        counts = [
            -(-(stop - begin) // chunk) for (_, stop), begin, chunk in zip(region, begins, grid.chunks, strict=True)
        ]
        whole = flat.reshape([*counts, *(grid.chunks[axis] for axis in order)])
        axes = [place for axis in range(rank) for place in (axis, rank + order.index(axis))]
        lengths = [count * chunk for count, chunk in zip(counts, grid.chunks, strict=True)]
        inside = tuple(slice(start - begin, stop - begin) for (start, stop), begin in zip(region, begins, strict=True))
        return cupy.ascontiguousarray(whole.transpose(axes).reshape(lengths)[inside]).reshape(-1)


class _Loading:
    """Transfers from several files, which stay open until all have ended."""

    def __init__(self, stored: Any) -> None:
        self._stored, self._stack = stored, ExitStack()
        self._transfers: list[Transfer] = []

    def add(self, file: Piece, runs: NDArray[np.int64], target: Any) -> None:
        """Start to read runs of a file."""
        self._transfers.append(transfer(self._stack.enter_context(opened(file)), file, 0, runs, target))

    def result(self) -> Any:
        """The memory, once all bytes have arrived and the files are as they were; errors as of `Transfer`."""
        transfers, self._transfers = self._transfers, []
        with self._stack:
            finish(transfers)
        return self._stored

    @property
    def future(self) -> Any:
        """Itself."""
        return self

    def get(self) -> None:
        """Wait until nothing is under way."""
        with suppress(PipelineError):
            self.result()


def plan_of(piece: AnyPiece, dtype: np.dtype[Any], nbytes: int) -> Plan | None:
    """How to decompress a piece on the current device; None if that is not possible or not worth it.

    Parameters
    ----------
    piece, dtype
    nbytes
        Bytes of a buffer for blocks.
    """
    if not isinstance(piece, BlockPiece) or not isinstance(slab := piece.block, Slab):
        return None
    if not isinstance(slab.decode, Decoder) or slab.grid.cut is not None or not slab.region:
        return None
    if any(file.remote for file in slab.stored.files):
        return None
    steps, tail = slab.decode.steps, 0
    if steps and steps[0] in CHECKSUMS:
        steps, tail = steps[1:], CHECKSUM_BYTES
    codec = CODECS.get(steps[0]) if steps else None
    unshuffled = steps[1].itemsize if len(steps) == 2 and isinstance(steps[1], Unshuffle) else 0
    if codec is None or len(steps) > 1 + bool(unshuffled) or transfer_path() != PINNED:
        return None
    if unshuffled and (unshuffled not in SHUFFLED or slab.grid.chunk_bytes % unshuffled):
        return None
    plan = Plan(piece, slab, dtype, codec, unshuffled, codec.tail + tail)
    if len(plan.present) < LEAST_CHUNKS or plan.starts[-1] > nbytes:
        return None
    if int(plan.places[:, 2].min()) <= max(codec.head + plan.tail, ALIGNMENT):
        return None
    memory = plan.memory()
    return None if memory is None or memory > MEMORY * nbytes else plan
