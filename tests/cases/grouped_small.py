"""Small ragged inputs for histograms whose slots are put together in groups: see all.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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

Keeps = Callable[[NDArray[Any]], NDArray[np.bool_]]

# What is kept, and where that changes.
CONDITIONS: dict[str, tuple[Keeps, tuple[Keeps, ...]]] = {
    "all": (lambda x: x == x, ()),
    "not one number": (lambda x: x != 101.5, (lambda x: x >= 101.5, lambda x: x > 101.5)),
    "neither of two": (lambda x: (x != 101.5) & (x != 0), tuple(
        partial(reached, number) for number in (101.5, 0.0) for reached in (
            lambda number, x: x >= number, lambda number, x: x > number))),
    "not one integer": (lambda x: x != 103, (lambda x: x >= 103, lambda x: x > 103)),
    "a range in a bin, NaN": (lambda x: ~((x > 104.1) & (x < 104.3)), (lambda x: x > 104.1, lambda x: x >= 104.3)),
    "but a range across bins": (lambda x: (x < 102.2) | (x >= 107.9), (lambda x: x >= 102.2, lambda x: x >= 107.9)),
}  # fmt: skip
FLOATS = ("float16", "float32", "float64")


def samples_of(dtype: str, size: int) -> NDArray[Any]:
    """Around the bins, and special ones."""
    samples = np.round(RANDOM(size).uniform(98, 114, size), 1).astype(dtype)
    if samples.dtype.kind == "f":
        special = np.array([101.5, 0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 104.2], samples.dtype)
        samples[::5] = np.resize(special, len(samples[::5]))
    return samples


def _grouped(what: str, edges: NDArray[np.float64], samples: NDArray[Any], blocks: int, start: int, cp: Any) -> None:
    keeps, changes = CONDITIONS[what]
    kind = samples.dtype
    refined = refined_binning(Binning(kind, edges, True), changes, keeps)
    assert refined is not None
    with patch.object(device.Limits, "resident_blocks", lambda *_: blocks):
        got = refined.count(cp.asarray(samples)[start:])
    for cached in (_plan, _groups):  # they hold arrays of the device
        cached.cache_clear()
    samples = samples[start:]
    kept = keeps(samples)
    same(got, np.append((~kept).sum(), histogram_reference(samples[kept], edges)))


def grouped_cases() -> Iterator[Case]:
    """One launch, with whole tiles or without, and counts that are added up by a second one."""
    edges = np.linspace(100, 110.0, 21)

    def case(
        kernel: str, what: str, samples: NDArray[Any], more: str = "", start: int = 0, bins: Any = edges,
        blocks: int = 3,
    ) -> Case:  # fmt: skip
        check = partial(_grouped, what, bins, samples, blocks, start)
        return Case("histogram/grouped", kernel, f"{samples.dtype}, {what}{more}", check)

    for number, dtype in enumerate(FLOATS):
        for what in CONDITIONS:
            yield case("grouped_steps", what, samples_of(dtype, 1025 + number))
    yield case("grouped_steps", "neither of two", samples_of("float32", 3 * 2**14 + 5), ", three tiles")
    yield case("grouped_steps", "neither of two", samples_of("float32", 3), ", 2 from 1", 1)
    many = np.repeat(np.array([105.1, 101], np.float32), 2**16 + 5)
    yield case("grouped_steps", "but a range across bins", many, ", one block above 16 bits", blocks=1)
    for dtype, bins in (("int32", np.linspace(60, 160.0, 101)), ("int16", np.linspace(100, 110.0, 1501))):
        yield case("regroup", "but a range across bins", samples_of(dtype, 1025), f", {len(bins) - 1} bins", bins=bins)
    bins = np.linspace(100, 112.0, 5)
    yield case("regroup", "not one integer", samples_of("int32", 1025), ", bins of three", bins=bins)
