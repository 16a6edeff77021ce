"""Threaded writes from a device to a mapped file: all bytes in place."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.gpu.pinned import SOURCE as SOURCE
from tests.emulator.driver import LOST, HostDriver, HostWriter, Target

pytestmark = pytest.mark.usefixtures("compiled")


@pytest.fixture
def mapping(tmp_path: Path) -> Iterator[np.ndarray[Any, np.dtype[np.uint8]]]:
    """A file of zeros, mapped."""
    (tmp_path / "o.bin").write_bytes(bytes(2**18))
    mapped = np.memmap(tmp_path / "o.bin", np.uint8, "r+")
    yield mapped
    mapped._mmap.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("part_bytes", [1, 7, 64, 2**16, 2**18])
@pytest.mark.parametrize(("runs", "run_bytes", "stride"), [(1, 1000, 0), (1, 1, 0), (9, 100, 100), (9, 100, 211),
                                                           (100, 7, 13), (2, 66_000, 100_001)])  # fmt: skip
def test_bytes_are_written_where_they_belong(
    mapping: Any, threads: int, part_bytes: int, runs: int, run_bytes: int, stride: int
) -> None:
    """In runs shorter and longer than a part; bytes between them stay."""
    if runs * run_bytes // part_bytes > 5000:
        pytest.skip("too many parts for a driver in Python")
    writer = HostWriter(HostDriver(), threads, part_bytes)
    content = np.random.default_rng(0).integers(1, 256, runs * run_bytes, np.uint8)
    starts = 5 + stride * np.arange(runs)
    for number in (0, 1):  # with reused buffers
        source = Target(len(content))
        source.host[:] = content + np.uint8(number)
        pending = writer.write(source, run_bytes, mapping.ctypes.data + starts)
        assert pending.get() == len(content)
        expected = np.zeros_like(mapping)
        for start, run in zip(starts, source.host.reshape(runs, run_bytes), strict=True):
            expected[start : start + run_bytes] = run
        np.testing.assert_array_equal(mapping, expected)


def test_many_writes_at_once(mapping: Any) -> None:
    """Each in its place, whoever waits first."""
    writer = HostWriter(HostDriver(), 4, 16)
    contents = np.random.default_rng(0).integers(0, 256, (40, 500), np.uint8)

    def write(number: int) -> None:
        source = Target(500)
        source.host[:] = contents[number]
        at = mapping.ctypes.data + 5000 * (number % 2) + 100 * (number // 2) + 10_000 * np.arange(5)
        assert writer.write(source, 100, at).get() == 500

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(40)))
    for number, content in enumerate(contents):
        start = 5000 * (number % 2) + 100 * (number // 2)
        for run in range(5):
            at = start + 10_000 * run
            np.testing.assert_array_equal(mapping[at : at + 100], content[100 * run : 100 * run + 100])


@pytest.mark.parametrize("function", ["to_host", "record", "query"])
def test_device_that_is_lost_while_it_is_written(mapping: Any, function: str, refusal: list[int]) -> None:
    driver = HostDriver()
    writer = HostWriter(driver, 3, 64)
    driver.refuses[function] = LOST
    with pytest.raises(RuntimeError, match="refused"):
        writer.write(Target(1000), 1000, np.array([mapping.ctypes.data])).get()
    assert refusal == [LOST]


def test_output_that_is_cut_is_an_error(tmp_path: Path, mapping: Any) -> None:
    """Pages that are not there any more: touching them would end the process."""
    writer = HostWriter(HostDriver(), 2, 2**17)
    os.truncate(tmp_path / "o.bin", 4096)
    with pytest.raises(OSError) as caught:
        writer.write(Target(2**18), 2**18, np.array([mapping.ctypes.data])).get()
    assert caught.value.errno == errno.EIO


@pytest.mark.hardware
@pytest.mark.parametrize("part_bytes", [4096, 2**20])
def test_bytes_from_a_gpu(mapping: Any, part_bytes: int) -> None:
    import cupy

    from pipeline.gpu.pinned import Writer, writer

    own: Any = writer(4, part_bytes)
    assert isinstance(own, Writer) and writer(4, part_bytes) is own
    content = np.random.default_rng(0).integers(0, 256, 100_000, np.uint8)
    source = cupy.asarray(content)
    cupy.cuda.get_current_stream().synchronize()
    assert own.write(source, 50_000, mapping.ctypes.data + np.array([3, 100_000])).get() == len(content)
    np.testing.assert_array_equal(mapping[3:50_003], content[:50_000])
    np.testing.assert_array_equal(mapping[100_000:150_000], content[50_000:])
