"""Tasks of an aggregation: compute the partial of a chunk, and recompute it with the reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pipeline.cluster.worker import device_name, exit_on_lost_context, worker_address
from pipeline.engine.aggregate_plan import Job, Pass
from pipeline.errors import PipelineError, failure
from pipeline.gpu.blocks import device_blocks
from pipeline.gpu.devices import find_devices
from pipeline.storage.blocks import read_blocks
from pipeline.storage.chunks import Chunk, Region
from pipeline.timeline import Timeline

# Bytes to stream for warm-up: enough for every reading thread to get a part.
WARM_UP_BYTES = 2**27

Result = TypeVar("Result")


@dataclass(frozen=True)
class ChunkResult:
    """What a worker computed from a chunk.

    Attributes
    ----------
    partials
        Partials of the whole chunk, one per job.
    checked
        Partials of the samples in ``chunk.checked``, if any.
    worker, device
        Address of the worker; name of its GPU, or "cpu".
    timeline
        How long each stage took; stages overlap.
    """

    partials: tuple[NDArray[Any], ...]
    checked: tuple[NDArray[Any], ...]
    worker: str
    device: str
    timeline: Timeline


@dataclass(frozen=True)
class Reference:
    """Partials of the samples in ``chunk.checked`` by the reference of each job, and how long that took."""

    partials: tuple[NDArray[Any], ...]
    timeline: Timeline


def compute_chunks(pass_: Pass, chunks: Sequence[Chunk]) -> tuple[ChunkResult, ...]:
    """Task: `compute_chunk` for one chunk after another."""
    return tuple(_each(compute_chunk, pass_, chunks))


def recompute_chunks(pass_: Pass, chunks: Sequence[Chunk]) -> tuple[Reference, ...]:
    """Task: `recompute_chunk` for one chunk after another."""
    return tuple(_each(recompute_chunk, pass_, chunks))


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
    # If everything is checked, check the very sum that is returned, not a second one.
    whole = chunk.checked is not None and chunk.checked.samples == chunk.samples
    sums = [_Sums(job, job.workflow.compute, chunk, None if whole else chunk.checked) for job in pass_.jobs]
    try:
        for block in _blocks(pass_, chunk, timeline):
            for sum_ in sums:
                sum_.add(block)
        totals = tuple(_on_host(sum_.total, timeline) for sum_ in sums)
        checked = totals if whole else tuple(_on_host(sum_.checked, timeline) for sum_ in sums if chunk.checked)
    except Exception as error:
        exit_on_lost_context(error)
        raise
    return ChunkResult(totals, checked, worker_address(), device_name(pass_.device), timeline)


def _blocks(pass_: Pass, chunk: Chunk, timeline: Timeline) -> Iterator[Any]:
    """Blocks of a chunk on the computing device, in native byte order; the time between blocks is a kernel span."""
    if pass_.device == "gpu":
        yield from device_blocks(chunk, timeline, pass_.block_bytes)
        return
    for block in read_blocks(chunk, timeline):
        with timeline.measure("kernel", block.nbytes):
            # Partials are defined on native samples; converting native ones costs nothing.
            yield block.astype(chunk.dtype.newbyteorder("="), copy=False)


def recompute_chunk(pass_: Pass, chunk: Chunk) -> Reference:
    """Recompute the checked samples of a chunk with the references, independently of the computed partials."""
    timeline = Timeline(pass_.traced)
    assert chunk.checked is not None
    part = chunk.part(chunk.checked)
    sums = [_Sums(job, job.workflow.reference, part) for job in pass_.jobs]
    with timeline.measure("verify", part.nbytes):
        for block in read_blocks(part, Timeline()):
            for sum_ in sums:
                sum_.add(block)
    return Reference(tuple(sum_.total for sum_ in sums), timeline)


def warm_up(pass_: Pass, chunk: Chunk) -> None:
    """Stream the beginning of a chunk through all jobs, if the worker has a GPU.

    Otherwise the first block would wait for the CUDA context, kernels, buffers, and the reading threads and buffers.
    """
    if find_devices().usable:
        samples = min(chunk.samples, WARM_UP_BYTES // chunk.dtype.itemsize)
        for block in device_blocks(chunk.part(Region(0, samples)), Timeline(), pass_.block_bytes):
            for job in pass_.jobs:
                job.workflow.compute(block, job.options)


def _on_host(partial: Any, timeline: Timeline) -> Any:
    if isinstance(partial, np.ndarray):
        return partial
    with timeline.measure("to host", partial.nbytes):
        return partial.get()


class _Sums:
    """Combined partials of the blocks of a chunk: of all blocks, and of the checked region."""

    def __init__(
        self, job: Job, compute: Callable[[Any, Any], Any], chunk: Chunk, checked: Region | None = None
    ) -> None:
        self._job = job
        self._compute = compute
        self._chunk = chunk
        self._region = checked or Region(0, 0)
        self._start = 0
        self.total: Any = None
        self.checked: Any = None

    def add(self, block: Any) -> None:
        workflow, start = self._job.workflow, self._chunk.start + self._start
        for part, inside in self._cut(block):
            partial = self._compute(part, self._job.options)
            if workflow.place:
                partial = workflow.place(partial, start)
            start += len(part)
            self.total = self._combined(self.total, partial)
            if inside:
                self.checked = self._combined(self.checked, partial)
        self._start += len(block)

    def _cut(self, block: Any) -> Iterator[tuple[Any, bool]]:
        """Parts of a block before, inside and after the checked region."""
        start = min(max(self._region.start - self._start, 0), len(block))
        stop = min(max(self._region.start + self._region.samples - self._start, start), len(block))
        for part, inside in ((block[:start], False), (block[start:stop], True), (block[stop:], False)):
            if len(part):
                yield part, inside

    def _combined(self, sum_: Any, partial: Any) -> Any:
        return partial if sum_ is None else self._job.workflow.combine(sum_, partial)
