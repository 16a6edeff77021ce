"""Small ragged inputs for the histograms: see all.py."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from kernels.common import device
from kernels.histogram.binning import Binning
from kernels.histogram.gpu import histogram
from kernels.histogram.reference import histogram_reference
from kernels.study import histogram as histogram_ladder
from kernels.study.variant import Variant
from tests.cases.case import RANDOM, Case, same
from tests.emulator.device import LIMITS


def _histogram(
    dtype: str,
    edges: NDArray[np.float64],
    regular: bool,
    size: int,
    start: int,
    shared: int,
    cp: Any,
    few: bool = False,
) -> None:
    """`shared` limits the memory of a block, so that few slots take several windows. `few`: one multiprocessor."""
    kind = np.dtype(dtype)
    limit: Any = np.finfo(kind) if kind.kind == "f" else np.iinfo(kind)
    most = np.nextafter(float(limit.max), 0)  # float64 cannot represent the greatest 64-bit integer
    low, high = np.clip((edges[0] - 3, edges[-1] + 3), float(limit.min) / 2, float(most) / 2)
    samples = np.clip(RANDOM(size).uniform(low, high, size + start), limit.min, most).astype(dtype)
    samples[::7] = samples[0]  # many meet in one bin
    on_edges = np.clip(edges, limit.min, most).astype(dtype)
    special = RANDOM(2).permutation(np.concatenate((on_edges, *_neighbours(on_edges))))[: size // 2]
    samples[size // 2 :][: len(special)] = special
    if kind.kind == "f":
        samples[3::101] = np.nan
        samples[5::101] = -np.nan
        samples[7::101] = -0.0
    ends = np.array([-np.inf, np.inf] if kind.kind == "f" else [limit.min, limit.max], dtype)
    samples[9::101] = np.resize(ends, len(samples[9::101]))
    limits = replace(LIMITS, shared_per_block=shared, multiprocessors=1 if few else LIMITS.multiprocessors)
    with patch.object(device, "limits", lambda: limits):
        got = histogram(cp.asarray(samples)[start:], Binning(kind, edges, regular))
    same(got, histogram_reference(samples[start:], edges))


def _neighbours(values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The next value below and above each."""
    kind = values.dtype
    if kind.kind == "f":
        with np.errstate(over="ignore"):
            return np.nextafter(values, kind.type(-np.inf)), np.nextafter(values, kind.type(np.inf))
    limit = np.iinfo(kind)
    return np.maximum(values, limit.min + 1) - kind.type(1), np.minimum(values, limit.max - 1) + kind.type(1)


# A block's memory in which a few hundred bins take several windows.
LITTLE = 1280


def _edges() -> Iterator[tuple[str, str, NDArray[np.float64], str]]:
    """Kernel, dtype, evenly spaced edges and what is special: those that integers are mapped to, in one window."""
    even, halves = np.arange(41.0) * 2 + 100, np.arange(41.0) - 0.5
    # Counters of bins one value wide begin with the first bin if no sample lies below it.
    for dtype in ("int32", "uint32", "uint64"):
        first, top = float(np.iinfo(dtype).min), min(float(np.iinfo(dtype).max), 2.0**52)
        yield "histogram_shift", dtype, first + np.arange(41.0), "from the lowest sample on"
        yield "histogram_shift", dtype, top - np.arange(41.0)[::-1], "to the top"
        yield "histogram_shift", dtype, halves + 100, "edges between samples"
        yield "histogram_shift", dtype, halves + first, "edges between the lowest samples"
    yield "histogram_shift", "uint64", even, "two wide"
    yield "histogram_shift", "uint32", 2.0**32 - even[::-1] + 100, "two wide, to beyond the top"
    yield "histogram_linear", "int32", np.linspace(-(2.0**31), 2.0**31, 38), "all samples"
    yield "histogram_linear", "uint32", np.linspace(2.0**31, 2.0**32, 38), "to the top"
    yield "histogram_linear", "uint32", np.linspace(-1e6, 1e6, 38), "from below the lowest sample on"
    yield "histogram_steps", "uint64", np.linspace(0, 999, 38), "from the lowest sample on"
    yield "histogram_steps", "uint64", np.linspace(100, 2.5e19, 38), "edges beyond"
    yield "histogram_steps", "float16", np.linspace(-6e4, 7e4, 38), "edges at infinity"
    yield "histogram_steps", "float32", np.linspace(1e38, 5e38, 38), "edges at infinity"
    yield "histogram_steps", "float64", np.arange(-20, 21) * 2.0**-1020, "subnormal"


def _windows() -> Iterator[tuple[str, str, NDArray[np.float64], bool]]:
    """Kernel, dtype, edges and whether they are evenly spaced, for blocks that have little memory."""
    # Two windows of an even and of an odd number of counters, and three.
    for bins in (480, 481, 1200):
        even = np.arange(bins + 1.0)
        yield "histogram_shift", "int32", even + 100, True
        yield "histogram_shift", "int64", even * 2 + 100, True
        yield "histogram_shift", "uint32", even, True
        yield "histogram_linear", "int32", even * 3 + 100, True
    yield "histogram_shift", "int16", np.arange(481.0) * 2 + 100, True
    yield "histogram_steps", "float64", np.linspace(100, 133.3, 400), True
    yield "histogram_steps", "float16", np.linspace(-6e4, 7e4, 400), True
    yield "histogram_steps", "int32", 17.3 + 0.61 * np.arange(400), True
    yield "histogram_search", "uint16", np.append(np.cumsum(1.0 + np.arange(400) % 5), 1e6 + np.arange(300.0)), False
    yield "histogram_search", "float32", np.append(np.cumsum(1.0 + np.arange(400) % 5), 1e39 * np.arange(1, 5)), False
    yield "histogram_search", "int64", np.cumsum(1.0 + np.arange(400) % 5) - 500, False


def _searched() -> Iterator[tuple[str, NDArray[np.float64], str]]:
    """Dtype, irregular edges and what is special about the cells of their table."""
    above = np.append(0.0, np.geomspace(1e-40, 1e30, 30))  # so that -0.0 is on the first edge
    both_signs = np.concatenate((-above[:0:-1], above))
    apart, few = np.cumsum(1.0 + np.arange(41) % 5), 2.0 ** -np.arange(10, 13)
    yield "float32", np.geomspace(1e-40, 1e30, 60), "by bits"
    for dtype in ("float32", "float64"):
        tiny = float(np.finfo(dtype).smallest_subnormal)
        yield dtype, both_signs, "by bits, of both signs"
        yield dtype, above, "by bits, from zero on"
        # A cell for each number: one begins at 0.0, where -0.0 belongs, too.
        yield dtype, np.arange(-20, 21) * tiny, "by bits, a cell for each number"
        yield dtype, np.array([-(2.0**20), -1, 0, 300_343]) * tiny, "by bits, a cell that begins at zero"
        yield dtype, np.append(both_signs, float(np.finfo(dtype).max)), "by bits, the last at infinity"
        yield dtype, np.append(apart, float(np.finfo(dtype).max)), "the last at infinity"
    yield "float16", np.append(apart, [6e4, 1e5, 2e5, 3e5]), "several at infinity"
    yield "float32", np.append(apart, [1e39, 2e39]), "two at infinity"
    yield "float16", np.append(-1e5 * np.arange(5, 0, -1), apart), "several at minus infinity"
    for dtype in ("float32", "float64", "int64", "uint64"):
        close = few if dtype.startswith("f") else np.arange(1.0, 4)
        scale = 1.0 if dtype.startswith("f") else 2.0**20
        yield dtype, np.unique(np.append(scale * apart, scale * apart[:, None] + close[:1])), "two in a cell"
        yield dtype, np.unique(np.append(scale * apart, scale * apart[:, None] + close)), "four in a cell"
    yield "int64", np.append(np.arange(2500.0), 1e18), "nearly all in one cell"
    yield "int32", np.array([1e300, 2e300]), "none in reach"
    yield "uint32", np.append([-5.0, -3.0, 0.0], np.cumsum(1.0 + np.arange(41) % 5)), "some that all samples pass"


def histogram_cases() -> Iterator[Case]:
    """Every production kernel: aligned or not, with or without whole tiles, with one or several copies of counters."""
    whole = LIMITS.shared_per_block
    even, uneven = np.arange(41.0) * 2 + 100, np.cumsum(1.0 + np.arange(41) % 5) + 90
    thirds = np.linspace(100, 133.3, 38)
    for kernel, dtypes, edges, regular in (
        ("histogram_bytes", ("uint8", "int8"), np.linspace(0, 100, 33), False),
        ("histogram_narrow", ("int16", "uint16"), np.arange(41.0) * 3 - 20.5, True),
        ("histogram_shift", ("uint32", "int32", "uint64"), even, True),
        ("histogram_linear", ("uint32", "int32"), np.arange(41.0) * 3 + 100, True),
        ("histogram_steps", ("float16", "float32", "float64"), thirds, True),
        ("histogram_steps", ("int64", "uint64"), np.linspace(-900, 1000.5, 38) + 900, True),
        ("histogram_search", ("uint16", "float32", "int64"), uneven, False),
    ):
        for number, dtype in enumerate(dtypes):
            tile = 1024 * 4 * 16 // np.dtype(dtype).itemsize
            for size, start in ((tile + 517, 1), (1025, 0))[number % 2 :]:
                check = partial(_histogram, dtype, edges, regular, size, start, whole)
                yield Case("histogram/gpu", kernel, f"{dtype}, {size} from {start}", check)
    # Several tiles to a block: one or two, two, two or three.
    for tiles in (3, 4, 5):
        for kernel, dtype, edges, regular in (
            ("histogram_shift", "int64", even, True),
            ("histogram_steps", "float32", thirds, True),  # alternating between two buffers
            ("histogram_search", "float64", uneven, False),
        ):
            size = tiles * 1024 * 4 * 16 // np.dtype(dtype).itemsize + 5
            check = partial(_histogram, dtype, edges, regular, size, 0, whole, few=True)
            yield Case("histogram/gpu", kernel, f"{dtype}, {tiles} tiles", check)
    yield Case("histogram/gpu", "histogram_shift", "int64, one bin above 16 bits", _full_counters)
    for kernel, dtype, edges, what in _edges():
        yield Case("histogram/gpu", kernel, f"{dtype}, {what}", partial(_histogram, dtype, edges, True, 1025, 0, whole))
    for dtype, edges, what in _searched():
        check = partial(_histogram, dtype, edges, False, 1025, 0, whole)
        yield Case("histogram/gpu", "histogram_search", f"{dtype}, {what}", check)
    for kernel, dtype, edges, regular in _windows():
        check = partial(_histogram, dtype, edges, regular, 1025, 0, LITTLE)
        yield Case("histogram/gpu", kernel, f"{dtype}, {len(edges) - 1} bins in windows", check)
    # So many thresholds that entries take four bytes; a tenth of them in one cell.
    many = np.append(np.arange(15_000.0) * 16, 1e5 + np.arange(1, 1600) / 1024)
    check = partial(_histogram, "float32", np.unique(many), False, 1025, 0, whole, few=True)
    yield Case("histogram/gpu", "histogram_search", "float32, 16,598 bins", check)
    yield Case(
        "histogram/gpu", "histogram_bytes", "uint8, 3 from 1", partial(_histogram, "uint8", even, False, 3, 1, 2**16)
    )


def _full_counters(cp: Any) -> None:
    """One block puts so many samples into one bin that no copy of its counter fits 16 bits."""
    edges = np.arange(5.0)
    samples = np.full(2 * 2**16 + 501, 2)
    with patch.object(device.Limits, "resident_blocks", lambda *_: 1):
        found = histogram(cp.asarray(samples), Binning(samples.dtype, edges, True))
    same(found, histogram_reference(samples, edges))


def _ladder(variant: Variant, size: int, own: dict[str, int], cp: Any) -> None:
    samples = RANDOM(1).integers(-3, 1027, size, np.int32)
    samples[1::3] = 5
    samples[-2:] = 1024, -1  # not counted
    if variant.unfit:
        samples %= 1024
    samples[: size // 3] = 0 if not variant.broken else 5
    same(variant.run(cp.asarray(samples), **own), histogram_ladder.ten_bit_reference(samples))


def ladder_cases() -> Iterator[Case]:
    """The 10-bit histograms in a few blocks, the last of them ragged."""
    sliced = {"blocks": 5, "threads": 96, "slice": 11}
    for name, variant in histogram_ladder.VARIANTS.items():
        own = {key: value for key, value in sliced.items() if key in variant.parameters}
        size = 5 * 96 * 11 - 31
        if name == "one_per_thread":
            own, size = {"blocks": 5, "threads": 96}, 5 * 96 - 31
        if name == "inverse":
            own, size = {"blocks": 2, "slice": 1030}, 1131
        if name.startswith("banks"):  # each thread reads all samples of its block
            size = 1100 if name in ("banks4", "banks_if") else 700
        if name == "global_atomics":  # slices so long that the last begins more than 2^31 samples beyond the end
            check = partial(_ladder, variant, 5, {"blocks": 1, "threads": 3, "slice": 2**31 - 1})
            yield Case("study/histogram", name, "5 in slices of 2^31 - 1", check)
        if name.startswith("course_"):  # which take whole slices of 10-bit samples
            own, size = {"blocks": 3, "threads": 96, "slice": 12}, 3 * 96 * 12
        check = partial(_ladder, variant, size, own)
        yield Case("study/histogram", name, f"{size}, {own}", check, variant.broken is not None)
