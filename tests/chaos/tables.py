"""Feeds mutated tables, images and sounds to the readers, as `tests.chaos.formats` does with all formats in turn.

Parquet, Arrow, `.npz`, TIFF and WAV. It must show the same.
"""

from __future__ import annotations

from typing import Any

from tests.cases.format_files import CASES
from tests.chaos.formats import in_turn, run_cases

SHORT = 100
FORMATS = ("parquet", "arrow", "npz", "tiff", "wav")
KINDS = {format_: [name for name in CASES if name.split()[0].strip(",") == format_] for format_ in FORMATS}


def run(seed: int, trials: int) -> dict[str, Any]:
    """Outcomes by kind, and what went wrong."""
    return run_cases(in_turn(KINDS), seed, trials)
