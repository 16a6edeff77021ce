"""One region of an array job on a GPU: file to device, compute, device to file, on a stream of its own."""

from __future__ import annotations

import mmap
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from queue import SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.array_job import ArrayJob, computed, nbytes_of
from pipeline.array_output import OutputFile
from pipeline.arrays import ArrayFile, read_region
from pipeline.pinned import writer
from pipeline.read_device import release, to_native
from pipeline.threads import cores
from pipeline.timeline import Timeline
from pipeline.transfer import WRITE_BYTES, finish, opened, prepare, transfer, way
from workflows.array_workflow import Bounds, Spec, sizes

ON_DEVICE = "?bBhHiIlLqQefdFD"  # dtypes that CuPy has

# Tasks under way on a GPU: while one computes, others read and write.
LANES = 4

# Threads that write what tasks computed: one cannot fill the pages of a file as fast as the device delivers them.
WRITERS = 12
# Shorter runs share their pages, of which several threads at a time wait for each other.
PAGED_RUN = mmap.PAGESIZE

# Runs that are shorter are gathered in the memory of the host: a transfer for each would cost more than the copy.
DIRECT_FROM = 2**19


def compute_on_device(job: ArrayJob, region: Bounds, timeline: Timeline) -> Mapping[str, int]:
    """Read what a region needs, compute it on the current device, and write it to its place in the output.

    A dtype that CuPy does not have travels as bytes, with one more axis for them.

    Returns
    -------
    How many elements were computed in which way, where the workflow counts them.
    """
    import cupy

    if job.device_memory_limit:
        release()
        # What tasks gave back stays with the pool of their stream; at its limit the pool gives it to others.
        cupy.get_default_memory_pool().set_limit(size=job.device_memory_limit)
    with _lane() as stream:
        found = computed(job, region, lambda array, bounds: _to_device(array, bounds, timeline), timeline)
        with timeline.measure("kernel"):
            stream.synchronize()
        _to_file(job.output, region, found.elements, timeline)
    return found.counts


@contextmanager
def _lane() -> Iterator[Any]:
    """A stream of the current device that nobody else uses meanwhile; all that was put on it is done."""
    import cupy

    lanes = _lanes(int(cupy.cuda.runtime.getDevice()))
    stream = lanes.get()
    try:
        with stream:
            try:
                yield stream
            finally:
                stream.synchronize()
    finally:
        lanes.put(stream)


@cache
def _lanes(device: int) -> SimpleQueue[Any]:
    """Streams that live as long as the worker: CuPy keeps freed memory for the stream that it was used on."""
    import cupy

    lanes: SimpleQueue[Any] = SimpleQueue()
    for _ in range(LANES):
        lanes.put(cupy.cuda.Stream(non_blocking=True))
    return lanes


def unlimit() -> None:
    """Take the limit of memory back; runs on a worker, also one that has no GPU."""
    from pipeline.devices import find_devices

    if find_devices().usable:
        import cupy

        cupy.get_default_memory_pool().set_limit(size=0)


def _to_device(array: ArrayFile, bounds: Bounds, timeline: Timeline) -> Any:
    import cupy

    native = array.spec.dtype.newbyteorder("=")
    as_bytes = native.char not in ON_DEVICE
    shape = (*sizes(bounds), native.itemsize) if as_bytes else sizes(bounds)
    swappable = array.spec.dtype.isnative or native.kind in "iuf"
    if array.fortran or not swappable or array.run(bounds) < DIRECT_FROM:
        flat = _through_host(array, bounds, timeline)
    else:
        flat = _direct(array, bounds, timeline)
        if not array.spec.dtype.isnative:
            flat = to_native(flat.view(native), array.spec.dtype)
    return flat.view(cupy.uint8 if as_bytes else native).reshape(shape)


def _direct(array: ArrayFile, bounds: Bounds, timeline: Timeline) -> Any:
    """The bytes of a region as they are in the file."""
    import cupy

    prepare()
    flat = cupy.empty(nbytes_of(array.spec, bounds), cupy.uint8)
    # What used this memory before may still be under way on the stream, of which the transfers know nothing.
    cupy.cuda.get_current_stream().synchronize()
    with timeline.measure("read+copy", flat.nbytes):
        timeline.ways.add(way())
        for piece, first, runs in array.parts(bounds):
            with opened(piece) as pread:
                finish(
                    transfer(pread, piece, first + start, flat[at : at + nbytes]) for start, at, nbytes in runs.tolist()
                )
    return flat


def _through_host(array: ArrayFile, bounds: Bounds, timeline: Timeline) -> Any:
    """The bytes of a region in native order."""
    import cupy
    from cupyx import empty_pinned

    nbytes = nbytes_of(array.spec, bounds)
    with timeline.measure("read", nbytes):
        block = read_region(array, bounds, empty_pinned)
    with timeline.measure("to device", nbytes):
        flat = cupy.empty(nbytes, cupy.uint8)
        flat.set(block.reshape(-1).view(np.uint8))
        # The host memory is given back when this returns.
        cupy.cuda.get_current_stream().synchronize()
    return flat


def _to_file(output: OutputFile, region: Bounds, block: Any, timeline: Timeline) -> None:
    """Write a block on which nobody works any more."""
    with timeline.measure("write", block.nbytes):
        paged = output.readable().run(region) >= PAGED_RUN
        in_runs = paged and output.mappable and block.nbytes and block.flags.c_contiguous
        if in_runs and (threads := writer(_threads(), WRITE_BYTES)):
            output.check(region, block)
            output.write_runs(region, lambda length, addresses: threads.write(block, length, addresses).get())
        else:
            spread = _writers().map if paged else map
            output.write(region, block, lambda elements: _to_host(elements, output.spec), spread)


def get_ready() -> None:
    """Runs on a worker before the first region, which would wait until there is pinned memory for what it writes."""
    from pipeline.devices import find_devices

    if find_devices().usable:
        writer(_threads(), WRITE_BYTES)


def _threads() -> int:
    return min(WRITERS, max(2, cores()))


@cache
def _writers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_threads(), thread_name_prefix="write")


_own = threading.local()  # pinned memory of each thread, a stream that brings bytes there, an event that says so


def _to_host(elements: Any, spec: Spec) -> NDArray[Any]:
    """Elements on the device, in memory that the next ones of this thread will take."""
    import cupy
    from cupyx import empty_pinned

    if getattr(_own, "memory", None) is None or len(_own.memory) < elements.nbytes:
        _own.memory, _own.stream = empty_pinned(elements.nbytes, np.uint8), cupy.cuda.Stream(non_blocking=True)
        # Waiting for a stream would keep a core busy, which others copy with.
        _own.there = cupy.cuda.Event(block=True, disable_timing=True)
    with _own.stream:
        flat = cupy.ascontiguousarray(elements).reshape(-1).view(cupy.uint8)
        host: NDArray[np.uint8] = flat.get(out=_own.memory[: flat.size], blocking=False)
        _own.there.record()
    _own.there.synchronize()
    return host.view(spec.dtype).reshape(elements.shape[: len(spec.shape)])
