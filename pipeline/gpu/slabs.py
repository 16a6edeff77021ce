"""Slabs whose chunks a device can decompress: how they are stored, and how decoded bytes become samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.common.decode import SHUFFLED
from pipeline.storage.blocks import decode_whole
from pipeline.storage.formats.codecs import GZIP, ZLIB, Decoder, Inflate, Step, Unshuffle, crc32c, lz4, zstd
from pipeline.storage.formats.hdf5_filters import fletcher32, lz4_blocks, zstd_frame
from pipeline.storage.formats.slabs import Slab
from pipeline.storage.pieces import AnyPiece, BlockPiece

Heads = NDArray[np.uint8]  # first bytes of chunks, shape (chunks, bytes)
Fits = NDArray[np.bool_]  # of each chunk


@dataclass(frozen=True)
class Codec:
    """What nvCOMP decompresses of a stored chunk.

    Attributes
    ----------
    algorithm
    head, tail
        Bytes before and after it.
    alignment
        Where it has to begin in memory: at multiples of so many bytes.
    fits
        (heads, bytes of the compressed chunks, of a decoded one) -> whether each head is as it has to be.
    """

    algorithm: str
    head: int = 0
    tail: int = 0
    alignment: int = 1
    fits: Callable[[Heads, NDArray[np.int64], int], Fits] = lambda heads, sizes, chunk_bytes: np.ones(len(heads), bool)


def _sized(heads: Heads, sizes: NDArray[np.int64], chunk_bytes: int) -> Fits:
    return np.asarray(heads.view("<u4")[:, 0] == chunk_bytes)


def _zlib(heads: Heads, sizes: NDArray[np.int64], chunk_bytes: int) -> Fits:
    """Deflated, without a dictionary."""
    return np.asarray((heads[:, 0] & 15 == 8) & (heads[:, 1] & 32 == 0))


def _one_block(heads: Heads, sizes: NDArray[np.int64], chunk_bytes: int) -> Fits:
    """Of HDF5's LZ4: the whole chunk, and compressed."""
    above, declared, most, stored = heads.view(">u4").astype(np.int64).T
    of_all = (above == 0) & (declared == chunk_bytes)
    return np.asarray(of_all & (most >= chunk_bytes) & (stored == sizes) & (stored != chunk_bytes))


CODECS: dict[Step, Codec] = {
    lz4: Codec("LZ4", 4, fits=_sized), lz4_blocks: Codec("LZ4", 16, fits=_one_block),
    zstd: Codec("Zstd"), zstd_frame: Codec("Zstd"),
    Inflate(ZLIB): Codec("Deflate", 2, 4, 4, _zlib), Inflate(GZIP): Codec("Gzip"),
}  # fmt: skip
CHECKSUMS = (crc32c, fletcher32)  # of four bytes behind the chunk; looked at on the host
CHECKSUM_BYTES = 4
PLACE_BYTES = 3 * np.dtype(np.int64).itemsize  # of a row of `pipeline.storage.formats.places.Stored.table`


@dataclass(frozen=True)
class Scheme:
    """How chunks are stored; those that are decompressed together have the same one.

    Attributes
    ----------
    codec
    unshuffled
        Bytes of an item, if bytes are sorted by their place in it; else 0.
    tail
        Bytes behind the compressed ones.
    chunk_bytes
        Of a decoded chunk.
    dtype
    fill
        The value of missing chunks, as bytes of one sample.
    runs
        Whether each chunk is stored as a run of samples in C order.
    """

    codec: Codec
    unshuffled: int
    tail: int
    chunk_bytes: int
    dtype: np.dtype[Any]
    fill: bytes
    runs: bool


class Plan(NamedTuple):
    """A slab that a device can decompress.

    Attributes
    ----------
    piece, slab, scheme
    chunks
        Number of its chunks, also of missing ones.
    decoded
        Bytes of all of them.
    in_order
        Whether the decoded chunks begin with the samples of the slab in C order.
    """

    piece: BlockPiece
    slab: Slab
    scheme: Scheme
    chunks: int
    decoded: int
    in_order: bool

    @property
    def wanted(self) -> slice:
        """Samples of the slab that the piece has."""
        first = self.piece.first // self.scheme.dtype.itemsize
        return slice(first, first + self.piece.nbytes // self.scheme.dtype.itemsize)

    def samples(self, decoded: Any) -> Any:
        """Samples of the piece, in the byte order of the file, of the decoded chunks in device memory."""
        flat = decoded.view(self.scheme.dtype.newbyteorder("="))
        return (flat if self.in_order else self._ordered(flat))[self.wanted]

    def decoded_on_host(self) -> Any:
        """Samples of the piece, in native byte order, by the host's decoders; PipelineError if they cannot."""
        import cupy

        dtype = self.scheme.dtype
        return cupy.asarray(decode_whole(self.piece, dtype)[self.wanted].astype(dtype.newbyteorder("=")))

    def _ordered(self, flat: Any) -> Any:
        """Samples of the region in C order, of whole chunks one after another."""
        import cupy

        region, grid = self.slab.region, self.slab.grid
        rank, order = len(region), _axes(self.slab)
        begins = [start // chunk * chunk for (start, _), chunk in zip(region, grid.chunks, strict=True)]
        counts = [
            -(-(stop - begin) // chunk) for (_, stop), begin, chunk in zip(region, begins, grid.chunks, strict=True)
        ]
        whole = flat.reshape([*counts, *(grid.chunks[axis] for axis in order)])
        axes = [place for axis in range(rank) for place in (axis, rank + order.index(axis))]
        lengths = [count * chunk for count, chunk in zip(counts, grid.chunks, strict=True)]
        inside = tuple(slice(start - begin, stop - begin) for (start, stop), begin in zip(region, begins, strict=True))
        return cupy.ascontiguousarray(whole.transpose(axes).reshape(lengths)[inside]).reshape(-1)


def plan_of(piece: AnyPiece, dtype: np.dtype[Any], before: Plan | None = None) -> Plan | None:
    """How a device decompresses a piece, if it has room for its chunks; None if it cannot.

    `before` is another plan for the same dtype: slabs of one array have their scheme in common. There are hundreds of
    slabs in a chunk, so what takes a microsecond counts.
    """
    if not isinstance(piece, BlockPiece) or not isinstance(slab := piece.block, Slab):
        return None
    for file in slab.stored.files:
        if file.remote:
            return None
    grid, region = slab.grid, slab.region
    if before and grid is before.slab.grid and slab.decode is before.slab.decode and slab.fill == before.slab.fill:
        scheme = before.scheme
    elif (of_slab := _scheme_of(slab, dtype)) is not None:
        scheme = of_slab
    else:
        return None
    chunks = len(slab.stored.places) // PLACE_BYTES
    decoded = chunks * scheme.chunk_bytes
    begins = decoded == piece.decoded or (len(region) == 1 and region[0][0] % grid.chunks[0] == 0)
    return Plan(piece, slab, scheme, chunks, decoded, scheme.runs and begins)


def _axes(slab: Slab) -> tuple[int, ...]:
    """Axes of a chunk in the order in which they are stored."""
    assert isinstance(slab.decode, Decoder)
    return slab.decode.order or tuple(range(len(slab.region)))


def _scheme_of(slab: Slab, dtype: np.dtype[Any]) -> Scheme | None:
    if not isinstance(slab.decode, Decoder) or slab.grid.cut is not None or not slab.region:
        return None
    steps, tail = slab.decode.steps, 0
    if steps and steps[0] in CHECKSUMS:
        steps, tail = steps[1:], CHECKSUM_BYTES
    codec = CODECS.get(steps[0]) if steps else None
    unshuffled = steps[1].itemsize if len(steps) == 2 and isinstance(steps[1], Unshuffle) else 0
    if codec is None or len(steps) > 1 + bool(unshuffled):
        return None
    if unshuffled and (unshuffled not in SHUFFLED or slab.grid.chunk_bytes % unshuffled):
        return None
    runs = slab.grid.in_order and _axes(slab) == tuple(range(len(slab.region)))
    return Scheme(codec, unshuffled, codec.tail + tail, slab.grid.chunk_bytes, dtype, slab.fill, runs)
