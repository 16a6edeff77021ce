"""Tasks of an aggregation: compute the partials of a chunk, and check parts of it from a second read."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain, repeat
from time import perf_counter
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pipeline.cluster.worker import device_name, unit_name, worker_address, worker_threads
from pipeline.engine.aggregate_plan import Job, Pass
from pipeline.errors import PipelineError, VerificationError, failure
from pipeline.gpu.blocks import device_blocks
from pipeline.gpu.devices import find_devices
from pipeline.storage.blocks import read_blocks
from pipeline.storage.chunks import Chunk, Region
from pipeline.storage.feed import feed
from pipeline.timeline import Timeline

# Bytes to stream for warm-up: enough for every reading thread to get a part.
WARM_UP_BYTES = 2**27

# Samples of every chunk that a compiled check and the reference both count.
COMPARED = 2**13

Result = TypeVar("Result")


@dataclass(frozen=True)
class ChunkResult:
    """What a worker computed from a chunk.

    Attributes
    ----------
    partials
        For each of ``chunk.parts`` the partials of all jobs.
    digest
        Their `digest_of` where they were computed.
    worker, device, unit
        Address of the worker; name of its GPU, or "cpu"; which one it is.
    timeline
        How long each stage took; stages overlap.
    """

    partials: tuple[tuple[NDArray[Any], ...], ...]
    digest: bytes
    worker: str
    device: str
    unit: str
    timeline: Timeline


def digest_of(partials: Sequence[Sequence[NDArray[Any]]]) -> bytes:
    """SHA-256 of partials, with their dtypes and shapes."""
    digest = hashlib.sha256()
    for partial_ in chain.from_iterable(partials):
        digest.update(f"{partial_.dtype.str} {partial_.shape} ".encode())
        digest.update(np.ascontiguousarray(partial_).view(np.uint8).data)
    return digest.digest()


@dataclass(frozen=True)
class Reference:
    """Partials of a part of a chunk by the check or the reference of each job, and how long that took."""

    partials: tuple[NDArray[Any], ...]
    timeline: Timeline


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


@cache
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
    """Stream a chunk through the compute of all jobs, on the worker's GPU or its CPU."""
    timeline = Timeline(pass_.traced)
    if pass_.device == "cpu":
        timeline.kernels |= {"compiled" if job.compiled else "NumPy" for job in pass_.jobs}
    sums = [_Sums(job, chunk) for job in pass_.jobs]
    for block in _blocks(pass_, chunk, timeline):
        for sum_ in sums:
            sum_.add(block)
    partials = tuple(zip(*([_on_host(total, timeline) for total in sum_.partials] for sum_ in sums), strict=True))
    where = worker_address(), device_name(pass_.device), unit_name(pass_.device)
    return ChunkResult(partials, digest_of(partials), *where, timeline)


def _blocks(pass_: Pass, chunk: Chunk, timeline: Timeline) -> Iterator[Any]:
    """Blocks of a chunk on the computing device, in native byte order; the time between blocks is a kernel span."""
    if pass_.device == "gpu":
        yield from device_blocks(chunk, timeline, pass_.block_bytes)
        return
    for block in read_blocks(chunk, timeline):
        with timeline.measure("kernel", block.nbytes):
            # Partials are defined on native samples; converting native ones costs nothing.
            yield block.astype(chunk.dtype.newbyteorder("="), copy=False)


def recompute_part(pass_: Pass, part: Chunk, compared: bool) -> Reference:
    """Recompute a part of a chunk with the checks, or the references, independently of the computed partials.

    Parameters
    ----------
    pass_
    part
    compared
        Whether to compare checks with their references.

    Raises
    ------
    VerificationError
        If a check differs from its reference on a random run of the samples.
    """
    timeline = Timeline(pass_.traced)
    dtype = part.dtype.newbyteorder("=")
    checks = [job.workflow.check(job.options, dtype) or _ReferenceCheck(job) for job in pass_.jobs]
    samples = min(COMPARED, part.samples) if compared else 0
    region = Region(int(np.random.default_rng([pass_.seed, part.start]).integers(part.samples - samples + 1)), samples)
    with timeline.measure("verify", part.nbytes):
        some = feed(part, checks, region)
        if compared:
            _compare(pass_, part, region, some)
        partials = tuple(map(_placed, pass_.jobs, (check.partial() for check in checks), repeat(part.start)))
    return Reference(partials, timeline)


def _compare(pass_: Pass, part: Chunk, region: Region, samples: NDArray[Any]) -> None:
    """Compare each compiled check with its reference on a few samples."""
    for job in pass_.jobs:
        if (check := job.workflow.check(job.options, part.dtype.newbyteorder("="))) is None:
            continue
        check.add(samples)
        if details := job.differences(check.partial(), job.workflow.reference(samples, job.options)):
            raise VerificationError(f"{job.workflow.name}: the check and the reference disagree in chunk {part.index} "
                                    f"({part.where(region)}): {'; '.join(details)}; nothing was written")  # fmt: skip


def _placed(job: Job, partial: Any, start: int) -> Any:
    """The partial of samples that begin there in the source."""
    return job.workflow.place(partial, start) if job.workflow.place else partial


class _ReferenceCheck:
    """The reference of a job, for samples that come array by array."""

    def __init__(self, job: Job) -> None:
        self._job, self._samples = job, 0
        self._partial: NDArray[Any] | None = None

    def add(self, samples: NDArray[Any]) -> None:
        partial = _placed(self._job, self._job.workflow.reference(samples, self._job.options), self._samples)
        self._samples += len(samples)
        self._partial = partial if self._partial is None else self._job.workflow.combine(self._partial, partial)

    def partial(self) -> NDArray[Any]:
        assert self._partial is not None
        return self._partial


def warm_up(pass_: Pass, chunk: Chunk) -> None:
    """Stream the beginning of a chunk through all jobs, and check its first sample, if the worker has a GPU.

    Otherwise the first block would wait for the CUDA context, kernels, buffers, and the reading threads and buffers,
    and the first check for its libraries.
    """
    if find_devices().usable:
        samples = min(chunk.samples, WARM_UP_BYTES // chunk.dtype.itemsize)
        for block in device_blocks(chunk.part(Region(0, samples)), Timeline(), pass_.block_bytes):
            for job in pass_.jobs:
                job.workflow.compute(block, job.options)
        if chunk.always:
            recompute_parts(pass_, [chunk.part(Region(0, 1))], compared=False)


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
        self.partials: list[Any] = []

    def add(self, block: Any) -> None:
        workflow = self._job.workflow
        while len(block):
            region = self._chunk.parts[self._part]
            left = region.start + region.samples - self._start
            inside, block = block[:left], block[left:]
            of_block = workflow.compute(inside, self._job.options)
            of_block = _placed(self._job, of_block, self._chunk.start + self._start)
            if self._start == region.start:
                self.partials.append(of_block)
            else:
                self.partials[-1] = workflow.combine(self.partials[-1], of_block)
            self._start += len(inside)
            self._part += len(inside) == left
