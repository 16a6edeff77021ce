"""The bytes around an array in an HDF5 file that has nothing else: HDF5 itself writes them, around a hole."""

from __future__ import annotations

import os
import tempfile
from typing import IO

from pipeline.errors import PipelineError, UsageError
from pipeline.storage.files import Files
from pipeline.storage.formats.common import MOST_REASON, library
from pipeline.storage.formats.hdf5 import members_of, open_hdf5
from pipeline.storage.layout import Layout
from pipeline.storage.protocol import Opening
from workflows.regions import Spec


def hdf5_layout(path: str, member: str, spec: Spec) -> Layout:
    """A contiguous data set.

    Raises
    ------
    UsageError
        If h5py is missing or HDF5 cannot store the array, or the file that it would replace has other arrays.
    PipelineError
        If there can be no temporary file of that size.
    """
    if not member:
        raise UsageError(f"{path}: expected a name for the data set, like {path}::/result, got none")
    with library(path, "and writes HDF5 files", "hdf5"):
        import h5py  # noqa: F401 - that it is missing is said before anything else
    if os.path.exists(path) and (others := {other.name for other in members_of(path)} - {f"/{member}"}):
        raise UsageError(f"{path}: expected no file, or one with /{member} alone, since it is replaced, got one that "
                         f"also has {min(others)}; choose another name or remove it")  # fmt: skip
    try:
        with tempfile.TemporaryFile() as file:
            start = _written(file, path, member, spec)
            size = os.fstat(file.fileno()).st_size
            before = size if start is None else start
            header, end = os.pread(file.fileno(), before, 0), before + spec.nbytes
            return Layout(header, spec.nbytes, os.pread(file.fileno(), size - end, end))
    except OSError as error:  # also of what HDF5 could not write, and the file flushes when it is closed
        raise PipelineError(f"{path}: expected to write a temporary file of {spec.nbytes} bytes, none of them "
                            f"allocated, got {error.strerror or error}; name another folder with TMPDIR, or write "
                            ".npy") from None  # fmt: skip


def _written(file: IO[bytes], path: str, member: str, spec: Spec) -> int | None:
    """Write an HDF5 file around a hole; where that begins, None without elements."""
    import h5py

    try:
        with h5py.File(file, "w") as written:
            how = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            how.set_layout(h5py.h5d.CONTIGUOUS)
            how.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
            how.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
            links = h5py.h5p.create(h5py.h5p.LINK_CREATE)
            links.set_create_intermediate_group(True)
            space = h5py.h5s.create_simple(spec.shape) if spec.shape else h5py.h5s.create(h5py.h5s.SCALAR)
            kind = h5py.h5t.py_create(spec.dtype, logical=True)
            data = h5py.h5d.create(written.id, None, kind, space, how)
            h5py.h5o.link(data, written.id, member.encode(), links)
            return data.get_offset() if spec.nbytes else None
    except (TypeError, ValueError, RuntimeError, OSError) as error:
        reason = str(error).partition("\n")[0][:MOST_REASON]
        raise UsageError(f"{path}: expected an array that HDF5 can store, got {spec} ({reason}); write it as "
                         ".npy") from None  # fmt: skip


def offset_of(path: str, member: str) -> int:
    """The first byte of such a data set, which is not empty."""
    source = open_hdf5(path, Opening(samples=False, member=f"/{member}"))
    assert isinstance(source, Files)
    return source.files[0].offset
