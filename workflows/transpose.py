"""The job `transpose`: reverses the order of all axes of an array, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.transpose.check import is_transpose
from kernels.transpose.cpu import balanced, boxes, transpose_cpu
from kernels.transpose.gpu import reverse_axes
from workflows.array_job import ArrayJob, Checked, Read
from workflows.regions import Bounds, Spec, all_of, along, sizes

# Sides of a region are multiples of this many elements, which aligns its rows to 16 bytes for the kernel.
ALIGNED = 64
# If byte runs of the output are at least this long, whole rows are read, in one call.
WRITTEN_RUN = 2**15
# The same where byte runs of both arrays are read.
READ_RUN = 2**12


@dataclass(frozen=True)
class TransposeOptions:
    """No options."""


def outline(specs: Sequence[Spec], options: TransposeOptions) -> Spec:
    """The reversed shape, of any dtype; its byte order is kept, since elements are only moved."""
    return Spec(specs[0].shape[::-1], specs[0].dtype)


def regions(specs: Sequence[Spec], output: Spec, options: TransposeOptions, elements: int) -> Iterator[Bounds]:
    """Boxes that are read and written in long byte runs, in the order in which they are read; or whole rows."""
    return _cut(output, elements, WRITTEN_RUN)


def pieces(region: Spec, options: TransposeOptions, elements: int) -> Iterator[Bounds]:
    """Boxes with long byte runs in both arrays; or whole rows of the input, which may be one run."""
    return _cut(region, elements, READ_RUN)


def _cut(output: Spec, elements: int, least: int) -> Iterator[Bounds]:
    """Whole rows of the input if byte runs of the output are then at least `least` long, otherwise boxes."""
    shape = output.shape[::-1]
    if not output.size:
        return
    rows = _even(shape[0], max(1, elements // prod(shape[1:]))) if shape else 0
    if rows * output.dtype.itemsize >= least:
        yield from (part for part, _ in along(all_of(output), len(shape) - 1, rows))
        return
    lengths = list(map(_even, shape, balanced(shape, elements)))
    for axis in (0, -1)[: len(shape)]:  # what aligning one side has left is for the other
        most = min(shape[axis], elements * lengths[axis] // prod(lengths))
        lengths[axis] = max(lengths[axis], _even(shape[axis], most))
    for box in boxes(shape, tuple(lengths)):
        yield tuple((side.start, side.stop) for side in reversed(box))


def _even(length: int, most: int) -> int:
    """Length of nearly equal parts of a length, aligned if possible."""
    if ALIGNED < most < length:
        most = most // ALIGNED * ALIGNED
        part = -(-length // -(-length // most))
        return -(-part // ALIGNED) * ALIGNED
    return most


def needs(region: Bounds, specs: Sequence[Spec], options: TransposeOptions) -> tuple[Bounds, ...]:
    """The region with its axes reversed."""
    return (region[::-1],)


def compute(blocks: Sequence[Any], region: Bounds, specs: Sequence[Spec], options: TransposeOptions) -> Any:
    """Transpose a block on the device that holds it."""
    if isinstance(blocks[0], np.ndarray):
        return transpose_cpu(blocks[0])
    return reverse_axes(blocks[0], as_bytes=blocks[0].ndim > len(region))


def check(
    read: Read, result: NDArray[Any], region: Bounds, specs: Sequence[Spec], options: TransposeOptions,
    random: np.random.Generator,
) -> Checked:  # fmt: skip
    """Compare the region with the input, bit for bit."""
    block = read(0, region[::-1])
    return Checked(() if is_transpose(result, block) else _differing(result, block.T, region), result.size)


def _differing(result: NDArray[Any], expected: NDArray[Any], region: Bounds) -> tuple[str, ...]:
    """The first elements that differ in any bit."""
    different = _bytes(result) != _bytes(np.ascontiguousarray(expected))
    places = np.flatnonzero(different.any(axis=1))
    lines = []
    for place in places[:3]:
        inside = np.unravel_index(place, sizes(region))
        where = tuple(start + int(index) for (start, _), index in zip(region, inside, strict=True))
        lines.append(f"element {where}: expected {expected[inside]}, got {result[inside]}")
    return (*lines, f"{len(places) - 3} more") if len(places) > 3 else tuple(lines)


def _bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    """The bytes of each element."""
    return array.reshape(-1).view(np.uint8).reshape(array.size, -1)


TRANSPOSE: ArrayJob[TransposeOptions] = ArrayJob(
    name="transpose",
    summary="Transpose an array: the order of all axes reversed.",
    example="a.npy -o transposed.npy",
    options=TransposeOptions,
    operands=lambda options: 1,
    outline=outline,
    regions=regions,
    needs=needs,
    compute=compute,
    check=check,
    pieces=pieces,
    files="FILE is an array, .npy of any dtype and any number of axes; the output has its dtype and byte order.",
    whole=True,
    verbatim=True,
    boxes=True,
)
