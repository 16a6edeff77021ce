"""SigMF recordings: raw bytes, described by a JSON file beside them."""

from __future__ import annotations

import re

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
        described = read_json(stem + META)["global"]
        datatype, channels = described["core:datatype"], described.get("core:num_channels", 1)
        known = DATATYPE.fullmatch(datatype)
        if not known or not isinstance(channels, int) or not 1 <= channels < 2**20:
            raise ValueError(f"core:datatype {str(datatype)[:40]!r} in {str(channels)[:20]} channels")
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
