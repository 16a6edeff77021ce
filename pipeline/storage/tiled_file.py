"""An output whose elements are stored in tiles, one after another, as chunks of a Zarr store are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.storage.array_file import ArrayFile
from pipeline.storage.layout import counts_of
from pipeline.storage.mapped_output import Inside, slabs
from pipeline.storage.output_array import OutputFile, each, other, within
from pipeline.storage.planned_file import Opened, open_planned
from pipeline.storage.scratch import aligned_empty
from workflows.regions import Bounds, Spec, sizes


@dataclass(frozen=True)
class TiledFile(OutputFile):
    """An output in tiles; it is not mappable as a whole.

    Attributes
    ----------
    tiles
        Shape of a tile; those at the edges are stored whole.
    tiles_mappable
        As `mappable`, for a tile.
    """

    tiles: tuple[int, ...] = ()
    tiles_mappable: bool = False

    @property
    def _stored(self) -> OutputFile:
        """The same file as an array of tiles, shape (*counts, *tiles)."""
        spec = Spec((*counts_of(self.spec.shape, self.tiles), *self.tiles), self.spec.dtype)
        return OutputFile(self.path, self.offset, spec, self.tiles_mappable, self.identity)

    def _parts(self, region: Bounds) -> Iterator[tuple[Bounds, tuple[Any, ...]]]:
        """Each tile that a region crosses: the part of it in the array of tiles, and in the region."""
        if 0 in sizes(region):
            return
        crossed = (range(a // tile, -(-b // tile)) for (a, b), tile in zip(region, self.tiles, strict=True))
        for index in product(*crossed):
            inside, place = [], []
            for (start, stop), tile, at in zip(region, self.tiles, index, strict=True):
                first, last = max(start, at * tile), min(stop, (at + 1) * tile)
                inside.append((first - at * tile, last - at * tile))
                place.append(slice(first - start, last - start))
            yield (*((at, at + 1) for at in index), *inside), tuple(place)

    def read(
        self, region: Bounds, allocate: Callable[..., NDArray[Any]] = aligned_empty, opened: Opened = open_planned
    ) -> NDArray[Any]:
        """The current elements of a region in C order, in memory from `allocate`."""
        block, stored = allocate(sizes(region), self.spec.dtype), self._stored
        for part, place in self._parts(region):
            target = block[place]
            target[...] = stored.read(part, opened=opened).reshape(target.shape)
        return block

    def run(self, region: Bounds) -> int:
        """Length of the contiguous byte runs of the first tile that a region crosses."""
        first = next(self._parts(region), None)
        return 0 if first is None else self._stored.run(first[0])

    def readable(self) -> ArrayFile:
        """The tiles as an input."""
        return self._stored.readable()

    def write(
        self,
        region: Bounds,
        block: Any,
        to_host: Callable[[Any], NDArray[Any]] = np.asarray,
        spread: Callable[..., Iterable[None]] = map,
    ) -> None:
        """Write a region, slab by slab, and each of those tile by tile; see `OutputFile.write`."""
        expected, stored, axes = self.check(region, block), self._stored, (None,) * len(region)
        if not block.nbytes:
            return

        def write(inside: Inside) -> None:
            values = to_host(block[inside])
            if values.dtype != self.spec.dtype or values.ndim != len(region):
                raise other(expected, values)
            for part, tile in self._parts(within(region, inside)):
                stored.write(part, values[(*axes, *tile)])

        each(write, slabs(expected, expected.nbytes), spread)
