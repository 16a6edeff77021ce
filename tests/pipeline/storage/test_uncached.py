"""Reads that leave nothing in the page cache: when they begin, and that they bring the same bytes everywhere."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from kernels.common.compiled_check import CompiledCheck
from kernels.reduce.check import reduce_check
from kernels.reduce.partial import PARTS
from pipeline.engine.aggregate_parts import Part, Parts
from pipeline.engine.aggregate_plan import Job, Pass
from pipeline.storage import uncached
from pipeline.storage.blocks import read_blocks
from pipeline.storage.chunks import Region
from pipeline.storage.feed import feed
from pipeline.timeline import Timeline
from tests.pipeline.storage.test_feed import chunk_of
from workflows.histogram import HISTOGRAM, HistogramOptions

MIB = 2**20
FOLDERS = [folder for folder in (tempfile.gettempdir(), "/dev/shm") if os.path.isdir(folder)]  # the last one refuses


@pytest.fixture(autouse=True)
def costs(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[uncached._Costs]]:
    """Costs of a new process."""
    for name in ("nbytes", "cpu", "wall", "flags"):
        monkeypatch.setattr(uncached._Costs, name, 0)
    yield uncached._Costs


def read(mebibytes: int, cpu: float, wall: float, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Flags of reads of a MiB that take so many seconds."""
    clocks, flags = {"thread_time": 0.0, "perf_counter": 0.0}, []
    for name in clocks:
        monkeypatch.setattr(uncached, name, lambda name=name: clocks[name])
    for _ in range(mebibytes):
        with uncached.measured(MIB) as given:
            flags.append(given)
            clocks["thread_time"] += cpu
            clocks["perf_counter"] += wall
    return flags


def test_slow_memory_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(200, 0.2 / 1024, 0.2 / 1024, monkeypatch) == [0] * 200  # copies only
    slow = read(200, 2 / 1024, 3 / 1024, monkeypatch)
    first = slow.index(uncached.RWF_DONTCACHE)
    assert 0 < first <= 2 * uncached.WINDOW_BYTES // MIB and all(slow[first:]) and uncached.flags()


def test_what_waits_for_its_disk_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not any(read(200, 2 / 1024, 20 / 1024, monkeypatch))


@pytest.mark.parametrize("folder", FOLDERS)
def test_same_bytes(folder: str, costs: type[uncached._Costs]) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        chunk, content = chunk_of(Path(scratch, "x.bin"), "<i4", 700_001, pieces=3)
        costs.flags = uncached.RWF_DONTCACHE
        blocks = [block.copy() for block in read_blocks(chunk, Timeline())]
        np.testing.assert_array_equal(np.concatenate(blocks), content)
        partials = []
        for flags in (0, uncached.RWF_DONTCACHE):
            costs.flags = flags
            check = reduce_check(content.dtype, PARTS[-1])
            assert isinstance(check, CompiledCheck)
            np.testing.assert_array_equal(feed(chunk, [check], Region(5, 9)), content[5:14])
            partials.append(check.partial().tolist())
        assert partials[0] == partials[1]


def test_neighbours_are_checked_together(tmp_path: Path, costs: type[uncached._Costs]) -> None:
    """At random places, each part once."""
    chunk, _ = chunk_of(tmp_path / "x.bin", "<i4", 10_000)
    chunks = [chunk.part(Region(start, 100)) for start in range(0, 10_000, 100)]
    parts = Parts(Pass((Job(HISTOGRAM, HistogramOptions()),), "cpu"), 1, False, lambda part: None)
    for each in chunks:
        parts.wait(Part(each, [np.zeros(8)], "worker", "cpu", False), False)
    costs.flags = uncached.RWF_DONTCACHE
    taken: list[list[int]] = []
    while (one := parts.extra(True)) is not None:
        taken.append([part.start for part in one.task[2]])
    assert sorted(start for some in taken for start in some) == list(range(0, 10_000, 100))
    assert np.diff(taken[0]).tolist() == [100] * (len(taken[0]) - 1) and len(taken[0]) > 1
    assert [some[0] for some in taken] != sorted(some[0] for some in taken) and parts.extra(True) is None
