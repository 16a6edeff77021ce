"""The checks that all launch wrappers share: nothing wrong reaches the driver."""

from __future__ import annotations

from typing import Any

from kernels.common import device


def check_array(what: str, array: Any, dtypes: tuple[str, ...], ndim: int) -> None:
    """Refuse an array that a kernel would misread: a kernel sees an address and believes the rest.

    Raises
    ------
    TypeError, ValueError
        If the dtype is none of `dtypes`; if the array has another number of dimensions or gaps.
    """
    if str(array.dtype) not in dtypes:
        raise TypeError(f"{what}: expected {' or '.join(dtypes)}, got {array.dtype}; convert it with astype first")
    if array.ndim != ndim:
        raise ValueError(f"{what}: expected {ndim} dimension(s), got shape {array.shape}")
    if not array.flags.c_contiguous:
        raise ValueError(f"{what}: expected C-contiguous memory, got strides {array.strides} for shape {array.shape}; "
                         "pass cupy.ascontiguousarray of it")  # fmt: skip


def check_address(*arrays: Any) -> None:
    """Refuse elements across the boundaries that they are loaded on: no kernel survives it.

    Raises
    ------
    ValueError
        With the address of the first element.
    """
    for array in arrays:
        itemsize, address = array.dtype.itemsize, array.data.ptr
        if address % itemsize:
            raise ValueError(
                f"expected elements on multiples of {itemsize} bytes, the first is at {address:#x}; pass a copy"
            )


def check_block(x: int, y: int = 1) -> None:
    """Refuse a block of threads that the current device cannot run.

    Raises
    ------
    ValueError
        If a side is below one or the block has more threads than the device's limit.
    """
    limit = device.limits().threads_per_block
    if min(x, y) < 1 or x * y > limit:
        raise ValueError(f"block {x} x {y}: expected sides of at least 1 and at most {limit} threads, got {x * y}")


def check_shared(what: str, nbytes: int) -> None:
    """Refuse more shared memory than a block of the current device may have.

    Raises
    ------
    ValueError
        With the bytes needed and available.
    """
    limit = device.limits().shared_per_block
    if nbytes > limit:
        raise ValueError(f"{what}: needs {nbytes} bytes of shared memory, the device has {limit} per block; "
                         "choose a smaller one")  # fmt: skip
