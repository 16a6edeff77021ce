"""Computes one region on a GPU: file to device, compute, device to file, each task on a stream of its own."""

from __future__ import annotations

import mmap
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from queue import LifoQueue
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common.memory import pinned
from kernels.common.once import once_per_process
from pipeline.engine.array_plan import ArrayPlan, compute_region, nbytes_of
from pipeline.engine.task_memory import LANES
from pipeline.gpu import resident
from pipeline.gpu.blocks import release
from pipeline.gpu.loads import to_native
from pipeline.gpu.pinned import writer
from pipeline.gpu.transfer import DIRECT, KVIKIO, PINNED, WRITE_BYTES, opened, transfer, transfer_path
from pipeline.gpu.transfer import warm_up as warm_up_transfer
from pipeline.storage import mapped_output, scratch
from pipeline.storage.array_file import ArrayFile, read_region
from pipeline.storage.output_array import OutputFile
from pipeline.threads import cores
from pipeline.timeline import Timeline
from workflows.regions import Bounds, Spec, sizes

ON_DEVICE = "?bBhHiIlLqQefdFD"  # dtypes that CuPy supports

# Threads that write results: one cannot fill the pages of a file as fast as the device delivers them.
WRITING_THREADS = 12
# Shorter rows share pages, and threads that write to one page wait for each other.
PAGED_RUN = mmap.PAGESIZE

# Shortest rows, in bytes, that go straight to the device, by transfer path. Shorter ones are gathered on the host
# first: a call for each would cost more than the copy.
DIRECT_FROM = {PINNED: 2**12, KVIKIO: 2**19, DIRECT: 2**19}


def compute_on_device(plan: ArrayPlan, region: Bounds, timeline: Timeline) -> Mapping[str, int]:
    """Read what a region needs, compute it on the current device, and write it to its place in the output.

    A dtype that CuPy lacks is passed as bytes, in an additional last axis.

    Returns
    -------
    Elements computed, by path, if the workflow counts them.
    """
    _limit(plan)
    used: list[Any] = []  # parts that are kept, which kernels may read until the stream is synchronized
    shared = _shared_inputs(plan, region)

    def read(array: ArrayFile, bounds: Bounds) -> Any:
        if id(array) not in shared:
            return _to_device(array, bounds, timeline)
        block, kept = _shared(plan, array, bounds, timeline)
        used.extend([block] * kept)  # others go as they are used up: there is no room
        return block

    with _lane() as stream:
        block = compute_region(plan, region, read, timeline)
        with timeline.measure("kernel"):
            stream.synchronize()
        _to_file(plan.output, region, block.elements, timeline)
    return block.counts


def _limit(plan: ArrayPlan) -> None:
    import cupy

    if plan.device_memory_limit:
        release()
        # Freed memory stays with the stream that used it; only at its limit does the pool give it to other streams.
        cupy.get_default_memory_pool().set_limit(size=plan.device_memory_limit)


@contextmanager
def _lane() -> Iterator[Any]:
    """A stream of the current device for one task at a time, synchronized at the end."""
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
def _lanes(device: int) -> LifoQueue[Any]:
    """Streams that live as long as the worker, because CuPy keeps freed memory per stream.

    The one that was used last is the next, so that as few as there are tasks at a time have memory: within a limit
    CuPy would free that of all others, and wait for the device, before each allocation.
    """
    import cupy

    lanes: LifoQueue[Any] = LifoQueue()
    for _ in range(LANES):
        lanes.put(cupy.cuda.Stream(non_blocking=True))
    return lanes


def finish(path: str, limited: bool) -> None:
    """Unmap the output, free what is kept, lift the memory limit; runs on every worker, also on one without a GPU."""
    from pipeline.gpu.devices import find_devices

    mapped_output.end(path)
    scratch.forget()
    resident.forget()
    if limited and find_devices().usable:
        import cupy

        cupy.get_default_memory_pool().set_limit(size=0)


def _to_device(array: ArrayFile, bounds: Bounds, timeline: Timeline) -> Any:
    native = array.spec.dtype.newbyteorder("=")
    swappable = array.spec.dtype.isnative or native.kind in "iuf"
    if array.fortran or not swappable or array.run(bounds) < DIRECT_FROM[transfer_path()]:
        flat = _through_host(array, bounds, timeline)
    else:
        flat = _direct(array, bounds, timeline)
        if not array.spec.dtype.isnative:
            flat = to_native(flat.view(native), array.spec.dtype)
    return _typed(flat, array.spec, bounds)


def _shared_inputs(plan: ArrayPlan, region: Bounds) -> set[int]:
    """The inputs (by `id`) of which other regions need the same parts, unless memory is limited."""
    if not plan.run or plan.device_memory_limit or not plan.workflow.shares:
        return set()
    shares = plan.workflow.shares(region, plan.native(), plan.options)
    return {id(array) for array, shared in zip(plan.inputs, shares, strict=True) if shared}


def _shared(plan: ArrayPlan, array: ArrayFile, bounds: Bounds, timeline: Timeline) -> tuple[Any, bool]:
    """A part of an input, which may be on the device because another region needed it, and whether it stays there."""
    import cupy

    began, loaded = perf_counter(), False

    def load() -> Any:
        nonlocal loaded
        loaded = True
        block = _to_device(array, bounds, timeline)
        cupy.cuda.get_current_stream().synchronize()  # other streams read it, too
        return block

    number = next(number for number, one in enumerate(plan.inputs) if one is array)
    place = int(cupy.cuda.runtime.getDevice()), number, bounds
    part = resident.part(plan.run, place, nbytes_of(array.spec, bounds), load)
    if not loaded:
        timeline.add("read+copy", began, perf_counter() - began)  # waited for whoever loads it
    return part


def _typed(flat: Any, spec: Spec, bounds: Bounds) -> Any:
    """Bytes of a region as an array in native byte order, or as bytes in an additional axis if CuPy lacks the dtype."""
    native = spec.dtype.newbyteorder("=")
    as_bytes = native.char not in ON_DEVICE
    return flat.view(np.uint8 if as_bytes else native).reshape((*sizes(bounds), *[native.itemsize] * as_bytes))


def _direct(array: ArrayFile, bounds: Bounds, timeline: Timeline) -> Any:
    """The bytes of a region, straight from the file."""
    import cupy

    warm_up_transfer()
    flat = cupy.empty(nbytes_of(array.spec, bounds), cupy.uint8)
    # Earlier work on this memory may still be queued on the stream, and the transfers do not wait for the stream.
    cupy.cuda.get_current_stream().synchronize()
    with timeline.measure("read+copy", flat.nbytes):
        timeline.transfer_paths.add(transfer_path())
        before = 0
        for piece, first, runs in array.parts(bounds):
            nbytes = int(runs[:, 2].sum())
            with opened(piece) as reading:
                transfer(reading, piece, first, runs[:, ::2], flat[before : before + nbytes]).result()
            before += nbytes
    return flat


def _through_host(array: ArrayFile, bounds: Bounds, timeline: Timeline) -> Any:
    """The bytes of a region in native order."""
    import cupy

    nbytes = nbytes_of(array.spec, bounds)
    with timeline.measure("read", nbytes):
        block = read_region(array, bounds, pinned)
    with timeline.measure("to device", nbytes):
        flat = cupy.empty(nbytes, cupy.uint8)
        flat.set(block.reshape(-1).view(np.uint8))
        # The pinned memory is freed when this returns.
        cupy.cuda.get_current_stream().synchronize()
    return flat


def _to_file(output: OutputFile, region: Bounds, block: Any, timeline: Timeline) -> None:
    """Write a block that all kernels have finished with."""
    with timeline.measure("write", block.nbytes):
        paged = output.run(region) >= PAGED_RUN
        in_runs = paged and output.mappable and block.nbytes and block.flags.c_contiguous
        if in_runs and (threads := writer(_threads(), WRITE_BYTES)):
            output.check(region, block)
            output.write_runs(region, lambda length, addresses: threads.write(block, length, addresses).get())
        else:
            spread = _writers().map if paged else map
            output.write(region, block, lambda elements: _to_host(elements, output.spec), spread)


def warm_up(plan: ArrayPlan, region: Bounds) -> None:
    """Allocate pinned memory and load kernels, so that the first region does not have to wait for them.

    Computes a region of zeros and discards the result; the output file need not exist yet.
    """
    from pipeline.gpu.devices import find_devices

    if not find_devices().usable:
        return
    writer(_threads(), WRITE_BYTES)
    if plan.workflow.streams:
        return  # what it launches first depends on the data
    _limit(plan)
    with _lane():
        compute_region(plan, region, lambda array, bounds: _zeros(array.spec, bounds), Timeline())


def _zeros(spec: Spec, bounds: Bounds) -> Any:
    import cupy

    return _typed(cupy.zeros(nbytes_of(spec, bounds), cupy.uint8), spec, bounds)


def _threads() -> int:
    return min(WRITING_THREADS, max(2, cores()))


@once_per_process
def _writers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_threads(), thread_name_prefix="write")


_own = threading.local()  # each thread's pinned memory, the stream that copies to it, and an event for the copy's end


def _to_host(elements: Any, spec: Spec) -> NDArray[Any]:
    """Elements of the device in pinned memory, which this thread's next call overwrites."""
    import cupy

    if getattr(_own, "memory", None) is None or len(_own.memory) < elements.nbytes:
        _own.memory, _own.stream = pinned((elements.nbytes,), np.uint8), cupy.cuda.Stream(non_blocking=True)
        # Waiting for the stream would spin on a core that other threads need for copying.
        _own.done = cupy.cuda.Event(block=True, disable_timing=True)
    with _own.stream:
        flat = cupy.ascontiguousarray(elements).reshape(-1).view(cupy.uint8)
        host: NDArray[np.uint8] = flat.get(out=_own.memory[: flat.size], blocking=False)
        _own.done.record()
    _own.done.synchronize()
    return host.view(spec.dtype).reshape(elements.shape[: len(spec.shape)])
