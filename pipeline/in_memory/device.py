"""Aggregations over a CuPy array, on its GPU and the caller's stream; random runs are checked on the CPU meanwhile."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from pipeline.cluster.cuda_errors import lost_context, other_failure, out_of_memory
from pipeline.errors import PipelineError
from pipeline.in_memory.aggregate import Check, Covered, Work, compute, finish, merged, recompute, threads_for
from pipeline.in_memory.kinds import NAME
from pipeline.in_memory.samples import parts_on_gpu, random_run

# Bytes of a part: large, since each takes two launches; small where all of it is copied to the host and checked.
PART_BYTES, FULL_PART_BYTES = 2**30, 2**24
# Of each part one sample in so many is checked: a core recomputes 4 GB/s while a GPU computes 4 TB/s.
SAMPLED_SHARE, LEAST_SAMPLES = {"auto": 2048, "sample": 256}, 1024
Result = TypeVar("Result")

OVERLAPPED_BYTES = 2**26  # from these on, a run is checked while the GPU computes the rest of its part


class _Launched(NamedTuple):
    """A part on its way to the host: its partials, the run that is checked, its partials and its samples, two events.

    `ready` and `done` end the copies of the run and of everything; a small part has only the last.
    """

    start: int
    samples: int
    partials: list[NDArray[Any]]
    done: Any
    run: slice | None = None
    of_run: list[NDArray[Any]] = []  # noqa: RUF012 - never changed
    copied: NDArray[Any] | None = None
    ready: Any = None


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
    """Queue the kernels of a part and the copies of their partials; those of a run that is checked come first."""
    import cupy

    samples, run = part.size, None
    if share := SAMPLED_SHARE.get(work.verify):
        run = random_run(samples, max(LEAST_SAMPLES, samples // share), work.seed, start)
    elif work.verify == "full":
        run = slice(0, samples)
    of_run, copied, ready = [], None, None
    if run is not None:
        block = part[run]
        of_run, copied = _to_host(compute(work, block, start + run.start)), _to_host([block])[0]
        if part.nbytes >= OVERLAPPED_BYTES:
            ready = cupy.cuda.Event(disable_timing=True)
            ready.record()
    whole = run is not None and run.stop - run.start == samples
    partials = of_run if whole else _to_host(compute(work, part, start))
    done = cupy.cuda.Event(disable_timing=True)
    done.record()
    return _Launched(start, samples, partials, done, run, of_run, copied, ready)


def _end(work: Work, launched: _Launched, where: str) -> Covered:
    """Check a part once it has arrived."""
    check = None
    if launched.run is not None and launched.copied is not None:
        (launched.ready or launched.done).synchronize()
        first = launched.start + launched.run.start
        check = Check(launched.run, launched.of_run, recompute(work, launched.copied, first))  # while the GPU computes
    launched.done.synchronize()
    return finish(work, launched.partials, launched.samples, launched.start, where, check)


def _to_host(arrays: Sequence[Any]) -> list[NDArray[Any]]:
    """Pinned memory that contiguous device arrays are being copied to, on the current stream."""
    import cupy

    copies = []
    for array in arrays:
        if isinstance(array, np.ndarray):
            copies.append(array)
            continue
        host: NDArray[Any] = np.ndarray(array.shape, array.dtype, cupy.cuda.alloc_pinned_memory(max(1, array.nbytes)))
        array.get(out=host, blocking=False)
        copies.append(host)
    return copies
