"""Guesses of histogram_steps: right or one too low for every sample, and made where they can be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kernels.histogram.binning import Binning
from kernels.histogram.guess import key_of
from kernels.histogram.launch import C_TYPES
from kernels.histogram.step_map import StepMap, step_map
from tests.cases.histogram import EDGES, GUESSED, beside, irregular, nasty
from workflows.histogram import HistogramOptions

WIDE = [dtype for dtype in C_TYPES if np.dtype(dtype).itemsize > 1]


def assert_never_more_than_one_too_low(binning: Binning, samples: NDArray[Any]) -> StepMap | None:
    line = step_map(binning)
    if line is None:
        return None
    samples = samples[samples == samples]
    keys = samples.astype(key_of(binning.dtype))
    guesses = line.guesses(keys)
    assert guesses.min() >= line.least and guesses.max() <= len(line.steps) - 1
    slots = binning.find(samples)
    assert np.isin(slots - guesses, (0, 1)).all()
    # What the kernel does then.
    np.testing.assert_array_equal(guesses + (keys > line.steps[guesses]), slots)
    return line


@pytest.mark.parametrize("dtype", WIDE)
def test_guesses_are_right_beside_every_edge(dtype: str) -> None:
    lines = 0
    cases = [numbers for numbers, regular in EDGES.values() if regular] + list(GUESSED.values())
    for numbers in cases:
        edges = np.asarray(numbers, np.float64)
        binning = Binning(np.dtype(dtype), edges, True)
        with np.errstate(invalid="ignore"):
            samples = np.concatenate((beside(binning), nasty(dtype, 2000, edges)))
        lines += assert_never_more_than_one_too_low(binning, samples) is not None
    assert lines > len(cases) // 3


@settings(deadline=None, max_examples=100)
@given(
    dtype=st.sampled_from(WIDE),
    bins=st.integers(1, 5000),
    lower=st.floats(-1e7, 1e7) | st.just(0.0),
    width=st.floats(1e-3, 1e8),
    seed=st.integers(0, 2**32 - 1),
)
def test_guesses_are_right(dtype: str, bins: int, lower: float, width: float, seed: int) -> None:
    try:
        binning = HistogramOptions(bins=bins, range=(lower, lower + width)).binning(np.dtype(dtype))
    except ValueError:
        return  # too many bins for so narrow a range
    values = np.random.default_rng(seed).uniform(lower, lower + width, 500)
    if binning.dtype.kind != "f":
        values = np.clip(values, float(np.iinfo(dtype).min), float(np.nextafter(float(np.iinfo(dtype).max), 0)))
    with np.errstate(all="ignore"):
        assert_never_more_than_one_too_low(binning, np.concatenate((values.astype(dtype), beside(binning))))


@pytest.mark.parametrize("dtype", ["int64", "uint64", "float32", "float64"])
@pytest.mark.parametrize("bins", [16, 1000, 2048, 65536])
def test_ordinary_bins_are_guessed(dtype: str, bins: int) -> None:
    """From zero or not, of any width: a search is slower."""
    for lower, upper in ((0, 3 * bins), (0, 10 * bins / 3), (0.5, 1e7), (bins / 3, 1e9), (100, 1.7e9)):
        binning = HistogramOptions(bins=bins, range=(lower, upper)).binning(np.dtype(dtype))
        assert assert_never_more_than_one_too_low(binning, beside(binning)) is not None, (lower, upper)


def test_wide_bins_of_32_bit_integers_are_guessed() -> None:
    """Where a line of 32 bits is not exact enough."""
    for dtype in ("int32", "uint32"):
        assert step_map(Binning(np.dtype(dtype), np.linspace(100, 1.7e9, 1001), True)) is not None


def test_no_guess_where_it_would_be_wrong() -> None:
    """Irregular edges, nothing in reach, distances beyond the largest float."""
    for dtype, edges in (
        ("float32", irregular(1, 1000, 0, 1)),
        ("float64", irregular(2, 1000, -1e9, 1e9)),
        ("int64", np.geomspace(1, 1e15, 100)),
        ("float32", np.linspace(-3e38, 3e38, 12)),
        ("uint16", np.linspace(1e6, 2e6, 11)),
        ("float64", np.arange(-6, 7) * 2.9e307),
    ):
        assert step_map(Binning(np.dtype(dtype), edges, True)) is None, (dtype, edges[:3])
