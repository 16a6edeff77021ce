"""Planned files that the reading threads open: checked before and after, closed, and named if they are others."""

from __future__ import annotations

import errno
import os
import resource
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from pipeline.gpu.pinned import SOURCE as SOURCE
from pipeline.gpu.pinned import Reader, RefusedError
from pipeline.storage.files import whole
from pipeline.storage.identity import Identity
from pipeline.storage.pieces import Piece
from tests.emulator.driver import LOST, HostDriver, HostReader, Target

pytestmark = pytest.mark.usefixtures("compiled")

CONTENT = np.random.default_rng(0).integers(0, 256, 5000, np.uint8)


def planned(folder: Path, number: int) -> list[Piece]:
    """Files of CONTENT, as they are planned."""
    files = []
    for name in range(number):
        CONTENT.tofile(folder / f"{name}.bin")
        files.append(whole(str(folder / f"{name}.bin")))
    return files


def read_all(reader: Reader, files: list[Piece]) -> NDArray[np.uint8]:
    """All bytes of each file."""
    nbytes = CONTENT.nbytes
    target = Target(nbytes * len(files))
    runs = np.array([(number, 0, nbytes) for number in range(len(files))], np.int64)
    assert reader.read_planned(files, target, runs, 0).get() == target.nbytes
    return target.host.reshape(len(files), nbytes)


def descriptors() -> set[str]:
    """What this process has open. Threads that earlier tests have left may close some of it at any time."""
    return set(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("part_bytes", [300, 5000, 2**16])
def test_planned_files_are_opened_and_closed(tmp_path: Path, part_bytes: int) -> None:
    """A process may have few descriptors: of a read, each thread has one at a time."""
    files, reader = planned(tmp_path, 40), HostReader(HostDriver(), 3, part_bytes)
    before = descriptors()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, before)) + 5, limits[1]))
    try:
        read = read_all(reader, files)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    np.testing.assert_array_equal(read, np.tile(CONTENT, (40, 1)))
    assert descriptors() <= before


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("part_bytes", [64, 5000, 2**16])
def test_runs_of_planned_files_in_any_order(tmp_path: Path, part_bytes: int, threads: int) -> None:
    """Also back and forth between two, a run without bytes, and a file that no run is of."""
    files, reader, target = planned(tmp_path, 4), HostReader(HostDriver(), threads, part_bytes), Target(9000)
    os.unlink(files[3].path)
    runs = np.array([(2, 9, 4000), (0, 1, 500), (2, 0, 0), (2, 0, 500), (1, 1000, 3999), (1, 5, 1)])
    assert reader.read_planned(files, target, runs, 0).get() == 9000
    expected = [CONTENT[offset : offset + nbytes] for _, offset, nbytes in runs.tolist()]
    np.testing.assert_array_equal(target.host, np.concatenate(expected))


CHANGES = {"size": 4999, "mtime_ns": 1, "ctime_ns": 1, "inode": 1, "device": 1}


@pytest.mark.parametrize("part_bytes", [300, 2**16])
@pytest.mark.parametrize("field", CHANGES)
def test_another_file_than_the_planned_one(tmp_path: Path, field: str, part_bytes: int) -> None:
    """Is an error that says which one; later reads succeed. What is not known is not compared."""
    files, reader, before = planned(tmp_path, 3), HostReader(HostDriver(), 3, part_bytes), descriptors()
    identity = files[1].identity
    assert isinstance(identity, Identity)
    other = replace(files[1], identity=identity._replace(**{field: CHANGES[field]}))
    with pytest.raises(RefusedError) as caught:
        read_all(reader, [files[0], other, files[2]])
    assert (caught.value.errno, caught.value.file) == (errno.ESTALE, 1)
    unknown = [identity._replace(machine=0, device=1)]  # a device number of another machine says nothing
    unknown += [identity._replace(**{field: None})] if field != "size" else []
    unknown += [identity._replace(inode=None, device=1)]
    for known in unknown:
        read_all(reader, [files[0], replace(files[1], identity=known), files[2]])
    assert descriptors() <= before


def test_planned_file_that_changes_while_it_is_read(tmp_path: Path) -> None:
    """After its first part, by which it was still the planned one."""
    files = planned(tmp_path, 2)

    class Changing(HostDriver):
        def _to_device(self, target: int, source: int, nbytes: int, stream: int) -> None:
            os.utime(files[0].path)
            super()._to_device(target, source, nbytes, stream)

    before, reader = descriptors(), HostReader(Changing(), 1, 300)
    with pytest.raises(RefusedError) as caught:
        read_all(reader, files)
    assert (caught.value.errno, caught.value.file) == (errno.ESTALE, 0)
    assert descriptors() <= before


def test_planned_file_that_cannot_be_read_to_its_end(tmp_path: Path) -> None:
    files, reader, before = planned(tmp_path, 3), HostReader(HostDriver(), 3, 300), descriptors()
    unknown = [replace(file, identity=None) for file in files]
    os.truncate(unknown[2].path, 4000)
    with pytest.raises(RefusedError) as caught:
        read_all(reader, unknown)
    assert (caught.value.errno, caught.value.file) == (errno.ESTALE, 2) and caught.value.offset > 4000 - 300
    os.unlink(unknown[2].path)
    for path, number in ((None, errno.ENOENT), (str(tmp_path), errno.EISDIR)):
        broken = replace(unknown[2], path=path or unknown[2].path)
        with pytest.raises(RefusedError) as caught:
            read_all(reader, [*unknown[:2], broken])
        assert (caught.value.errno, caught.value.file) == (number, 2)
    folder = Identity(tmp_path.stat().st_size, None, None, None, None, 0)  # of a file of which little is known
    with pytest.raises(RefusedError, match="Stale"):
        read_all(reader, [*unknown[:2], replace(unknown[2], path=str(tmp_path), identity=folder)])
    os.mkfifo(files[2].path)  # nobody will write to it
    with pytest.raises(RefusedError, match="Stale"):
        read_all(reader, files)
    read_all(reader, files[:2])
    assert descriptors() <= before


def test_planned_files_are_closed_where_the_device_is_lost(tmp_path: Path, refusal: list[int]) -> None:
    driver, before = HostDriver(), descriptors()
    files, reader = planned(tmp_path, 5), HostReader(driver, 3, 300)
    driver.refuses["to_device"] = LOST
    with pytest.raises(RuntimeError, match="refused"):
        read_all(reader, files)
    assert refusal == [LOST] and descriptors() <= before
