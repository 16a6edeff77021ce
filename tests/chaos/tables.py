"""Feeds mutated tables, images and sounds to the readers, as `tests.chaos.formats` does with all formats in turn.

Parquet, Arrow, `.npz`, TIFF and WAV. It must show the same.
"""

from __future__ import annotations

from typing import Any

from tests.chaos.formats import CASES as EVERY
from tests.chaos.formats import run_cases

SHORT = 100
FORMATS = ("parquet", "arrow", "npz", "tiff", "wav")
KINDS = tuple(tuple(name for name in EVERY if name.split()[0].strip(",") == format_) for format_ in FORMATS)
CASES = tuple(kind[turn % len(kind)] for turn in range(36) for kind in KINDS)  # each format a fifth


def run(seed: int, trials: int) -> dict[str, Any]:
    """Outcomes by kind, and what went wrong."""
    return run_cases(CASES, seed, trials)
