"""A variant of a kernel, and the checks that all launch wrappers share: nothing wrong reaches the driver."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from kernels import build

NO_PARAMETERS: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class Variant:
    """One of several kernels for the same thing: naive first, each adding one idea.

    Attributes
    ----------
    name
        Of the variant, as in the header of the `.cu` file.
    idea
        What it adds to the one before it, in the words of that header.
    run
        Launch wrapper: (device arrays, **parameters) -> device array, on the current stream. Raises TypeError or
        ValueError, with the limit and the value, before anything is launched.
    parameters
        Launch parameters and their defaults, those of the course.
    broken
        Why the variant is wrong, for one that is kept to be caught; None for a right one.
    """

    name: str
    idea: str
    run: Callable[..., Any]
    parameters: Mapping[str, Any] = field(default_factory=lambda: NO_PARAMETERS)
    broken: str | None = None


def by_name(*variants: Variant) -> Mapping[str, Variant]:
    """Variants by name, in the order given: the registry of a family."""
    return MappingProxyType({variant.name: variant for variant in variants})


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


def check_block(x: int, y: int = 1) -> None:
    """Refuse a block of threads that the current device cannot run.

    Raises
    ------
    ValueError
        If a side is below one or the block has more threads than the device's limit.
    """
    limit = build.limits().threads_per_block
    if min(x, y) < 1 or x * y > limit:
        raise ValueError(f"block {x} x {y}: expected sides of at least 1 and at most {limit} threads, got {x * y}")


def check_shared(what: str, nbytes: int) -> None:
    """Refuse more shared memory than a block of the current device may have.

    Raises
    ------
    ValueError
        With the bytes needed and available.
    """
    limit = build.limits().shared_per_block
    if nbytes > limit:
        raise ValueError(f"{what}: needs {nbytes} bytes of shared memory, the device has {limit} per block; "
                         "choose a smaller one")  # fmt: skip
