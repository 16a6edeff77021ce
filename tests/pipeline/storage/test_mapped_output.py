"""An output that stays mapped from the first write to the last: its bytes, and no mapping left afterwards."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest

from pipeline.errors import PipelineError
from pipeline.storage import mapped_output
from pipeline.storage.mapped_output import end

CONTENT = np.random.default_rng(0).integers(0, 256, 5 * mmap.PAGESIZE + 7, np.uint8)


@pytest.fixture
def path(tmp_path: Path) -> Iterator[str]:
    """Of a file of zeros, as long as CONTENT."""
    np.zeros_like(CONTENT).tofile(tmp_path / "o.bin")
    yield str(tmp_path / "o.bin")
    end(str(tmp_path / "o.bin"))


def write(path: str, start: int, stop: int, during: Any = None) -> None:
    with (
        open(path, "r+b") as file,
        mapped_output.mapped_file(path, file.fileno(), len(CONTENT), stop - start) as address,
    ):
        if during:
            during()
        ctypes.memmove(address + start, CONTENT[start:stop].tobytes(), stop - start)


def in_memory(path: str) -> int | None:
    """Resident bytes of this process's mapping of the file once pages are released; None for no mapping."""
    mapped_output._giving_back().submit(int).result()  # after all others
    lines = Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines()
    place = next((number for number, line in enumerate(lines) if line.endswith(path)), None)
    if place is None:
        return None
    return next(1024 * int(line.split()[1]) for line in lines[place:] if line.startswith("Rss:"))


def test_bytes_are_in_the_file_and_the_mapping_is_kept_until_the_end(path: str) -> None:
    for start in range(0, len(CONTENT), 1000):
        write(path, start, min(start + 1000, len(CONTENT)))
        assert in_memory(path)
    end(path)
    assert in_memory(path) is None
    np.testing.assert_array_equal(np.fromfile(path, np.uint8), CONTENT)


def test_nobody_remembers_that_pages_were_used(path: str) -> None:
    """The system would, for each page that is given back."""
    write(path, 0, 1)
    lines = Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines()
    place = next(number for number, line in enumerate(lines) if line.endswith(path))
    flags = next(line for line in lines[place:] if line.startswith("VmFlags:"))
    assert "rr" in flags.split()  # advised to be read at random


def test_pages_are_given_back_once_there_are_many(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped_output, "KEPT_BYTES", 3 * mmap.PAGESIZE)
    monkeypatch.setattr(mapped_output, "GIVEN_BYTES", mmap.PAGESIZE)
    kept: list[int] = []
    for start in range(0, len(CONTENT), mmap.PAGESIZE):
        write(path, start, min(start + mmap.PAGESIZE, len(CONTENT)))
        kept.append(in_memory(path) or 0)
    assert [number > 0 for number in kept] == [True, True, False, True, True, True]
    np.testing.assert_array_equal(np.fromfile(path, np.uint8), CONTENT)


def test_who_still_writes_is_waited_for(path: str) -> None:
    """A failed job ends while other regions are written: their memory must stay mapped, and no write may start."""
    begun, go_on = Event(), Event()

    def during() -> None:
        begun.set()
        go_on.wait(60)

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write, path, 0, len(CONTENT), during)
        begun.wait(60)
        end(path)
        assert in_memory(path) is not None
        with pytest.raises(PipelineError, match="expected a running job"):
            write(path, 0, 1)
        go_on.set()
        writing.result()
    assert in_memory(path) is None
    np.testing.assert_array_equal(np.fromfile(path, np.uint8), CONTENT)


def test_write_that_fails_leaves_nothing(path: str) -> None:
    def fail() -> None:
        end(path)
        raise OSError("planted")

    with pytest.raises(OSError, match="planted"):
        write(path, 0, 1, fail)
    assert in_memory(path) is None


@pytest.mark.parametrize("busy", [False, True])
def test_file_that_takes_the_place_of_that_of_a_killed_run(path: str, busy: bool) -> None:
    """That run never called `end`, and on a cluster that goes on its processes still have the old file mapped."""
    begun, go_on = Event(), Event()

    def during() -> None:
        begun.set()
        go_on.wait(60)

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write, path, 0, 1, during if busy else begun.set)
        begun.wait(60)
        if not busy:
            writing.result()
        Path(path).rename(f"{path}.old")  # an inode that is free may be used again
        np.zeros_like(CONTENT).tofile(path)
        mapped_output.begin_again(path)
        write(path, 0, len(CONTENT))
        np.testing.assert_array_equal(np.fromfile(path, np.uint8), CONTENT)
        go_on.set()
        writing.result()
    assert in_memory(f"{path}.old") is None and in_memory(path) is not None


def test_file_that_cannot_be_mapped(path: str) -> None:
    with open(path, "rb") as file, pytest.raises(OSError), mapped_output.mapped_file(path, file.fileno(), 10, 1):
        pass
    end(path)
