"""Feeds mutated HDF5 files, Zarr stores and packed samples to the readers, as `tests.chaos.formats` feeds all formats.

HDF5 contiguous and in chunks, Zarr 2 and 3 with a file for each chunk, raw samples of 10, 12 and 14 bits. It must show
the same.
"""

from __future__ import annotations

from typing import Any

from tests.cases.format_files import CASES
from tests.chaos.formats import PACKED, in_turn, run_cases

SHORT = 100
CONTIGUOUS = ("hdf5 contiguous", "hdf5 contiguous, float", "hdf5 in MATLAB's wrapping", "hdf5 nothing written")
KINDS = {
    "hdf5 contiguous": CONTIGUOUS,
    "hdf5 in chunks": [name for name in CASES if name.startswith("hdf5") and name not in CONTIGUOUS],
    "zarr 2": [name for name in CASES if name.startswith("zarr 2")],
    "zarr 3": [name for name in CASES if name.startswith("zarr 3") and "sharded" not in name],
    "raw packed": list(PACKED),
}


def run(seed: int, trials: int) -> dict[str, Any]:
    """Outcomes by kind, and what went wrong."""
    return run_cases(in_turn(KINDS), seed, trials)
