"""Boxes along chunks as regions: they cover the output, and chunks are not decoded for many regions."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import pipeline
from pipeline.engine import array_request, array_task
from pipeline.engine.array_boxes import _boxes
from pipeline.storage.piece_regions import ChunkedRegions
from tests.cases.format_case import package_of
from workflows.regions import Bounds, sizes

ARRAY = np.random.default_rng(3).integers(-999, 999, (400, 60)).astype("i4")
CHUNKS = {"columns": (400, 3), "tiles": (100, 10), "rows": (10, 60)}
SOME = 16_000  # bytes of a region: a twelfth of the array and the output

LENGTHS = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 14)), min_size=1, max_size=3)


@settings(max_examples=200, deadline=None)
@given(LENGTHS, st.integers(1, 500))
def test_cover_once_in_whole_chunks_or_in_parts_of_one(lengths: list[tuple[int, int]], elements: int) -> None:
    shape, chunks = (tuple(one) for one in zip(*lengths, strict=True))
    boxes = _boxes(shape, chunks, elements)
    covered = np.zeros(shape, np.uint8)
    for box in boxes:
        assert prod(sizes(box)) <= elements
        for (start, stop), length, chunk in zip(box, shape, chunks, strict=True):
            whole = start % chunk == 0 and (stop % chunk == 0 or stop == length)
            assert whole or start // chunk == (stop - 1) // chunk
        covered[tuple(slice(*bounds) for bounds in box)] += 1
    assert (covered == 1).all()


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[Bounds]:
    """What is read of arrays in chunks; the cluster is in this process."""
    regions: list[Bounds] = []
    fill = ChunkedRegions.fill_region

    def told(filler: ChunkedRegions, region: Bounds, block: NDArray[Any]) -> None:
        regions.append(region)
        fill(filler, region, block)

    monkeypatch.setattr(ChunkedRegions, "fill_region", told)
    return regions


def _times(regions: list[Bounds], chunks: tuple[int, ...]) -> float:
    """How often a chunk is decoded, on average."""
    crossed = [prod((stop - 1) // n - start // n + 1 for (start, stop), n in zip(region, chunks, strict=True))
               for region in regions]  # fmt: skip
    return sum(crossed) / prod(-(-length // n) for length, n in zip(ARRAY.shape, chunks, strict=True))


def _stored(folder: Path, chunks: tuple[int, ...]) -> str:
    array = package_of("zarr").create_array(folder / "a.zarr", shape=ARRAY.shape, dtype="i4", chunks=chunks)
    array[...] = ARRAY
    return str(folder / "a.zarr")


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("kind", CHUNKS)
def test_a_chunk_is_decoded_a_few_times(tmp_path: Path, kind: str, decoded: list[Bounds]) -> None:
    item = _stored(tmp_path, CHUNKS[kind])
    row = ARRAY[:1].astype("i8")
    added = pipeline.run("map", item, row, operation="add", output=tmp_path / "m.npy", chunk_bytes=SOME, verify="full")
    np.testing.assert_array_equal(added.array, ARRAY + row)
    assert _times(decoded, CHUNKS[kind]) <= 5  # to compute and to check, in parts or at edges of regions
    decoded.clear()
    turned = pipeline.run("transpose", item, output=tmp_path / "t.npy", chunk_bytes=SOME, verify="full").array
    np.testing.assert_array_equal(turned, ARRAY.T)
    assert _times(decoded, CHUNKS[kind]) <= 5
    decoded.clear()
    for axis in (0, 1):
        around = [(1, 1) if one == axis else (0, 0) for one in range(2)]
        sums = np.lib.stride_tricks.sliding_window_view(np.pad(ARRAY.astype("i8"), around), 3, axis).sum(-1)
        out = tmp_path / "s.npy"
        got = pipeline.run("stencil", item, radius=1, axis=axis, output=out, chunk_bytes=SOME, verify="full").array
        np.testing.assert_array_equal(got, sums)
        assert _times(decoded, CHUNKS[kind]) <= 8  # and of the chunks on both sides
        decoded.clear()


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize(("most", "times"), [(2**20, 2), (60_000, 16)])
def test_a_chunk_that_is_larger_than_regions_are(
    tmp_path: Path, decoded: list[Bounds], monkeypatch: pytest.MonkeyPatch, most: int, times: int
) -> None:
    """One region has all of it, up to a limit, and is checked in one piece."""
    monkeypatch.setattr(array_request, "REGION_BYTES", dict.fromkeys(array_request.REGION_BYTES, SOME))
    monkeypatch.setattr(array_task, "CHECKED_BYTES", SOME)
    for module in (array_request, array_task):
        monkeypatch.setattr(module, "DECODED_BYTES", most)
    item = _stored(tmp_path, ARRAY.shape)
    turned = pipeline.run("transpose", item, output=tmp_path / "t.npy", verify="full", device="cpu").array
    np.testing.assert_array_equal(turned, ARRAY.T)
    assert 2 <= len(decoded) <= times
    assert max(2 * ARRAY.itemsize * prod(sizes(region)) for region in decoded) <= most
    decoded.clear()
    asked = pipeline.run("transpose", item, output=tmp_path / "t.npy", verify="off", device="cpu", chunk_bytes=SOME)
    np.testing.assert_array_equal(asked.array, ARRAY.T)
    assert max(2 * ARRAY.itemsize * prod(sizes(region)) for region in decoded) <= SOME


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("chunks", [(1, 9, 8), (40, 1, 3), (5, 18, 2)], ids=str)
def test_axes_in_reverse_order(tmp_path: Path, chunks: tuple[int, ...], decoded: list[Bounds]) -> None:
    """Of three axes."""
    solid = ARRAY[:, :18].reshape(40, 10, 18).swapaxes(1, 2).astype("i2")
    array = package_of("zarr").create_array(tmp_path / "a.zarr", shape=solid.shape, dtype="i2", chunks=chunks)
    array[...] = solid
    item = str(tmp_path / "a.zarr")
    turned = pipeline.run("transpose", item, output=tmp_path / "t.npy", chunk_bytes=4000, verify="full").array
    np.testing.assert_array_equal(turned, solid.T)
    crossed = [prod(-(-stop // n) - start // n for (start, stop), n in zip(region, chunks, strict=True))
               for region in decoded]  # fmt: skip
    assert sum(crossed) <= 5 * prod(-(-length // n) for length, n in zip(solid.shape, chunks, strict=True))


@pytest.mark.usefixtures("shared")
def test_not_where_windows_are_wide(tmp_path: Path, decoded: list[Bounds]) -> None:
    """A box of three columns would need nine on each side."""
    item = _stored(tmp_path, (400, 1))
    pipeline.run("stencil", item, radius=9, output=tmp_path / "s.npy", chunk_bytes=SOME, verify="off")
    assert {region[1] for region in decoded} == {(0, 60)}
