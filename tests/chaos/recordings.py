"""Feeds mutated recordings and shards to the readers, as `tests.chaos.formats` does with all formats in turn.

EDF, BDF, FLAC, SigMF with real and complex samples, and sharded Zarr stores. It must show the same.
"""

from __future__ import annotations

from typing import Any

from tests.chaos.formats import COMPLEX, in_turn, run_cases

SHORT = 100
KINDS = {
    "edf": ("edf", "edf, long records"), "bdf": ("bdf",),
    "flac": ("flac of 8 bits", "flac of 16 bits", "flac of 24 bits"),
    "sigmf": ("sigmf", "sigmf, float", *COMPLEX), "zarr": ("zarr 3, sharded", "zarr 3, sharded, as it is"),
}  # fmt: skip


def run(seed: int, trials: int) -> dict[str, Any]:
    """Outcomes by kind, and what went wrong."""
    return run_cases(in_turn(KINDS), seed, trials)
