"""Slabs whose chunks a device can decompress: how they are stored, and how decoded bytes become samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.common.checksums import CHECKSUM_BYTES
from kernels.common.decompress import MOST_BYTES
from kernels.common.stored_samples import SHUFFLED
from pipeline.storage.blocks import decode_whole
from pipeline.storage.formats.codecs import GZIP, ZLIB, Decoder, Inflate, Step, Unshuffle, crc32c, lz4, zstd
from pipeline.storage.formats.hdf5_filters import fletcher32, lz4_blocks, zstd_frame
from pipeline.storage.formats.slabs import Slab
from pipeline.storage.pieces import AnyPiece, BlockPiece

CODECS: dict[Step, str] = {  # as `kernels.common.decompress` names them
    lz4: "Sized", lz4_blocks: "Blocks", Inflate(ZLIB): "Zlib", Inflate(GZIP): "Gzip", zstd: "Zstd", zstd_frame: "Zstd",
}  # fmt: skip
CHECKSUMS: dict[Step, str] = {crc32c: "Crc32c", fletcher32: "Fletcher32"}  # as `kernels.common.checksums` names them
PLACE_BYTES = 3 * np.dtype(np.int64).itemsize  # of a row of `pipeline.storage.formats.places.Stored.table`


class Scheme(NamedTuple):
    """How chunks are stored; those that are decompressed together have the same one.

    Attributes
    ----------
    codec
    unshuffled
        Bytes of an item, if bytes are sorted by their place in it; else 0.
    checksum
        Behind the compressed bytes; empty if there is none.
    chunk_bytes
        Of a decoded chunk.
    dtype
    fill
        The value of missing chunks, as bytes of one sample.
    runs
        Whether each chunk is stored as a run of samples in C order.
    """

    codec: str
    unshuffled: int
    checksum: str
    chunk_bytes: int
    dtype: np.dtype[Any]
    fill: bytes
    runs: bool

    @property
    def tail(self) -> int:
        """Bytes of the checksum."""
        return CHECKSUM_BYTES if self.checksum else 0


class Plan(NamedTuple):
    """A slab that a device can decompress.

    Attributes
    ----------
    piece, slab, scheme
    """

    piece: BlockPiece
    slab: Slab
    scheme: Scheme

    @property
    def chunks(self) -> int:
        """Number of its chunks, also of missing ones."""
        return len(self.slab.stored.places) // PLACE_BYTES

    @property
    def decoded(self) -> int:
        """Bytes of all of them."""
        return self.chunks * self.scheme.chunk_bytes

    @property
    def in_order(self) -> bool:
        """Whether the decoded chunks begin with the samples of the slab in C order."""
        region, chunks = self.slab.region, self.slab.grid.chunks
        begins = self.decoded == self.piece.decoded or (len(region) == 1 and region[0][0] % chunks[0] == 0)
        return self.scheme.runs and begins

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
    files = slab.stored.files
    if not (before and files is before.slab.stored.files) and any(file.remote for file in files):
        return None
    if before and slab.grid is before.slab.grid and slab.decode is before.slab.decode and slab.fill == before.slab.fill:
        return Plan(piece, slab, before.scheme)
    scheme = _scheme_of(slab, dtype)
    return Plan(piece, slab, scheme) if scheme else None


def counts_of(plans: Sequence[Plan]) -> NDArray[np.int64]:
    """Number of chunks of each slab, also of missing ones."""
    return np.array([len(plan.slab.stored.places) for plan in plans]) // PLACE_BYTES


def _axes(slab: Slab) -> tuple[int, ...]:
    """Axes of a chunk in the order in which they are stored."""
    assert isinstance(slab.decode, Decoder)
    return slab.decode.order or tuple(range(len(slab.region)))


def _scheme_of(slab: Slab, dtype: np.dtype[Any]) -> Scheme | None:
    if not isinstance(slab.decode, Decoder) or slab.grid.cut is not None or not slab.region:
        return None
    steps = slab.decode.steps
    if checksum := CHECKSUMS.get(steps[0], "") if steps else "":
        steps = steps[1:]
    codec = CODECS.get(steps[0]) if steps else None
    if slab.grid.chunk_bytes > MOST_BYTES:
        return None
    unshuffled = steps[1].itemsize if len(steps) == 2 and isinstance(steps[1], Unshuffle) else 0
    if codec is None or len(steps) > 1 + bool(unshuffled):
        return None
    if unshuffled and (unshuffled not in SHUFFLED or slab.grid.chunk_bytes % unshuffled):
        return None
    runs = slab.grid.in_order and _axes(slab) == tuple(range(len(slab.region)))
    return Scheme(codec, unshuffled, checksum, slab.grid.chunk_bytes, dtype, slab.fill, runs)
