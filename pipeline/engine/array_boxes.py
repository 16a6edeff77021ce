"""Cuts an output along the chunks of its inputs, so that a chunk is not decoded again for many regions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

from pipeline.engine.array_plan import ArrayPlan, needs
from pipeline.storage.array_file import ArrayFile, FilledArray, Stored
from pipeline.storage.formats.slabs import Grid
from pipeline.storage.piece_regions import ChunkedRegions
from workflows.regions import Bounds, sizes

FEWER = 2  # the job's own regions have to decode this many times as many bytes


def regions_of(plan: ArrayPlan, elements: int) -> list[Bounds]:
    """The job's own regions of about so many elements, or boxes along chunks if these decode half as many bytes."""
    spec = plan.output.spec
    own = list(plan.workflow.regions(plan.native(), spec, plan.options, elements))
    grids = [grid for array in plan.inputs if (grid := _grid(array)) and len(grid.shape) == len(spec.shape)]
    if not grids:
        return own
    # Of a transposition the axes are those of the input in reverse order.
    both = [_boxes(spec.shape, chunks, elements) for chunks in (grids[0].chunks, grids[0].chunks[::-1])]
    boxes = min(both, key=lambda boxes: _decoded(plan, boxes))
    worth = not _wide(plan, boxes) and FEWER * _decoded(plan, boxes) <= _decoded(plan, own)
    return boxes if worth else own


def bytes_of_chunks(plan: ArrayPlan) -> int:
    """Bytes of inputs and output of a region with as many elements as the largest chunk that is decoded."""
    itemsizes = plan.output.spec.dtype.itemsize + sum(array.spec.dtype.itemsize for array in plan.inputs)
    return itemsizes * max((math.prod(grid.chunks) for array in plan.inputs if (grid := _grid(array))), default=0)


def _grid(array: ArrayFile) -> Grid | None:
    """The chunks of an array that is decoded as a whole."""
    filler = array.filler if isinstance(array, FilledArray) else None
    filler = filler.filler if isinstance(filler, Stored) else filler
    if not isinstance(filler, ChunkedRegions) or filler.view.sizes != filler.chunked.grid.shape:
        return None
    return filler.chunked.grid


def _boxes(shape: tuple[int, ...], chunks: tuple[int, ...], elements: int) -> list[Bounds]:
    """Boxes as many chunks long as `elements` allows, first along the last axis; parts of a chunk that has more."""
    box = [min(*lengths) for lengths in zip(shape, chunks, strict=True)]
    for axis in range(len(shape)):
        box[axis] = min(box[axis], max(elements * box[axis] // math.prod(box), 1))
    for axis in reversed(range(len(shape))):
        most = elements * box[axis] // math.prod(box)
        box[axis] = min(shape[axis], most // chunks[axis] * chunks[axis] or box[axis])
    return list(product(*map(_along, shape, chunks, box)))


def _along(length: int, chunk: int, step: int) -> list[tuple[int, int]]:
    """Where an axis is cut: at ends of chunks, too."""
    outer = max(chunk, step)
    ends = [(first, min(first + outer, length)) for first in range(0, length, outer)]
    return [(start, min(start + step, end)) for first, end in ends for start in range(first, end, step)]


def _wide(plan: ArrayPlan, regions: Sequence[Bounds]) -> bool:
    """Whether most of what regions need lies around them."""
    region = regions[len(regions) // 2]
    around = (math.prod(sizes(bounds)) for _, bounds in needs(plan, region))
    return max(around, default=0) > FEWER * math.prod(sizes(region))


def _decoded(plan: ArrayPlan, regions: Sequence[Bounds]) -> int:
    """Bytes that are decoded for all regions, if all are like the first, the middle and the last one."""
    some = (regions[0], regions[len(regions) // 2], regions[-1])
    parts = ((_grid(array), bounds) for region in some for array, bounds in needs(plan, region))
    crossed = (grid.chunk_bytes * math.prod(map(len, grid.crossed(bounds))) for grid, bounds in parts if grid)
    return sum(crossed) * len(regions)
