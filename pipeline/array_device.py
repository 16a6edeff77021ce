"""One region of an array job on a GPU: file to device, compute, device to file, on a stream of its own."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.array_job import ArrayJob, computed, nbytes_of
from pipeline.arrays import ArrayFile, read_region
from pipeline.read_device import release
from pipeline.timeline import Timeline
from workflows.array_workflow import Bounds, sizes

ON_DEVICE = "?bBhHiIlLqQefdFD"  # dtypes that CuPy has


def compute_on_device(job: ArrayJob, region: Bounds, timeline: Timeline) -> None:
    """Read what a region needs, compute it on the current device, and write it to its place in the output.

    A dtype that CuPy does not have travels as bytes, with one more axis for them.
    """
    import cupy
    from cupyx import empty_pinned

    if job.device_memory_limit:
        release()
        # What tasks gave back stays with the pool of their stream; at its limit the pool gives it to others.
        cupy.get_default_memory_pool().set_limit(size=job.device_memory_limit)
    # Tasks share the GPU: on streams of their own one copies while another computes.
    with cupy.cuda.Stream(non_blocking=True) as stream:
        block = computed(job, region, lambda array, bounds: _to_device(array, bounds, timeline), timeline)
        with timeline.measure("kernel"):
            stream.synchronize()
        with timeline.measure("to host", block.nbytes):
            host = block.get(stream=stream, out=empty_pinned(block.shape, block.dtype))
    with timeline.measure("write", host.nbytes):
        job.output.write(region, host.reshape(-1).view(job.output.spec.dtype).reshape(sizes(region)))


def unlimit() -> None:
    """Take the limit of memory back; runs on a worker, also one that has no GPU."""
    from pipeline.devices import find_devices

    if find_devices().usable:
        import cupy

        cupy.get_default_memory_pool().set_limit(size=0)


def _to_device(array: ArrayFile, bounds: Bounds, timeline: Timeline) -> Any:
    import cupy
    from cupyx import empty_pinned

    with timeline.measure("read", nbytes_of(array.spec, bounds)):
        block = read_region(array, bounds, empty_pinned)
    if block.dtype.char not in ON_DEVICE:
        block = block.reshape(-1).view(np.uint8).reshape(*block.shape, block.dtype.itemsize)
    with timeline.measure("to device", block.nbytes):
        on_device = cupy.empty(block.shape, block.dtype)
        on_device.set(block)
        # The host memory is given back when this returns.
        cupy.cuda.get_current_stream().synchronize()
    return on_device
