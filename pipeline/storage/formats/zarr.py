"""Zarr arrays of versions 2 and 3 in folders and at URLs, sharded ones too: a file for each chunk, or for many.

The metadata are JSON; no library but those of the codecs is needed, and none is asked for others than are listed here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from itertools import islice, product

from pipeline.errors import UsageError
from pipeline.storage.files import Files, SourceFile
from pipeline.storage.formats.chunked import chunked
from pipeline.storage.formats.common import check_grid, choose, library, readable
from pipeline.storage.formats.places import Places
from pipeline.storage.formats.slabs import Grid, pieces_of
from pipeline.storage.formats.zarr_metadata import Array, parse
from pipeline.storage.formats.zarr_shards import put_entries
from pipeline.storage.formats.zarr_store import Store, store_at
from pipeline.storage.piece_source import PieceSource
from pipeline.storage.pieces import Piece
from pipeline.storage.protocol import Member, Opening, Source

WHAT = "a Zarr store"
MOST_MEMBERS = 10_000


def _arrays(store: Store, member: str | None = None) -> Iterator[tuple[str, Array | str]]:
    """Arrays of a store, with their names, or why they cannot be read."""
    for name, metadata in islice(store.arrays(member), MOST_MEMBERS):
        try:
            described: Array | str = parse(metadata)
        except (KeyError, TypeError, ValueError) as error:
            got = f"no {error}" if isinstance(error, KeyError) else error
            described = (
                f"expected an array that can be read, got {got}; convert it to a dtype and codecs of docs/formats.md"
            )
        yield name, described


def _member(name: str, array: Array | str) -> Member:
    if isinstance(array, str):
        return Member(name, None, (), problem=array)
    return Member(name, array.dtype, array.shape, array.chunks, array.compression)


def members_of(path: str) -> list[Member]:
    """Arrays of a Zarr store."""
    with readable(path, WHAT):
        return [_member(name, array) for name, array in _arrays(store_at(path))]


def open_zarr(path: str, opening: Opening) -> Source:
    """An array of a Zarr store.

    Raises
    ------
    UsageError
        If it cannot be read, or the user has to choose one.
    """
    store = store_at(path)
    with readable(path, WHAT):
        arrays = dict(_arrays(store, opening.member))
    if "." in arrays and opening.member is None:
        opening = replace(opening, member=".")
    member = choose(path, [_member(*item) for item in arrays.items()], opening)
    array = arrays[member.name]
    assert isinstance(array, Array)
    name = path if member.name == "." else f"{path}::{member.name}"
    array = array.of_dtype(opening.counted(array.dtype))
    opening.check(name, array.dtype, array.shape)
    with library(name, f"its codecs ({array.compression})", "zarr"):
        for package in array.packages:
            if find_spec(package) is None:
                raise ImportError(name=package)
    with readable(name, "a Zarr array"):
        return _source(name, store, member.name, array)


def _source(name: str, store: Store, member: str, array: Array) -> Source:
    grid = Grid(array.shape, array.chunks, array.dtype)
    check_grid(name, grid, math.prod(Grid(array.shape, array.outer, array.dtype).counts))
    files = [store.metadata(member)]
    absent = []
    places = Places(grid.counts)
    indices = list(product(*map(range, Grid(array.shape, array.outer, array.dtype).counts)))
    for index, file in zip(indices, store.files(member, map(array.key, indices)), strict=True):
        if isinstance(file, str):
            absent.append(file)
            continue
        files.append(file)
        number = places.add(file)
        if array.shard is None:
            places.table[index] = number, 0, file.nbytes
        else:
            put_entries(places, number, array, index)
    if array.decode is None and (wrong := places.other(grid.chunk_bytes)):
        raise UsageError(f"{wrong.path}: expected a chunk of {grid.chunk_bytes} bytes, got {wrong.nbytes}; is the "
                         "store complete?")  # fmt: skip
    parts = tuple(pieces_of(name, grid, places, array.decode, array.fill))
    if len(parts) == 1 and isinstance(only := parts[0], Piece) and only.identity is not None:
        chunk = SourceFile(only.path, only.offset, only.nbytes, only.identity, array.shape, label=name)
        return Files((chunk,), array.dtype)
    views = chunked(grid, places, array.decode, array.fill)
    return PieceSource(name, array.dtype, array.shape, parts, tuple(files), tuple(absent), views)
