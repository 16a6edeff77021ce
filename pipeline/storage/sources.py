"""Where samples are: raw files, `.npy` files, several of them as one; nothing is read here but headers."""

from __future__ import annotations

import glob
import math
import os
import stat
import warnings
from dataclasses import dataclass
from typing import Any, BinaryIO, Literal

import numpy as np

from pipeline.errors import PipelineError, UsageError

DTYPES = (
    "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64",
)  # fmt: skip
Byteorder = Literal["little", "big"]
BYTEORDERS: tuple[Byteorder, ...] = ("little", "big")
RAW_DTYPE = "int32"
MAX_HEADER = 2**16  # bytes of a .npy header; a real one is 128
MAX_DIMENSIONS = 64  # NumPy's own limit


@dataclass(frozen=True)
class SourceFile:
    """Samples of one file: `nbytes` from `offset`; by size and mtime it is told whether it was changed since.

    `shape` is that of the header, one dimension for a raw file; `fortran`: the first index runs fastest.
    """

    path: str
    offset: int
    nbytes: int
    size: int
    mtime_ns: int
    shape: tuple[int, ...] = ()
    fortran: bool = False


@dataclass(frozen=True)
class Source:
    """Samples of one or several files, in order, all of one dtype (with byte order)."""

    files: tuple[SourceFile, ...]
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        """Bytes of samples."""
        return sum(file.nbytes for file in self.files)

    @property
    def samples(self) -> int:
        """Number of samples."""
        return self.nbytes // self.dtype.itemsize


def open_source(
    patterns: tuple[str, ...],
    dtype: str | None = None,
    byteorder: Byteorder | None = None,
    offset: int | None = None,
    *,
    samples: bool = True,
    empty: bool = False,
) -> Source:
    """Find the files and how to read them.

    Parameters
    ----------
    patterns
        Paths or glob patterns; what a pattern matches is sorted.
    dtype, byteorder, offset
        Of raw files: a NumPy dtype name (default int32), little (default) or big, bytes to skip (default 0). A `.npy`
        file has its own; giving one that disagrees is an error.
    samples
        Insist on at least one sample of a dtype in `DTYPES`; otherwise a `.npy` file may also be an empty array, or
        have any dtype but Python objects.
    empty
        Accept a `.npy` file that is an empty array also where samples are insisted on.

    Raises
    ------
    UsageError
        If a file is missing, empty, no file, of the wrong size or of a dtype that cannot be.
    PipelineError
        If a file cannot be read.
    """
    if dtype is not None and dtype not in DTYPES:
        raise UsageError(f"--dtype: expected one of {', '.join(DTYPES)}, got {dtype!r}")
    if offset is not None and offset < 0:
        raise UsageError(f"--offset: expected bytes to skip, 0 or more, got {offset}")
    found: list[tuple[SourceFile, np.dtype[Any]]] = []
    for path in _expand(patterns):
        if path.endswith(".npy") or (offset is None and _is_npy(path)):
            if offset is not None:
                raise UsageError(f"{path}: --offset is for raw files, a .npy file has a header; leave --offset out")
            file, file_dtype = _open_npy(path, samples, empty or not samples)
            _check_same(path, file_dtype, dtype, byteorder)
        else:
            file_dtype = np.dtype(dtype or RAW_DTYPE).newbyteorder(byteorder or "little")
            file = _open_raw(path, file_dtype, offset or 0)
        if found and found[0][1] != file_dtype:
            raise UsageError(
                f"{path}: expected {found[0][1]} as in {found[0][0].path}, got {file_dtype}; run them separately"
            )
        found.append((file, file_dtype))
    return Source(tuple(file for file, _ in found), found[0][1])


def _expand(patterns: tuple[str, ...]) -> list[str]:
    paths: list[str] = []
    for pattern in patterns:
        if os.path.lexists(pattern) or not glob.has_magic(pattern):
            paths.append(pattern)
            continue
        matches = sorted(glob.glob(pattern, recursive=True))
        if not matches:
            raise UsageError(f"{pattern}: expected at least one file to match, got none; check the pattern")
        paths += matches
    # Workers may run in another folder.
    return [os.path.abspath(path) for path in paths]


def _open(path: str) -> tuple[BinaryIO, os.stat_result]:
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            kind = "a directory" if os.path.isdir(path) else "no regular file"
            raise UsageError(f"{path}: expected a file of samples, got {kind}; name a file or a pattern like '*.bin'")
        file = open(path, "rb")  # noqa: SIM115, the caller closes it
    except FileNotFoundError:
        raise UsageError(f"{path}: expected a file of samples, found none there; check the path") from None
    except OSError as error:
        raise PipelineError(
            f"{path}: expected a readable file, got {error.strerror!r}; check its permissions"
        ) from None
    status = os.fstat(file.fileno())
    if not status.st_size:
        file.close()
        raise UsageError(f"{path}: expected samples, got an empty file")
    return file, status


def _is_npy(path: str) -> bool:
    """Whether a file is in NumPy's format whatever its name, as np.load sees it."""
    try:
        with open(path if os.path.isfile(path) else os.devnull, "rb") as file:
            return file.read(len(np.lib.format.MAGIC_PREFIX)) == np.lib.format.MAGIC_PREFIX
    except OSError:
        return False  # opening it as samples says why


def _open_raw(path: str, dtype: np.dtype[Any], offset: int) -> SourceFile:
    file, status = _open(path)
    file.close()
    nbytes = status.st_size - offset
    if nbytes <= 0:
        raise UsageError(f"{path}: expected samples after --offset {offset}, but the file has {status.st_size} bytes")
    if nbytes % dtype.itemsize:
        raise UsageError(
            f"{path}: expected a multiple of {dtype.itemsize} bytes for {dtype.name}, got {nbytes}, "
            f"{nbytes % dtype.itemsize} too many; check --dtype and --offset"
        )
    shape = (nbytes // dtype.itemsize,)
    return SourceFile(path, offset, nbytes, status.st_size, status.st_mtime_ns, shape)


def _open_npy(path: str, samples: bool, empty: bool) -> tuple[SourceFile, np.dtype[Any]]:
    file, status = _open(path)
    with file:
        try:
            shape, fortran, dtype = _npy_header(file)
        except Exception as error:  # a hostile header can raise nearly anything while it is parsed
            reason = str(error).partition("\n")[0] or type(error).__name__
            raise UsageError(f"{path}: expected a .npy header, got {reason}; is the file complete?") from None
        offset = file.tell()
    if dtype.name not in DTYPES if samples else dtype.hasobject or not dtype.itemsize:
        what = "Python objects, which are never unpickled" if dtype.hasobject else str(dtype)
        raise UsageError(f"{path}: expected samples of {', '.join(DTYPES)}, got {what}; convert the file")
    nbytes = math.prod(shape) * dtype.itemsize
    if status.st_size - offset != nbytes:
        raise UsageError(
            f"{path}: expected {nbytes} bytes of data for shape {shape} of {dtype}, got {status.st_size - offset}; "
            "the file is truncated or its header is wrong"
        )
    if not nbytes and not empty:
        raise UsageError(f"{path}: expected samples, got an empty array of shape {shape}")
    return SourceFile(path, offset, nbytes, status.st_size, status.st_mtime_ns, shape, fortran), dtype


def _npy_header(file: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether in Fortran order, and dtype; the file is left at the first byte of data."""
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0), (3, 0)):
        raise ValueError(f"one of the unknown version {version[0]}.{version[1]}")
    # NumPy reads as many bytes as the header claims to have before it checks: look first.
    start = file.tell()
    length = int.from_bytes(file.read(2 if version == (1, 0) else 4), "little")
    if length > MAX_HEADER:
        raise ValueError(f"a header of {length} bytes")
    file.seek(start)
    # Version 3 differs from 2 by UTF-8 field names, and only dtypes without fields are accepted.
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    with warnings.catch_warnings():
        # Python 2's long integers, and what Python thinks of the syntax of a broken header: nothing to tell the user.
        warnings.simplefilter("ignore")
        shape, fortran, dtype = read(file, max_header_size=MAX_HEADER)
    if len(shape) > MAX_DIMENSIONS:
        raise ValueError(f"{len(shape)} dimensions")
    # No file is as long as 2**63, and Python refuses to print a product of thousands of digits.
    if not all(0 <= length < 2**63 for length in shape):
        raise ValueError(f"shape {shape}"[:100])
    return shape, fortran, dtype


def _check_same(path: str, found: np.dtype[Any], dtype: str | None, byteorder: Byteorder | None) -> None:
    if dtype is not None and np.dtype(dtype) != found.newbyteorder("="):
        raise UsageError(f"{path}: expected {dtype} as --dtype says, its header says {found}; leave --dtype out")
    if byteorder is not None and found.itemsize > 1 and found != found.newbyteorder(byteorder):
        raise UsageError(f"{path}: expected {byteorder} endian as --byteorder says, its header says {found}; leave "
                         "--byteorder out")  # fmt: skip
