"""Histograms under conditions that only compare x with numbers: no copy on a device, the same counts."""

from __future__ import annotations

from functools import reduce
from random import Random
from typing import Any

import numpy as np
import pytest

import workflows.selection
from tests.cases.conditions import DTYPES, FLOATS, INTEGERS, hostile
from tests.emulator.device import HOST
from tests.workflows.test_selection import selection
from workflows.histogram import HISTOGRAM, HistogramOptions
from workflows.reduce import REDUCE, ReduceOptions
from workflows.selection import selected


def of_ranges(random: Random, depth: int = 2) -> str:
    """A condition that compares x with numbers and nothing else."""
    if depth and random.random() < 0.6:
        joined = f" {random.choice(['and', 'or'])} ".join(of_ranges(random, depth - 1) for _ in range(2))
        return f"(not ({joined}))" if random.random() < 0.3 else f"({joined})"
    numbers = (random.randint(-5, 300), *random.sample(INTEGERS, 2), random.choice(FLOATS), 1e999, 0.5, 7, 1024, -1e999)
    number = str(random.choice(numbers)).replace("inf", "1e999")
    sign = random.choice(["<", "<=", "==", "!=", ">", ">="])
    return random.choice([f"x {sign} {number}", f"{number} {sign} x", "x == x"])


BINS = (
    HistogramOptions(), HistogramOptions(bins=37, range=(-5.0, 300.0)), HistogramOptions(bins=1, range=(0.0, 1e9)),
    HistogramOptions(bins=100, range=(0.0, 10.0)), HistogramOptions(edges=np.array([-7.5, 0, 0.1, 3, 1e4])),
    HistogramOptions(bins=3, range=(-1e300, -1e299)),
)  # fmt: skip


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
def test_histograms_of_ranges_of_values(dtype: str, cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples that are left out are counted, not removed first."""
    random = Random(DTYPES.index(dtype))
    samples = hostile(dtype, 1500, np.random.default_rng(random.getrandbits(32)))
    monkeypatch.setattr("workflows.selection.compact", None)
    for options in BINS:
        for _ in range(6):
            text = of_ranges(random)
            workflow = selected(HISTOGRAM, selection(text))
            got = workflow.compute(cp.asarray(samples), options, range(1500)).get()
            with np.errstate(all="ignore"):
                expected = workflow.reference(samples, options, range(1500))
            assert np.array_equal(got, expected), (text, options.all_edges)


@pytest.mark.gpu
def test_integers_that_float64_does_not_tell_apart(cp: Any) -> None:
    """Three ranges, in bins that none of these integers reaches, and among edges that rounding moves."""
    samples = 2**62 + np.arange(-600, 600)
    which = selection(f"{2**62} <= x < {2**62 + 3} or x >= {2**62 + 6}")
    for edges in ([1e19, 2e19], [2.0**62, 2.0**62 + 1024], [0.0, 2.0**62 - 512, 2.0**62 + 1024]):
        options = HistogramOptions(edges=np.array(edges))
        got = selected(HISTOGRAM, which).compute(cp.asarray(samples), options, range(1200)).get()
        assert np.array_equal(got, selected(HISTOGRAM, which).reference(samples, options, range(1200)))


@pytest.mark.parametrize(("dtype", "options", "text", "kernel"), [
    ("int32", HistogramOptions(), "0 <= x < 4000 and x != 7", "histogram_shift<"),
    ("int32", HistogramOptions(bins=1000, range=(0.0, 4e6)), "0 <= x < 400000", "histogram_linear<"),
    ("int32", HistogramOptions(bins=1000, range=(0.0, 3000.0)), "x != 7", "histogram_shift<"),
    ("int16", HistogramOptions(bins=1000, range=(0.0, 4000.0)), "0 <= x < 4000 and x != 7", "histogram_shift<"),
    ("uint8", HistogramOptions(), "x > 3", "histogram_bytes<"),
    ("float32", HistogramOptions(), "x == x", "grouped_steps<"),
    ("float32", HistogramOptions(bins=1000, range=(0.0, 4000.0)), "0 <= x < 4000", "grouped_steps<"),
    ("float32", HistogramOptions(), "3.3 < x < 900.6", "grouped_steps<"),
    ("float64", HistogramOptions(bins=1000, range=(-3.0, 3.0)), "0 <= x < 2 or not x == x", "grouped_steps<"),
    ("float32", HistogramOptions(), "x != 7.5", "grouped_steps<"),
    ("float32", HistogramOptions(), "x != 7.5 and not 8.1 < x < 8.2 and x < 9", "grouped_steps<"),
    ("float32", HistogramOptions(), "x != 1.5 and x != 2.5 and x != 3.5", "histogram_search<"),
])  # fmt: skip
def test_ranges_are_counted_by_fast_kernels(
    dtype: str, options: HistogramOptions, text: str, kernel: str, host: Any
) -> None:
    selected(HISTOGRAM, selection(text)).compute(host.zeros(10, np.dtype(dtype)), options, range(10))
    first, *others = (instance for _, instance in HOST.launched)
    assert first.startswith(kernel) and others == ["regroup"] * (not first.startswith("grouped_")), HOST.launched


@pytest.mark.gpu
@pytest.mark.parametrize(("text", "options"), [
    *((text, BINS[1]) for text in ("x < 10 and i > 5", "x * 2 < 10", "x < c", "x < 10 or abs(x) > 7", "c != 0")),
    ("x != 7", HistogramOptions(bins=5000)),  # so many bins, and one that is cut twice
])  # fmt: skip
def test_others_copy_what_they_keep(
    text: str, options: HistogramOptions, cp: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples, calls = np.arange(100, dtype=np.float32), list[str]()
    compact = workflows.selection.compact
    monkeypatch.setattr("workflows.selection.compact", lambda *given: calls.append("") or compact(*given))  # type: ignore[func-returns-value]
    workflow = selected(HISTOGRAM, selection(text, c=np.arange(100, dtype=np.int16) % 20))
    got = workflow.compute(cp.asarray(samples), options, range(100)).get()
    assert calls and np.array_equal(got, workflow.reference(samples, options, range(100)))


@pytest.mark.gpu
def test_blocks_of_which_nothing_is_kept(cp: Any) -> None:
    """Beside others: their partials are in the same memory."""
    samples, options = np.arange(200, dtype=np.float32), ReduceOptions("sum,argmin,argmax")
    workflow = selected(REDUCE, selection("50 <= x < 70"))
    blocks = [range(first, first + 50) for first in range(0, 200, 50)]
    partials = [workflow.compute(cp.asarray(samples[block.start : block.stop]), options, block) for block in blocks]
    total = reduce(workflow.combine, partials)
    expected = workflow.reference(samples, options, range(200))
    assert workflow.finalize(total, options).values == workflow.finalize(expected, options).values
