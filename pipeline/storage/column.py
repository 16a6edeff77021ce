"""Numbers beside the samples of a source, one for each: read where and when a task needs them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from threading import local
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import UsageError
from pipeline.storage.array_source import ArraySource
from pipeline.storage.blocks import read_blocks
from pipeline.storage.chunks import Chunk, Region, plan
from pipeline.storage.files import Files
from pipeline.storage.npy import open_npy
from pipeline.storage.paths import MEMBER
from pipeline.storage.protocol import DTYPES, Opening, Source
from pipeline.timeline import Timeline

# Samples: where rows take turns, successive rows need the same ones, which a thread reads once, and a few beside them.
# It reads them once more for checks, which must not see what a computation has read wrongly.
WINDOW = 2**16
_last = local()


@dataclass(frozen=True)
class Beside:
    """What the columns lie beside: shape and number of the samples, and whether the first index varies fastest."""

    shape: tuple[int, ...]
    samples: int
    fortran: bool = False

    @staticmethod
    def of(source: Source, flag: str) -> Beside:
        """What the columns of a source lie beside; UsageError if its number of samples is unknown."""
        if source.shape is None or source.samples is None:
            raise UsageError(f"{flag}: expected inputs of known length, got {source.names[0]}; write it to a file, or "
                             "use --spool")  # fmt: skip
        return Beside(source.shape, source.samples, _fortran(source))


def _fortran(source: Source) -> bool:
    """Whether samples are stored with the first index varying fastest, where that matters."""
    files = source.files if isinstance(source, Files) else ()
    return len(files) == 1 and files[0].fortran and sum(length > 1 for length in files[0].shape) > 1


@dataclass(frozen=True)
class SourceColumn:
    """A column that is read from a source; it is picklable as chunks are."""

    chunk: Chunk

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype, in either byte order."""
        return self.chunk.dtype

    def read(self, indices: range, checks: bool = False) -> NDArray[Any]:
        """The numbers of these samples, in the dtype of the column.

        Parameters
        ----------
        indices
        checks
            Whether a check needs them: it gets nothing that was read for a computation.

        Raises
        ------
        PipelineError
            If the file cannot be read, or is no longer the one that was planned.
        """
        if indices.step == 1 or len(indices) < 2:
            return self._read(indices.start, indices.start + len(indices))
        first = indices[0] // WINDOW * WINDOW
        last = min(-(-(indices[-1] + 1) // WINDOW) * WINDOW, self.chunk.samples)
        key, kept, use = (self.chunk.pieces, first, last), vars(_last), "check" if checks else "computation"
        if use not in kept or kept[use][0] != key:
            kept[use] = key, self._read(first, last)
        numbers: NDArray[Any] = kept[use][1][indices[0] - first : indices[-1] + 1 - first : indices.step]
        return numbers

    def _read(self, first: int, last: int) -> NDArray[Any]:
        numbers = np.empty(last - first, self.chunk.dtype)
        done = 0
        for block in read_blocks(self.chunk.part(Region(first, last - first)), Timeline()):
            numbers[done : done + len(block)] = block
            done += len(block)
        return numbers


def open_column(given: str | NDArray[Any], flag: str, beside: Beside, dtypes: tuple[str, ...]) -> tuple[Source, Any]:
    """The source and the column of a `.npy` file or an array.

    Parameters
    ----------
    given
    flag
        For messages.
    beside
    dtypes
        Names of those that it may have.

    Raises
    ------
    UsageError
        If it is missing, or of another shape or dtype.
    """
    opening = Opening(samples=False)
    if isinstance(given, str) and MEMBER in given and not os.path.exists(given):
        raise UsageError(f"{flag}: expected a .npy file, got {given}, a member of another file; save it with "
                         "numpy.save and name that file")  # fmt: skip
    try:
        source: Source = (
            ArraySource.of(given, opening)
            if isinstance(given, np.ndarray)
            else open_npy(
                os.path.abspath(given),
                opening,  # workers may have another folder
            )
        )
    except UsageError as error:
        raise UsageError(f"{flag}: {error}") from None
    name = source.names[0]
    if source.dtype.name not in dtypes:
        raise UsageError(f"{flag} {name}: expected {' or '.join(dtypes)}, got {source.dtype}; convert it")
    shape = source.shape
    flat = (beside.samples,)
    if shape not in (beside.shape, flat):
        both = f"shape {beside.shape}" if beside.shape == flat else f"shape {beside.shape} or {flat}"
        raise UsageError(f"{flag} {name}: expected {both}, one number for each sample, got {shape}")
    if shape != flat and _fortran(source) != beside.fortran:
        order = "Fortran" if beside.fortran else "C"
        raise UsageError(f"{flag} {name}: expected {order} order, like the samples, got the other one; save it in a "
                         f".npy file as numpy.as{'fortran' if beside.fortran else 'contiguous'}array returns it, and "
                         "name that")  # fmt: skip
    chunks = plan(source, max(source.nbytes or 0, source.dtype.itemsize), "off", 0)
    assert isinstance(chunks, tuple) and len(chunks) <= 1
    return source, SourceColumn(chunks[0] if chunks else Chunk(0, (), source.dtype))


NUMBERS = (*DTYPES, "bool")
TRUTHS = ("bool", "uint8")
