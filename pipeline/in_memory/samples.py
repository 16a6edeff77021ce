"""Samples of an array as contiguous parts of one dimension: views where its memory allows that, else copies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.storage.array_source import fill
from workflows.regions import Spec, in_rows

ALIGNED = 64  # samples; sampled runs begin at a multiple, so that kernels read whole words
COPIED_BYTES = 2**26  # of an array with gaps, copied at a time on a GPU


def random_run(samples: int, length: int, seed: int, start: int) -> slice:
    """A random run of about so many samples of the part that begins at `start`."""
    length = min(samples, -(-length // ALIGNED) * ALIGNED)
    # Hashes of integers are the same in every process, and take a hundredth of the time of a generator.
    first = hash((seed, start)) % (samples - length + 1) // ALIGNED * ALIGNED
    return slice(first, first + length)


def flat_view(array: Any, ordered: bool) -> Any:
    """The samples of an array in one dimension without a copy, in native byte order and aligned; None if they are not.

    Parameters
    ----------
    array : NumPy or CuPy array
    ordered
        Whether they have to be in C order; otherwise any order in which they lie in memory will do.
    """
    address = array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr
    if not array.dtype.isnative or address % array.dtype.itemsize:
        return None
    if array.flags.c_contiguous:
        return array if array.ndim == 1 else array.reshape(-1)
    turned = array if ordered else array.transpose(sorted(range(array.ndim), key=lambda axis: -array.strides[axis]))
    return turned.reshape(-1) if turned.flags.c_contiguous else None


def parts_on_cpu(array: NDArray[Any], ordered: bool, step: int) -> tuple[range, Any]:
    """First samples of the parts of an array, and (first sample) -> part, of at most `step` samples."""
    flat, native = flat_view(array, ordered), array.dtype.newbyteorder("=")

    def part(start: int) -> NDArray[Any]:
        if flat is not None:
            return np.asarray(flat[start : start + step])
        buffer = np.empty(min(step, array.size - start), native)
        fill(array, start, buffer)
        return buffer

    return range(0, array.size, step), part


def parts_on_gpu(array: Any, ordered: bool, step: int) -> Iterator[Any]:
    """The samples of a CuPy array, at most `step` at a time; fewer where they have to be copied."""
    flat = flat_view(array, ordered)
    if flat is None:
        for region in in_rows(Spec(array.shape, array.dtype), min(step, COPIED_BYTES // array.dtype.itemsize)):
            yield array[tuple(slice(*bounds) for bounds in region)].copy().reshape(-1)
    elif flat.size <= step:
        yield flat
    else:
        for start in range(0, flat.size, step):
            yield flat[start : start + step]
