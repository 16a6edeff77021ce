"""Arrays in memory as a source, and blocks that are kept in memory for sources that can be read only once."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import PipelineError, UsageError
from pipeline.storage.pieces import FilledPiece
from pipeline.storage.protocol import Opening, RegionFiller, Source, component_of
from workflows.regions import Bounds

_numbers = count()
_kept: WeakValueDictionary[tuple[int, int], Kept] = WeakValueDictionary()


def fill(array: NDArray[Any], start: int, buffer: NDArray[Any]) -> None:
    """Fill a buffer with the samples of an array of any layout and byte order, in C order, from an index on."""
    if array.flags.c_contiguous:
        buffer[...] = array.reshape(-1)[start : start + len(buffer)]
        return
    parts: Any = np.nditer(array, ["external_loop", "buffered", "ranged"], order="C")
    with parts:
        parts.iterrange = start, start + len(buffer)
        done = 0
        for part in parts:
            buffer[done : done + len(part)] = part
            done += len(part)


def accepted(array: Any, opening: Opening, name: str = "an array in memory") -> Any:
    """An array as its samples count, which for bool is a view as uint8.

    Parameters
    ----------
    array : NumPy, CuPy or dask array
    opening
    name
        In messages.

    Raises
    ------
    UsageError
        If it is masked, has a dtype that the job does not accept, or is empty where samples are required.
    """
    if isinstance(array, np.ma.MaskedArray):
        raise UsageError(f"{name}: expected an array without a mask, got a masked one; use .filled() or .compressed()")
    if opening.samples and component_of(array.dtype) is not None:
        raise UsageError(f"{name}: expected real samples, got complex ones ({array.dtype}); pass array.real, or what "
                         "numpy.abs or numpy.angle returns")  # fmt: skip
    counted = opening.counted(array.dtype)
    opening.check(name, counted, array.shape)
    return array if counted == array.dtype else array.view(counted)


class Kept:
    """An array of this process that pickles as a reference to it, for tasks in this process.

    The reference is weak, because Dask's log keeps recent messages, tasks included. The planner keeps the object alive
    until the tasks are done.
    """

    def __init__(self, array: NDArray[Any]) -> None:
        self.array = array
        self._key = os.getpid(), next(_numbers)
        _kept[self._key] = self

    def __reduce__(self) -> Any:
        return _Reference, (self._key,)

    def fill(self, start: int, buffer: NDArray[Any]) -> None:
        """The samples from an index on, in C order."""
        fill(self.array, start, buffer)

    def fill_region(self, region: Bounds, block: NDArray[Any]) -> None:
        """The elements of a region."""
        inside: tuple[Any, ...] = (*(slice(*bounds) for bounds in region), ...)
        block[...] = self.array[inside]


@dataclass(frozen=True)
class _Reference:
    """What `Kept` unpickles as in a task."""

    key: tuple[int, int]

    def _find(self) -> Kept:
        try:
            return _kept[self.key]
        except KeyError:
            raise PipelineError("samples in memory: expected a task in the process that holds them, got one elsewhere "
                                "or after the run; write them to a file for all workers") from None  # fmt: skip

    def fill(self, start: int, buffer: NDArray[Any]) -> None:
        self._find().fill(start, buffer)

    def fill_region(self, region: Bounds, block: NDArray[Any]) -> None:
        self._find().fill_region(region, block)


def keep(block: NDArray[Any], name: str) -> FilledPiece:
    """Samples that cannot be read again, kept in memory as long as the piece is in use in this process."""
    return FilledPiece(Kept(block), 0, len(block), block.dtype.itemsize, name)


@dataclass(frozen=True, eq=False)
class ArraySource(Source):
    """An array in memory, of any layout; its samples are in C order."""

    kept: Kept
    names: tuple[str, ...] = ("an array in memory",)
    local = True

    @staticmethod
    def of(array: NDArray[Any], opening: Opening) -> ArraySource:
        """The source of an array.

        Raises
        ------
        UsageError
            If it is masked, its dtype is not one that the job accepts, or it is empty where samples are required.
        """
        return ArraySource(Kept(accepted(array, opening).view(np.ndarray)))

    @property
    def dtype(self) -> np.dtype[Any]:  # type: ignore[override]
        """The dtype of the array."""
        return self.kept.array.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return self.kept.array.shape

    @property
    def paths(self) -> tuple[str, ...]:
        """None."""
        return ()

    @property
    def identity(self) -> Hashable:
        """Identity of the object; changes of its elements cannot be detected."""
        return id(self.kept)

    @property
    def regions(self) -> RegionFiller:
        """Reads regions of the array."""
        return self.kept

    def pieces(self) -> Iterator[FilledPiece]:
        """The whole array."""
        yield FilledPiece(self.kept, 0, self.kept.array.size, self.dtype.itemsize, self.names[0])
