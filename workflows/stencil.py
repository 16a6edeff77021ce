"""The job `stencil`: sums, plain or weighted, of the elements within a radius of each, along an axis of an array."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.stencil.gpu import slide
from kernels.stencil.reference import box_reference, weighted_reference, wrong_sums
from kernels.stencil.windows import Weights, box_dtype, from_rows, to_rows, weighted_dtype
from workflows.array_job import ArrayJob, Checked, Read, differing
from workflows.readers import explained, read_npy
from workflows.regions import Bounds, Spec, in_rows

MAX_WEIGHTED_RADIUS = 4096
BOUNDARIES = ("zero", "nearest", "reflect", "wrap", "valid")


def read_weights(path: str) -> Weights:
    """Weights in a .npy file."""
    with explained(path, "a .npy file of weights"):
        return read_npy(path, 2 * MAX_WEIGHTED_RADIUS + 1)


@dataclass(frozen=True)
class StencilOptions:
    """What to sum; raises ValueError for invalid options."""

    radius: int = field(default=3, metadata={"metavar": "R", "help": "Elements on either side; a sum has 2 R + 1."})
    weights: Weights | None = field(
        default=None,
        metadata={
            "metavar": "FILE",
            "read": read_weights,
            "of_file": True,
            "help": f"Multiply by the 2 R + 1 weights in this .npy file first; R at most {MAX_WEIGHTED_RADIUS}. "
            "Each product and each sum is rounded; without weights, sums are exact.",
        },
    )
    boundary: str = field(
        default="zero",
        metadata={
            "metavar": "NAME",
            "help": "Elements beyond the ends: zero; nearest: a a | a b c d; reflect: b a | a b c d; "
            "wrap: c d | a b c d; valid: no output there.",
        },
    )
    axis: int = field(default=-1, metadata={"metavar": "N", "help": "Axis to slide along; -1 is the last."})

    def __post_init__(self) -> None:
        if self.radius < 0:
            raise ValueError(f"--radius: expected 0 or more, got {self.radius}")
        if self.boundary not in BOUNDARIES:
            raise ValueError(f"--boundary: expected one of {', '.join(BOUNDARIES)}, got {self.boundary!r}")
        if self.weights is None:
            return
        if not isinstance(self.weights, np.ndarray):
            raise ValueError(f"--weights: expected a NumPy array, got {type(self.weights).__name__}")
        if self.weights.ndim != 1 or self.weights.dtype.kind not in "iuf" or self.weights.dtype.itemsize > 8:
            got = f"{self.weights.dtype} of shape {self.weights.shape}"
            raise ValueError(f"--weights: expected a row of integers or floats, got {got}")
        if len(self.weights) != 2 * self.radius + 1:
            raise ValueError(f"--weights: expected {2 * self.radius + 1} of them for radius {self.radius}, got "
                             f"{len(self.weights)}")  # fmt: skip
        if self.radius > MAX_WEIGHTED_RADIUS:
            raise ValueError(f"--radius: expected at most {MAX_WEIGHTED_RADIUS} with weights, got {self.radius}")


def outline(specs: Sequence[Spec], options: StencilOptions) -> Spec:
    """The shape of the input; with `valid` shorter by 2 * radius along the axis."""
    (spec,) = specs
    if spec.dtype.kind not in "iuf" or spec.dtype.itemsize > 8:
        raise ValueError(f"expected an array of integers or floats of at most 64 bits, got {spec}")
    if not -len(spec.shape) <= options.axis < len(spec.shape):
        raise ValueError(f"--axis: expected one of the {len(spec.shape)} axes of {spec}, got {options.axis}")
    axis = options.axis % len(spec.shape)
    length, radius, width = spec.shape[axis], options.radius, 2 * options.radius + 1
    if radius > length:
        raise ValueError(f"--radius: expected at most {length}, the length of axis {axis} of {spec}, got {radius}")
    if options.boundary == "valid" and width > length:
        raise ValueError(f"--radius: expected at most {(length - 1) // 2} with --boundary valid, so that 2 R + 1 "
                         f"elements fit into axis {axis} of {spec}, got {radius}")  # fmt: skip
    if options.weights is not None:
        dtype = weighted_dtype(spec.dtype, options.weights.dtype)
    else:
        dtype = box_dtype(spec.dtype)
        if spec.dtype.kind != "f" and spec.dtype.itemsize < 8:
            most = (2**63 - 1) // max(abs(int(bound)) for bound in (np.iinfo(spec.dtype).min, np.iinfo(spec.dtype).max))
            if width > most:
                raise ValueError(f"--radius: expected at most {(most - 1) // 2}, so that sums of {spec.dtype.name} fit "
                                 f"into int64, got {radius}")  # fmt: skip
    outside = 2 * radius if options.boundary == "valid" else 0
    return Spec((*spec.shape[:axis], length - outside, *spec.shape[axis + 1 :]), dtype)


def regions(specs: Sequence[Spec], output: Spec, options: StencilOptions, elements: int) -> Iterator[Bounds]:
    """`pieces` of the whole output."""
    return pieces(output, options, elements)


def pieces(output: Spec, options: StencilOptions, elements: int) -> Iterator[Bounds]:
    """Whole rows, or parts at least as long as a window along the axis, so that halos do not dominate the reads."""
    axis = options.axis % len(output.shape)
    step = min(output.shape[axis], 2 * options.radius + 1)
    beside = Spec(output.shape[axis + 1 :], output.dtype)
    if step * beside.size <= elements:
        yield from in_rows(output, elements)
        return
    for outer in np.ndindex(output.shape[:axis]):
        for start in range(0, output.shape[axis], step):
            along = (start, min(start + step, output.shape[axis]))
            for inner in in_rows(beside, max(1, elements // step)):
                yield (*((i, i + 1) for i in outer), along, *inner)


def needs(region: Bounds, specs: Sequence[Spec], options: StencilOptions) -> tuple[Bounds, ...]:
    """The region extended by the radius on both sides; with `wrap` in up to three pieces, in order."""
    axis = options.axis % len(region)
    return tuple((*region[:axis], along, *region[axis + 1 :]) for along in _pieces(region, specs, options))


def _pieces(region: Bounds, specs: Sequence[Spec], options: StencilOptions) -> list[tuple[int, int]]:
    axis = options.axis % len(region)
    length, (start, stop) = specs[0].shape[axis], region[axis]
    if options.boundary == "valid":
        return [(start, stop + 2 * options.radius)]
    start, stop = start - options.radius, stop + options.radius
    pieces = [(max(0, start), min(stop, length))]
    if options.boundary == "wrap" and start < 0:
        pieces.insert(0, (length + start, length))
    if options.boundary == "wrap" and stop > length:
        pieces.append((0, stop - length))
    return pieces


def _outside(region: Bounds, specs: Sequence[Spec], options: StencilOptions) -> tuple[int, int]:
    """Number of boundary elements that the windows of a region need on either side."""
    if options.boundary in ("valid", "wrap"):
        return 0, 0
    axis = options.axis % len(region)
    start, stop = region[axis]
    return max(0, options.radius - start), max(0, stop + options.radius - specs[0].shape[axis])


def compute(blocks: Sequence[Any], region: Bounds, specs: Sequence[Spec], options: StencilOptions) -> Any:
    """Sum the windows of a region on the device that holds its blocks."""
    before, after = _outside(region, specs, options)
    outside = options.boundary if before or after else "zero"
    return slide(blocks, options.axis, options.radius, options.weights, before, after, outside)


def _around(read: Read, region: Bounds, specs: Sequence[Spec], options: StencilOptions) -> NDArray[Any]:
    """The elements of all windows, each from its index: a check by `needs` would read what it has wrong, too."""
    axis = options.axis % len(region)
    length, (start, stop) = specs[0].shape[axis], region[axis]
    before = 0 if options.boundary == "valid" else options.radius
    asked = np.arange(start - before, stop + 2 * options.radius - before)
    below, above = asked < 0, asked >= length
    if options.boundary == "wrap":
        asked %= length
    elif options.boundary == "reflect":
        asked = np.where(below, -1 - asked, np.where(above, 2 * length - 1 - asked, asked))
    else:
        asked = asked.clip(0, length - 1)
    # What follows each other is read together, with `wrap` in several runs; beyond the ends elements come twice.
    cuts = np.flatnonzero(np.diff(asked) != 1) + 1 if options.boundary == "wrap" else np.empty(0, int)
    runs = [(int(run.min()), int(run.max()) + 1) for run in np.split(asked, cuts)]
    blocks = [read(0, (*region[:axis], run, *region[axis + 1 :])) for run in runs]
    block = np.concatenate(blocks, axis=axis) if len(blocks) > 1 else blocks[0]
    if options.boundary == "wrap" or not (below.any() or above.any()):
        return block
    block = np.take(block, asked - runs[0][0], axis=axis)
    if options.boundary == "zero":
        block.swapaxes(0, axis)[below | above] = 0
    return block


def check(
    read: Read, result: NDArray[Any], region: Bounds, specs: Sequence[Spec], options: StencilOptions,
    random: np.random.Generator,
) -> Checked:  # fmt: skip
    """Plain sums by the definition of rounding; weighted sums bit for bit against NumPy."""
    axis = options.axis % len(region)
    block = _around(read, region, specs, options)
    rows, sums = to_rows(block, axis), to_rows(result, axis)
    if options.weights is not None:
        weighted = weighted_reference(rows, options.weights)
        weighted[np.isnan(weighted)] = np.nan
        expected = from_rows(weighted, result.shape, axis)
        return Checked(differing(result, expected, region), result.size)
    wrong = wrong_sums(rows, sums, options.radius)
    lines = []
    for place in np.argwhere(from_rows(wrong, result.shape, axis))[:3].tolist():
        first = place[axis]
        window = np.moveaxis(block, axis, -1)[(*place[:axis], *place[axis + 1 :])]
        exact = box_reference(window[first : first + 2 * options.radius + 1])
        where = tuple(i + start for i, (start, _) in zip(place, region, strict=True))
        lines.append(f"element {where}: expected {exact}, got {result[tuple(place)]}")
    if (more := int(wrong.sum()) - 3) > 0:
        lines.append(f"{more} more")
    return Checked(tuple(lines), result.size)


STENCIL: ArrayJob[StencilOptions] = ArrayJob(
    name="stencil",
    summary="Add up the elements within a radius of each.",
    options=StencilOptions,
    operands=lambda options: None,
    outline=outline,
    regions=regions,
    boxes=True,
    needs=needs,
    compute=compute,
    check=check,
    pieces=pieces,
    files="FILES are .npy or raw samples, or patterns like 'run-*.bin'; all count as one array, one after another.",
    example="trace.npy --radius 8 -o smooth.npy",
)
