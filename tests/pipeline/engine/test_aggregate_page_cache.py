"""What comes from storage frees its pages where memory is dear; nothing else does."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline.engine.aggregate
import pipeline.engine.aggregate_page_cache
import pipeline.engine.aggregate_parts
import pipeline.engine.aggregate_task
import pipeline.engine.run_loop
import pipeline.storage.blocks
import pipeline.storage.chunks
from pipeline.engine.aggregate import next_pass, run
from pipeline.engine.aggregate_plan import Job, Pass
from pipeline.engine.aggregate_task import compute_chunk
from pipeline.settings import Settings
from pipeline.storage.array_source import ArraySource
from pipeline.storage.chunks import Chunk, plan
from pipeline.storage.page_cache import Fetching
from pipeline.storage.protocol import Opening
from pipeline.storage.sources import open_source
from workflows.histogram import HISTOGRAM, HistogramOptions

SAMPLES = np.random.default_rng(0).integers(0, 1000, 10_000).astype(np.int32)
OPTIONS = HistogramOptions(bins=100, range=(0.0, 1000.0))
PART, BLOCK = 1000, 100  # samples
NBYTES = 4 * BLOCK

Read = Callable[[int], tuple[int, float, float]]  # number of a block -> bytes from storage, seconds copying and waiting


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes for small files."""
    monkeypatch.setattr(pipeline.storage.blocks, "BLOCK_BYTES", NBYTES)
    for name, size in {"UNIT_BYTES": 4 * PART, "JUDGED_BYTES": 4 * PART, "JOINED_BYTES": 40, "DEAR": 1e-3}.items():
        monkeypatch.setattr(pipeline.engine.aggregate_page_cache, name, size)
    monkeypatch.setitem(pipeline.storage.chunks.LEAST_BYTES, "auto", 1)
    monkeypatch.setitem(pipeline.engine.aggregate.PART_BYTES, "cpu", 4 * PART)
    monkeypatch.setattr(pipeline.engine.aggregate, "PART_OF_PARTIAL", 0)
    for name in ("device_name", "unit_name", "worker_address"):
        monkeypatch.setattr(pipeline.engine.aggregate_task, name, lambda *_: "here")
    pipeline.engine.aggregate_page_cache.memory_of.cache_clear()


@pytest.fixture
def path(tmp_path: Path) -> str:
    SAMPLES.tofile(tmp_path / "samples.bin")
    return str(tmp_path / "samples.bin")


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[Chunk]:
    """What was given back."""
    chunks: list[Chunk] = []
    monkeypatch.setattr(pipeline.engine.aggregate_page_cache, "give_back", chunks.append)
    return chunks


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Callable[[Read], None]:
    """Says what reads are to have taken."""

    def say(read: Read) -> None:
        class Said(Fetching):
            number = 0

            @contextmanager
            def reading(self) -> Any:
                yield
                nbytes, copying, waiting = read(self.number)
                self.number += 1
                self.nbytes, self.copying = self.nbytes + nbytes, self.copying + copying
                self.waiting += waiting

        monkeypatch.setattr(pipeline.engine.aggregate_page_cache, "Fetching", Said)

    return say


def chunk_of(path: str, verify: str) -> Chunk:
    (chunk,) = plan(open_source((path,), "int32"), 2**30, verify, 1, 4 * PART if verify in ("auto", "full") else 2**30)
    return chunk


def pass_of(verify: str, **changes: Any) -> Pass:
    return replace(Pass((Job(HISTOGRAM, OPTIONS),), "cpu", verify=verify, run="one"), **changes)


def spans(chunks: list[Chunk]) -> list[tuple[int, int]]:
    return [(chunk.start, chunk.start + chunk.samples) for chunk in chunks]


def from_disk(number: int) -> tuple[int, float, float]:
    return NBYTES, 0.0, 1e6


def from_memory(number: int) -> tuple[int, float, float]:
    return 0, 1e6, 0.0


def dear(number: int) -> tuple[int, float, float]:
    return NBYTES, 1e6, 1.0


@pytest.mark.parametrize("verify", ["auto", "full", "sample", "off"])
def test_files_in_memory_are_left_alone(path: str, reads: Any, given: list[Chunk], verify: str) -> None:
    """However long copies take."""
    reads(from_memory)
    compute_chunk(pass_of(verify), chunk_of(path, verify))
    assert given == []


@pytest.mark.parametrize("verify", ["auto", "full", "sample", "off"])
def test_dear_memory_is_given_back(path: str, reads: Any, given: list[Chunk], verify: str) -> None:
    """All of it, at most a unit and a block late; with what may be kept together with the end of the unit before."""
    reads(dear)
    computed: list[int] = []

    def compute(block: Any, options: HistogramOptions) -> Any:
        computed.append(len(block))
        assert sum(computed) - (given[-1].start + given[-1].samples if given else 0) <= PART + BLOCK
        return HISTOGRAM.reference(block, options)

    chunk = chunk_of(path, verify)
    compute_chunk(pass_of(verify, jobs=(Job(replace(HISTOGRAM, compute=compute), OPTIONS),)), chunk)
    assert sum(computed) == len(SAMPLES)
    begins, ends = zip(*spans(given), strict=True)
    assert ends[-1] == len(SAMPLES)
    assert begins == (0, *(end - 10 for end in ends[:-1]))


@pytest.mark.parametrize(
    ("verify", "read", "changes"),
    [
        ("auto", lambda number: (NBYTES, 1e6, 2e6), {}),  # storage takes longer
        ("auto", lambda number: (NBYTES, 1e-4, 0.0), {}),  # copies are fast, and storage faster
        ("off", dear, {"again": True}),  # the next pass, or a check, finds it in memory
    ],
)
def test_pages_stay(path: str, reads: Any, given: list[Chunk], verify: str, read: Read, changes: Any) -> None:
    reads(read)
    compute_chunk(pass_of(verify, **changes), chunk_of(path, verify))
    assert given == []


def test_the_end_of_a_chunk_is_no_whole_unit(
    path: str, reads: Any, given: list[Chunk], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline.engine.aggregate_page_cache, "UNIT_BYTES", 12 * PART)
    reads(dear)
    compute_chunk(pass_of("off"), chunk_of(path, "off"))
    assert [end for _, end in spans(given)] == [3000, 6000, 9000, 10_000]


def test_a_few_bytes_do_not_tell(path: str, reads: Any, given: list[Chunk], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline.engine.aggregate_page_cache, "JUDGED_BYTES", 4 * PART + 1)
    reads(dear)
    compute_chunk(pass_of("off"), chunk_of(path, "off"))
    assert given == []


def test_what_is_found_lasts_for_a_run(path: str, reads: Any, given: list[Chunk]) -> None:
    """The memory that was given back is cheap."""
    reads(dear)
    compute_chunk(pass_of("off"), chunk_of(path, "off"))
    reads(from_disk)
    given.clear()
    compute_chunk(pass_of("off", run="another"), chunk_of(path, "off"))
    assert given == []
    compute_chunk(pass_of("off"), chunk_of(path, "off"))
    assert spans(given)[-1][1] == len(SAMPLES)


def test_what_was_read_ahead_counts_where_it_is_used(path: str, reads: Any, given: list[Chunk]) -> None:
    """The first block has half of the file read ahead; the other half is in memory."""
    reads(lambda number: (2 * PART * 4 if number == 0 else 0, *dear(0)[1:]))
    compute_chunk(pass_of("off"), chunk_of(path, "off"))
    assert spans(given) == [(0, PART), (PART - 10, 2 * PART)]


@pytest.mark.parametrize(("share", "units"), [(0.0, 0), (0.4, 0), (0.6, 10), (1.0, 10)])
def test_units_that_are_in_memory_in_part(path: str, reads: Any, given: list[Chunk], share: float, units: int) -> None:
    """Count as what the larger part is."""
    reads(lambda number: (int(share * NBYTES), *dear(0)[1:]))
    compute_chunk(pass_of("off"), chunk_of(path, "off"))
    assert len(given) == units


def test_samples_that_are_in_no_file_are_not_looked_at(reads: Any, given: list[Chunk]) -> None:
    reads(dear)
    (chunk,) = plan(ArraySource.of(SAMPLES, Opening()), 2**30, "auto", 1, 4 * PART)
    assert compute_chunk(pass_of("auto"), chunk).checks == ()
    assert given == []


@pytest.mark.parametrize(("options", "again"), [(OPTIONS, False), (HistogramOptions(bins=100, range="auto"), True)])
def test_a_survey_is_followed_by_another_pass(options: HistogramOptions, again: bool) -> None:
    assert next_pass(Pass((Job(HISTOGRAM, options),), "cpu")).again is again


class TestRuns:
    """Whole runs."""

    pytestmark = pytest.mark.usefixtures("shared")

    @pytest.mark.parametrize("read", [from_disk, dear, from_memory])
    @pytest.mark.parametrize("range_", [(0.0, 1000.0), "auto"])
    def test_result_and_verdict(self, path: str, reads: Any, given: list[Chunk], read: Read, range_: Any) -> None:
        """Are the same, and every sample is checked once."""
        reads(read)
        options = HistogramOptions(bins=100, range=range_)
        outcome = run(HISTOGRAM, options, open_source((path,), "int32"), Settings(chunk_bytes=16_000))
        low, high = outcome.options.range
        assert outcome.result.counts.tolist() == np.histogram(SAMPLES, 100, (low, high))[0].tolist()
        assert (outcome.verdict.checked, outcome.verdict.chunks) == (len(SAMPLES), 3)
        assert bool(given) is (read is dear)

    def test_pages_stay_for_checks_that_follow(self, path: str, reads: Any, given: list[Chunk]) -> None:
        """Checks that are not compiled are tasks of their own."""
        reads(dear)
        workflow = replace(HISTOGRAM, check=lambda *_: None)
        outcome = run(workflow, OPTIONS, open_source((path,), "int32"), Settings(chunk_bytes=16_000, verify="full"))
        assert (outcome.verdict.checked, given) == (len(SAMPLES), [])
