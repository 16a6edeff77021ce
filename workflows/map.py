"""The job `map`: add, subtract, multiply, multiply-add, minimum or maximum of arrays, element by element."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.map.gpu import OPERATIONS
from kernels.map.promotion import combine, combine_reference
from workflows.array_job import ArrayJob, Checked, Read, differing
from workflows.regions import Bounds, Spec, in_rows, sizes


@dataclass(frozen=True)
class MapOptions:
    """The operation; raises ValueError for an unknown one."""

    operation: str

    def __post_init__(self) -> None:
        known = [name.replace("_", "-") for name in OPERATIONS]
        if self.operation not in known:
            raise ValueError(f"operation: expected one of {', '.join(known)}, got {self.operation!r}")

    @property
    def name(self) -> str:
        """The kernels' name for the operation."""
        return self.operation.replace("-", "_")

    @property
    def operands(self) -> int:
        """Number of input arrays."""
        return OPERATIONS[self.name][1]


def outline(specs: Sequence[Spec], options: MapOptions) -> Spec:
    """Shape by NumPy's broadcasting rules, dtype by its promotion rules."""
    try:
        shape = np.broadcast_shapes(*(spec.shape for spec in specs))
    except ValueError:
        shapes = " and ".join(str(spec.shape) for spec in specs)
        raise ValueError(f"expected shapes that NumPy broadcasts, got {shapes}") from None
    for spec in specs:
        if spec.dtype.kind not in "iuf" or spec.dtype.itemsize > 8:
            raise ValueError(f"expected arrays of integers or floats of at most 64 bits, got {spec}")
    return Spec(shape, reduce(np.promote_types, (spec.dtype for spec in specs)))


def regions(specs: Sequence[Spec], output: Spec, options: MapOptions, elements: int) -> Iterator[Bounds]:
    """Whole rows."""
    return in_rows(output, elements)


def needs(region: Bounds, specs: Sequence[Spec], options: MapOptions) -> tuple[Bounds, ...]:
    """The same region of every array; the whole axis where its length 1 is broadcast."""
    bounds = []
    for spec in specs:
        own = region[len(region) - len(spec.shape) :]
        bounds.append(tuple((0, 1) if length == 1 else ends for length, ends in zip(spec.shape, own, strict=True)))
    return tuple(bounds)


def compute(blocks: Sequence[Any], region: Bounds, specs: Sequence[Spec], options: MapOptions) -> Any:
    """Combine the blocks of a region on the device that holds them."""
    return combine(blocks, options.name).reshape(sizes(region))


def check(
    read: Read, result: NDArray[Any], region: Bounds, specs: Sequence[Spec], options: MapOptions,
    random: np.random.Generator,
) -> Checked:  # fmt: skip
    """Compare with the reference, bit for bit."""
    blocks = [read(number, bounds) for number, bounds in enumerate(needs(region, specs, options))]
    expected = combine_reference(blocks, options.name).reshape(sizes(region))
    return Checked(differing(result, expected, region), result.size)


MAP: ArrayJob[MapOptions] = ArrayJob(
    name="map",
    summary="Combine arrays element by element.",
    options=MapOptions,
    operands=lambda options: options.operands,
    outline=outline,
    regions=regions,
    needs=needs,
    compute=compute,
    check=check,
    pieces=lambda region, options, elements: in_rows(region, elements),
    files="OPERATION is add, subtract, multiply, minimum or maximum of two arrays A B, or multiply-add of three: "
    "A * B + C. Each of the FILES is one: .npy, or raw samples in one dimension. Shapes are broadcast and dtypes "
    "promoted as in NumPy; integers wrap, and multiply-add is rounded twice.",
    example="multiply-add a.npy b.npy c.npy -o abc.npy",
)
