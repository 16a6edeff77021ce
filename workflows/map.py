"""The job `map`: add, subtract, multiply, multiply-add, minimum or maximum of arrays, element by element."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.map.check import numpy_results, operands_at, right_results, wrong_places
from kernels.map.gpu import OPERATIONS
from kernels.map.promotion import combine
from workflows.array_job import ArrayJob, Checked, Read
from workflows.regions import Bounds, Spec, in_rows, part_of_input, sizes

SAMPLE = 4096  # elements of a piece that are also checked by NumPy


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
    """By integer arithmetic, bit for bit; a few thousand elements also by NumPy, so that neither decides alone."""
    blocks = [read(number, part_of_input(region, spec.shape)) for number, spec in enumerate(specs)]
    wrong = wrong_places(result, blocks, options.name)
    lines = _described(wrong, result, blocks, region, options) or _disagreements(
        result, blocks, region, options, random
    )
    return Checked(tuple(lines), result.size)


def _described(
    wrong: NDArray[np.int64], result: NDArray[Any], blocks: Sequence[Any], region: Bounds, options: MapOptions
) -> list[str]:
    """The first wrong elements, what they should be, and how many more there are."""
    first = wrong[:3]
    operands = operands_at(first, result.shape, blocks)
    expected = right_results(operands, options.name)
    if expected is None:
        expected = numpy_results(operands, options.name)
    got = result.reshape(-1)[first]
    lines = [f"element {_place(place, region)}: expected {one}, got {other}"
             for place, (one, other) in zip(first, _texts(expected, got), strict=True)]  # fmt: skip
    return [*lines, f"{len(wrong) - 3} more"] if len(wrong) > 3 else lines


def _disagreements(
    result: NDArray[Any], blocks: Sequence[Any], region: Bounds, options: MapOptions, random: np.random.Generator
) -> list[str]:
    """Elements of a sample of which integer arithmetic and NumPy expect different results."""
    places = np.arange(result.size) if result.size <= SAMPLE else random.integers(result.size, size=SAMPLE)
    operands = operands_at(places, result.shape, blocks)
    compiled = right_results(operands, options.name)
    if compiled is None:
        return []  # NumPy has decided
    numpy = numpy_results(operands, options.name)
    bits = f"u{numpy.dtype.itemsize}"
    apart = np.flatnonzero(compiled.view(bits) != numpy.view(bits))[:3]
    return [f"element {_place(places[at], region)}: the check expects {one}, NumPy {other}"
            for at, (one, other) in zip(apart, _texts(compiled[apart], numpy[apart]), strict=True)]  # fmt: skip


def _place(place: int, region: Bounds) -> tuple[int, ...]:
    """Index in the whole array of a place in the flattened region."""
    if not region:
        return ()
    return tuple(int(at) + start for at, (start, _) in zip(np.unravel_index(place, sizes(region)), region, strict=True))


def _texts(ones: NDArray[Any], others: NDArray[Any]) -> Iterator[tuple[str, str]]:
    """Pairs of elements as text; two NaN with their bits, which are all that differs."""
    for one, other in zip(ones, others, strict=True):
        yield (_with_bits(one), _with_bits(other)) if one != one and other != other else (f"{one}", f"{other}")


def _with_bits(number: Any) -> str:
    return f"{number} (0x{number.astype(number.dtype.newbyteorder('>')).tobytes().hex()})"


MAP: ArrayJob[MapOptions] = ArrayJob(
    name="map",
    summary="Combine arrays element by element.",
    options=MapOptions,
    operands=lambda options: options.operands,
    outline=outline,
    regions=regions,
    boxes=True,
    needs=needs,
    compute=compute,
    check=check,
    pieces=lambda region, options, elements: in_rows(region, elements),
    files="OPERATION is add, subtract, multiply, minimum or maximum of two arrays A B, or multiply-add of three: "
    "A * B + C. Each of the FILES is one: .npy, or raw samples in one dimension. Shapes are broadcast and dtypes "
    "promoted as in NumPy; integers wrap, and multiply-add is rounded twice.",
    example="multiply-add a.npy b.npy c.npy -o abc.npy",
)
