"""Pieces as columns: the same ones come out, with what they share, and chunks travel with them."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.storage.chunks import Chunk, plan
from pipeline.storage.column_pickle import packed, unpacked
from pipeline.storage.pieces import BlockPiece, Piece
from pipeline.storage.sources import open_source
from tests.cases.device_slabs import in_slabs
from tests.cases.format_files import CASES


def chunk_of(items: list[str]) -> Chunk:
    (chunk,) = plan(open_source(items), 2**30, "off", 0)
    return chunk


def written(folder: Path, name: str) -> list[str]:
    """Two of a kind."""
    places = [folder / "a", folder / "b"]
    for place in places:
        place.mkdir()
    return [CASES[name].written(place).item for place in places]


def travelled(chunk: Chunk) -> Chunk:
    received: Chunk = pickle.loads(pickle.dumps(chunk))
    return received


@pytest.mark.parametrize(
    "name", ["zarr 3", "zarr 3, sharded", "hdf5 lz4", "parquet", "wav of 24 bits", "zarr 3, as it is"]
)
def test_chunks_travel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Twice, also before their pieces are asked for; in slabs of two arrays."""
    in_slabs(monkeypatch, 3000)
    chunk = chunk_of(written(tmp_path, name))
    assert len(chunk.pieces) > 1
    again = travelled(travelled(chunk))
    assert again == chunk and again.nbytes == chunk.nbytes and replace(again, index=3).pieces == chunk.pieces
    assert travelled(again) == chunk
    for piece, other in zip(again.pieces, chunk.pieces, strict=True):
        if isinstance(piece, BlockPiece) and isinstance(other, BlockPiece):
            np.testing.assert_array_equal(piece.block.read(), other.block.read())


def test_what_is_shared_stays_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise thousands of slabs would each have a grid, and each chunk a file, of its own."""
    in_slabs(monkeypatch, 3000)
    chunk = chunk_of(written(tmp_path, "zarr 3, sharded"))

    def parts(chunk: Chunk) -> list[int]:
        blocks: list[Any] = [piece.block for piece in chunk.pieces if isinstance(piece, BlockPiece)]
        return [len({id(one) for one in some}) for some in (
            [block.grid for block in blocks], [block.decode for block in blocks],
            [file for block in blocks for file in block.stored.files],
        )]  # fmt: skip

    assert parts(travelled(chunk)) == parts(chunk)


def test_any_objects() -> None:
    shared = Piece("a", 0, 1, None)
    values = [1, "b", shared, shared, Piece("c", 2, 3, None), Piece("d", 4, 5, None), None, Piece("e", 6, 7, None)]
    again = unpacked(pickle.loads(pickle.dumps(packed(values))))
    assert again == values and again[2] is again[3]
    assert unpacked(packed([])) == []


def test_a_chunk_has_no_other_names() -> None:
    with pytest.raises(AttributeError, match="no attribute 'piece'"):
        _ = travelled(Chunk(0, (), np.dtype("i4"))).piece  # type: ignore[attr-defined]
    assert travelled(Chunk(0, (), np.dtype("i4"))).pieces == ()
