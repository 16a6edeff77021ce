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
    limits = replace(LIMITS, shared_per_block=shared, multiprocessors=1 if few else LIMITS.multiprocessors)
    with patch.object(device, "limits", lambda: limits):
        got = histogram(cp.asarray(samples)[start:], Binning(kind, edges, regular))
    same(got, histogram_reference(samples[start:], edges))


def _neighbours(values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The next value below and above each."""
    kind = values.dtype
    if kind.kind == "f":
        return np.nextafter(values, kind.type(-np.inf)), np.nextafter(values, kind.type(np.inf))
    limit = np.iinfo(kind)
    return np.maximum(values, limit.min + 1) - kind.type(1), np.minimum(values, limit.max - 1) + kind.type(1)


def histogram_cases() -> Iterator[Case]:
    """Every production kernel: aligned or not, with or without whole tiles, with one or several copies of counters."""
    even, uneven = np.arange(41.0) * 2 + 100, np.cumsum(1.0 + np.arange(41) % 5) + 90
    thirds = np.linspace(100, 133.3, 38)
    for kernel, dtypes, edges, regular in (
        ("histogram_bytes", ("uint8", "int8"), np.linspace(0, 100, 33), False),
        ("histogram_narrow", ("int16", "uint16"), np.arange(41.0) * 3 - 20.5, True),
        ("histogram_shift", ("int16", "int32", "uint64"), even, True),
        ("histogram_regular", ("float16", "int32", "float64", "float32"), thirds, True),
        ("histogram_search", ("uint16", "float32", "int64"), uneven, False),
    ):
        for number, dtype in enumerate(dtypes):
            tile = 1024 * 4 * 16 // np.dtype(dtype).itemsize
            for size, start in ((tile + 517, 1), (1025, 0))[number % 2 :]:
                check = partial(_histogram, dtype, edges, regular, size, start, LIMITS.shared_per_block)
                yield Case("histogram/gpu", kernel, f"{dtype}, {size} from {start}", check)
    # Several tiles to a block, an even number of them and an odd one.
    for tiles in (4, 5):
        size = tiles * 1024 * 4 * 2 + 5
        check = partial(_histogram, "int64", even, True, size, 0, LIMITS.shared_per_block, few=True)
        yield Case("histogram/gpu", "histogram_shift", f"int64, {tiles} tiles", check)
    for tiles in (2, 3):  # alternating between two buffers
        size = tiles * 1024 * 4 * 4 * 2 + 5
        check = partial(_histogram, "float32", uneven, False, size, 0, LIMITS.shared_per_block, few=True)
        yield Case("histogram/gpu", "histogram_search", f"float32, {tiles} tiles", check)
    yield Case("histogram/gpu", "histogram_shift", "int64, one bin above 16 bits", _full_counters)
    # Edges that no sample reaches, and several windows.
    check = partial(_histogram, "uint64", np.linspace(100, 2.5e19, 38), True, 1025, 0, LIMITS.shared_per_block)
    yield Case("histogram/gpu", "histogram_regular", "uint64, edges beyond", check)
    yield Case(
        "histogram/gpu", "histogram_bytes", "uint8, 3 from 1", partial(_histogram, "uint8", even, False, 3, 1, 2**16)
    )
    # Cells by bits; with more thresholds than an entry can say; thresholds that shared memory does not hold; none.
    above = np.append(0.0, np.geomspace(1e-40, 1e30, 30))  # so that -0.0 is on the first edge
    both_signs = np.concatenate((-above[:0:-1], above))
    crowded = np.append(np.arange(2500.0), 1e18)
    for dtype, edges, shared in (
        ("float32", np.geomspace(1e-40, 1e30, 60), LIMITS.shared_per_block),
        ("float64", np.geomspace(1e-300, 1e300, 60), 2560),
        ("float32", both_signs, LIMITS.shared_per_block),
        ("float64", both_signs, LIMITS.shared_per_block),
        ("float32", above, LIMITS.shared_per_block),
        ("float64", above, LIMITS.shared_per_block),
        # A cell for each number: one begins at 0.0, where -0.0 belongs, too.
        ("float32", np.arange(-20, 21) * 2.0**-149, LIMITS.shared_per_block),
        ("float64", np.arange(-20, 21) * 2.0**-1074, LIMITS.shared_per_block),
        ("int64", crowded, LIMITS.shared_per_block),
        ("int32", np.array([1e300, 2e300]), LIMITS.shared_per_block),
    ):
        check = partial(_histogram, dtype, edges, False, 1025, 0, shared)
        yield Case("histogram/gpu", "histogram_search", f"{dtype}, {len(edges)} edges, {shared} bytes", check)
    many = np.cumsum(1.0 + np.arange(400) % 5) + 90
    for kernel, dtype, edges, regular in (
        ("histogram_search", "uint16", np.append(many, 1e6 + np.arange(300.0)), False),
        ("histogram_search", "float32", many, False),
        ("histogram_regular", "float64", np.linspace(100, 133.3, 400), True),
        ("histogram_shift", "int32", np.arange(400.0) * 2 + 100, True),
    ):
        check = partial(_histogram, dtype, edges, regular, 1025, 0, 512)
        yield Case("histogram/gpu", kernel, f"{dtype} in windows", check)
    check = partial(_histogram, "float32", even, True, 1025, 0, LIMITS.shared_per_block)
    yield Case("histogram/gpu", "histogram_regular", "float32, positions that are sure", check)
    for bins in (400, 401):  # just more than one window holds
        check = partial(_histogram, "int32", np.arange(bins + 1.0) * 2 + 100, True, 1025, 0, 1024)
        yield Case("histogram/gpu", "histogram_shift", f"int32, {bins} bins in two windows", check)


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
            size = 1100 if name == "banks4" else 700
        if name == "global_atomics":  # slices so long that the last begins more than 2^31 samples beyond the end
            check = partial(_ladder, variant, 5, {"blocks": 1, "threads": 3, "slice": 2**31 - 1})
            yield Case("study/histogram", name, "5 in slices of 2^31 - 1", check)
        check = partial(_ladder, variant, size, own)
        yield Case("study/histogram", name, f"{size}, {own}", check, variant.broken is not None)
