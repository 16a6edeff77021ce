"""The chunk plan: every sample in exactly one chunk, in order, whatever the sizes; samples checked of each."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.storage.chunks import ALIGNMENT, LEAST_BYTES, SAMPLED_SHARE, Chunk, Region, plan
from pipeline.storage.pieces import EncodedPiece, Piece
from pipeline.storage.sources import DTYPES, Files, SourceFile
from tests.cases.files import imagined

MIB = 2**20


def source_of(dtype: str, *files: tuple[int, int]) -> Files:
    """A source of (offset, samples) files that need not exist: planning reads none."""
    item = np.dtype(dtype)
    return Files(
        tuple(
            SourceFile(
                f"/{number}.bin",
                offset,
                samples * item.itemsize,
                imagined(offset + samples * item.itemsize, number),
                (samples,),
            )
            for number, (offset, samples) in enumerate(files)
        ),
        item,
    )


def encoded(lengths: list[int]) -> Any:
    """A source of encoded blocks with so many bytes of samples each."""
    stored = Piece("/blocks", 0, 1, None)
    blocks = [EncodedPiece(stored, np.frombuffer, length, 0, length) for length in lengths]
    return SimpleNamespace(
        samples=sum(lengths), dtype=np.dtype("int8"), names=("/blocks",), pieces=lambda: iter(blocks)
    )


def bytes_of(pieces: tuple[Piece, ...]) -> list[tuple[str, int, int]]:
    """(path, first, end) with neighbours joined."""
    joined: list[tuple[str, int, int]] = []
    for piece in pieces:
        start = (piece.path, piece.offset)
        if joined and start == (joined[-1][0], joined[-1][2]):
            joined[-1] = (piece.path, joined[-1][1], piece.offset + piece.nbytes)
        else:
            joined.append((*start, piece.offset + piece.nbytes))
    return joined


sizes = st.integers(1, 300) | st.integers(1, 2**26) | st.sampled_from([MIB, MIB + 1, 2**40])
files = st.lists(st.tuples(st.integers(0, 9000), sizes), min_size=1, max_size=6)
chunk_sizes = st.integers(1, 100) | st.integers(2**18, 2**23) | st.sampled_from([2**20, 2**24, 2**33])


@settings(deadline=None, max_examples=120)
@given(dtype=st.sampled_from(DTYPES), files=files, chunk_bytes=chunk_sizes)
def test_every_sample_once_in_order(dtype: str, files: list[tuple[int, int]], chunk_bytes: int) -> None:
    source = source_of(dtype, *files)
    # No more chunks than a run would make.
    chunk_bytes = max(chunk_bytes, source.nbytes // 2000)
    chunks = plan(source, chunk_bytes, "full", 0)
    pieces = tuple(itertools.chain.from_iterable(chunk.pieces for chunk in chunks))
    assert bytes_of(pieces) == [(file.path, file.offset, file.offset + file.nbytes) for file in source.files]
    assert sum(chunk.samples for chunk in chunks) == source.samples
    assert [chunk.index for chunk in chunks] == list(range(len(chunks)))
    itemsize = source.dtype.itemsize
    for piece in pieces:
        assert piece.nbytes > 0
        assert piece.nbytes % itemsize == 0
    planned = {(file.path, file.identity) for file in source.files}
    assert {(piece.path, piece.identity) for piece in pieces} == planned
    for chunk in chunks:
        assert chunk.dtype == source.dtype
        assert 0 < chunk.nbytes <= max(chunk_bytes, itemsize)


@settings(deadline=None)
@given(
    dtype=st.sampled_from(DTYPES), offset=st.integers(0, 9000), samples=st.integers(1, 2**26),
    chunk_bytes=st.integers(MIB, 2**24),
)  # fmt: skip
def test_borders_of_large_chunks_are_aligned(dtype: str, offset: int, samples: int, chunk_bytes: int) -> None:
    """Wherever some sample starts at a multiple of 4096; no chunk shrinks by more than that."""
    source = source_of(dtype, (offset, samples))
    itemsize = source.dtype.itemsize
    if chunk_bytes // itemsize * itemsize < MIB:
        chunk_bytes += itemsize
    chunks = plan(source, chunk_bytes, "off", 0)
    for chunk in chunks[:-1]:
        end = chunk.pieces[-1].offset + chunk.pieces[-1].nbytes
        assert end % ALIGNMENT == 0 or offset % itemsize
        assert chunk.nbytes > chunk_bytes - ALIGNMENT - itemsize


def test_small_files_share_a_chunk_and_large_ones_are_cut() -> None:
    def sizes(chunk_bytes: int, *samples: int) -> list[list[int]]:
        chunks = plan(source_of("int32", *[(0, n) for n in samples]), chunk_bytes, "off", 0)
        return [[piece.nbytes for piece in chunk.pieces] for chunk in chunks]

    assert sizes(50, 3, 3, 3, 3, 3, 3) == [[12, 12, 12, 12], [12, 12]]
    assert sizes(40, 3, 3, 3, 3, 3, 3) == [[12, 12, 12, 4], [8, 12, 12]]
    assert sizes(50, 20) == [[48], [32]]
    assert sizes(50, 3, 12, 3) == [[12, 36], [12, 12]]
    assert sizes(1, 2) == [[4], [4]]
    assert sizes(5000, 3000) == [[5000], [5000], [2000]]  # too small for alignment to pay off


def test_borders_of_a_file_with_a_header() -> None:
    """The first chunk ends early, so that all others start at a page boundary."""
    chunks = plan(source_of("uint16", (128, 2**20)), MIB, "off", 0)
    assert [(chunk.pieces[0].offset, chunk.nbytes) for chunk in chunks] == [
        (128, MIB - 128), (MIB, MIB), (2 * MIB, 128),
    ]  # fmt: skip


def test_border_before_the_first_page_of_a_file() -> None:
    """The rest of a chunk is less than a page of the next file: it is filled, not aligned to the page."""
    chunks = plan(source_of("int8", (0, MIB - 1000), (0, 5000)), MIB, "off", 0)
    assert [[piece.nbytes for piece in chunk.pieces] for chunk in chunks] == [[MIB - 1000, 1000], [4000]]


@settings(deadline=None)
@given(dtype=st.sampled_from(DTYPES), files=files, chunk_bytes=st.integers(1, 2**22), seed=st.integers(0, 2**32 - 1))
def test_checked_regions(dtype: str, files: list[tuple[int, int]], chunk_bytes: int, seed: int) -> None:
    source = source_of(dtype, *files)
    chunk_bytes = max(chunk_bytes, source.nbytes // 500)
    assert {chunk.always for chunk in plan(source, chunk_bytes, "off", seed)} == {()}
    for chunk in plan(source, chunk_bytes, "full", seed):
        assert chunk.always == (Region(0, chunk.samples),)
    for mode in ("sample", "auto"):
        sampled = plan(source, chunk_bytes, mode, seed)
        for chunk in sampled:
            (checked,) = chunk.always
            length = max(chunk.samples / SAMPLED_SHARE[mode], LEAST_BYTES[mode] // source.dtype.itemsize)
            assert min(length, chunk.samples) <= checked.samples < length + 1
            assert 0 <= checked.start <= chunk.samples - checked.samples
        assert plan(source, chunk_bytes, mode, seed) == sampled


@settings(deadline=None)
@given(
    mode=st.sampled_from(["auto", "full", "sample", "off"]), dtype=st.sampled_from(["int8", "float64"]), files=files,
    chunk_bytes=st.integers(1, 2**22), part_bytes=st.integers(1, 2**22), seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_parts_cover_a_chunk_once(
    mode: str, dtype: str, files: list[tuple[int, int]], chunk_bytes: int, part_bytes: int, seed: int
) -> None:
    """All but a sampled region are short, and no shorter than necessary; what is always checked are whole parts."""
    source = source_of(dtype, *files)
    chunk_bytes = max(chunk_bytes, source.nbytes // 50)
    part_bytes = max(part_bytes, chunk_bytes // 100)
    for chunk in plan(source, chunk_bytes, mode, seed, part_bytes):
        starts = [0, *np.cumsum([part.samples for part in chunk.parts]).tolist()]
        assert [part.start for part in chunk.parts] == starts[:-1] and starts[-1] == chunk.samples
        assert all(part.samples for part in chunk.parts)
        assert set(chunk.always) <= set(chunk.parts)
        assert len(chunk.always) == {"full": len(chunk.parts), "off": 0}.get(mode, 1)
        step = max(part_bytes // source.dtype.itemsize, 1)
        others = [part for part in chunk.parts if mode == "full" or part not in chunk.always]
        assert all(part.samples <= step for part in others)
        assert len(others) <= -(-chunk.samples // step) + (mode in ("auto", "sample"))


@given(
    lengths=st.lists(st.integers(1, 50), min_size=1, max_size=30), mode=st.sampled_from(["auto", "full", "sample"]),
    step=st.integers(1, 200),
)  # fmt: skip
def test_parts_begin_with_an_encoded_block(lengths: list[int], mode: str, step: int) -> None:
    """Otherwise a block would be decoded for both parts; only the sampled run begins and ends anywhere."""
    source = encoded(lengths)
    starts = {0, *np.cumsum(lengths).tolist()}
    for chunk in plan(source, 10**9, mode, 0, step):
        sampled = () if mode == "full" else chunk.always
        assert {part.start for part in chunk.parts} <= starts | {r.start + n for r in sampled for n in (0, r.samples)}
        assert sum(part.samples for part in chunk.parts) == sum(lengths)
        if mode == "full":
            assert all(part.samples >= step for part in chunk.parts[:-1])


def test_what_is_checked_depends_on_seed_and_chunk() -> None:
    source = source_of("int8", (0, 100 * 2**16))
    starts = {
        (seed, chunk.index): chunk.always[0].start for seed in (0, 1) for chunk in plan(source, 2**16, "sample", seed)
    }
    assert len(starts) == 200
    assert len(set(starts.values())) > 150
    # From the whole chunk, its first and last run included.
    assert min(starts.values()) < 2**13
    assert max(starts.values()) > 2**16 - 2**13


def test_every_run_of_a_chunk_can_be_checked() -> None:
    source = source_of("int8", (0, 3))
    starts = {chunk.always[0].start for seed in range(50) for chunk in plan(source, 3, "sample", seed)}
    assert starts == {0, 1, 2}


@given(
    dtype=st.sampled_from(["int8", "int16", "float64"]),
    lengths=st.lists(st.integers(1, 20), min_size=1, max_size=5),
    data=st.data(),
)
def test_part(dtype: str, lengths: list[int], data: st.DataObject) -> None:
    """The pieces of a part hold exactly its samples."""
    itemsize = np.dtype(dtype).itemsize
    pieces = tuple(Piece(f"/{n}", 100 * n, length * itemsize, imagined(5000, n)) for n, length in enumerate(lengths))
    chunk = Chunk(7, pieces, np.dtype(dtype), (Region(0, 1),))
    start = data.draw(st.integers(0, chunk.samples - 1))
    region = Region(start, data.draw(st.integers(1, chunk.samples - start)))
    part = chunk.part(region)

    def places(chunk: Chunk) -> list[tuple[Piece, int]]:
        """Every sample as its piece, without the extent, and its offset."""
        return [
            (Piece(piece.path, 0, 0, piece.identity), offset)
            for piece in chunk.pieces
            for offset in range(piece.offset, piece.offset + piece.nbytes, itemsize)
        ]

    assert places(part) == places(chunk)[region.start : region.start + region.samples]
    assert (part.index, part.dtype, part.always) == (7, chunk.dtype, ())
    assert all(piece.nbytes > 0 for piece in part.pieces)


def test_where() -> None:
    chunk = Chunk(0, tuple(Piece(f"/{n}.bin", 64, 8, imagined(72)) for n in range(3)), np.dtype("int32"))
    assert chunk.where() == "/0.bin bytes 64-71 … /2.bin bytes 64-71 (3 pieces)"
    assert chunk.where(Region(1, 1)) == "/0.bin bytes 68-71"
    assert chunk.where(Region(1, 2)) == "/0.bin bytes 68-71 … /1.bin bytes 64-67 (2 pieces)"


@pytest.mark.parametrize("verify", ["full", "sample", "off"])
def test_huge_source_is_planned_without_reading(verify: str) -> None:
    chunks = plan(source_of("int32", (0, 2**38)), 2**32, verify, 0)
    assert len(chunks) == 256
    assert sum(chunk.samples for chunk in chunks) == 2**38
