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

    `copied` and `done` are synchronized after the copies of the run's samples and of everything. `block` is the run on
    the device, which has to exist until then.
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
    if array.size <= step and (flat := flat_view(array, work.ordered)) is not None:
        return _end(work, _launch(work, flat, 0, alone=True), where)
    parts = _with_starts(parts_on_gpu(array, work.ordered, step))
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


def _launch(work: Work, part: Any, start: int, alone: bool = False) -> _Launched:
    """Queue the kernels of a part and of the run of it that is checked, and copies of their partials and of the run.

    A part that is `alone` is done when its stream is: waiting for that takes no event.
    """
    import cupy

    samples, stream = part.size, cupy.cuda.get_current_stream()
    if (run := _run(work, samples, start)) is None:
        partials = _to_host(compute(work, part, start), stream)
        return _Launched(start, samples, partials, stream if alone else _recorded(stream))
    # Of a large part the run is copied while it is computed; what writes the samples may be queued still.
    written = _recorded(stream) if part.nbytes >= OVERLAPPED_BYTES else None
    on_device = compute(work, part, start)
    block, beside = part[run], stream
    if written is not None:
        beside = _stream_beside(part.device.id)
        beside.wait_event(written)
    host, copied = _host(block, beside), _recorded(beside)
    if block.size == samples:
        partials = of_run = _to_host(on_device, stream)
    else:
        both = _to_host([*on_device, *compute(work, block, start + run.start)], stream)
        partials, of_run = both[: len(on_device)], both[len(on_device) :]
    return _Launched(start, samples, partials, stream if alone else _recorded(stream), run, of_run, host, copied, block)


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


def _recorded(stream: Any) -> Any:
    """An event after all that is queued on a stream."""
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


def _to_host(arrays: Sequence[Any], stream: Any) -> list[NDArray[Any]]:
    """Pinned memory that contiguous device arrays are being copied to on a stream, by one copy if they lie together."""
    if len(arrays) > 1 and (span := _span(arrays)) is not None:
        memory = _copied(*span, stream)
        return [np.ndarray(array.shape, array.dtype, memory, array.data.ptr - span[0]) for array in arrays]
    return [array if isinstance(array, np.ndarray) else _host(array, stream) for array in arrays]


def _host(array: Any, stream: Any) -> NDArray[Any]:
    """Pinned memory that a contiguous device array is being copied to on a stream."""
    return np.ndarray(array.shape, array.dtype, _copied(array.data.ptr, array.nbytes, stream))


def _span(arrays: Sequence[Any]) -> tuple[int, int] | None:
    """Address and bytes that several arrays take together, if these are one allocation's, as results of a pool are."""
    place = arrays[0].data
    if (memory := getattr(place, "mem", None)) is None:  # of NumPy
        return None
    first, end, nbytes = place.ptr, 0, 0
    for array in arrays:
        place = array.data
        if getattr(place, "mem", None) is not memory:
            return None
        first, end, nbytes = min(first, place.ptr), max(end, place.ptr + array.nbytes), nbytes + array.nbytes
    return (first, end - first) if end - first <= 2 * nbytes else None


def _copied(address: int, nbytes: int, stream: Any) -> Any:
    """As `get`, in half of the time."""
    import cupy

    runtime, memory = cupy.cuda.runtime, cupy.cuda.alloc_pinned_memory(max(1, nbytes))
    runtime.memcpyAsync(memory.ptr, address, nbytes, runtime.memcpyDeviceToHost, stream.ptr)
    return memory
