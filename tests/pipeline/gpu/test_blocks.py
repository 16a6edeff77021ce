"""Streaming to a GPU in blocks that shrink with its memory limit."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import pipeline
from pipeline.errors import PipelineError, UsageError
from pipeline.gpu import blocks as read_device
from pipeline.gpu import loads, transfer
from pipeline.gpu.blocks import (
    BLOCK_BYTES,
    CHUNKS,
    LEAST_BLOCK_BYTES,
    SLOTS,
    block_bytes_within,
    device_blocks,
    spare_bytes_within,
)  # fmt: skip
from pipeline.gpu.transfer import part_bytes
from pipeline.storage.chunks import Region, plan
from pipeline.storage.protocol import BYTEORDERS, PACKED, Byteorder
from pipeline.storage.sources import Source, open_source
from pipeline.timeline import Timeline
from tests.cases.stored_small import unpacked
from tests.emulator.kvikio import install

LEAST = 2 * CHUNKS * SLOTS * LEAST_BLOCK_BYTES


@pytest.mark.parametrize("limit", [LEAST, LEAST + 1, 2**20 - 1, 2**24 + 5, 2**27, 2**30 - 1, 2**30, 2**40])
def test_buffers_take_half_of_the_limit_at_most(limit: int) -> None:
    nbytes = block_bytes_within(limit)
    assert LEAST_BLOCK_BYTES <= nbytes <= BLOCK_BYTES
    assert nbytes % LEAST_BLOCK_BYTES == 0
    assert 2 * CHUNKS * SLOTS * nbytes <= limit
    assert CHUNKS * (SLOTS * nbytes + spare_bytes_within(limit)) <= limit
    assert spare_bytes_within(limit) >= SLOTS * nbytes
    assert nbytes == BLOCK_BYTES or 2 * CHUNKS * SLOTS * (nbytes + LEAST_BLOCK_BYTES) > limit


def test_limit_that_is_no_use_is_refused(tmp_path: Path) -> None:
    np.arange(100, dtype=np.int32).tofile(tmp_path / "a.bin")
    text = rf"^--device-memory-limit: expected at least {LEAST} bytes, got {LEAST - 1}$"
    with pytest.raises(UsageError, match=text):
        pipeline.run("histogram", tmp_path / "a.bin", device_memory_limit=LEAST - 1)


def test_limit_does_not_matter_without_a_gpu(tmp_path: Path) -> None:
    samples = np.arange(100, dtype=np.int32)
    samples.tofile(tmp_path / "a.bin")
    result = pipeline.run("histogram", tmp_path / "a.bin", device="cpu", bins=10, device_memory_limit=2**20)
    np.testing.assert_array_equal(result.counts, np.histogram(samples, 10, (0, 1024))[0])


@pytest.fixture(params=["threads of this project", "kvikio"])
def gpu(cp: Any, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Any:
    """The GPU, or the host in its place, with either transfer path."""
    if not hasattr(cp.cuda, "Stream"):
        install(cp, monkeypatch)
    if request.param == "kvikio":
        monkeypatch.setattr(transfer, "_reader", lambda: None)
    return cp


def blocks_of(source: Source, start: int, samples: int, nbytes: int) -> tuple[list[NDArray[Any]], Timeline]:
    (chunk,) = plan(source, 2**30, "off", 0)
    timeline = Timeline(True)
    return [block.get() for block in device_blocks(chunk.part(Region(start, samples)), timeline, nbytes)], timeline


@pytest.mark.gpu
@pytest.mark.parametrize("nbytes", [64, 100, 1000, 2**20])
@pytest.mark.parametrize("dtype", ["<i4", ">i4", "<u2"])
def test_blocks_are_the_file(tmp_path: Path, gpu: Any, dtype: str, nbytes: int) -> None:
    """Across several files, from any sample on."""
    samples = np.random.default_rng(0).integers(0, 1024, 1003).astype(dtype)
    for number, piece in enumerate(np.split(samples, [301, 302, 700])):
        (tmp_path / f"{number}.raw").write_bytes(b"12" + piece.tobytes())
    name = np.dtype(dtype).name
    source = open_source((str(tmp_path / "*.raw"),), name, "big" if dtype[0] == ">" else "little", 2)
    for start, length in ((0, 1003), (5, 990), (301, 1), (299, 3)):
        blocks, timeline = blocks_of(source, start, length, nbytes)
        np.testing.assert_array_equal(np.concatenate(blocks), samples[start : start + length])
        assert max(block.nbytes for block in blocks) <= nbytes and {block.dtype for block in blocks} == {np.dtype(name)}
        kinds = [span.stage for span in timeline.spans]
        assert kinds.count("read+copy") == kinds.count("kernel") == len(blocks)
        assert timeline.nbytes["read+copy"] == timeline.nbytes["kernel"] == length * samples.itemsize
        assert timeline.transfer_paths == {transfer.transfer_path()}


@pytest.mark.gpu
@pytest.mark.parametrize("most", [1, 3])
def test_files_of_a_block_are_not_all_open_at_once(
    tmp_path: Path, gpu: Any, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Where each is opened here: by kvikio, and if something is checked beside it."""
    samples = np.arange(1000, dtype=np.int32)
    for number, part in enumerate(np.split(samples, 10)):
        part.tofile(tmp_path / f"{number}.bin")
    counts = [0, 0]  # open, at most

    @contextmanager
    def opened(*given: Any) -> Iterator[Any]:
        with transfer.opened(*given) as reading:
            counts[0] += 1
            counts[1] = max(counts)
            yield reading
            counts[0] -= 1

    monkeypatch.setattr(transfer, "_reader", lambda: None)
    monkeypatch.setattr(loads, "opened", opened)
    monkeypatch.setattr(loads, "MOST_FILES", most)
    blocks, _ = blocks_of(open_source((str(tmp_path / "*.bin"),)), 0, 1000, 2**20)
    np.testing.assert_array_equal(np.concatenate(blocks), samples)
    assert counts == [0, most] and len(blocks) == 1


@pytest.mark.gpu
def test_reads_under_way_are_waited_for_where_a_job_fails(tmp_path: Path, gpu: Any) -> None:
    """Before the file is closed, and before the memory is reused."""
    np.arange(1000, dtype=np.int32).tofile(tmp_path / "a.bin")
    (chunk,) = plan(open_source((str(tmp_path / "a.bin"),)), 2**30, "off", 0)
    with pytest.raises(RuntimeError, match="planted"), closing(device_blocks(chunk, Timeline(), 128)) as blocks:
        next(blocks)
        raise RuntimeError("planted")
    got, _ = blocks_of(open_source((str(tmp_path / "a.bin"),)), 0, 1000, 128)
    np.testing.assert_array_equal(np.concatenate(got), np.arange(1000))


@pytest.mark.parametrize(("gpus", "mib"), [(0, 4), (1, 4), (2, 2), (4, 1), (8, 1)])
def test_what_is_under_way_on_all_gpus_stays_in_the_cache(gpus: int, mib: int) -> None:
    assert part_bytes(gpus) == mib * 2**20


@pytest.mark.gpu
def test_file_that_ends_early_is_told(tmp_path: Path, gpu: Any) -> None:
    np.arange(1000, dtype=np.int32).tofile(tmp_path / "a.bin")
    source = open_source((str(tmp_path / "a.bin"),))
    os.truncate(tmp_path / "a.bin", 3000)
    with pytest.raises(PipelineError, match=r"a\.bin: shrank while it was read"):
        blocks_of(source, 0, 1000, 2**20)


@pytest.mark.gpu
def test_file_that_is_replaced_is_not_mixed_with_the_new_one(
    tmp_path: Path, gpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While blocks are ahead, and right after it was checked: kvikio opens files by name."""
    np.arange(1000, dtype=np.int32).tofile(tmp_path / "a.bin")
    (chunk,) = plan(open_source((str(tmp_path / "a.bin"),)), 2**30, "off", 0)
    real = transfer.open_planned

    def replace() -> None:
        (tmp_path / "new").write_bytes(bytes(4000))
        os.replace(tmp_path / "new", tmp_path / "a.bin")

    @contextmanager
    def replacing(piece: Any) -> Iterator[int]:
        with real(piece) as fd:
            replace()
            yield fd

    if transfer.transfer_path() == transfer.KVIKIO:
        monkeypatch.setattr(transfer, "open_planned", replacing)
    got = []
    # A new file may have the number of the one before it, which looks as if it had been written to.
    told = r"a\.bin: was (removed|replaced by another file|written to) while it was read"
    with pytest.raises(PipelineError, match=told):
        for block in device_blocks(chunk, Timeline(), 400):
            got.append(block.get())
            replace()
    assert len(got) < 10
    np.testing.assert_array_equal(np.concatenate([*got, []]), np.arange(sum(map(len, got))))


@pytest.mark.hardware
def test_larger_than_the_memory_that_it_may_take(tmp_path: Path) -> None:
    """Blocks and their buffers shrink, the result is the same, and the next job gets full-size ones."""
    import cupy

    read_device.release()
    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()
    kept = pool.total_bytes()  # by other tests of this process
    samples = np.random.default_rng(0).integers(0, 1024, 2**24).astype(np.int32)
    samples.tofile(tmp_path / "a.bin")
    with pytest.MonkeyPatch.context() as patch:
        taken = []
        real = loads.transfer

        def noting(*arguments: Any) -> Any:
            taken.append(pool.total_bytes())
            return real(*arguments)

        patch.setattr(loads, "transfer", noting)
        result = pipeline.run("histogram", tmp_path / "a.bin", device="gpu", device_memory_limit=2**23)
    np.testing.assert_array_equal(result.counts, np.bincount(samples, minlength=1024))
    assert len(taken) >= samples.nbytes // 2**20
    assert max(taken) - kept <= 2**23 < samples.nbytes
    assert pipeline.run("reduce", tmp_path / "a.bin", device="gpu", op="sum").values["sum"] == samples.sum()
    assert pool.total_bytes() >= CHUNKS * SLOTS * BLOCK_BYTES


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["<i4", ">i4", "<u2"])
def test_blocks_of_what_is_no_byte_run_come_from_host_memory(gpu: Any, dtype: str) -> None:
    """Across pieces of any size, of a strided array."""
    samples = np.random.default_rng(0).integers(0, 1024, (59, 17)).astype(dtype).T
    for nbytes in (64, 1000, 2**20):
        blocks, timeline = blocks_of(open_source((samples,)), 5, 990, nbytes)
        np.testing.assert_array_equal(np.concatenate(blocks), samples.reshape(-1)[5:995])
        assert max(block.nbytes for block in blocks) <= nbytes
        assert {block.dtype for block in blocks} == {np.dtype(dtype).newbyteorder("=")}
        assert timeline.nbytes["read+copy"] == timeline.nbytes["kernel"] == 990 * samples.itemsize
        assert not timeline.transfer_paths


@pytest.mark.gpu
@pytest.mark.parametrize("nbytes", [64, 100, 2**20])
@pytest.mark.parametrize("order", BYTEORDERS)
@pytest.mark.parametrize("name", PACKED)
def test_packed_samples_cross_the_bus_as_they_are(
    tmp_path: Path, gpu: Any, name: str, order: Byteorder, nbytes: int
) -> None:
    """From any sample on, of two files, after bytes to skip."""
    bits = int(name[1:3])
    stored = np.random.default_rng(0).integers(0, 256, 100 * bits, dtype=np.uint8)
    for number, part in enumerate(np.split(stored, [30 * bits])):
        (tmp_path / f"{number}.raw").write_bytes(b"123" + part.tobytes())
    samples = unpacked(stored, bits, name[0] == "i", order == "big")
    source = open_source((str(tmp_path / "*.raw"),), name, order, 3)
    for start, length in ((0, 800), (5, 790), (1, 1), (239, 3), (246, 71)):
        blocks, timeline = blocks_of(source, start, length, nbytes)
        np.testing.assert_array_equal(np.concatenate(blocks), samples[start : start + length])
        assert max(block.nbytes for block in blocks) <= nbytes and {block.dtype for block in blocks} == {samples.dtype}
        assert timeline.nbytes["kernel"] == 2 * length
        groups = 2 if 240 in range(start + 1, start + length) else 1  # more at the end of the first file
        assert 0 <= timeline.nbytes["read+copy"] - length * bits / 8 < 2 * groups * bits
        assert timeline.transfer_paths == {transfer.transfer_path()}
