"""Views of arrays as NumPy's basic slicing makes them: which elements they have, and where these are in C order."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import EllipsisType

from pipeline.errors import UsageError
from workflows.regions import Bounds

Index = int | slice | EllipsisType

_NUMBER = r"([+-]?\d{1,18})"
# Possessive, so that no text is looked at twice.
ITEM = re.compile(rf"\s*+(?:(\.\.\.)|{_NUMBER}|{_NUMBER}?\s*+:\s*+{_NUMBER}?\s*+(?:(:)\s*+{_NUMBER}?)?)\s*+")
BRACKETS = re.compile(r"(.+)\[([^][]*)\]", re.DOTALL)


def split_brackets(item: str) -> tuple[str, str | None]:
    """What is before brackets at the end, and what is in them; None without any."""
    match = BRACKETS.fullmatch(item)
    return (match[1], match[2]) if match else (item, None)


def parse(text: str) -> tuple[Index, ...] | None:
    """What is in the brackets of a slice; None if that is something else."""
    words = text.split(",")
    if len(words) > 1 and not words[-1].strip():
        words.pop()  # as in x[3,]
    matches = [match for word in words if (match := ITEM.fullmatch(word))]
    if len(matches) < len(words) or sum(bool(match[1]) for match in matches) > 1:
        return None
    return tuple(map(_index, matches))


def _index(match: re.Match[str]) -> Index:
    if match[1]:
        return ...
    if match[2]:
        return int(match[2])
    return slice(*(None if match[group] is None else int(match[group]) for group in (3, 4, 6)))


@dataclass(frozen=True)
class View:
    """Elements of an array at the products of ranges of indices.

    Attributes
    ----------
    shape
        Of the array.
    ranges
        Of each of its axes, forwards.
    kept
        Axes that the view has.
    """

    shape: tuple[int, ...]
    ranges: tuple[range, ...]
    kept: tuple[int, ...]

    @staticmethod
    def of(name: str, indices: Sequence[Index], shape: tuple[int, ...]) -> View:
        """The view that indices make of an array, with NumPy's meaning.

        Raises
        ------
        UsageError
            If there are too many, one is out of range, or a step is not positive.
        """
        given = [index for index in indices if index is not ...]
        if len(given) > len(shape):
            most = f"at most {len(shape)} ind{'ex' if len(shape) == 1 else 'ices'}"
            raise UsageError(f"{name}: expected {most} for shape {shape}, got {len(given)}")
        at = next((place for place, index in enumerate(indices) if index is ...), len(given))
        every = [slice(None)] * (len(shape) - len(given))
        ranges, kept = [], []
        for axis, (index, length) in enumerate(zip([*given[:at], *every, *given[at:]], shape, strict=True)):
            if isinstance(index, slice):
                if index.step is not None and index.step < 1:
                    raise UsageError(f"{name}: expected a step of 1 or more along axis {axis}, got {index.step}; files "
                                     "are read forwards")  # fmt: skip
                ranges.append(range(*index.indices(length)))
                kept.append(axis)
            else:
                if not -length <= index < length:
                    within = f"from {-length} to {length - 1}" if length else "none, since it is empty,"
                    raise UsageError(f"{name}: expected an index {within} along axis {axis}, got {index}")
                ranges.append(range(index % length, index % length + 1))
        return View(shape, tuple(ranges), tuple(kept))

    @staticmethod
    def whole(shape: tuple[int, ...]) -> View:
        """All elements of an array."""
        return View(shape, tuple(map(range, shape)), tuple(range(len(shape))))

    @property
    def lengths(self) -> tuple[int, ...]:
        """Number of indices along each axis of the array."""
        return tuple(map(len, self.ranges))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Shape of the view."""
        return tuple(len(self.ranges[axis]) for axis in self.kept)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.lengths)

    @property
    def strides(self) -> tuple[int, ...]:
        """Elements from an index of the array to the next one, along each axis."""
        return tuple(math.prod(self.shape[axis + 1 :]) for axis in range(len(self.shape)))

    @property
    def start(self) -> int:
        """Position of the first element in the array."""
        return sum(one.start * stride for one, stride in zip(self.ranges, self.strides, strict=True))

    @property
    def span(self) -> int:
        """Elements of the array from the first to the last one of the view."""
        last = sum((one[-1] - one.start) * stride for one, stride in zip(self.ranges, self.strides, strict=True))
        return last + 1

    @property
    def reversed(self) -> View:
        """The same elements of an array that is stored with its axes reversed."""
        return View(self.shape[::-1], self.ranges[::-1], ())

    def before(self, position: int) -> int:
        """Number of elements that are before a position of the array."""
        if position >= math.prod(self.shape):
            return self.size
        number = 0
        for axis, (one, stride) in enumerate(zip(self.ranges, self.strides, strict=True)):
            index, position = divmod(position, stride)
            below = one[: max(-(-(index - one.start) // one.step), 0)]
            number += len(below) * math.prod(self.lengths[axis + 1 :])
            if index not in one:
                break
        return number

    def part(self, box: Bounds) -> View:
        """The elements in a box of indices, along all axes."""
        ranges = (one[start:stop] for one, (start, stop) in zip(self.ranges, box, strict=True))
        return View(self.shape, tuple(ranges), self.kept)

    def region(self, region: Bounds) -> View:
        """The elements of a region of the view."""
        inside = dict(zip(self.kept, region, strict=True))
        return self.part(tuple(inside.get(axis, (0, 1)) for axis in range(len(self.shape))))


def boxes(lengths: tuple[int, ...], start: int, stop: int) -> Iterator[Bounds]:
    """Boxes that have a run of the elements of an array in C order, one after another."""
    if not lengths:
        yield ()
        return
    inner = lengths[1:]
    (first, head), (last, tail) = divmod(start, size := math.prod(inner)), divmod(stop, size)
    if first == last:
        yield from (((first, first + 1), *box) for box in boxes(inner, head, tail))
        return
    if head:
        yield from (((first, first + 1), *box) for box in boxes(inner, head, size))
        first += 1
    if first < last:
        yield (first, last), *((0, length) for length in inner)
    if tail:
        yield from (((last, last + 1), *box) for box in boxes(inner, 0, tail))
