"""Data sets of HDF5 files, and so of NetCDF-4 and MATLAB 7.3: byte runs of the file, or chunks.

HDF5 would load any library that its plug-in path names; only filters that h5py and hdf5plugin have are ever asked for.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import UsageError
from pipeline.storage.files import Files, SourceFile, whole
from pipeline.storage.formats.chunked import Chunked, chunked
from pipeline.storage.formats.codecs import Decoder
from pipeline.storage.formats.common import check_grid, choose, readable
from pipeline.storage.formats.hdf5_filters import (
    DEFLATE,
    LEFT_OUT,
    PLUGINS,
    filters_of,
    leaves_edges,
    missing,
    own_steps,
)
from pipeline.storage.formats.hdf5_regions import WHAT, Regions, find, opened_file
from pipeline.storage.formats.places import Places
from pipeline.storage.formats.slabs import SLAB_BYTES, Grid, block_piece, pieces_of
from pipeline.storage.piece_source import PieceSource
from pipeline.storage.pieces import AnyPiece, Piece
from pipeline.storage.protocol import Member, Opening, Source

MOST_MEMBERS = 10_000
EMPTY = "MATLAB_empty"  # an attribute
DIMENSION = b"This is a netCDF dimension but not a netCDF variable"  # how the attribute NAME of one begins


def _names(group: Any, prefix: str = "", seen: set[Any] | None = None) -> Iterator[str]:
    """Paths of all data sets, by hard links, each group once; MATLAB's and netCDF's own are left out."""
    import h5py

    seen = set() if seen is None else seen
    seen.add(group.id)
    for key in group:
        link = group.get(key, getlink=True)
        if key.startswith("#") or not isinstance(link, h5py.HardLink):
            continue
        node, path = group[key], f"{prefix}/{key}"
        if isinstance(node, h5py.Dataset):
            yield path
        elif isinstance(node, h5py.Group) and node.id not in seen:
            yield from _names(node, path, seen)


def _member(name: str, data: Any) -> Member:
    plist = data.id.get_create_plist()
    stored = [plist.get_filter(number) for number in range(plist.get_nfilters())]
    words = [PLUGINS.get(code) or text.decode("utf-8", "replace") or str(code) for code, _, _, text in stored]
    shape = () if data.shape is None else tuple(data.shape)
    given = Member(name, None, shape, data.chunks, ", ".join(words), data.id.get_storage_size())
    dtype, problem = _dtype(data), ""
    filters = filters_of(data)
    own = dtype is not None and own_steps(filters, data.dtype.itemsize) is not None
    if data.shape is None:
        problem = "expected an array, got an empty data set without a shape"
    elif EMPTY in data.attrs:
        problem = "expected an array, got an empty one, of which MATLAB stores the shape alone"
    elif data.is_virtual or plist.get_external_count():
        problem = "expected an array within the file, got one that lies in other files; name those files"
    elif dtype is None:
        problem = "expected numbers that NumPy has a dtype for, got others; convert them"
    elif not own and (codes := missing(filters)):
        problem = f"expected filters that h5py and hdf5plugin have, got {codes}; {_advice(codes)}"
    elif not own and DEFLATE in [code for code, _ in filters[:-1]]:
        problem = f"expected deflate as the last filter, got {given.compression}; write it with other filters"
    return Member(name, dtype, shape, given.chunks, given.compression, given.stored, problem)


def _advice(codes: list[int]) -> str:
    """What to do about filters that are missing."""
    plugin = any(code in PLUGINS for code in codes)
    return "pip install 'baru[hdf5]'" if plugin else "write it with another filter"


def _dtype(data: Any) -> np.dtype[Any] | None:
    """The dtype whose bytes the file has; None if h5py would convert them."""
    import h5py

    try:
        dtype, stored = np.dtype(data.dtype), data.id.get_type()
        same = dtype.hasobject or stored.equal(h5py.h5t.py_create(dtype, logical=True))
        if dtype.kind == "c" and not same:  # since HDF5 2 a type of its own, not a pair
            order = "BE" if dtype == dtype.newbyteorder(">") else "LE"
            same = stored.equal(getattr(h5py.h5t, f"COMPLEX_IEEE_F{4 * dtype.itemsize}{order}", None))
    except (TypeError, ValueError, NotImplementedError):
        return None
    plain = np.dtype(dtype.str) if dtype.names is None and dtype.subdtype is None else dtype  # without its metadata
    return plain if same else None


def members_of(path: str) -> list[Member]:
    """Data sets of an HDF5 file, by hard links."""
    with readable(path, WHAT), opened_file(whole(path)) as opened:
        return list(_members(opened))


def _members(opened: Any) -> Iterator[Member]:
    for number, name in enumerate(_names(opened)):
        if number == MOST_MEMBERS:
            return
        said = opened[name].attrs.get("NAME")
        if not (isinstance(said, bytes) and said.startswith(DIMENSION)):
            yield _member(name, opened[name])


def open_hdf5(path: str, opening: Opening) -> Source:
    """A data set of an HDF5 file.

    Raises
    ------
    UsageError
        If it cannot be read, or the user has to choose one.
    """
    file = whole(path)
    with readable(path, WHAT), opened_file(file) as opened:
        if opening.member is None:
            member = choose(path, list(_members(opened)), opening)
        else:
            try:
                data = find(opened, opening.member)
                if not hasattr(data, "id") or not hasattr(data, "chunks"):
                    raise KeyError(f"{opening.member!r} is no data set")
            except (KeyError, ValueError) as error:
                names = [Member(name, None, ()) for name, _ in zip(_names(opened), range(100), strict=False)]
                if isinstance(error, KeyError):
                    choose(path, names, opening)  # says which there are
                raise UsageError(f"{path}: expected a data set {opening.member!r}, got {error.args[0]}; name one of "
                                 "this file") from None  # fmt: skip
            member = choose(path, [_member(opening.member, data)], opening)
        data = find(opened, member.name)
        name = f"{path}::{member.name}"
        assert member.dtype is not None
        member = replace(member, dtype=opening.counted(member.dtype))
        assert member.dtype is not None
        opening.check(name, member.dtype, member.shape)
        return _source(name, file, member, data)


def _source(name: str, file: Piece, member: Member, data: Any) -> Source:
    dtype, shape = member.dtype, member.shape
    assert dtype is not None and file.identity is not None
    nbytes = math.prod(shape) * dtype.itemsize
    if data.chunks is None:
        offset = data.id.get_offset()
        if offset is not None and nbytes:
            if offset + nbytes > file.nbytes or data.id.get_storage_size() != nbytes:
                raise UsageError(f"{name}: expected {nbytes} bytes at byte {offset} of the file, got one of "
                                 f"{file.nbytes} bytes; is it complete?")  # fmt: skip
            return Files((SourceFile(file.path, offset, nbytes, file.identity, shape, label=name),), dtype)
        # Compact, in the header of the file, or never written: all of it has the fill value.
        rows = max(SLAB_BYTES // (math.prod(shape[1:]) * dtype.itemsize), 1) if nbytes else 1
        whole = (rows, *shape[1:])[: len(shape)]
        grid = Grid(shape, whole if nbytes else (1,) * len(shape), dtype)
    else:
        grid = Grid(shape, tuple(data.chunks), dtype)
    check_grid(name, grid)
    parts, views = _pieces(name, file, member.name, data, grid)
    return PieceSource(name, dtype, shape, tuple(parts), (file,), chunked=views)


def _pieces(name: str, file: Piece, member: str, data: Any, grid: Grid) -> tuple[Iterable[AnyPiece], Chunked | None]:
    """All samples, and what reads any of them from the chunks that have them."""
    filters, (places, masks) = filters_of(data), _table(file, data, grid)
    steps, fill = own_steps(filters, grid.dtype.itemsize), _fill(name, data, grid, places)
    if not filters and places.other(grid.chunk_bytes):
        raise ValueError(f"chunks that do not have {grid.chunk_bytes} bytes")
    if data.chunks is not None and steps is not None and not masks.any():
        decode = Decoder(steps, grid.dtype) if steps else None
        return pieces_of(name, grid, places, decode, fill), chunked(grid, places, decode, fill)
    if codes := missing(filters):
        raise ValueError(f"chunks without some of its filters, and filters {codes} that HDF5 does not have here")

    block = Regions(file, member, grid, filters, places, masks, fill)
    slabs = ((region, tuple(range(*bounds) for bounds in region)) for region in grid.slabs())
    return [block_piece(name, region, grid.dtype, block(ranges)) for region, ranges in slabs], Chunked(grid, block)


def _fill(name: str, data: Any, grid: Grid, places: Places) -> bytes:
    """The value of what was never written, as bytes of one sample."""
    if data.id.get_create_plist().fill_value_defined():
        return np.asarray(data.fillvalue).astype(grid.dtype).tobytes()
    written = (places.table[..., 0] >= 0).all() if data.chunks is not None else data.id.get_storage_size()
    if not written:
        raise UsageError(
            f"{name}: expected a fill value, since some chunks were never written, got none; write all chunks"
        )
    return bytes(grid.dtype.itemsize)


def _table(file: Piece, data: Any, grid: Grid) -> tuple[Places, NDArray[np.int64]]:
    """Where chunks are stored that are not missing, and their filter masks."""
    places, masks = Places(grid.counts), np.zeros(grid.counts, np.int64)
    number, told = places.add(file), array("Q")

    def add(chunk: Any) -> None:  # called for each of perhaps millions: what can wait is done for all of them
        told.extend((*chunk.chunk_offset, chunk.byte_offset, chunk.size, chunk.filter_mask))

    if data.chunks is not None and 0 not in grid.shape:
        data.id.chunk_iter(add)
        rank = len(grid.shape)
        table = np.frombuffer(told, np.uint64).reshape(-1, rank + 3)
        offsets, nbytes, left_out = table[:, rank:].T
        if (beyond := (nbytes > file.nbytes) | (offsets > file.nbytes - np.minimum(nbytes, file.nbytes))).any():
            raise ValueError(f"a chunk beyond its end, at byte {offsets[beyond.argmax()]}")
        index = tuple((table[:, :rank] // np.array(grid.chunks, np.uint64)).astype(np.int64).T)
        places.table[index] = np.stack([np.full_like(offsets, number), offsets, nbytes], 1).astype(np.int64)
        masks[index] = left_out
        if leaves_edges(data):
            whole = tuple(slice(length // chunk) for length, chunk in zip(grid.shape, grid.chunks, strict=True))
            edges = places.table[..., 0] >= 0
            edges[whole] = False
            masks[edges] = LEFT_OUT
    return places, masks
