"""The checks that launch wrappers share: nothing wrong reaches the driver."""

from __future__ import annotations

from typing import Any

from kernels.common import device
from kernels.common.dtypes import name_of

MAX_GRID = 2**31 - 1  # blocks along x


def check_array(what: str, array: Any, dtypes: tuple[str, ...], ndim: int) -> None:
    """Refuse an array that a kernel would misread: a kernel gets an address and trusts everything else.

    Raises
    ------
    TypeError, ValueError
        If the dtype is none of `dtypes`, the array has another number of dimensions, or it has gaps.
    """
    if name_of(array.dtype) not in dtypes:
        raise TypeError(f"{what}: expected {' or '.join(dtypes)}, got {array.dtype}; convert it with astype first")
    if array.ndim != ndim:
        raise ValueError(f"{what}: expected {ndim} dimension(s), got shape {array.shape}")
    if not array.flags.c_contiguous:
        raise ValueError(f"{what}: expected C-contiguous memory, got strides {array.strides} for shape {array.shape}; "
                         "pass cupy.ascontiguousarray of it")  # fmt: skip


def check_address(*arrays: Any) -> None:
    """Refuse arrays whose elements are misaligned: loading one ends the CUDA context.

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


def blocks_for(n: int, block: int, limit: int = MAX_GRID) -> int:
    """Blocks that cover n elements along one side of the grid.

    Raises
    ------
    ValueError
        If they are more than the limit.
    """
    blocks = -(-n // block)
    if blocks > limit:
        raise ValueError(f"{n} elements take {blocks} blocks of {block}, the limit of the grid is {limit}; "
                         "choose larger blocks")  # fmt: skip
    return blocks


def check_block(x: int, y: int = 1) -> None:
    """Refuse a block of threads that the current device cannot run.

    Raises
    ------
    ValueError
        If a side is below one, or the block has more threads than the device allows.
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
