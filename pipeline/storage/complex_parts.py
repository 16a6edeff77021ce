"""Parts of complex samples: real, imag, abs or phase, taken on the CPU while they are read.

Each read is checked: a run of its samples is also computed in another way, in NumPy's extended precision.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import VerificationError
from pipeline.storage.array_file import ArrayFile, join, read_region
from pipeline.storage.blocks import decode_whole
from pipeline.storage.files import Files
from pipeline.storage.pieces import AnyPiece, BlockPiece, FilledPiece, Piece, RemotePiece, WholePiece
from pipeline.storage.planned_file import fill, open_planned, stored_bytes
from pipeline.storage.protocol import Part, RegionFiller, Source, component_of
from pipeline.storage.scratch import aligned_empty
from workflows.regions import Bounds

STEP = 2**17  # samples that are read at once
CHECKED = 256  # samples of a step that are computed again
LEAST, MOST = 1e-140, 1e140  # squares neither overflow nor lose digits
CLOSE = 4  # units in the last place by which two ways may differ


def dtype_of(dtype: np.dtype[Any], part: Part) -> np.dtype[Any]:
    """Dtype of a part: that of the samples' own numbers, except for magnitudes of integers and for angles."""
    component = component_of(dtype)
    assert component is not None
    if part in ("real", "imag"):
        return component
    return np.dtype(np.float32 if part == "abs" and component.name in ("float16", "float32") else np.float64)


def halves(samples: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Both numbers of each complex sample or pair, as views."""
    if samples.dtype.names is None:
        return samples.real, samples.imag
    first, second = samples.dtype.names
    return samples[first], samples[second]


def take(samples: NDArray[Any], part: Part) -> NDArray[Any]:
    """A part of complex samples.

    Parameters
    ----------
    samples : array of complex numbers or pairs, any shape
    part
        ``real`` or ``imag``: the stored number. ``phase``: `numpy.arctan2` in float64, in radians from -pi to pi.
        ``abs``: the square root of the sum of squares in float64, each operation rounded, then rounded to float32 if
        the numbers are float32 or float16. Of up to 16 bits squares and sum are exact, of float32 the squares; of int32
        the sum is exact before it is rounded. `numpy.hypot` for very large and small floats, infinities and NaN, and in
        NumPy's extended precision for integers of 64 bits and uint32.

    Returns
    -------
    array of `dtype_of`, the same shape
    """
    real, imag = halves(samples)
    with np.errstate(all="ignore"):
        if part in ("real", "imag"):
            values = real if part == "real" else imag
        elif part == "phase":
            values = np.arctan2(imag.astype(np.float64), real.astype(np.float64))
        else:
            values = _abs(real, imag)
        return values.astype(dtype_of(samples.dtype, part))


def _abs(real: NDArray[Any], imag: NDArray[Any]) -> NDArray[Any]:
    kind, itemsize = real.dtype.kind, real.dtype.itemsize
    if kind == "i" and itemsize == 4:
        squares = [np.square(half.astype(np.int64).view(np.uint64)) for half in (real, imag)]
        return np.sqrt((squares[0] + squares[1]).astype(np.float64))
    if kind in "iu" and itemsize >= 4:  # no dtype holds the sum of squares
        return np.hypot(real.astype(np.longdouble), imag.astype(np.longdouble))
    x, y = real.astype(np.float64), imag.astype(np.float64)
    values: NDArray[Any] = np.asarray(np.sqrt(x * x + y * y))
    if kind == "f" and (extreme := ~((values > LEAST) & (values < MOST))).any():
        values[extreme] = np.hypot(x[extreme], y[extreme])
    return values


def check(samples: NDArray[Any], values: NDArray[Any], part: Part, where: str) -> None:
    """Compute a part of a few samples in another way.

    Raises
    ------
    VerificationError
        If it has other values.
    """
    component = component_of(samples.dtype)
    assert component is not None
    numbers = np.frombuffer(samples.tobytes(), component).reshape(-1, 2)
    if part in ("real", "imag"):
        right = numbers[:, int(part == "imag")].tobytes() == values.tobytes()
    else:
        with np.errstate(all="ignore"):
            x, y = numbers.astype(np.longdouble).T
            as_complex = numbers.astype(np.float64).view(np.complex128)[:, 0]
            size = np.sqrt(x * x + y * y)
            plain = np.isfinite(size) & (size > 0)
            unit = CLOSE * np.finfo(values.dtype).eps
            if part == "abs":
                tiny, most = CLOSE * np.finfo(values.dtype).smallest_subnormal, np.finfo(values.dtype).max
                close = (abs(values - size) <= unit * size + tiny) | ((size > most * (1 - unit)) & np.isposinf(values))
                other = np.abs(as_complex).astype(values.dtype)
            else:
                sine, cosine = np.sin(values), np.cos(values)
                close = (abs(x * sine - y * cosine) <= unit * size) & (x * cosine + y * sine > 0)
                other = np.angle(as_complex)
            right = bool(np.all(np.where(plain, close, (other == values) | (np.isnan(other) & np.isnan(values)))))
    if not right:
        raise VerificationError(f"{where}: expected the same {part} of its samples in two ways, got different numbers; "
                                "report this")  # fmt: skip


@dataclass(frozen=True)
class _Taken:
    """Reads complex samples of a piece on a worker and puts a part of them into buffers."""

    piece: Piece | FilledPiece
    dtype: np.dtype[Any]
    part: Part

    def fill(self, start: int, buffer: NDArray[Any]) -> None:
        """The samples from an index on."""
        for first in range(0, len(buffer), STEP):
            step = buffer[first : first + STEP]
            samples = self._read(start + first, len(step))
            step[...] = take(samples, self.part)
            at = (start + first) // STEP * CHECKED % len(step)  # elsewhere in each step
            inside = slice(at, at + CHECKED)
            check(samples[inside], step[inside], self.part, self.piece.where())

    def _read(self, start: int, count: int) -> NDArray[Any]:
        samples = aligned_empty(count, self.dtype)
        if isinstance(self.piece, Piece) and self.piece.remote:
            itemsize = self.dtype.itemsize
            samples.view(np.uint8)[...] = next(stored_bytes((self.piece.cut(start * itemsize, count * itemsize),)))
        elif isinstance(self.piece, FilledPiece):
            self.piece.filler.fill(self.piece.start + start, samples)
        else:
            with open_planned(self.piece) as fd:
                fill(fd, samples.view(np.uint8).data, self.piece, start * self.dtype.itemsize)
        return samples


@dataclass(frozen=True)
class _Decoded:
    """Decodes a block of complex samples on a worker and takes a part of them."""

    piece: WholePiece
    dtype: np.dtype[Any]
    part: Part

    def read(self) -> NDArray[Any]:
        """The part of all samples of the block."""
        samples = decode_whole(self.piece, self.dtype)
        values = take(samples, self.part)
        for first in range(0, len(samples), STEP):
            inside = slice(first, first + CHECKED)
            check(samples[inside], values[inside], self.part, self.piece.where())
        return values


@dataclass(frozen=True)
class _Regions:
    """Reads regions of complex samples on a worker and takes a part of them."""

    array: ArrayFile
    part: Part

    def fill_region(self, region: Bounds, block: NDArray[Any]) -> None:
        """The part of the elements of a region."""
        samples = read_region(self.array, region)
        block[...] = take(samples, self.part)
        inside = slice(CHECKED)
        check(samples.reshape(-1)[inside], block.reshape(-1)[inside].astype(block.dtype.newbyteorder("=")), self.part,
              self.array.names[0])  # fmt: skip


@dataclass(frozen=True)
class PartSource(Source):
    """A part of the samples of a source whose samples are complex."""

    whole: Source
    part: Part
    lengths: tuple[int, ...] | None = None  # the shape, if it is another one than that of the source

    @property
    def dtype(self) -> np.dtype[Any]:  # type: ignore[override]
        """The dtype of the part."""
        return dtype_of(self.whole.dtype, self.part)

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape of the samples."""
        return self.whole.shape if self.lengths is None else self.lengths

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the source."""
        return self.whole.names

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of the source."""
        return self.whole.paths

    @property
    def identity(self) -> Hashable:
        """The identity of the source, with the part."""
        return self.whole.identity, self.part

    @property
    def fortran(self) -> bool:
        """Whether the source is in Fortran order."""
        return self.whole.fortran

    @property
    def regions(self) -> RegionFiller | None:
        """What fills regions, if the source is byte runs."""
        readable = isinstance(self.whole, Files) or self.whole.regions is not None
        return _Regions(join(self.whole), self.part) if readable else None

    def check_unchanged(self) -> None:
        """Check that the source has not changed."""
        self.whole.check_unchanged()

    def pieces(self) -> Iterator[AnyPiece]:
        """The same pieces, of the part."""
        stored, itemsize = self.whole.dtype, self.dtype.itemsize
        for given in self.whole.pieces():
            piece = given.stored if isinstance(given, RemotePiece) else given
            samples = piece.nbytes // stored.itemsize
            if isinstance(piece, WholePiece):
                block = _Decoded(piece, stored, self.part)
                yield BlockPiece(block, piece.where(), samples * itemsize, 0, samples * itemsize)
            else:
                name = piece.path if isinstance(piece, Piece) else piece.name
                yield FilledPiece(_Taken(piece, stored, self.part), 0, samples, itemsize, name)


def joined_parts(sources: Sequence[Source]) -> list[Source]:
    """The same sources, or one if they are files that can be one array, concatenated along its first axis.

    Raises
    ------
    UsageError
        If byte runs of one dtype do not have rows of one length.
    """
    parts = [source for source in sources if isinstance(source, PartSource)]
    wholes = [part.whole for part in parts if isinstance(part.whole, Files)]
    if len(sources) < 2 or len(wholes) < len(sources) or any(whole.dtype != wholes[0].dtype for whole in wholes):
        return list(sources)
    files = Files(tuple(chain.from_iterable(whole.files for whole in wholes)), wholes[0].dtype)
    return [PartSource(files, parts[0].part, join(files).spec.shape)]
