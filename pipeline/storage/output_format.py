"""How the array of a job lies in the file that it is written to: `.npy`, raw, HDF5 or Zarr."""

from __future__ import annotations

import io
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import UsageError
from pipeline.storage.formats.table import LATE
from pipeline.storage.layout import Layout
from pipeline.storage.paths import MEMBER
from workflows.regions import Spec

NPY, ZARR, HDF5 = ".npy", ".zarr", (".h5", ".hdf5")
WITH_MEMBER = re.compile(rf"(.*?(?:{'|'.join(map(re.escape, HDF5))})){MEMBER}(.*)", re.DOTALL)
MEMBER_NAME = "result"  # of an HDF5 file, unless the user names another
KNOWN = f"{NPY}, {HDF5[0]}, {ZARR}, or a raw one with a suffix of no other format"
# Samples without a header that are called so could not be read again.
NOT_WRITTEN = tuple(suffix for format_ in LATE for suffix in format_.suffixes if suffix not in (ZARR, *HDF5))


def split_output(output: str) -> tuple[str, str]:
    """The path of an output, and the name of the array in it, if it is an HDF5 file: ``out.h5::/result``."""
    if (found := WITH_MEMBER.fullmatch(output)) is not None:
        return found[1], "/".join(filter(None, found[2].split("/")))
    return output, MEMBER_NAME if output.endswith(HDF5) else ""


def layout_of(output: str, spec: Spec, chunks: tuple[int, ...] | None = None) -> Layout:
    """The layout that the suffix of an output says.

    Raises
    ------
    UsageError
        If the format cannot hold the array, or a package is missing.
    """
    path, member = split_output(output)
    if chunks is not None and not path.endswith(ZARR):
        raise UsageError(f"--chunks: expected an output that is a Zarr store, like out{ZARR}, got {path}; leave "
                         "--chunks out")  # fmt: skip
    if path.endswith(ZARR):
        from pipeline.storage.formats.zarr_write import zarr_layout

        return zarr_layout(path, spec, chunks)
    if path.endswith(HDF5):
        from pipeline.storage.formats.hdf5_write import hdf5_layout

        return hdf5_layout(path, member, spec)
    file, inside, _ = path.partition(MEMBER)
    if path.endswith(NOT_WRITTEN) or (inside and file.endswith((NPY, ZARR))):
        raise UsageError(f"{path}: expected {KNOWN}, got another name; choose one of these")
    header = b""
    if path.endswith(NPY):
        text = io.BytesIO()
        dtype = np.lib.format.dtype_to_descr(spec.dtype)
        np.lib.format.write_array_header_1_0(text, {"descr": dtype, "fortran_order": False, "shape": spec.shape})
        header = text.getvalue()
    return Layout(header, spec.nbytes)


def map_output(output: str, spec: Spec) -> NDArray[Any]:
    """The array of a complete output, mapped from its file; of a Zarr store with tiles a copy in memory."""
    path, member = split_output(output)
    if path.endswith(NPY):
        return np.asarray(np.load(path, mmap_mode="r" if spec.size else None, allow_pickle=False))
    if not spec.size:
        return np.empty(spec.shape, spec.dtype)
    if path.endswith(ZARR):
        from pipeline.storage.formats.zarr_write import mapped_zarr

        return mapped_zarr(path, spec)
    offset = 0
    if path.endswith(HDF5):
        from pipeline.storage.formats.hdf5_write import offset_of

        offset = offset_of(path, member)
    return np.memmap(path, spec.dtype, "r", offset, spec.shape)
