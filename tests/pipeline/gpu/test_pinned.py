"""Threaded reads of a file to a device: all bytes in place, and complete only when they have arrived."""

from __future__ import annotations

import errno
import gc
import os
import shutil
import subprocess
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels.common import cxx
from pipeline.gpu.pinned import SOURCE as SOURCE
from pipeline.gpu.pinned import Pending, Reader
from tests.emulator.driver import LOST, REFUSED, HostDriver, HostReader, Target

pytestmark = pytest.mark.usefixtures("compiled")

CONTENT = np.random.default_rng(0).integers(0, 256, 5000, np.uint8)


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    """A file of CONTENT."""
    CONTENT.tofile(tmp_path / "a.bin")
    number = os.open(tmp_path / "a.bin", os.O_RDONLY)
    yield number
    os.close(number)


def start(reader: Reader, fd: int, target: Any, offset: int, order: int) -> Pending:
    """Start reading a single run."""
    return reader.read(fd, target, np.array([[offset, target.nbytes]]), order)


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("part_bytes", [1, 7, 64, 1000, 5000, 8192])
@pytest.mark.parametrize(("offset", "nbytes"), [(0, 5000), (0, 0), (3, 1), (4999, 1), (17, 1001)])
def test_bytes_are_the_file(fd: int, threads: int, part_bytes: int, offset: int, nbytes: int) -> None:
    nbytes = min(nbytes, 300 * part_bytes)  # more parts are slow with a driver in Python
    reader = HostReader(HostDriver(), threads, part_bytes)
    for _ in range(2):  # with reused buffers and events
        target = Target(nbytes)
        assert start(reader, fd, target, offset, 0).get() == nbytes
        np.testing.assert_array_equal(target.host, CONTENT[offset : offset + nbytes])


RUNS = {
    "one": [(3, 1000)], "many": [(10 * number, 7) for number in range(100)], "backwards": [(4000, 900), (2, 1), (0, 1)],
    "long and short": [(1, 2), (100, 1000), (50, 1), (4000, 63), (0, 64), (7, 65)], "empty": [(9, 0), (8, 5), (1, 0)],
    "none": [],
}  # fmt: skip


@pytest.mark.parametrize("threads", [1, 5])
@pytest.mark.parametrize("part_bytes", [1, 7, 64, 5000])
@pytest.mark.parametrize("name", RUNS)
def test_runs_lie_one_behind_another(fd: int, threads: int, part_bytes: int, name: str) -> None:
    """However they are cut into parts."""
    reader = HostReader(HostDriver(), threads, part_bytes)
    runs = np.array(RUNS[name], np.int64).reshape(-1, 2)
    target = Target(int(runs[:, 1].sum()))
    assert reader.read(fd, target, runs, 0).get() == target.nbytes
    expected = [CONTENT[offset : offset + nbytes] for offset, nbytes in runs.tolist()]
    np.testing.assert_array_equal(target.host, np.concatenate([np.empty(0, np.uint8), *expected]))


def test_many_at_once(fd: int) -> None:
    """From several threads, which wait for their reads in any order."""
    reader = HostReader(HostDriver(), 4, 16)

    def read(seed: int) -> None:
        random = np.random.default_rng(seed)
        started: list[tuple[int, Target, Pending]] = []
        for _ in range(30):
            offset, nbytes = (int(number) for number in random.integers(0, 2500, 2))
            target = Target(nbytes)
            started.append((offset, target, start(reader, fd, target, offset, int(random.integers(0, 5)))))
        for place in random.permutation(len(started)):
            offset, target, under_way = started[place]
            assert under_way.get() == target.nbytes
            np.testing.assert_array_equal(target.host, CONTENT[offset : offset + target.nbytes])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(read, range(4)))


def test_what_was_opened_first_goes_first(fd: int) -> None:
    """Also before earlier requests; parts of one file complete in order of the requests."""
    driver = HostDriver()
    reader = HostReader(driver, 1, 10)
    with driver._lock:  # its only thread holds its first part until all are queued
        targets = [Target(30) for _ in range(3)]
        reads = [start(reader, fd, target, 0, order) for target, order in zip(targets, (2, 1, 1), strict=True)]
    for read in reads:
        read.get()
    starts = [target.data.ptr + at for target in (targets[1], targets[2], targets[0]) for at in (0, 10, 20)]
    # The thread may have taken its first part before another was queued.
    first = targets[0].data.ptr
    assert list(driver.copied) in (starts, [first, *(start for start in starts if start != first)])


def test_memory_that_was_filled_is_freed_with_its_read(fd: int) -> None:
    """Without the garbage collector, which would let hundreds of MB wait for it."""
    reader, target = HostReader(HostDriver(), 3, 64), Target(1000)
    alive = weakref.ref(target)
    gc.disable()
    try:
        start(reader, fd, target, 0, 0).get()
        del target
        assert alive() is None
    finally:
        gc.enable()


def test_file_that_ends_early(fd: int) -> None:
    reader = HostReader(HostDriver(), 3, 64)
    target = Target(1000)
    assert start(reader, fd, target, 4500, 0).get() == 500
    np.testing.assert_array_equal(target.host[:500], CONTENT[4500:])
    assert start(reader, fd, Target(10), 6000, 0).get() == 0
    assert reader.read(fd, Target(1020), np.array([[4990, 20], [0, 1000]]), 0).get() == 1010


def test_system_that_refuses(fd: int) -> None:
    """The read fails, and later ones do not."""
    reader = HostReader(HostDriver(), 3, 64)
    with pytest.raises(OSError) as caught:
        start(reader, -1, Target(1000), 0, 0).get()
    assert caught.value.errno == errno.EBADF
    assert start(reader, fd, Target(1000), 0, 0).get() == 1000


@pytest.mark.parametrize("function", ["to_device", "record", "query"])
def test_device_that_is_lost(fd: int, function: str, refusal: list[int]) -> None:
    """Every read reports the error, and none waits forever."""
    driver = HostDriver()
    reader = HostReader(driver, 3, 64)
    assert start(reader, fd, Target(1000), 0, 0).get() == 1000
    driver.refuses[function] = LOST
    for _ in range(2):
        with pytest.raises(RuntimeError, match="refused"):
            start(reader, fd, Target(1000), 0, 0).get()
    assert refusal == [LOST, LOST]


@pytest.mark.parametrize("function", ["allocate", "create_stream", "create_event"])
def test_driver_that_has_no_memory(function: str, refusal: list[int]) -> None:
    driver = HostDriver()
    driver.refuses[function] = REFUSED
    with pytest.raises(RuntimeError, match="refused"):
        HostReader(driver, 3, 64)
    assert refusal == [REFUSED]


def test_events_are_used_again(fd: int) -> None:
    """As many as can be in flight, not one for each part of the run."""
    driver = HostDriver()
    reader = HostReader(driver, 2, 10)
    for _ in range(20):
        start(reader, fd, Target(100), 0, 0).get()
    assert len(driver._behind) <= 2 * 2 + 10


@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_threads_are_clean(tmp_path: Path, sanitizer: str) -> None:
    """Under sanitizers, which abort at the first finding."""
    words, program = cxx.compiler() or (), str(tmp_path / "threads")
    command = [*words, "-std=c++17", "-O1", "-g1", "-pthread", f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all"]
    (tmp_path / "nothing.cpp").write_text("int main() {}")
    if subprocess.run([*command, str(tmp_path / "nothing.cpp"), "-o", program], capture_output=True).returncode:
        if os.environ.get("CI") == "true":
            raise RuntimeError("expected a compiler with sanitizers")
        pytest.skip("no compiler with sanitizers")
    subprocess.run([*command, str(Path(__file__).with_name("pinned_threads.cpp")), "-o", program], check=True)
    # ThreadSanitizer does not support as much address randomization as recent kernels use.
    fixed = ["setarch", "-R"] if shutil.which("setarch") else []
    variables = {**os.environ, "TSAN_OPTIONS": "halt_on_error=1"}
    words = (*fixed, program, str(tmp_path / "a.bin"))
    done = subprocess.run(words, env=variables, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr[:5000]


@pytest.mark.hardware
@pytest.mark.parametrize("part_bytes", [4096, 2**20])
def test_bytes_on_a_gpu(tmp_path: Path, part_bytes: int) -> None:
    import cupy

    from pipeline.gpu.pinned import reader

    content = np.random.default_rng(0).integers(0, 256, 2**24 + 13, np.uint8)
    content.tofile(tmp_path / "a.bin")
    number = os.open(tmp_path / "a.bin", os.O_RDONLY)
    own: Any = reader(4, part_bytes)
    assert isinstance(own, Reader) and reader(4, part_bytes) is own
    for offset in (0, 1, 4097):
        target = cupy.zeros(len(content) - offset, cupy.uint8)
        cupy.cuda.get_current_stream().synchronize()
        assert start(own, number, target, offset, 0).get() == target.nbytes
        np.testing.assert_array_equal(target.get(), content[offset:])
    with pytest.raises(OSError):
        start(own, -1, target, 0, 0).get()
    os.close(number)
