"""The tables of errors that the check of products finds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, log2
from typing import Any

from tests.benchmarks.markdown import table


def found(rows: Sequence[Mapping[str, Any]]) -> str:
    """By dtype and size: which errors were caught, and what the verdict admits."""
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for row in rows:
        size = f"{row['size']:,}²"
        if row.get("rows", row["size"]) != row["size"]:
            size = f"{row['rows']:,} rows of {size}"
        place = cells.setdefault((row["dtype"], size), {})
        place[row["error"]] = _share(row)
        place["admitted"] = _power(row["undetected"])
    lines = []
    for (dtype, size), shares in cells.items():
        largest = next(name for name in shares if name.startswith("2^"))
        lines.append([f"{dtype}, {size}", *(shares[name] for name in ("set to 0", "negated", "swapped")),
                      f"{shares[largest]} of {largest}", shares["admitted"]])  # fmt: skip
    columns = ["1,000 or more errors of each kind", "set to 0", "negated", "swapped with a neighbour",
               "off by a part of the row", "admitted"]  # fmt: skip
    return table(columns, lines)


def curve(rows: Sequence[Mapping[str, Any]], first: str = "promised") -> str:
    """Share caught by the size of the error, for the largest products; `first` is the heading of the largest error."""
    size = max(row["size"] for row in rows if row.get("rows", row["size"]) == row["size"])
    by_dtype: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        if row["size"] == size and row["error"].startswith("2^"):
            by_dtype.setdefault(row["dtype"], []).append(row)
    lines = [[dtype, *(f"{row['error']}: {_share(row)}" for row in of)] for dtype, of in by_dtype.items()]
    columns = [
        "size of the error",
        *(f"{4**number} times smaller" if number else first for number in range(max(map(len, lines)) - 1)),
    ]
    return table(columns, lines)


def hard(rows: Sequence[Mapping[str, Any]]) -> str:
    """What the verdict admits for hard products."""
    kinds = list(dict.fromkeys(row["kind"] for row in rows))
    dtypes = list(dict.fromkeys(row["dtype"] for row in rows))
    admitted = {(row["dtype"], row["kind"]): _power(row["undetected"]) for row in rows}
    size = rows[0]["size"]
    return table(
        [f"admitted, {size:,}²", *kinds], [[dtype, *(admitted[dtype, kind] for kind in kinds)] for dtype in dtypes]
    )


def hidden(rows: Sequence[Mapping[str, Any]]) -> str:
    """How many errors in single elements passed, in all dtypes and by all ways to check exact products."""
    kinds = {
        "zero in place of another number": ("zero",),
        "another sign, also of zero": ("sign",),
        "the last bit of the exponent, or its first": ("exponent", "exponent, high"),
        "the first bit of the significand": ("first bit",),
        "the last bit of the significand": ("last bit",),
        "NaN, infinities": ("NaN", "infinity"),
        "the largest finite number, the least above zero": ("largest", "least"),
    }
    exact = [row for row in rows if row["way"] != "library"]
    lines = []
    for text, names in kinds.items():
        of = [row for row in exact if row["error"] in names]
        planted, passed = (sum(row[name] for row in of) for name in ("planted", "passed"))
        dtypes = dict.fromkeys(row["dtype"] for row in of if row["passed"])
        lines.append(
            [text, f"{planted:,}", f"{passed:,}" + (f", of {' and '.join(dtypes)}" if len(dtypes) == 1 else "")]
        )
    return table(["", "planted", "passed"], lines)


def _share(row: Mapping[str, Any]) -> str:
    """Rounded down, so that only all are 100 %."""
    return f"{int(1000 * row['caught'] / row['planted']) / 10:g} %"


def _power(error: float) -> str:
    """As a power of two, rounded up."""
    return f"2^{ceil(log2(error))}" if error else "0"
