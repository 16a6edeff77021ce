"""What runs on a worker: one chunk to its partial, and the reference of what was computed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.chunks import Chunk, Region
from pipeline.common_part import CommonPart
from pipeline.read import read_blocks
from pipeline.timeline import Timeline
from workflows.workflow import Workflow

# Errors after which a CUDA context serves nothing but errors (cudaError in the CUDA runtime API).
STICKY_ERRORS = frozenset({214, 700, 702, 704, 710, 714, 715, 716, 717, 718, 719, 720, 721})


@dataclass(frozen=True)
class ChunkResult:
    """What a worker says of a chunk.

    Attributes
    ----------
    partial
        Of the whole chunk.
    checked
        Partial of the samples of ``chunk.checked``, if any.
    worker, device
        Address of the worker; name of its GPU, or "cpu".
    timeline
        What each stage took; stages overlap.
    """

    partial: NDArray[Any]
    checked: NDArray[Any] | None
    worker: str
    device: str
    timeline: Timeline


@dataclass(frozen=True)
class Job(CommonPart):
    """A workflow with its options: what every task of a pass has in common."""

    workflow: Workflow[Any]
    options: Any
    traced: bool = False


@dataclass(frozen=True)
class Reference:
    """What the reference says of the samples of ``chunk.checked``, if there are any, and what that took."""

    partial: NDArray[Any] | None
    timeline: Timeline


@dataclass(frozen=True)
class Mismatch:
    """Where a partial disagrees: chunk, byte range, worker, and the first differing entries with both values."""

    chunk: int
    where: str
    worker: str
    device: str
    details: tuple[str, ...]

    def __str__(self) -> str:
        return f"chunk {self.chunk} ({self.where}) on worker {self.worker} ({self.device}): {'; '.join(self.details)}"


def compute_chunk(job: Job, chunk: Chunk, device: str) -> ChunkResult:
    """Stream a chunk through the workflow's compute, on the worker's GPU or its CPU.

    Parameters
    ----------
    device
        ``"gpu"`` or ``"cpu"``.
    """
    timeline = Timeline(job.traced)
    # Where everything is checked, what is checked has to be the very sum that is returned.
    whole = chunk.checked is not None and chunk.checked.samples == chunk.samples
    sums = _Sums(job, job.workflow.compute, chunk, None if whole else chunk.checked)
    try:
        (_on_gpu if device == "gpu" else _on_cpu)(sums, chunk, timeline)
        total = _on_host(sums.total, timeline)
        checked = total if whole else _on_host(sums.checked, timeline)
    except Exception as error:
        leave_if_broken(error)
        raise
    return ChunkResult(total, checked, worker_address(), device_name(device), timeline)


def refer_to_chunk(job: Job, chunk: Chunk) -> Reference:
    """Recompute the samples to check of a chunk with the reference; it needs nothing of what was computed."""
    timeline = Timeline(job.traced)
    assert chunk.checked is not None
    part = chunk.part(chunk.checked)
    with timeline.measure("verify", part.nbytes):
        sums = _Sums(job, job.workflow.reference, part)
        for block in read_blocks(part, Timeline()):
            sums.add(block)
    return Reference(sums.total, timeline)


def check_chunk(job: Job, chunk: Chunk, result: ChunkResult, reference: Reference) -> Mismatch | None:
    """Compare a chunk with its invariants and, where it has samples to check, with the reference."""
    details = [broken for check in job.workflow.invariants if (broken := check(result.partial, chunk.samples))]
    if reference.partial is not None and result.checked is not None:
        details += differences(job, result.checked, reference.partial)
    where = chunk.where(chunk.checked)
    return Mismatch(chunk.index, where, result.worker, result.device, tuple(details)) if details else None


def differences(job: Job, got: NDArray[Any], expected: NDArray[Any]) -> list[str]:
    """The first entries in which a partial differs from its reference; NaN differs from everything."""
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return [f"expected {expected.shape} of {expected.dtype}, got {got.shape} of {got.dtype}"]
    places = np.flatnonzero(~(got == expected))
    label = job.workflow.label
    found = [f"{label(int(i), job.options)}: expected {expected[i]}, got {got[i]}" for i in places[:3]]
    return [*found, f"{len(places) - 3} more"] if len(places) > 3 else found


def _on_cpu(sums: _Sums, chunk: Chunk, timeline: Timeline) -> None:
    for block in read_blocks(chunk, timeline):
        with timeline.measure("kernel", block.nbytes):
            # Partials are defined on native samples; converting costs nothing where they already are.
            sums.add(block.astype(chunk.dtype.newbyteorder("="), copy=False))


def _on_gpu(sums: _Sums, chunk: Chunk, timeline: Timeline) -> None:
    from pipeline.read_device import device_blocks

    for block in device_blocks(chunk, timeline):
        sums.add(block)


def _on_host(partial: Any, timeline: Timeline) -> Any:
    if partial is None or isinstance(partial, np.ndarray):
        return partial
    with timeline.measure("to host", partial.nbytes):
        return partial.get()


class _Sums:
    """Partials of the blocks of a chunk, combined: of all of them, and of the checked region."""

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


def worker_address() -> str:
    """Address of the worker that this runs on."""
    from distributed import get_worker

    return str(get_worker().address)


def device_name(device: str) -> str:
    """Name of the GPU in use, or "cpu"."""
    if device == "cpu":
        return "cpu"
    import cupy

    return str(cupy.cuda.runtime.getDeviceProperties(cupy.cuda.runtime.getDevice())["name"].decode())


def leave_if_broken(error: Exception) -> None:
    """End a worker process whose CUDA context is lost: alive, it would fail every task that it attracts.

    Its nanny starts a new one and Dask runs the task there. In the client's own process the error just goes up.
    """
    status = getattr(error, "status", None)
    if status in STICKY_ERRORS:
        from distributed import get_worker

        if get_worker().nanny is not None:
            os._exit(1)
