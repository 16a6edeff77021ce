"""How slabs share a launch, and what becomes of those with a chunk that the device does not take."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.gpu import batches as of_slabs
from pipeline.gpu import decoding, slabs, transfer
from pipeline.gpu.batches import batches
from pipeline.gpu.blocks import device_blocks
from pipeline.gpu.decoding import Batch
from pipeline.storage.chunks import plan
from pipeline.storage.formats.slabs import Slab
from pipeline.storage.pieces import BlockPiece, Piece
from pipeline.storage.sources import open_source
from pipeline.timeline import Timeline
from tests.cases.device_slabs import BLOCK, enough, in_slabs, on_device, samples_of
from tests.cases.format_files import CASES

__all__ = ["on_device"]

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("on_device")]


def made_of(item: str, nbytes: int = BLOCK, spare: int = 2**40) -> list[int]:
    """Slabs of each batch; 0 for a piece that is decoded on the host."""
    source = open_source((item,))
    parts = [*batches(source.pieces(), source.dtype, nbytes, spare)]
    pieces = [piece for part in parts for piece in (part.plans if isinstance(part, Batch) else [part])]
    assert [getattr(piece, "piece", piece) for piece in pieces] == [*source.pieces()]
    return [len(part.plans) if isinstance(part, Batch) else 0 for part in parts]


def test_what_is_not_decompressed_on_the_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = CASES["zarr 3"].written(tmp_path)
    source = open_source((written.item,))
    ((batch,),) = ([*batches(source.pieces(), source.dtype, BLOCK)],)
    assert isinstance(batch, Batch)
    chunks = len(batch.present)
    raw = Piece("a", 0, 8, None)
    assert [*batches([raw], source.dtype, BLOCK)] == [raw]
    for name, value in (("MEMORY", 0), ("transfer_path", lambda: transfer.KVIKIO)):
        with monkeypatch.context() as patch:
            patch.setattr(of_slabs, name, value)
            assert made_of(written.item) == [0]
    enough(monkeypatch, chunks + 1)
    assert made_of(written.item) == [0]
    got, timeline = samples_of(written.item, 0, written.array.size)
    np.testing.assert_array_equal(got, written.array.reshape(-1))
    assert not timeline.transfer_paths


@pytest.mark.parametrize("name", ["zarr 3, gzip", "hdf5 deflate", "zarr 2, lz4", "zarr 3"])
def test_chunks_are_for_the_host_unless_they_are_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """All cores would decode them."""
    written = CASES[name].written(tmp_path)
    source = open_source((written.item,))
    (batch,) = batches(source.pieces(), source.dtype, BLOCK)
    assert isinstance(batch, Batch)
    chunks = len(batch.present)
    for per_core, cores in ((chunks, 1), (1, chunks), (chunks + 1, 1), (1, chunks + 1)):
        enough(monkeypatch, per_core, cores)
        assert made_of(written.item) == [0 if per_core * cores > chunks else 1]


def test_slabs_share_a_launch_as_many_as_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Into a buffer, and into memory together with the copies that are put in order."""
    written = CASES["hdf5 zstd"].written(tmp_path)
    in_slabs(monkeypatch, 3000)
    source = open_source((written.item,))
    plans = [slabs.plan_of(piece, source.dtype) for piece in source.pieces()]
    assert len(plans) > 4 and all(plans)
    assert made_of(written.item) == [len(plans)]
    stored = [int(plan.slab.stored.table[:, 2].sum()) for plan in plans if plan]
    for nbytes in (max(stored), stored[0] + stored[1], stored[0] + stored[1] - 1, sum(stored) - 1):
        expected = [0]  # slabs of each batch, as they fit one after another
        filled = 0
        for of_slab in stored:
            if filled + of_slab > nbytes:
                expected, filled = [*expected, 0], 0
            expected[-1], filled = expected[-1] + 1, filled + of_slab
        assert made_of(written.item, nbytes) == expected
    decoded = [plan.decoded for plan in plans if plan]
    for_two = 2 * sum(decoded[:2]) + 2 * decoded[1]
    assert made_of(written.item, spare=for_two)[0] == 2
    assert made_of(written.item, spare=for_two - 1)[0] == 1
    monkeypatch.setattr(of_slabs, "MEMORY", for_two / BLOCK)
    assert made_of(written.item)[0] == 2
    monkeypatch.setattr(of_slabs, "MEMORY", (for_two - 1) / BLOCK)
    assert made_of(written.item)[0] == 1
    (chunk,) = plan(open_source((written.item,)), 2**30, "off", 0)
    timeline = Timeline()
    assert [*device_blocks(chunk, timeline, BLOCK, spare=4 * min(decoded) - 1)]
    assert not timeline.transfer_paths  # no slab fits


@pytest.mark.parametrize("name", ["zarr 3", "zarr 3, sharded", "zarr 2, shuffle", "hdf5 missing chunks", "hdf5 zstd"])
def test_one_launch_for_several_slabs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Fewer chunks at the end: they have a launch of their own."""
    written = CASES[name].written(tmp_path)
    in_slabs(monkeypatch, 3000)
    slabs_ = made_of(written.item)
    assert slabs_[0] > 3
    chunks = plan(open_source((written.item,)), 10_000, "off", 0)
    launched, decompress = list[int](), decoding.decompress
    monkeypatch.setattr(decoding, "decompress", lambda *given: launched.append(1) or decompress(*given))
    got, _ = samples_of(written.item, 0, written.array.size, 10_000)
    np.testing.assert_array_equal(got, written.array.reshape(-1))
    assert isinstance(chunks, tuple)
    assert 0 < len(launched) <= len(chunks) < sum(len(chunk.pieces) for chunk in chunks)


def test_what_differs_does_not_share_a_launch(tmp_path: Path) -> None:
    first, second = CASES["zarr 3"].written(tmp_path), CASES["zarr 3, gzip"].written(tmp_path / "b")
    pieces = [piece for one in (first, second, second, first) for piece in open_source((one.item,)).pieces()]
    raw = Piece("a", 0, 8, None)
    dtype = open_source((first.item,)).dtype
    assert dtype == open_source((second.item,)).dtype
    parts = [*batches([*pieces, raw, *pieces], dtype, BLOCK)]
    assert [len(part.plans) if isinstance(part, Batch) else 0 for part in parts] == [1, 2, 1, 0, 1, 2, 1]


@pytest.mark.parametrize("nbytes", [10_000, 100_000, BLOCK])
@pytest.mark.parametrize("least", [1, 32])
def test_batches_are_the_same_however_many_slabs_are_planned_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nbytes: int, least: int
) -> None:
    """Also beside what is no slab, and slabs of another scheme or for the host."""
    first, second = CASES["hdf5 lz4"].written(tmp_path), CASES["hdf5 one dimension"].written(tmp_path)
    in_slabs(monkeypatch, 3000)
    enough(monkeypatch, least)
    slabs_, others = ([*open_source((one.item,)).pieces()] for one in (first, second))
    short = slabs_[2]
    assert isinstance(short, BlockPiece) and isinstance(short.block, Slab)
    cut = np.where(short.block.stored.table >= 0, [0, 0, 1], -1)
    stored = replace(short.block.stored, places=cut.tobytes())
    short = replace(short, block=replace(short.block, stored=stored))
    pieces = [*slabs_, Piece("a", 0, 8, None), *slabs_, short, *others, short, *slabs_[:5]]

    def made(window: int) -> list[Any]:
        monkeypatch.setattr(of_slabs, "WINDOW", window)
        parts = batches(pieces, open_source((first.item,)).dtype, nbytes)
        return [[plan.piece for plan in part.plans] if isinstance(part, Batch) else part for part in parts]

    together = made(len(pieces) + 1)
    assert [piece for part in together for piece in (part if isinstance(part, list) else [part])] == pieces
    assert all(made(window) == together for window in (1, 2, 3, len(slabs_), len(slabs_) + 1))


@pytest.mark.parametrize("name", ["zarr 3", "zarr 2, zlib", "zarr 2, lz4"])
def test_a_buffer_has_room_for_chunks(tmp_path: Path, name: str) -> None:
    written = CASES[name].written(tmp_path)
    source = open_source((written.item,))
    (batch,) = batches(source.pieces(), source.dtype, BLOCK)
    assert isinstance(batch, Batch)
    needed = int(batch.starts[-1])
    assert made_of(written.item, needed) == [1] and made_of(written.item, needed - 1) == [0]


def test_slab_of_a_chunk_that_is_too_short_is_for_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no byte before its checksum; those before and behind it are decompressed together."""
    written = CASES["hdf5 shuffle, deflate, fletcher32"].written(tmp_path)
    in_slabs(monkeypatch, 3000)
    source = open_source((written.item,))
    pieces = [*source.pieces()]
    assert len(pieces) > 4
    short = pieces[2]
    assert isinstance(short, BlockPiece) and isinstance(short.block, Slab)
    table = short.block.stored.table.copy()
    table[-1, 2] = 4
    stored = replace(short.block.stored, places=table.tobytes())
    pieces[2] = replace(short, block=replace(short.block, stored=stored))
    parts = [*batches(pieces, source.dtype, BLOCK)]
    assert [len(part.plans) if isinstance(part, Batch) else 0 for part in parts] == [2, 0, len(pieces) - 3]
    assert parts[1] is pieces[2]


def test_runs_of_two_files_are_two(tmp_path: Path) -> None:
    """Also where one begins at the offset at which the other ended."""
    source = open_source((CASES["zarr 3"].written(tmp_path).item,))
    (batch,) = batches(source.pieces(), source.dtype, BLOCK)
    assert isinstance(batch, Batch)
    table = np.array([[0, 5, 10], [1, 15, 10], [1, 25, 3], [-1, 0, 0], [1, 29, 1]])
    made = Batch(batch.plans, batch.files, table, batch.room)
    assert made.runs.tolist() == [[0, 5, 10], [1, 15, 13], [1, 29, 1]] and made.files == batch.files[:2]


@pytest.mark.parametrize("name", ["zarr 2, lz4", "zarr 3", "zarr 3, gzip", "hdf5 one dimension"])
def test_host_decodes_only_the_slab_of_a_chunk_that_the_device_does_not_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    written = CASES[name].written(tmp_path)
    in_slabs(monkeypatch, 3000)
    decompress, decode_whole, on_host = decoding.decompress, slabs.decode_whole, []

    def one_left_out(stored: Any, starts: Any, sizes: Any, out: Any, places: Any, nbytes: int, framing: str) -> Any:
        right, number = decompress(stored, starts, sizes, out, places, nbytes, framing), len(starts) // 2
        right[number] = 0
        out[nbytes * int(places[number]) :][:nbytes] = 7  # is not used
        return right

    def counted(piece: Any, dtype: Any) -> Any:
        on_host.append(piece)
        return decode_whole(piece, dtype)

    monkeypatch.setattr(decoding, "decompress", one_left_out)
    monkeypatch.setattr(slabs, "decode_whole", counted)
    slabs_ = made_of(written.item)
    got, _ = samples_of(written.item, 0, written.array.size)
    np.testing.assert_array_equal(got, written.array.reshape(-1))
    assert len(on_host) == len(slabs_) == 1 < slabs_[0]


@pytest.mark.parametrize("seed", range(20))
def test_reads_of_a_batch_are_its_chunks(tmp_path: Path, seed: int) -> None:
    """Slabs of several files in any order, some of which they share, with gaps between chunks and missing chunks."""
    source = open_source((CASES["hdf5 one dimension"].written(tmp_path).item,))
    piece, random = next(iter(source.pieces())), np.random.default_rng(seed)
    assert isinstance(piece, BlockPiece) and isinstance(piece.block, Slab)
    files, pieces, expected = [Piece(f"{name}", 0, 10**6, None) for name in "abcd"], [], []
    for _ in range(random.integers(1, 30)):
        of_slab = [files[number] for number in random.permutation(4)[: random.integers(1, 3)]]
        count = random.integers(1, 9)
        sizes = random.integers(1, 4, count)
        gaps = random.choice([0, 0, 0, 1], count)
        offsets = random.integers(100) + np.cumsum(sizes + gaps) - sizes
        table = np.stack([np.sort(random.integers(0, len(of_slab), count)), offsets, sizes], 1)
        if random.integers(2):
            table[random.permutation(count)[: random.integers(1 + count // 2)]] = -1, 0, 0
        if random.integers(2):
            random.shuffle(table)
        stored = replace(piece.block.stored, files=tuple(of_slab), places=table.tobytes())
        pieces.append(replace(piece, block=replace(piece.block, stored=stored)))
        expected.append([(of_slab[number].path, *place) if number >= 0 else None for number, *place in table.tolist()])
    seen = 0
    for part in batches(pieces, source.dtype, 100):
        slabs_ = len(part.plans) if isinstance(part, Batch) else 1
        chunks = [chunk for slab in expected[seen : seen + slabs_] for chunk in slab]
        seen += slabs_
        if not isinstance(part, Batch):
            assert part is pieces[seen - 1] and not any(chunks)
            continue
        runs = [(part.files[number].path, first, nbytes) for number, first, nbytes in part.runs.tolist()]
        read = [(path, first + byte) for path, first, nbytes in runs for byte in range(nbytes)]
        assert len(set(part.files)) == len(part.files) == len({path for path, *_ in runs})
        assert part.starts[-1] == len(read) <= 100 and part.chunks == len(chunks)
        assert part.absent.tolist() == [number for number, chunk in enumerate(chunks) if chunk is None]
        assert sorted({*part.present.tolist(), *part.absent.tolist()}) == [*range(len(chunks))]
        for number, start, nbytes in zip(
            part.present.tolist(), part.starts.tolist(), part.sizes.tolist(), strict=False
        ):
            path, first, _ = chunks[number] or ("", 0, 0)
            assert read[start : start + nbytes] == [(path, first + byte) for byte in range(nbytes)]
            assert nbytes == (chunks[number] or ("", 0, 0))[2]
        order = part.runs[:, :2].tolist()
        assert order == sorted(order)
        joined = [
            (path, first + nbytes) == (other, begin) for (path, first, nbytes), (other, begin, _) in pairwise(runs)
        ]
        assert not any(joined)
    assert seen == len(pieces)


def test_chunks_that_follow_one_another_are_one_read(tmp_path: Path) -> None:
    """A shard takes a few reads, not one for each of its chunks."""
    written = CASES["zarr 3, sharded"].written(tmp_path)
    source = open_source((written.item,))
    (batch,) = batches(source.pieces(), source.dtype, BLOCK)
    assert isinstance(batch, Batch) and len(batch.present) > 2 * len(batch.files)
    files, _, nbytes = batch.runs.T
    assert sorted(files.tolist()) == [*range(len(batch.files))]
    assert all(size <= batch.files[file].nbytes for file, size in zip(files.tolist(), nbytes.tolist(), strict=True))
