"""Small ragged inputs for histograms whose slots are put together in groups: see all.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from kernels.common import device
from kernels.histogram.binning import Binning
from kernels.histogram.grouped import _groups, _plan
from kernels.histogram.reference import histogram_reference
from kernels.histogram.refined import refined_binning
from tests.cases.case import RANDOM, Case, same
from tests.emulator.device import LIMITS

Keeps = Callable[[NDArray[Any]], NDArray[np.bool_]]

# What is kept, and where that changes.
CONDITIONS: dict[str, tuple[Keeps, tuple[Keeps, ...]]] = {
    "all": (lambda x: x == x, ()),
    "not one number": (lambda x: x != 101.5, (lambda x: x >= 101.5, lambda x: x > 101.5)),
    "neither of two": (lambda x: (x != 101.5) & (x != 0), tuple(
        partial(reached, number) for number in (101.5, 0.0) for reached in (
            lambda number, x: x >= number, lambda number, x: x > number))),
    "a range in a bin, NaN": (lambda x: ~((x > 104.1) & (x < 104.3)), (lambda x: x > 104.1, lambda x: x >= 104.3)),
    "but a range across bins": (lambda x: (x < 102.2) | (x >= 107.9), (lambda x: x >= 102.2, lambda x: x >= 107.9)),
}  # fmt: skip
FLOATS = ("float16", "float32", "float64")


def _grouped(dtype: str, what: str, edges: NDArray[np.float64], size: int, shared: int, cp: Any) -> None:
    keeps, changes = CONDITIONS[what]
    kind = np.dtype(dtype)
    samples = np.round(RANDOM(size).uniform(98, 114, size), 1).astype(kind)
    if kind.kind == "f":
        samples[::5] = np.resize(np.array([101.5, 0.0, -0.0, np.nan, np.inf, -np.inf, 104.2], kind), len(samples[::5]))
    refined = refined_binning(Binning(kind, edges, True), changes, keeps)
    assert refined is not None
    limits = replace(LIMITS, shared_per_block=shared, multiprocessors=1)
    with patch.object(device, "limits", lambda: limits):
        got = refined.count(cp.asarray(samples))
    for cached in (_plan, _groups):  # they hold arrays of the device
        cached.cache_clear()
    kept = keeps(samples)
    same(got, np.append((~kept).sum(), histogram_reference(samples[kept], edges)))


def grouped_cases() -> Iterator[Case]:
    """One launch, with whole tiles or without, and counts that are added up by a second one."""
    for number, dtype in enumerate(FLOATS):
        for what in CONDITIONS:
            check = partial(_grouped, dtype, what, np.linspace(100, 110.0, 21), 1025 + number, 2**14)
            yield Case("histogram/grouped", "grouped_steps", f"{dtype}, {what}", check)
    tiles = partial(_grouped, "float32", "neither of two", np.linspace(100, 110.0, 21), 3 * 2**14 + 5, 2**14)
    yield Case("histogram/grouped", "grouped_steps", "float32, three tiles", tiles)
    for dtype, bins in (("int32", 10), ("int16", 1500)):
        check = partial(_grouped, dtype, "but a range across bins", np.linspace(100, 110.0, bins + 1), 1025, 2**15)
        yield Case("histogram/grouped", "regroup", f"{dtype}, {bins} bins", check)
