"""Tasks of an aggregation: compute the partials of a chunk, and check parts of it from a second read."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from time import perf_counter
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from kernels.common.once import once_per_process
from pipeline.cluster.worker import device_name, unit_name, worker_address, worker_threads
from pipeline.engine.aggregate_beside import Behind, Beside, checking_beside
from pipeline.engine.aggregate_page_cache import Fetched, fetched_of
from pipeline.engine.aggregate_plan import Job, Pass
from pipeline.engine.aggregate_reference import Reference, recompute_part
from pipeline.engine.pace import Check
from pipeline.errors import PipelineError, failure
from pipeline.gpu.blocks import device_blocks, resident_blocks
from pipeline.gpu.devices import find_devices
from pipeline.gpu.resident import forget
from pipeline.storage.blocks import read_blocks
from pipeline.storage.chunks import Chunk, Region
from pipeline.timeline import Timeline

# Bytes to stream for warm-up: enough for every reading thread to get a part.
WARM_UP_BYTES = 2**27

# Small blocks on a CPU are joined until they hold so many frames or bytes: each costs the same calls, and for some
# jobs a partial as long as a frame.
FRAMES, GATHERED_BYTES = 2**12, 2**25

# Samples of these to check.
WARMED_UP = 2**13

Result = TypeVar("Result")


@dataclass(frozen=True)
class ChunkResult:
    """What a worker computed from a chunk.

    Attributes
    ----------
    partials
        For each of ``chunk.parts`` the partials of all jobs.
    digest
        `digest_of` them and the chunk, where they were computed.
    worker, device, unit
        Address of the worker; name of its GPU, or "cpu"; which one it is.
    timeline
        How long each stage took; stages overlap.
    checks, reference
        When each of ``chunk.parts`` is checked, and what was recomputed of those that were, together; None if parts of
        this chunk cannot be checked beside their read.
    """

    partials: tuple[tuple[NDArray[Any], ...], ...]
    digest: bytes
    worker: str
    device: str
    unit: str
    timeline: Timeline
    checks: tuple[Check, ...] = ()
    reference: Reference | None = None


def digest_of(chunk: Chunk, partials: Sequence[Sequence[NDArray[Any]]]) -> bytes:
    """SHA-256 of partials, with their dtypes and shapes, and of what says which chunk they are of.

    Beside a GPU the task that computes a chunk also checks it, and would check another one alike.
    """
    digest = hashlib.sha256(f"{chunk.index} {chunk.start} {chunk.dtype.str} {chunk.parts}".encode())
    for piece in chunk.pieces:
        digest.update(f" {piece.where()} {piece.nbytes}".encode(errors="surrogateescape"))
    for partial_ in chain.from_iterable(partials):
        digest.update(f"{partial_.dtype.str} {partial_.shape} ".encode())
        digest.update(np.ascontiguousarray(partial_).view(np.uint8).data)
    return digest.digest()


def compute_chunks(pass_: Pass, chunks: Sequence[Chunk]) -> tuple[ChunkResult, ...]:
    """Task: `compute_chunk` for one chunk after another."""
    return tuple(_each(compute_chunk, pass_, chunks))


def recompute_parts(
    pass_: Pass, parts: Sequence[Chunk], compared: bool, seconds: float = math.inf
) -> tuple[Reference, ...]:
    """Task: `recompute_part` for the first parts, at least one, until so many seconds have passed.

    Beside a GPU all threads of the worker share them. With a task for each part they would wait for Dask, which takes
    5 ms for a task when all threads are busy.

    Parameters
    ----------
    pass_
    parts
    compared
        Whether to compare checks with their references in a random part of each chunk.
    seconds
    """
    until = perf_counter() + seconds
    random = np.random.default_rng([pass_.seed, parts[0].start])
    of_chunks = {part.index: part for part in random.permutation(np.array(parts, object))} if compared else {}

    def recompute(part: Chunk) -> Reference | None:
        if part is not parts[0] and perf_counter() > until:
            return None
        return next(_each(partial(recompute_part, compared=part is of_chunks.get(part.index)), pass_, [part]))

    references = _checking_threads().map(recompute, parts) if pass_.device == "gpu" else map(recompute, parts)
    return tuple(iter(partial(next, references, None), None))


@once_per_process
def _checking_threads() -> ThreadPoolExecutor:
    """As many as the worker has; they live as long as it does."""
    return ThreadPoolExecutor(worker_threads(), "check")


def _each(work: Callable[[Pass, Chunk], Result], pass_: Pass, chunks: Sequence[Chunk]) -> Iterator[Result]:
    """The results of some work on each chunk; an error names the chunk."""
    for chunk in chunks:
        try:
            yield work(pass_, chunk)
        except PipelineError:
            raise
        except Exception as error:
            raise failure(pass_.label([chunk]), error) from error


def compute_chunk(pass_: Pass, chunk: Chunk) -> ChunkResult:
    """Stream a chunk through the compute of all jobs, on the worker's GPU or its CPU; check parts beside their read."""
    with checking_beside(pass_, chunk) as beside:
        return _computed(pass_, chunk, beside)


def compute_chunk_again(pass_: Pass, chunk: Chunk) -> ChunkResult:
    """Task: `compute_chunk` without checks; whoever compares the digests has those of the first time."""
    return _computed(pass_, chunk, None)


def _computed(pass_: Pass, chunk: Chunk, beside: Beside | Behind | None) -> ChunkResult:
    partials, timeline, checks, reference = _streamed(pass_, chunk, beside)
    where = worker_address(), device_name(pass_.device), unit_name(pass_.device)
    return ChunkResult(partials, digest_of(chunk, partials), *where, timeline, checks, reference)


def _streamed(
    pass_: Pass, chunk: Chunk, beside: Beside | Behind | None
) -> tuple[Any, Timeline, tuple[Check, ...], Any]:
    """Partials, times, checks and reference of a `ChunkResult`: all that does not need a task of Dask's."""
    timeline = Timeline(pass_.traced)
    if pass_.device == "cpu":
        timeline.kernels |= {"compiled" if job.compiled else "NumPy" for job in pass_.jobs}
    sums = [_Sums(job, chunk) for job in pass_.jobs]
    with closing(_blocks(pass_, chunk, timeline, beside)) as blocks:
        for block in blocks:
            for sum_ in sums:
                sum_.add(block)
            del block  # of which the next one may have all the memory
    checks, reference = beside.finish() if beside else ((), None)
    partials = tuple(zip(*([_on_host(total, timeline) for total in sum_.partials] for sum_ in sums), strict=True))
    return partials, timeline, checks, reference


def _blocks(pass_: Pass, chunk: Chunk, timeline: Timeline, beside: Beside | Behind | None) -> Generator[Any]:
    """Blocks of a chunk on the computing device, in native byte order; the time between blocks is a kernel span."""
    if pass_.device == "gpu":
        if pass_.resident:
            yield from resident_blocks(pass_.run, chunk, timeline, pass_.block_bytes)
            return
        forget()
        assert not isinstance(beside, Behind)
        yield from device_blocks(chunk, timeline, pass_.block_bytes, beside, pass_.spare_bytes)
        return
    frame = max(job.workflow.frame(job.options) for job in pass_.jobs)
    fetched = fetched_of(pass_, chunk)
    read = read_blocks(chunk, timeline, fetched.fetching if fetched else None)
    read = _followed(read, beside if isinstance(beside, Behind) else None, fetched)
    for block in _gathered(read, FRAMES * frame):
        with timeline.measure("kernel", block.nbytes):
            # Partials are defined on native samples; converting native ones costs nothing.
            yield block.astype(chunk.dtype.newbyteorder("="), copy=False)
        del block


def _followed(blocks: Iterator[NDArray[Any]], beside: Behind | None, fetched: Fetched | None) -> Iterator[NDArray[Any]]:
    """The blocks; the samples of each are checked once the next is asked for: it has been computed, or copied."""
    for block in blocks:
        samples = len(block)
        yield block
        del block
        if beside:
            beside.follow(samples)
        if fetched:
            fetched.computed(samples)


def _gathered(blocks: Iterator[NDArray[Any]], samples: int) -> Iterator[NDArray[Any]]:
    """The blocks, so many joined that they have this number of samples, or `GATHERED_BYTES`."""
    waiting: list[NDArray[Any]] = []
    gathered = 0
    for block in blocks:
        if not waiting and len(block) >= samples:
            yield block
            del block
            continue
        waiting.append(block.copy())
        gathered += len(block)
        del block
        most = min(samples, GATHERED_BYTES // waiting[0].itemsize)
        if gathered >= most:
            yield np.concatenate(waiting)
            waiting, gathered = [], 0
    if waiting:
        yield np.concatenate(waiting)


def warm_up(pass_: Pass, chunk: Chunk) -> None:
    """Stream the beginning of a chunk through all jobs, and check some of it, if the worker has a GPU.

    Otherwise the first block would wait for the CUDA context, kernels, buffers, and the reading threads and buffers,
    and the first check for its libraries.
    """
    if find_devices().usable:
        part = chunk.part(Region(0, min(chunk.samples, WARM_UP_BYTES // chunk.dtype.itemsize)))
        cut = min(part.samples, WARMED_UP)
        parts = [Region(0, cut), Region(cut, part.samples - cut)][: 1 + (cut < part.samples)]
        always = tuple(parts[:1]) if chunk.always else ()
        verify = "sample" if always else "off"
        warmed, part = replace(pass_, verify=verify), replace(part, parts=tuple(parts), always=always)
        with checking_beside(warmed, part) as beside:
            _streamed(warmed, part, beside)


def _on_host(partial: Any, timeline: Timeline) -> Any:
    if isinstance(partial, np.ndarray):
        return partial
    with timeline.measure("to host", partial.nbytes):
        return partial.get()


class _Sums:
    """Partials of the parts of a chunk, each combined from its blocks."""

    def __init__(self, job: Job, chunk: Chunk) -> None:
        self._job = job
        self._chunk = chunk
        self._part = self._start = 0  # number of the current part; first sample of the next block
        self._waiting: list[Any] = []  # partials of the current part, from the first sample on
        self.partials: list[Any] = []

    def add(self, block: Any) -> None:
        while len(block):
            region = self._chunk.parts[self._part]
            left = region.start + region.samples - self._start
            inside, block = block[:left], block[left:]
            start = self._chunk.start + self._start
            self._waiting.append(self._job.placed(self._job.compute(inside, start), start))
            self._combine(whole=len(inside) == left)
            self._start += len(inside)
            if len(inside) == left:
                self.partials.append(self._waiting.pop())
                self._part += 1

    def _combine(self, whole: bool) -> None:
        """Combine all, or partials of similar sizes: those of rows grow, and would be copied again for each block."""
        waiting = self._waiting
        while len(waiting) > 1 and (whole or waiting[-2].size < 2 * waiting[-1].size):
            last = waiting.pop()
            waiting[-1] = self._job.workflow.combine(waiting[-1], last)
