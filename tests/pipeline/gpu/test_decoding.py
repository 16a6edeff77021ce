"""Batches of a chunk that are read and decompressed ahead: order, errors, memory, and what is under way at an end."""

from __future__ import annotations

import re
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pipeline.errors import PipelineError
from pipeline.gpu import batches as of_slabs
from pipeline.gpu import blocks, decoding
from pipeline.gpu.batches import batches
from pipeline.gpu.blocks import CHUNKS, SLOTS, device_blocks
from pipeline.gpu.decoding import Batch, Decoding
from pipeline.gpu.loads import DECODED
from pipeline.storage.chunks import Chunk, plan
from pipeline.storage.sources import open_source
from pipeline.timeline import Timeline
from tests.cases.device_slabs import BLOCK, in_files, on_device
from tests.cases.format_case import package_of
from tests.cases.format_files import CASES
from tests.emulator.kvikio import HostStream

__all__ = ["on_device"]

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("on_device")]


@pytest.mark.parametrize("number", [0, 1, 2, 3, 9])
def test_error_in_one_of_the_batches_that_are_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """What came before it is right and in order, but for those that the device still decompresses; it says what is
    wrong; the buffers serve the next run."""
    chunk, samples, nbytes = in_files(tmp_path, monkeypatch)
    path = tmp_path / "a.zarr" / str(number)
    content, reason = path.read_bytes(), "expected the file that was planned, got 'No such"
    path.unlink()
    got = [np.empty(0, samples.dtype)]
    with pytest.raises(PipelineError, match=f"{re.escape(str(path))}: {reason}"):
        for block in device_blocks(chunk, Timeline(), nbytes):
            got.append(block.get())
    came = max(number - (DECODED - 1), 0)
    np.testing.assert_array_equal(np.concatenate(got), samples[: 100 * came])
    path.write_bytes(content)
    (again,) = plan(open_source((str(tmp_path / "a.zarr"),)), 2**30, "off", 0)
    blocks = [block.get() for block in device_blocks(again, Timeline(), nbytes)]
    np.testing.assert_array_equal(np.concatenate(blocks), samples)


def test_the_next_batch_is_decompressed_while_one_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the caller stops there, nothing is released that the device still reads or writes."""
    chunk, samples, nbytes = in_files(tmp_path, monkeypatch)
    started, ended, begin, get = list[Any](), list[Any](), Batch.decoding, Decoding.get
    monkeypatch.setattr(Batch, "decoding", lambda *given: started.append(begin(*given)) or started[-1])
    monkeypatch.setattr(Decoding, "get", lambda one: ended.append(one) or get(one))
    blocks_ = device_blocks(chunk, Timeline(), nbytes)
    np.testing.assert_array_equal(next(blocks_).get(), samples[:100])
    assert len(started) == DECODED and [*dict.fromkeys(ended)] == started[:1]
    blocks_.close()
    assert [*dict.fromkeys(ended)] == started


def test_first_batches_of_a_chunk_are_read_before_what_other_chunks_read_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chunk, _, nbytes = in_files(tmp_path, monkeypatch)
    orders, begin = list[int](), Batch.begin
    monkeypatch.setattr(Batch, "begin", lambda part, order, slot: orders.append(order) or begin(part, order, slot))
    for _ in range(CHUNKS):
        assert len([*device_blocks(chunk, Timeline(), nbytes)]) == 10
    first, second = orders[:10], orders[10:]
    assert max(first[:DECODED] + second[:DECODED]) < min(first[DECODED:])
    assert len({*first[DECODED:]}) == len({*second[DECODED:]}) == 1 and first[-1] < second[-1]


def test_what_was_started_ends_before_its_memory_is_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no memory for what a kernel is given."""
    import cupy

    if cupy.cuda.Stream is not HostStream:
        pytest.skip("a stream of CuPy cannot be watched")
    source = open_source((CASES["zarr 2, lz4"].written(tmp_path).item,))
    (batch,) = batches(source.pieces(), source.dtype, BLOCK)
    assert isinstance(batch, Batch)
    events = list[str]()

    def refused(*given: Any) -> Any:
        events.append("refused")
        raise MemoryError("decompress: needs memory")

    monkeypatch.setattr(cupy.cuda.Stream, "synchronize", lambda stream: events.append("waited"))
    monkeypatch.setattr(decoding, "start", refused)
    with pytest.raises(MemoryError):
        batch.decoding(cupy.zeros(int(batch.starts[-1]), np.uint8))
    assert events == ["refused", "waited"]


@pytest.mark.parametrize("missing", [0, 1])
def test_decompressing_ahead_takes_room_for_two_of_the_largest_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: int
) -> None:
    chunk, samples, nbytes = in_files(tmp_path, monkeypatch)
    started, start = list[Any](), decoding.start
    monkeypatch.setattr(decoding, "start", lambda *given: started.append(0) or start(*given))
    spare = DECODED * of_slabs.MEMORY * nbytes - missing
    numbers, got = [], []
    for block in device_blocks(chunk, Timeline(), nbytes, spare=spare):
        numbers.append(len(started))
        got.append(block.get())
    np.testing.assert_array_equal(np.concatenate(got), samples)
    ahead = 0 if missing else DECODED - 1
    assert numbers == [min(number + ahead, 10) for number in range(1, 11)]


@pytest.mark.parametrize(("shape", "order", "shuffled"), [((1000,), "C", 0), ((1000,), "C", 1), ((40, 25), "F", 0)])
def test_pool_gives_back_what_it_keeps_before_it_would_exceed_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], order: Any, shuffled: int
) -> None:
    """Once for the memory of a batch, and once for a copy of samples that are shuffled or not in order. Without a limit
    never."""
    import cupy

    filters = [package_of("numcodecs").Shuffle(2)] * shuffled
    made = package_of("zarr").create_array(
        str(tmp_path / "a.zarr"), shape=shape, dtype="i2", chunks=(10, *shape[1:]), order=order, zarr_format=2,
        compressors=package_of("numcodecs").LZ4(), filters=filters or None,
    )  # fmt: skip
    made[...] = samples = np.random.default_rng(0).integers(0, 9999, shape).astype("i2")
    (chunk,) = plan(open_source((str(tmp_path / "a.zarr"),)), 2**30, "off", 0)
    assert [*device_blocks(chunk, Timeline(), BLOCK)]  # what other blocks had is given back once
    spare, freed, taken = 2**29, list[int](), 0
    pool = SimpleNamespace(total_bytes=lambda: taken, free_all_blocks=lambda: freed.append(taken))
    monkeypatch.setattr(cupy, "get_default_memory_pool", lambda: pool)
    limit, expected = CHUNKS * (SLOTS * BLOCK + spare), 1 + shuffled + (order == "F")
    for spare_, kept, times in ((sys.maxsize, limit, 0), (spare, limit - 2**20, 0), (spare, limit - 1, expected)):
        freed.clear()
        taken = kept
        blocks_ = [block.get() for block in device_blocks(chunk, Timeline(), BLOCK, spare=spare_)]
        np.testing.assert_array_equal(np.concatenate(blocks_), samples.reshape(-1))
        assert len(freed) == times


def test_store_that_vanishes_while_batches_are_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chunk, samples, nbytes = in_files(tmp_path, monkeypatch)
    got = []
    with pytest.raises(PipelineError, match=r"a\.zarr/.*(was removed while it was read|the file that was planned)"):
        for block in device_blocks(chunk, Timeline(), nbytes):
            got.append(block.get())
            shutil.rmtree(tmp_path / "a.zarr", ignore_errors=True)
    np.testing.assert_array_equal(np.concatenate(got), samples[: sum(map(len, got))])
    assert len(got) <= SLOTS


@pytest.mark.parametrize(("shrinks", "seconds"), [(False, 60), (True, 0.01), (True, 60)])
def test_a_chunk_is_planned_while_it_waits_for_buffers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shrinks: bool, seconds: float
) -> None:
    """If there is less memory than it was planned for when it gets them, it is planned again: it does not wait for
    buffers that were given up, and does not take one when it is put back."""
    chunk, samples, nbytes = in_files(tmp_path, monkeypatch)
    planned, sizes, parts = Event(), list[int](), blocks._parts

    def noted(chunk: Chunk, nbytes: int, spare: int) -> Any:
        sizes.append(nbytes)
        planned.set()
        return parts(chunk, nbytes, spare)

    monkeypatch.setattr(blocks, "_parts", noted)
    monkeypatch.setattr(blocks, "_most", 4 * nbytes)
    monkeypatch.setattr(blocks, "LEAST_BLOCK_BYTES", nbytes)
    monkeypatch.setattr(blocks, "LOOK_SECONDS", seconds)
    with ThreadPoolExecutor(1) as pool:
        with ExitStack() as stack:
            for _ in range(CHUNKS):
                stack.enter_context(blocks._lane(4 * nbytes))
            got = pool.submit(lambda: [block.get() for block in device_blocks(chunk, Timeline(), 4 * nbytes)])
            assert planned.wait(60)
            if shrinks:
                assert blocks.shrink()
            if shrinks and seconds < 1:
                got.result(60)
            else:
                assert not got.done()
        np.testing.assert_array_equal(np.concatenate(got.result(60)), samples)
    assert sizes == [4 * nbytes, *[2 * nbytes] * shrinks]
