"""Which objects are arrays in memory, and the NumPy, CuPy or dask array that views the memory of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pipeline.errors import PipelineError, UsageError

NUMPY, CUPY, DASK = "NumPy", "CuPy", "dask"
NAME = "an array in memory"  # in messages

# Device types of DLPack's `DLDeviceType`: memory that a CPU reads, and memory that a GPU computes on.
ON_CPU, ON_GPU = (1, 3), (2, 13)


def view_of(item: Any) -> Any:
    """The NumPy, CuPy or dask array that views an object's memory; None if the object is no array.

    Parameters
    ----------
    item
        One of these arrays, or an object with ``__dlpack__`` or ``__cuda_array_interface__`` (PyTorch, JAX, Numba, …).
        DLPack comes first, since its producers order their queued work before the consumer's stream.

    Raises
    ------
    UsageError
        If the object has one of these interfaces but does not share its memory through it.
    """
    if isinstance(item, np.ndarray):
        return item if type(item) is np.ndarray or isinstance(item, np.ma.MaskedArray) else item.view(np.ndarray)
    if _is_cupy(item):
        return item
    if type(item).__module__.partition(".")[0] == "dask":
        from dask.array import Array

        return item if isinstance(item, Array) else None
    try:
        return _shared(item)
    except PipelineError:
        raise
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise UsageError(f"{NAME}: expected a {type(item).__name__} that shares its memory, got "
                         f"{type(error).__name__}: {reason}; convert it to CuPy or NumPy") from None  # fmt: skip


def plain_kind(item: Any) -> str | None:
    """`NUMPY` or `CUPY` of their arrays themselves; None of everything else."""
    return NUMPY if type(item) is np.ndarray else CUPY if _is_cupy(item) else None


def _is_cupy(item: Any) -> bool:
    return type(item).__module__.partition(".")[0] == "cupy" and hasattr(item, "data")


def _shared(item: Any) -> Any:
    if hasattr(item, "__dlpack__") and hasattr(item, "__dlpack_device__"):
        type_, index = item.__dlpack_device__()
        if type_ in ON_CPU:
            return np.from_dlpack(item)
        if type_ not in ON_GPU:
            raise UsageError(f"{NAME}: expected one on the CPU or a CUDA device, got DLPack device type {int(type_)}")
        cupy = _cupy(item)
        with cupy.cuda.Device(index):
            return cupy.from_dlpack(item)
    return _cupy(item).asarray(item) if hasattr(item, "__cuda_array_interface__") else None


def _cupy(item: Any) -> Any:
    try:
        import cupy
    except ImportError:
        raise UsageError(f"{NAME}: expected CuPy to be installed for a {type(item).__name__} on a GPU; install the "
                         "extra cu12 or cu13") from None  # fmt: skip
    return cupy


def kind_of(array: Any) -> str:
    """`NUMPY`, `CUPY` or `DASK`, of a result of `view_of`."""
    if isinstance(array, np.ndarray):
        return NUMPY
    return DASK if type(array).__module__.startswith("dask.") else CUPY


def common_kind(arrays: Sequence[Any]) -> str:
    """The kind of all arrays; UsageError if they are of several kinds, or on several GPUs."""
    kind, *others = dict.fromkeys(map(kind_of, arrays))
    if others:
        raise UsageError(f"expected arrays of one kind, got {kind} and {others[0]}; convert them to one")
    if kind == CUPY and len(arrays) > 1:
        gpus = sorted({int(array.device.id) for array in arrays})
        if len(gpus) > 1:
            raise UsageError(f"expected arrays on one GPU, got GPU {gpus[0]} and GPU {gpus[1]}; copy them to one")
    return kind


def all_in_memory(inputs: Sequence[Any], output: str | None) -> bool:
    """Whether the inputs are arrays that are computed where they lie; NumPy's are also read like files, where there are
    some or an output file is asked for."""
    files = sum(isinstance(item, str) for item in inputs)
    others = any(not isinstance(item, str | np.ndarray) for item in inputs)
    if files and others:
        raise UsageError("expected files or arrays, got both; run them separately, or make NumPy arrays of them")
    return others or not (files or output is not None)
