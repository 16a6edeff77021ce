"""Flags for rows, each of which gets a result of its own."""

from __future__ import annotations

from typing import Any

import click

from pipeline.cli.help import INPUT, Flag
from pipeline.rows import LAYOUTS, RowsAsked


def row_flags() -> list[click.Option]:
    """What a row is."""
    return [
        Flag(["--channels"], group=INPUT, type=int, metavar="N", help="Give each of N channels a result of its own."),
        Flag(["--layout"], group=INPUT, type=click.Choice(LAYOUTS), shown="interleaved",
             help="Whether channels alternate sample by sample, or are stored one after another."),
        Flag(["--segment"], group=INPUT, type=int, metavar="N", help="Give each run of N samples a result of its own; "
             "the last run may be shorter."),
        Flag(["--by"], group=INPUT, type=click.Choice(["file"]), help="Give each file a result of its own."),
        Flag(["--axis"], group=INPUT, type=int, metavar="K", help="Give each row of an array along this axis a result "
             "of its own, as NumPy's functions do."),
    ]  # fmt: skip


def rows_asked(values: dict[str, Any]) -> RowsAsked:
    """The rows that the flags describe; UsageError if they contradict each other."""
    return RowsAsked(**{name: values[name] for name in ("channels", "layout", "segment", "by", "axis")})
