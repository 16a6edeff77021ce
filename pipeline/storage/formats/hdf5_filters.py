"""Filters of HDF5: which ones can be read, and how many bytes an encoded chunk claims to decode to."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from pipeline.storage.formats.codecs import ZLIB, Inflate, Step, Unshuffle, zstd, zstd_size
from pipeline.storage.pieces import Piece

DEFLATE, SHUFFLE, FLETCHER = 1, 2, 3
BUILT_IN = frozenset({DEFLATE, SHUFFLE, FLETCHER, 5, 6, 32000})  # nbit, scaleoffset, h5py's lzf
BLOSC, LZ4, BITSHUFFLE, ZSTD = 32001, 32004, 32008, 32015
PLUGINS = {BLOSC: "blosc", LZ4: "lz4", BITSHUFFLE: "bitshuffle", ZSTD: "zstd"}
UNFILTERED_EDGES = 2  # of H5Pset_chunk_opts: H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS
LEFT_OUT = 2**32 - 1  # the mask of a chunk without any filter
HEAD = 64  # bytes of an encoded chunk that say how much it decodes to
SLACK = 64  # bytes that inner filters add to those of the samples


class Filter(NamedTuple):
    """A filter of a data set: its number and its parameters."""

    code: int
    values: tuple[int, ...]


def filters_of(data: Any) -> list[Filter]:
    """Filters of a data set, in the order in which they are applied."""
    plist = data.id.get_create_plist()
    stored = (plist.get_filter(number) for number in range(plist.get_nfilters()))
    return [Filter(code, tuple(values)) for code, _, values, _ in stored]


def outer_of(filters: list[Filter], mask: int) -> Filter | None:
    """The last filter, checksums aside, that was applied to a chunk; its mask says which were skipped."""
    applied = [one for number, one in enumerate(filters) if not mask >> number & 1 and one.code != FLETCHER]
    return applied[-1] if applied else None


def leaves_edges(data: Any) -> bool:
    """Whether no filter was applied to chunks that reach beyond the array; their masks do not say so.

    Only HDF5 itself tells (`H5Pget_chunk_opts`, since version 1.10, as are such files), h5py does not.
    """
    import h5py
    from h5py._objects import phil

    plist, options = data.id.get_create_plist(), ctypes.c_uint()
    tell = getattr(ctypes.CDLL(h5py.h5p.__file__), "H5Pget_chunk_opts", None)  # of the library that it is linked with
    if tell is None:
        return False
    tell.argtypes = (ctypes.c_int64, ctypes.c_void_p)
    with phil:
        known = tell(plist.id, ctypes.addressof(options)) >= 0
    return known and bool(options.value & UNFILTERED_EDGES)


def missing(filters: Iterable[Filter]) -> list[int]:
    """Numbers of the filters that neither HDF5 nor hdf5plugin have; HDF5 can apply the others from now on."""
    return [code for code, _ in filters if code not in BUILT_IN and code not in _registered()]


@cache
def _registered() -> frozenset[int]:
    """Numbers of the filters of hdf5plugin, if it is installed, which takes 6 MB."""
    try:
        import hdf5plugin
    except ImportError:
        return frozenset()
    registered = hdf5plugin.get_config().registered_filters
    theirs = {"bitshuffle": "bshuf"}
    return frozenset(
        code for code, name in PLUGINS.items() if hdf5plugin.FILTERS[theirs.get(name, name)] == code and registered
    )


def own_steps(filters: list[Filter], itemsize: int) -> tuple[Step, ...] | None:
    """Decoders that need no lock of HDF5; None if it has to decode one of the filters."""
    codes = [filter_.code for filter_ in filters]
    known: dict[int, Step] = {DEFLATE: Inflate(ZLIB), SHUFFLE: Unshuffle(itemsize), FLETCHER: fletcher32}
    if find_spec("numcodecs") is not None:
        known |= {LZ4: lz4_blocks, ZSTD: zstd_frame}
    compressed = [place for place, code in enumerate(codes) if code not in (SHUFFLE, FLETCHER)]
    if not set(codes) <= set(known) or len(compressed) > 1 or FLETCHER in codes[:-1]:
        return None
    if compressed and SHUFFLE in codes[compressed[0] :]:  # of compressed bytes, whose number is not known
        return None
    if any(code == SHUFFLE and values[:1] != (itemsize,) for code, values in filters):
        return None
    return tuple(known[code] for code in reversed(codes))


def lz4_blocks(data: Any, size: int) -> Any:
    """LZ4 as HDF5's filter frames it: bytes in all and of a block, then each block after its size, big endian."""
    from numcodecs.lz4 import decompress

    def number(first: int, last: int) -> int:
        return int.from_bytes(data[first:last], "big")

    declared, most = number(0, 8), number(8, 12)
    if declared != size or not most:
        raise ValueError(f"a chunk that claims {declared} bytes where {size} are expected")
    out, at, done = np.empty(size, np.uint8), 12, 0
    while done < size:
        nbytes, stored = min(most, size - done), number(at, at + 4)
        block = bytes(data[at + 4 : at + 4 + stored])
        if len(block) != stored:
            raise ValueError(f"a block of {stored} bytes where {len(block)} are left")
        if stored == nbytes:  # was not compressed
            out[done : done + nbytes] = np.frombuffer(block, np.uint8)
        else:
            decompress(nbytes.to_bytes(4, "little") + block, out[done : done + nbytes])
        at, done = at + 4 + stored, done + nbytes
    return out


def zstd_frame(data: Any, size: int) -> Any:
    """Zstandard; HDF5's own filter wants one frame that says how much it has."""
    if (declared := zstd_size(bytes(data[:HEAD]))) is not None and declared > size:
        raise ValueError(_claims(declared, size))
    return zstd(data, size)


def _claims(declared: int | None, size: int) -> str:
    claim = "does not say how many bytes it has" if declared is None else f"claims {declared} bytes"
    return f"a chunk that {claim} where {size} are expected"


def fletcher32(data: Any, size: int) -> Any:
    """Bytes and their checksum, which HDF5 takes over big-endian words modulo 65535."""
    body = bytes(data[:-4])
    words = np.frombuffer(body + bytes(len(body) % 2), ">u2").astype(np.uint64)
    places = np.arange(len(words), 0, -1, dtype=np.uint64) % 65535
    sums = int(words.sum()) % 65535, int((places * words).sum()) % 65535
    stored = int.from_bytes(data[-4:], "little")
    swapped = (stored & 0xFF00FF) << 8 | (stored >> 8 & 0xFF00FF)  # as HDF5 1.6.2 wrote it
    if all(sums != ((value & 65535) % 65535, (value >> 16) % 65535) for value in (stored, swapped)):
        raise ValueError("a wrong checksum")
    return body


def begin_of(chunk: Piece, outer: Filter) -> Piece:
    """What `check_declared` needs of a chunk."""
    return chunk if outer.code == DEFLATE else chunk.cut(0, min(HEAD, chunk.nbytes))


def check_declared(begin: memoryview, outer: Filter, size: int) -> None:
    """Refuse a chunk that claims more bytes than it is declared to have, before a filter allocates them.

    Raises
    ------
    ValueError
        Bytes that it claims.
    """
    if outer.code == DEFLATE:
        Inflate(ZLIB, exact=False)(begin, size + SLACK)
        return
    declared = _declared(bytes(begin), outer)
    if declared is None or declared > size + SLACK:
        raise ValueError(_claims(declared, size))


def _declared(head: bytes, outer: Filter) -> int | None:
    if outer.code == BLOSC:
        return int.from_bytes(head[4:8], "little")
    if outer.code == ZSTD:
        return zstd_size(head)
    if outer.code == LZ4 or (outer.code == BITSHUFFLE and outer.values[4:5] not in ((), (0,))):
        return int.from_bytes(head[:8], "big")
    return 0  # decoded into a buffer of the declared size
