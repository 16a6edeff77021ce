"""Small ragged inputs for histograms of rows: see all.py."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from kernels.common import device
from kernels.histogram import rows as of_rows
from kernels.histogram.binning import Binning
from kernels.histogram.reference import histogram_reference
from tests.cases.case import RANDOM, Case, same
from tests.emulator.device import LIMITS

Edges = NDArray[np.float64]
WHOLE = LIMITS.shared_per_block


def samples_around(dtype: str, edges: Edges, size: int, seed: int = 0) -> NDArray[Any]:
    """Samples in the bins, outside, on edges and beside them, the ends of the range, NaN."""
    kind, random = np.dtype(dtype), RANDOM(seed)
    limit: Any = np.finfo(kind) if kind.kind == "f" else np.iinfo(kind)
    least, most = float(limit.min), np.nextafter(float(limit.max), 0)
    low, high = np.clip((edges.min() - 3, edges.max() + 3), least / 2, most / 2)
    samples = np.clip(random.uniform(low, high, size), least, most).astype(kind)
    on_edges = np.clip(random.choice(edges.reshape(-1), size), least, most).astype(kind)
    samples[1::3] = on_edges[1::3]
    if kind.kind == "f":
        with np.errstate(over="ignore"):
            samples[2::9] = np.nextafter(on_edges[2::9], kind.type(-np.inf))
        special = np.array([-np.inf, np.inf, np.nan, -np.nan, -0.0], kind)
    else:
        samples[2::9] = np.maximum(on_edges[2::9], limit.min + 1) - kind.type(1)
        special = np.array([limit.min, limit.max], kind)
    samples[3::11] = np.resize(special, len(samples[3::11]))
    samples[size // 2 : size // 2 + size // 5] = samples[0]  # many meet in one bin
    return samples


def binnings_of(dtype: str, edges: Edges, regular: bool) -> tuple[Binning, ...]:
    """One binning, or one for each line of edges."""
    return tuple(Binning(np.dtype(dtype), line, regular) for line in np.atleast_2d(edges))


def expected_counts(samples: NDArray[Any], of: NDArray[np.int64], rows: int, edges: Edges) -> NDArray[np.int64]:
    """Counts of each row by NumPy; `of`: the row of each sample."""
    lines = np.atleast_2d(edges)
    return np.array([histogram_reference(samples[of == row], lines[row % len(lines)]) for row in range(rows)])


def turns(
    cp: Any, dtype: str, edges: Edges, regular: bool, rows: int, size: int, start: int = 0, first: int = 0,
    shared: int = WHOLE, blocks: int | None = None,
) -> None:  # fmt: skip
    """`start`: where in an array the samples begin; `shared` limits the memory of a block, `blocks` their number."""
    samples = samples_around(dtype, edges, size + start, rows)
    with few_blocks(shared, blocks):
        got = of_rows.histogram_turns(cp.asarray(samples)[start:], binnings_of(dtype, edges, regular), rows, first)
    assert got is not None and got.dtype == np.uint32
    same(got, expected_counts(samples[start:], (first + np.arange(size)) % rows, rows, edges))


def runs(
    cp: Any, dtype: str, edges: Edges, regular: bool, lengths: Sequence[int], start: int = 0, shared: int = WHOLE,
    blocks: int | None = None,
) -> None:  # fmt: skip
    """Rows of these lengths."""
    bounds = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    samples = samples_around(dtype, edges, int(bounds[-1]) + start, len(lengths))
    with few_blocks(shared, blocks):
        got = of_rows.histogram_runs(cp.asarray(samples)[start:], binnings_of(dtype, edges, regular), bounds)
    assert got is not None and got.dtype == np.uint32
    of = np.repeat(np.arange(len(lengths)), lengths)
    same(got, expected_counts(samples[start:], of, len(lengths), edges))


@contextmanager
def few_blocks(shared: int, blocks: int | None) -> Iterator[None]:
    """A device whose blocks have so much memory, and which runs so many at once."""
    limits = replace(LIMITS, shared_per_block=shared)
    resident = device.Limits.resident_blocks if blocks is None else lambda *_: blocks
    of_rows.maps_on_device.cache_clear()
    with patch.object(device, "limits", lambda: limits), patch.object(device.Limits, "resident_blocks", resident):
        yield
    of_rows.maps_on_device.cache_clear()


EVEN, THREES, HALVES = np.arange(41.0) * 2 + 100, np.arange(41.0) * 3 + 100, np.arange(21.0) + 99.5
THIRDS, UNEVEN = np.linspace(100, 133.3, 38), np.cumsum(1.0 + np.arange(41) % 5) + 90
TINY = np.arange(-8, 9) * 2.0**-1020

# Locator, dtypes, edges, whether they are evenly spaced.
MAPS: tuple[tuple[str, tuple[str, ...], Edges, bool], ...] = (
    ("value", ("uint8", "int8"), np.linspace(0, 100, 33), False),
    ("narrow", ("int16", "uint16"), np.arange(41.0) * 3 - 20.5, True),
    ("shift", ("int32", "uint32", "int64", "uint64"), EVEN, True),
    ("unit", ("int32", "uint64"), HALVES, True),
    ("linear", ("int32", "uint32"), THREES, True),
    ("stepped", ("float16", "float32", "float64", "int64"), THIRDS, True),
    ("searched", ("uint16", "float32", "int64", "float64"), UNEVEN, False),
)


def per_row(rows: int, bins: int = 17) -> Edges:
    """Other edges for each row, each spaced in its own way."""
    return np.array([np.sort(RANDOM(row).uniform(0, 50.0 * (1 + row % 4), bins + 1)) for row in range(rows)])


def _crowded(cp: Any, turns: bool) -> None:
    """One block counts more than 2^16 samples in each bin of two rows."""
    samples = np.tile(np.array([1, 1, 2], np.uint8), 100_000)
    binnings, bounds = binnings_of("uint8", EVEN - 100, True), np.array([0, 150_000, 300_000])
    with few_blocks(WHOLE, 1), patch.object(of_rows, "LANES", 1):  # without copies
        if turns:
            got = of_rows.histogram_turns(cp.asarray(samples), binnings, 2, 0)
        else:
            got = of_rows.histogram_runs(cp.asarray(samples), binnings, bounds)
    of = np.arange(300_000) % 2 if turns else np.repeat([0, 1], 150_000)
    same(got, expected_counts(samples, of, 2, EVEN - 100))


def _case(kernel: str, what: str, check: Any, **given: Any) -> Case:
    return Case("histogram/rows", kernel, what, partial(check, **given))


def rows_cases() -> Iterator[Case]:
    """Every locator, for rows that take turns and rows that follow each other; slices; many turns of a thread."""
    number = 0
    for locator, dtypes, edges, regular in MAPS:
        for dtype in dtypes:
            given: Any = {"dtype": dtype, "edges": edges, "regular": regular, "start": number % 3}
            rows, size = (2, 3, 7, 16, 33, 384)[number % 6], (1500, 3001, 70)[number % 3]
            yield _case("rows_in_turns", f"{locator} {dtype}, {rows} rows, {size} from {number % 3}", turns,
                        **given, rows=rows, size=size, first=number % rows)  # fmt: skip
            lengths = ((700, 1, 0, 900), (33,) * 20, (1,) * 40)[number % 3]
            yield _case("rows_in_runs", f"{locator} {dtype}, {len(lengths)} rows from {number % 3}", runs,
                        **given, lengths=lengths)  # fmt: skip
            number += 1
    # Threads that load several times: packs of every width.
    for dtype, edges, regular, rows in (
        ("uint8", THIRDS, True, 2), ("int16", THREES, True, 16), ("int16", THREES, True, 5), ("int32", EVEN, True, 4),
        ("float64", UNEVEN, False, 3),
    ):  # fmt: skip
        size = 17 * 1024 * 4 + 77 if np.dtype(dtype).itemsize < 4 else 17 * 1024 + 77
        given = {"dtype": dtype, "edges": edges, "regular": regular, "start": 1, "blocks": 1}
        yield _case("rows_in_turns", f"{dtype}, {rows} rows, {size} in one block", turns, **given, rows=rows, size=size)
        if rows != 5:
            yield _case("rows_in_runs", f"{dtype}, {size} in one block", runs, **given, lengths=(3, size - 1003, 1000))
    # Fewer samples than come before an aligned one.
    for dtype, rows in (("uint8", 2), ("int16", 3)):
        given = {"dtype": dtype, "edges": THREES, "regular": True, "start": 1}
        yield _case("rows_in_turns", f"{dtype}, {rows} rows, 2 from 1", turns, **given, rows=rows, size=2)
        yield _case("rows_in_runs", f"{dtype}, {rows} rows, 2 from 1", runs, **given, lengths=(1, 1))
    yield Case("histogram/rows", "rows_in_turns", "counters above 16 bits", partial(_crowded, turns=True))
    yield Case("histogram/rows", "rows_in_runs", "counters above 16 bits", partial(_crowded, turns=False))
    # Blocks that have room for some of the rows, several of them for the same.
    for dtype, edges, regular, rows, shared in (
        ("int16", THREES, True, 96, 2**13), ("int32", EVEN, True, 33, 2**12), ("float32", THIRDS, True, 16, 2**11),
        ("float32", UNEVEN, False, 40, 2**12), ("uint8", EVEN, True, 20, 2**13),
        ("float64", per_row(9), False, 9, 2**13), ("uint16", per_row(20), False, 20, 2**13),
        ("int8", per_row(10), False, 10, 2**13),
    ):  # fmt: skip
        given = {"dtype": dtype, "edges": edges, "regular": regular, "shared": shared, "start": 1}
        yield _case("rows_in_turns", f"{dtype}, {rows} rows in slices", turns, **given, rows=rows, size=5003, first=3,
                    blocks=16)  # fmt: skip
    for dtype in ("int16", "float32", "uint8", "int64"):
        given = {"dtype": dtype, "edges": per_row(5), "regular": False, "start": 1}
        yield _case("rows_in_turns", f"{dtype}, edges of each", turns, **given, rows=5, size=2503, first=2)
        yield _case("rows_in_runs", f"{dtype}, edges of each", runs, **given, lengths=(5, 900, 0, 40, 1300), blocks=3)
