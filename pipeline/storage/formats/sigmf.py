"""SigMF recordings: raw bytes, described by a JSON file beside them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from pipeline.errors import UsageError
from pipeline.storage.files import Files, SourceFile, whole
from pipeline.storage.formats.common import readable
from pipeline.storage.formats.table import DATA, META
from pipeline.storage.formats.zarr_metadata import read_json
from pipeline.storage.protocol import Opening, pair_of

DATATYPE = re.compile(r"([rc])([fiu])(8|16|32|64)(?:_(le|be))?")


def open_sigmf(path: str, opening: Opening) -> Files:
    """The samples of a recording, named by its data or by its metadata.

    Raises
    ------
    UsageError
        If the files do not fit each other.
    """
    stem = path.removesuffix(META).removesuffix(DATA)
    whole(stem + META)
    with readable(stem + META, "the metadata of a SigMF recording"):
        metadata = read_json(stem + META)
        described = metadata["global"]
        datatype, channels = described["core:datatype"], described.get("core:num_channels", 1)
        known = DATATYPE.fullmatch(datatype)
        if not known or not isinstance(channels, int) or not 1 <= channels < 2**20:
            raise ValueError(f"core:datatype {str(datatype)[:40]!r} in {str(channels)[:20]} channels")
        if other := _of_other_bytes(described, metadata.get("captures", ())):
            raise UsageError(f"{stem + META}: expected {DATA} of samples alone, got {other}; write a recording "
                             "without, or read the file as raw samples, with --dtype and --offset")  # fmt: skip
    kind, letter, bits, order = known.groups()
    dtype = np.dtype(f"{letter}{int(bits) // 8}").newbyteorder(">" if order == "be" else "<")
    plain = dtype.name
    if kind == "c":
        dtype = pair_of(dtype)
    data = whole(stem + DATA)
    samples, left = divmod(data.nbytes, dtype.itemsize * channels)
    if left or plain == "float8":
        raise UsageError(f"{data.path}: expected frames of {dtype.itemsize * channels} bytes as its metadata say, got "
                         f"{left} bytes left over; is the file complete?")  # fmt: skip
    shape = (samples, channels) if channels > 1 else (samples,)
    opening.check(data.path, dtype, shape)
    assert data.identity is not None
    return Files((SourceFile(data.path, 0, data.nbytes, data.identity, shape),), dtype)


def _of_other_bytes(described: dict[str, Any], captures: Sequence[dict[str, Any]]) -> str | None:
    """Metadata saying that some bytes are not samples, or that the samples are in another file."""
    if "core:dataset" in described:
        return "core:dataset"
    if described.get("core:trailing_bytes"):
        return "core:trailing_bytes"
    return "core:header_bytes" if any(capture.get("core:header_bytes") for capture in captures) else None
