"""The protocol of a source, which describes itself and yields pieces of samples, and of a format."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import UsageError
from pipeline.storage.pieces import AnyPiece
from workflows.regions import Bounds

DTYPES = (
    "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64",
)  # fmt: skip
PACKED = ("u10p", "u12p", "u14p", "i10p", "i12p", "i14p")  # of raw files; jobs get uint16 or int16
COMPLEX = ("complex64", "complex128")  # of which jobs get a part
NAMES = DTYPES + PACKED + COMPLEX  # of raw files
PAIRS = (("r", "i"), ("re", "im"), ("real", "imag"))  # fields of complex samples whose numbers may be integers
HEAD_BYTES = 520  # of a file, from which its format is recognized
MOST_SHOWN = 100  # characters of a dtype or a shape in a message

Byteorder = Literal["little", "big"]
BYTEORDERS: tuple[Byteorder, ...] = ("little", "big")

Part = Literal["real", "imag", "abs", "phase"]
PARTS: tuple[Part, ...] = ("real", "imag", "abs", "phase")


def component_of(dtype: np.dtype[Any]) -> np.dtype[Any] | None:
    """Dtype of both numbers of complex samples, or of pairs that are called so; None if samples are real."""
    if dtype.name in COMPLEX:
        return np.dtype(f"f{dtype.itemsize // 2}").newbyteorder(dtype.byteorder)
    if dtype.names in PAIRS and dtype.fields is not None:
        (first, start), (second, following) = (dtype.fields[name][:2] for name in dtype.names)
        if first == second and first.name in DTYPES and 2 * following == dtype.itemsize and not start:
            return first
    return None


def advice_for(dtype: np.dtype[Any]) -> str:
    """What to do about samples of a dtype that jobs do not take."""
    to = {"b": " to uint8", "M": " to int64", "m": " to int64", "V": ", bfloat16 and float8 to float32"}
    return f"convert them{to.get(dtype.kind, '') if dtype.names is None else ''}"


def pair_of(component: np.dtype[Any]) -> np.dtype[Any]:
    """Dtype of complex samples whose both numbers have a dtype."""
    return np.dtype([(name, component) for name in PAIRS[0]])


class RegionFiller(Protocol):
    """Reads regions on a worker, so it must be picklable."""

    def fill_region(self, region: Bounds, block: NDArray[Any]) -> None:
        """Fill an array of the region's shape, in the dtype of the source, with its elements."""


class Source(ABC):
    """Samples in order, all of one dtype.

    Attributes
    ----------
    dtype
        Dtype, with byte order.
    shape
        None if the length is unknown until all of it is read: such a source is planned while it is read.
    names
        Names of its files, or other names, for messages and reports.
    paths
        Files that an output must not overwrite.
    identity
        Equal as long as no change can be detected.
    local
        Whether only this process can read it.
    read_once
        Whether it cannot be read again: its blocks are then kept in memory until they are computed and checked.
    regions
        Reads any region, for jobs that write an array; None if that is not possible.
    """

    dtype: np.dtype[Any]
    local: ClassVar[bool] = False
    read_once: ClassVar[bool] = False

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...] | None: ...

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]: ...

    @property
    @abstractmethod
    def identity(self) -> Hashable: ...

    @abstractmethod
    def pieces(self) -> Iterable[AnyPiece]:
        """All samples, in order, in pieces of whole samples. If the length is unknown, the iteration reads them.

        It must neither hold more than a few pieces nor block indefinitely.

        Raises
        ------
        PipelineError
            If a file cannot be read or holds something else: one line, with its name. UsageError if another request
            would succeed. Nothing translates other exceptions, such as OSError: they end the run with a traceback.
        """

    @property
    def paths(self) -> tuple[str, ...]:
        return self.names

    @property
    def regions(self) -> RegionFiller | None:
        return None

    @property
    def shape_once_read(self) -> tuple[int, ...] | None:
        """The shape, if it was read as far as it goes; None if only the number of samples then tells."""
        return self.shape

    @property
    def fortran(self) -> bool:
        """Whether its samples count as stored, the first index varying fastest, instead of in C order."""
        return False

    def check_unchanged(self) -> None:  # noqa: B027, a source without files has nothing to look at
        """Raise PipelineError if a change since it was planned can be detected; called at the end of a run."""

    @property
    def samples(self) -> int | None:
        """Number of samples; None if it is unknown."""
        return None if self.shape is None else math.prod(self.shape)

    @property
    def nbytes(self) -> int | None:
        """Bytes of samples; None if they are unknown."""
        return None if self.samples is None else self.samples * self.dtype.itemsize


@dataclass(frozen=True)
class Opening:
    """What the user says about a file, and what the job accepts.

    Attributes
    ----------
    dtype, byteorder, offset
        For raw files: a name in `DTYPES` or `PACKED`, byte order, bytes to skip. Other formats have their own.
    samples
        Require at least one sample of a dtype in `DTYPES`; otherwise also accept an empty array, or any dtype except
        Python objects.
    empty
        Accept an empty array even if `samples` is set.
    member
        Name of an array within the file, as after ``::``; None to take the only one.
    part
        Of complex samples; None for real ones.
    """

    dtype: str | None = None
    byteorder: Byteorder | None = None
    offset: int | None = None
    samples: bool = True
    empty: bool = False
    member: str | None = None
    part: Part | None = None

    def counted(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """Dtype that samples are read as: bool, a byte of 0 or 1 each, as uint8."""
        return np.dtype(np.uint8) if self.samples and dtype == np.bool_ else dtype

    def takes(self, dtype: np.dtype[Any]) -> bool:
        """Whether the job accepts a dtype."""
        if self.part is not None:
            return component_of(dtype) is not None
        return dtype.name in DTYPES if self.samples else bool(dtype.itemsize) and not dtype.hasobject

    def check(self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...] | None) -> None:
        """Refuse a source with a dtype of its own that contradicts the user or that the job does not accept.

        Raises
        ------
        UsageError
            Expected, got, and what to do.
        """
        if self.offset is not None:
            raise UsageError(f"{name}: --offset is for raw files, this has a format of its own; leave --offset out")
        self.check_part(name, dtype)
        if not self.takes(dtype):
            what = "Python objects, which are never unpickled" if dtype.hasobject else str(dtype)[:MOST_SHOWN]
            raise UsageError(f"{name}: expected samples of {', '.join(DTYPES)}, got {what}; {advice_for(dtype)}")
        if shape is not None:
            self.check_length(name, shape)
        if self.dtype in PACKED or (self.dtype is not None and np.dtype(self.dtype) != dtype.newbyteorder("=")):
            got = str(dtype)[:MOST_SHOWN]
            raise UsageError(f"{name}: expected {self.dtype} as --dtype says, got {got}; leave --dtype out")
        if self.byteorder is not None and dtype.itemsize > 1 and dtype != dtype.newbyteorder(self.byteorder):
            got = str(dtype)[:MOST_SHOWN]
            raise UsageError(f"{name}: expected {self.byteorder} endian as --byteorder says, got {got}; leave "
                             "--byteorder out")  # fmt: skip

    def check_length(self, name: str, shape: tuple[int, ...]) -> None:
        """Raise UsageError if there are no samples where some are required."""
        if not math.prod(shape) and self.samples and not self.empty:
            raise UsageError(f"{name}: expected samples, got an empty array of shape {shape}")

    def check_part(self, name: str, dtype: np.dtype[Any]) -> None:
        """Refuse --part for real samples, and complex samples without --part where one is needed.

        Raises
        ------
        UsageError
            Expected, got, and what to do.
        """
        component = component_of(dtype)
        if self.part is not None and component is None:
            raise UsageError(f"{name}: expected complex samples as --part says, got {str(dtype)[:MOST_SHOWN]}; leave "
                             "--part out")  # fmt: skip
        if self.part is None and component is not None and self.samples:
            what = dtype.name if dtype.name in COMPLEX else f"pairs of {component.name}"
            raise UsageError(f"{name}: expected real samples, got complex ones ({what}); choose a part with --part "
                             f"{', '.join(PARTS[:-1])} or {PARTS[-1]}")  # fmt: skip


@dataclass(frozen=True)
class Member:
    """An array within a file, as its headers describe it.

    Attributes
    ----------
    name
        As after ``::``; empty if the format has one array per file.
    dtype
        With byte order; None if NumPy has none for it.
    shape
    chunks
        Shape of the blocks that are stored one by one; None if it is stored in one piece.
    compression
        Codecs and filters, in words; empty if its bytes are samples.
    stored
        Bytes in the file; None if nobody says.
    problem
        Why it cannot be read; empty if it can.
    """

    name: str
    dtype: np.dtype[Any] | None
    shape: tuple[int, ...]
    chunks: tuple[int, ...] | None = None
    compression: str = ""
    stored: int | None = None
    problem: str = ""


@dataclass(frozen=True)
class Format:
    """How a format is recognized, and what opens it.

    Attributes
    ----------
    name
    open
        (path, opening) -> source; UsageError or PipelineError if it cannot be opened.
    recognizes
        (path, first bytes of the file) -> whether it has this format; no bytes if it is not a regular file.
    suffixes
        File names with these endings have this format if no format recognizes the content.
    members
        (path) -> the arrays of a file; None if it has one, which needs no name.
    remote
        Whether a path may also be a `pipeline.storage.remote.address.Url`.
    """

    name: str
    open: Callable[[str, Opening], Source]
    recognizes: Callable[[str, bytes], bool]
    suffixes: tuple[str, ...] = ()
    members: Callable[[str], Sequence[Member]] | None = None
    remote: bool = False
