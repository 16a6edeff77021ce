"""What surrounds the elements of an output in its file, and tiles."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from workflows.regions import Spec

# Gives a complete file its name: descriptor of the folder, temporary name, name.
Publish = Callable[[int, str, str], None]


@dataclass(frozen=True)
class Layout:
    """What surrounds the elements, and how they are stored.

    Attributes
    ----------
    header, footer
        Bytes before and after the elements.
    nbytes
        Of the elements, with what fills up tiles at the edges.
    tiles
        Shape of the tiles that are stored one after another, in C order; None if the array is in C order.
    publish
        How the file gets its name, if not by renaming it.
    """

    header: bytes
    nbytes: int
    footer: bytes = b""
    tiles: tuple[int, ...] | None = None
    publish: Publish | None = None

    @property
    def whole(self) -> int:
        """Bytes of the file."""
        return len(self.header) + self.nbytes + len(self.footer)


def counts_of(shape: tuple[int, ...], tiles: tuple[int, ...]) -> tuple[int, ...]:
    """Number of tiles along each axis."""
    return tuple(-(-length // tile) for length, tile in zip(shape, tiles, strict=True))


def untiled(elements: NDArray[Any], shape: tuple[int, ...], tiles: tuple[int, ...]) -> NDArray[Any]:
    """An array of a shape from its tiles, shape (*counts, *tiles)."""
    rank = len(shape)
    order = [axis + half for axis in range(rank) for half in (0, rank)]
    padded = [count * tile for count, tile in zip(counts_of(shape, tiles), tiles, strict=True)]
    return elements.transpose(order).reshape(padded)[tuple(slice(length) for length in shape)]


def padded_bytes(spec: Spec, tiles: tuple[int, ...]) -> int:
    """Bytes of all tiles."""
    return math.prod(counts_of(spec.shape, tiles)) * math.prod(tiles) * spec.dtype.itemsize
