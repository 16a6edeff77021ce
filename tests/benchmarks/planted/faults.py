"""Errors as they happen to bytes: a bit, an element, two swapped, a block lost, twice or stale."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

TRIES = 20  # at places where an error changes nothing, such as two equal elements that are swapped


def bit(data: Bytes, size: int, before: Bytes, random: np.random.Generator) -> None:
    """A single bit."""
    data[random.integers(len(data))] ^= 1 << random.integers(8)


def element(data: Bytes, size: int, before: Bytes, random: np.random.Generator) -> None:
    """All bits of an element are others."""
    at = size * int(random.integers(len(data) // size))
    data[at : at + size] = random.integers(0, 256, size)


def swap(data: Bytes, size: int, before: Bytes, random: np.random.Generator) -> None:
    """Two elements."""
    a, b = (size * int(random.integers(len(data) // size)) for _ in range(2))
    kept = data[a : a + size].copy()
    data[a : a + size] = data[b : b + size]
    data[b : b + size] = kept


def _part(data: Bytes, size: int, random: np.random.Generator, most: int) -> slice:
    """Some consecutive elements."""
    number = int(random.integers(1, max(1, most) + 1))
    first = int(random.integers(len(data) // size - number + 1))
    return slice(size * first, size * (first + number))


def lost(data: Bytes, size: int, before: Bytes, random: np.random.Generator) -> None:
    """A block is zero: some consecutive elements, or all."""
    data[_part(data, size, random, len(data) // size)] = 0


def twice(data: Bytes, size: int, before: Bytes, random: np.random.Generator) -> None:
    """A block is there twice: also in place of the next one."""
    part = _part(data, size, random, len(data) // size // 2)
    length = part.stop - part.start
    at = part.start + length if part.stop + length <= len(data) else part.start - length
    if at >= 0:
        data[at : at + length] = data[part].copy()


def stale(data: Bytes, size: int, before: Bytes, random: np.random.Generator) -> None:
    """What the memory held before."""
    data[...] = before


def truncated(data: Bytes, size: int, before: Bytes, random: np.random.Generator) -> None:
    """The end is what the memory held before."""
    at = int(random.integers(len(data)))
    data[at:] = before[at:]


def offset(data: Bytes, size: int, before: Bytes, random: np.random.Generator) -> None:
    """Everything is one element, or one byte, too far."""
    data[...] = np.roll(data, int(random.choice([-size, size, -1, 1])))


def moved(data: Bytes, size: int, before: Bytes, random: np.random.Generator) -> None:
    """Of numbers of 64 bits, one is less by some, another one more by as many."""
    words = data[: len(data) // 8 * 8].view(np.int64)
    if len(words) > 1:
        source, target = random.choice(len(words), 2, replace=False)
        by = int(random.integers(1, 3))
        with np.errstate(over="ignore"):
            words[source] -= by
            words[target] += by


def doubled(data: Bytes, size: int, before: Bytes, random: np.random.Generator) -> None:
    """All numbers of 64 bits: what they count was counted twice."""
    words = data[: len(data) // 8 * 8].view(np.int64)
    words <<= 1


Change = Callable[[Bytes, int, Bytes, np.random.Generator], None]
CHANGES: dict[str, Change] = {
    "single bit": bit, "whole element": element, "swapped elements": swap, "lost block": lost, "block twice": twice,
    "stale buffer": stale, "truncated": truncated, "offset": offset, "moved count": moved, "counted twice": doubled,
}  # fmt: skip

STALE = ("stale buffer", "truncated")  # kinds that need what a buffer held before
BASIC = ("single bit", "whole element", "swapped elements", "lost block", "block twice", "stale buffer", "offset")
READ = (*BASIC, "truncated", "wrong chunk")
COUNTS = ("single bit", "whole element", "swapped elements", "lost block", "counted twice", "stale buffer",
          "moved count", "offset")  # fmt: skip
MERGE = (*COUNTS, "lost operand", "operand twice", "wrong operand")
STORED = ("single bit", "whole element", "swapped elements", "lost block", "block twice")


@dataclass
class Fault:
    """An error of a kind, once.

    Attributes
    ----------
    kind
    random
    changed
        Whether it has changed any byte; None if that is not known.
    """

    kind: str
    random: np.random.Generator
    changed: bool | None = None

    def spoil(self, data: Bytes, size: int, before: Bytes | None = None) -> None:
        """Change some bytes of an array of elements of a size; `before` is what the memory held, by default zeros."""
        if not len(data):
            return
        size = size if len(data) % size == 0 else 1
        original = data.copy()
        held = np.zeros_like(data)
        if before is not None and len(before):
            held = np.resize(before, len(data))
        for _ in range(TRIES):
            CHANGES[self.kind](data, size, held, self.random)
            self.changed = not np.array_equal(data, original)
            if self.changed:
                return

    def spoil_array(self, array: Any, before: Bytes | None = None) -> None:
        """Change elements of an array, on the host or a device, in place."""
        if not array.nbytes:
            return
        host = np.ascontiguousarray(array) if isinstance(array, np.ndarray) else np.ascontiguousarray(array.get())
        changed = host.copy()
        flat = changed.reshape(-1).view(np.uint8)
        self.spoil(flat, host.dtype.itemsize, before)
        if isinstance(array, np.ndarray):
            array[...] = changed  # the bits of NaN are kept: the dtype is the same
        else:
            import cupy

            array[...] = cupy.asarray(changed)


def content(array: Any) -> Bytes:
    """A copy of the bytes of an array."""
    host = np.array(array) if isinstance(array, np.ndarray) else array.get()
    return np.ascontiguousarray(host).reshape(-1).view(np.uint8)
