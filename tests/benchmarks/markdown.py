"""Markdown tables and the format of ratios in them."""

from __future__ import annotations

import math
from collections.abc import Sequence


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown; all columns but the first are numbers."""
    rule = ["---", *["--:"] * (len(columns) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (columns, rule, *rows))


def share(number: float, digits: int = 2) -> str:
    """A ratio, rounded down."""
    return f"{math.floor(number * 10**digits) / 10**digits:.{digits}f}"
