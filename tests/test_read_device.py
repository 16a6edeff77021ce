"""Streaming to a GPU in blocks as small as a limit of its memory makes them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pipeline
from pipeline import read_device
from pipeline.errors import UsageError
from pipeline.read_device import BLOCK_BYTES, CHUNKS, LEAST_BLOCK_BYTES, SLOTS, block_bytes_within, use_blocks


@pytest.mark.parametrize("limit", [2**19, 2**20 - 1, 2**24 + 5, 2**27, 2**30 - 1, 2**30, 2**40])
def test_buffers_take_half_of_the_limit_at_most(limit: int) -> None:
    nbytes = block_bytes_within(limit)
    assert LEAST_BLOCK_BYTES <= nbytes <= BLOCK_BYTES
    assert nbytes % LEAST_BLOCK_BYTES == 0
    assert 2 * CHUNKS * SLOTS * nbytes <= limit
    assert nbytes == BLOCK_BYTES or 2 * CHUNKS * SLOTS * (nbytes + LEAST_BLOCK_BYTES) > limit


def test_limit_that_is_no_use_is_refused(tmp_path: Path) -> None:
    np.arange(100, dtype=np.int32).tofile(tmp_path / "a.bin")
    text = r"^--device-memory-limit: expected at least 524288 bytes, got 524287$"
    with pytest.raises(UsageError, match=text):
        pipeline.run("histogram", tmp_path / "a.bin", device_memory_limit=2**19 - 1)


def test_limit_does_not_matter_without_a_gpu(tmp_path: Path) -> None:
    samples = np.arange(100, dtype=np.int32)
    samples.tofile(tmp_path / "a.bin")
    found = pipeline.run("histogram", tmp_path / "a.bin", device="cpu", bins=10, device_memory_limit=2**20)
    np.testing.assert_array_equal(found.counts, np.histogram(samples, 10, (0, 1024))[0])


@pytest.mark.hardware
def test_larger_than_the_memory_that_it_may_take(tmp_path: Path) -> None:
    """Blocks and the buffers for them shrink, the result is the same, and the next job has its own again."""
    import cupy

    use_blocks(2**20)
    use_blocks()
    pool = cupy.get_default_memory_pool()
    before = pool.total_bytes()
    samples = np.random.default_rng(0).integers(0, 1024, 2**24).astype(np.int32)
    samples.tofile(tmp_path / "a.bin")
    with pytest.MonkeyPatch.context() as patch:
        taken = []
        real = read_device.transfer

        def noting(*arguments: object) -> object:
            taken.append(pool.total_bytes())
            return real(*arguments)  # type: ignore[arg-type]

        patch.setattr(read_device, "transfer", noting)
        found = pipeline.run("histogram", tmp_path / "a.bin", device="gpu", device_memory_limit=2**23)
    np.testing.assert_array_equal(found.counts, np.bincount(samples, minlength=1024))
    assert len(taken) == samples.nbytes // 2**20
    assert max(taken) <= 2**23 < samples.nbytes
    assert pool.total_bytes() == before
    assert pipeline.run("reduce", tmp_path / "a.bin", device="gpu", op="sum").values["sum"] == samples.sum()
