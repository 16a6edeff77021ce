"""Aggregations over a CuPy array, on its GPU and the caller's stream; random runs are checked on the CPU meanwhile."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from pipeline.cluster.cuda_errors import lost_context, other_failure, out_of_memory
from pipeline.errors import PipelineError
from pipeline.in_memory.aggregate import Check, Covered, Work, compute, finish, merged, recompute, threads_for
from pipeline.in_memory.kinds import NAME
from pipeline.in_memory.samples import flat_view, parts_on_gpu, random_run

# Bytes of a part: large, since each takes two launches; small where all of it is copied to the host and checked.
PART_BYTES, FULL_PART_BYTES = 2**30, 2**24
# Of each part one sample in so many is checked: a core recomputes 4 GB/s while a GPU computes 4 TB/s.
SAMPLED_SHARE, LEAST_SAMPLES = {"auto": 2048, "sample": 256}, 1024
Result = TypeVar("Result")

OVERLAPPED_BYTES = 2**26  # from these on, a run is checked while the GPU computes the rest of its part


class _Launched(NamedTuple):
    """A part on its way to the host: its partials, the run that is checked, its partials and its samples.

    `copied` and `done` are events after the copies of the run's samples and of everything. `block` is the run on the
    device, which has to exist until then.
    """

    start: int
    samples: int
    partials: list[NDArray[Any]]
    done: Any
    run: slice | None = None
    of_run: list[NDArray[Any]] = []  # noqa: RUF012 - never changed
    host: NDArray[Any] | None = None
    copied: Any = None
    block: Any = None


def on_device_of(array: Any, function: Callable[..., Result], *arguments: Any) -> Result:
    """Call a function while the array's GPU is the current one; what CUDA cannot do is one line."""
    import cupy

    device = array.device
    try:
        if device.id == cupy.cuda.runtime.getDevice():
            return function(*arguments)
        with device:
            return function(*arguments)
    except PipelineError:
        raise
    except Exception as error:
        if reason := out_of_memory(error) or lost_context(error) or other_failure(error):
            raise PipelineError(f"{NAME} on GPU {device.id}: {reason}") from error
        raise


def looked_on_gpu(work: Work, array: Any) -> Work:
    """The work once its jobs have looked at a CuPy array of at least one sample, if its samples lie side by side."""
    flat = flat_view(array, work.ordered)
    if flat is None:
        return work
    return replace(work, jobs=tuple(on_device_of(flat, job.looked, flat) for job in work.jobs))


def cover_on_gpu(work: Work, array: Any) -> Covered:
    """Compute a CuPy array of at least one sample on its GPU; check what `work.verify` says on the CPU."""
    return on_device_of(array, _cover, work, array)


def _cover(work: Work, array: Any) -> Covered:
    where, full = f"GPU {array.device.id}", work.verify == "full"
    step = max(1, (work.part_bytes or (FULL_PART_BYTES if full else PART_BYTES)) // array.dtype.itemsize)
    parts = _with_starts(parts_on_gpu(array, work.ordered, step))
    if array.size <= step:
        return merged(work, (_end(work, _launch(work, *part), where) for part in parts))
    return merged(work, _in_turn(work, parts, where, threads_for(work.threads) if full else 1))


def _with_starts(parts: Iterable[Any]) -> Iterator[tuple[Any, int]]:
    """Each part with the index of its first sample."""
    start = 0
    for part in parts:
        yield part, start
        start += part.size


def _in_turn(work: Work, parts: Iterable[tuple[Any, int]], where: str, threads: int) -> Iterator[Covered]:
    """What the parts give; a part is launched before the one before it is checked, on one thread or several."""
    waiting: deque[Future[Covered]] = deque()
    pool = ThreadPoolExecutor(threads, "check")
    try:
        for part in parts:
            waiting.append(pool.submit(_end, work, _launch(work, *part), where))
            if len(waiting) > 2 * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _launch(work: Work, part: Any, start: int) -> _Launched:
    """Queue the kernels of a part and of the run of it that is checked, and copies of their partials and of the run."""
    samples = part.size
    if (run := _run(work, samples, start)) is None:
        partials = _to_host(compute(work, part, start))
        return _Launched(start, samples, partials, _recorded())
    beside = None
    if part.nbytes >= OVERLAPPED_BYTES:
        beside = _stream_beside(part.device.id)
        beside.wait_event(_recorded())  # what writes the samples may be queued still
    on_device = compute(work, part, start)
    block = part[run]
    (host,) = _to_host([block], beside)  # from a large part while it is computed
    copied = _recorded(beside)
    whole = block.size == samples
    run_on_device = on_device if whole else compute(work, block, start + run.start)
    partials = _to_host(on_device)
    of_run = partials if whole else _to_host(run_on_device)
    return _Launched(start, samples, partials, _recorded(), run, of_run, host, copied, block)


def _run(work: Work, samples: int, start: int) -> slice | None:
    """Which samples of a part are checked."""
    if share := SAMPLED_SHARE.get(work.verify):
        return random_run(samples, max(LEAST_SAMPLES, samples // share), work.seed, start)
    return slice(0, samples) if work.verify == "full" else None


@cache
def _stream_beside(device: int) -> Any:
    """A stream of the current device that waits for no other by itself."""
    import cupy

    return cupy.cuda.Stream(non_blocking=True)


def _recorded(stream: Any = None) -> Any:
    """An event after all that is queued on a stream; by default on the current one."""
    import cupy

    event = cupy.cuda.Event(disable_timing=True)
    event.record(stream)
    return event


def _end(work: Work, launched: _Launched, where: str) -> Covered:
    """Check a part once it has arrived."""
    check = None
    if launched.run is not None and launched.host is not None:
        launched.copied.synchronize()
        expected = recompute(work, launched.host, launched.start + launched.run.start)  # while the GPU computes
        check = Check(launched.run, launched.of_run, expected)
    launched.done.synchronize()
    return finish(work, launched.partials, launched.samples, launched.start, where, check)


def _to_host(arrays: Sequence[Any], stream: Any = None) -> list[NDArray[Any]]:
    """Pinned memory that contiguous device arrays are being copied to, on a stream; by default on the current one."""
    import cupy

    runtime, copies = cupy.cuda.runtime, []
    queue = (cupy.cuda.get_current_stream() if stream is None else stream).ptr
    for array in arrays:
        if isinstance(array, np.ndarray):
            copies.append(array)
            continue
        nbytes = array.nbytes
        memory = cupy.cuda.alloc_pinned_memory(max(1, nbytes))
        # As `get`, in half of the time.
        runtime.memcpyAsync(memory.ptr, array.data.ptr, nbytes, runtime.memcpyDeviceToHost, queue)
        copies.append(np.ndarray(array.shape, array.dtype, memory))
    return copies
