"""How each format is recognized; its module is imported when a file has it."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from pipeline.storage.protocol import Format
from pipeline.storage.remote.address import Url

TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")  # the latter two: BigTIFF
HDF5 = (b"\x89HDF\r\n\x1a\n", b"MATLAB 7.3")
META, DATA = ".sigmf-meta", ".sigmf-data"
ZARR = ("zarr.json", ".zarray", ".zgroup")


def _late(
    name: str, recognizes: Callable[[str, bytes], bool], suffixes: tuple[str, ...] = (), members: bool = True,
    remote: bool = True,
) -> Format:  # fmt: skip
    """A format whose module has `open_NAME`, and `members_of` if its files may have several arrays."""

    def call(function: str, *arguments: Any) -> Any:
        return getattr(import_module(f"pipeline.storage.formats.{name}"), function)(*arguments)

    return Format(name, partial(call, f"open_{name}"), recognizes, suffixes,
                  partial(call, "members_of") if members else None, remote)  # fmt: skip


def _begins(*magic: bytes) -> Callable[[str, bytes], bool]:
    return lambda path, head: head.startswith(magic)


def _is_npz(path: str, head: bytes) -> bool:
    """Whether a file is a zip file with a `.npy` member at its beginning, or by its name."""
    return head.startswith(b"PK\3\4") and (b".npy" in head or path.endswith(".npz"))


def _is_hdf5(path: str, head: bytes) -> bool:
    """Whether a file begins with HDF5's signature, at once or after a user block of 512 bytes, as Julia's files do."""
    return head.startswith(HDF5) or head[512:].startswith(HDF5[0])


def _is_zarr(path: str, head: bytes) -> bool:
    """Whether a folder, or its counterpart at a URL, is a Zarr array or group."""
    if isinstance(path, Url):
        from pipeline.storage.formats.zarr_store import is_remote_store

        return not head and is_remote_store(path)
    return os.path.isdir(path) and any(os.path.isfile(os.path.join(path, name)) for name in ZARR)


def is_store(path: str) -> bool:
    """Whether a folder is one file of a format, by its content or its name; the files in it are not inputs."""
    return _is_zarr(path, b"") or path.endswith(".zarr")


def _is_wav(path: str, head: bytes) -> bool:
    return head[:4] in (b"RIFF", b"RF64", b"BW64") and head[8:12] == b"WAVE"


def _is_sigmf(path: str, head: bytes) -> bool:
    """Whether a file is called as the recording's data or metadata are."""
    return path.endswith(META) or (path.endswith(DATA) and os.path.exists(path.removesuffix(DATA) + META))


def parts_of(path: str) -> tuple[str, ...]:
    """The files that hold what a path names: of a SigMF recording its metadata and its samples."""
    stem = path.removesuffix(META).removesuffix(DATA)
    return (stem + META, stem + DATA) if _is_sigmf(path, b"") else (path,)


def _is_edf(path: str, head: bytes) -> bool:
    """Whether a file begins as an EDF or BDF file whose header has the length that its signals need."""
    if not head.startswith((b"0       ", b"\xffBIOSEMI")):
        return False
    length, signals = head[184:192].strip(), head[252:256].strip()
    return length.isdigit() and signals.isdigit() and int(length) == 256 * (int(signals) + 1)


LATE = [
    _late("npz", _is_npz, (".npz",)),
    _late("hdf5", _is_hdf5, (".h5", ".hdf5", ".he5", ".nc", ".mat")),
    _late("zarr", _is_zarr, (".zarr",)),
    _late("parquet", _begins(b"PAR1"), (".parquet", ".pq")),
    _late("arrow", _begins(b"ARROW1\0\0"), (".arrow", ".arrows", ".feather")),
    _late("tiff", _begins(*TIFF), (".tif", ".tiff")),
    _late("wav", _is_wav, (".wav",), members=False),
    _late("flac", _begins(b"fLaC"), (".flac",), members=False),
    _late("edf", _is_edf, (".edf", ".bdf")),
    _late("sigmf", _is_sigmf, members=False, remote=False),
]
