"""The guess of histogram_regular, replayed in NumPy: whatever it accepts without looking at thresholds is right."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.binning import Binning
from kernels.histogram import C_TYPES, KEYS, device_line
from workflows.histogram import HistogramOptions

WIDE = [dtype for dtype in C_TYPES if np.dtype(dtype).itemsize > 1]


def replay(binning: Binning, samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bins that the kernel's arithmetic guesses, and which of them it takes without a look at the thresholds."""
    key = np.dtype(KEYS.get(binning.dtype.name, binning.dtype))
    guess = np.float32 if key.itemsize == 4 else np.float64
    scale, offset, below, above = device_line(binning)
    start, x = binning.thresholds[0].astype(key), samples.astype(key)
    if key.kind == "f":
        distance = (x - start).astype(guess)
    else:
        # Exact in Python, then rounded once: what the unsigned difference is on the device.
        distance = np.array([guess(int(value) - int(start)) for value in x], guess)
    line = distance * scale + offset
    top = min(len(binning.thresholds), binning.bins) - 1
    found = np.where(line < guess(top + 1), np.trunc(line), guess(top))
    inside = line - found
    return found.astype(int), (inside >= 0) & (inside > above) & (guess(1) - inside > below)


@settings(deadline=None, max_examples=150)
@given(
    dtype=st.sampled_from(WIDE),
    bins=st.integers(1, 5000),
    lower=st.floats(-1e7, 1e7),
    width=st.floats(1e-3, 1e8),
    seed=st.integers(0, 2**32 - 1),
)
def test_an_accepted_guess_is_right(dtype: str, bins: int, lower: float, width: float, seed: int) -> None:
    try:
        binning = HistogramOptions(bins=bins, range=(lower, lower + width)).binning(np.dtype(dtype))
    except ValueError:
        return  # too many bins for so narrow a range
    thresholds = binning.thresholds
    if not len(thresholds):
        return
    values = np.random.default_rng(seed).uniform(lower, lower + width, 500)
    with np.errstate(all="ignore"):
        if binning.dtype.kind == "f":
            beside = np.nextafter(thresholds, binning.dtype.type(-np.inf))
            samples = np.concatenate((values.astype(dtype), thresholds, beside))
        else:
            bounds = np.iinfo(dtype)
            inside = values[(values > bounds.min) & (values < bounds.max)].astype(dtype)
            samples = np.concatenate((inside, thresholds, thresholds[thresholds > bounds.min] - np.array(1, dtype)))
        samples = samples[samples >= thresholds[0]]
        if len(thresholds) > binning.bins:
            samples = samples[samples < thresholds[-1]]
        found, accepted = replay(binning, samples)
    right = np.searchsorted(thresholds, samples, side="right") - 1
    np.testing.assert_array_equal(found[accepted], right[accepted])


@pytest.mark.parametrize("dtype", ["int32", "uint16", "float32", "float64"])
def test_hardly_a_guess_is_looked_up(dtype: str) -> None:
    """The bound is worth its evaluation: on ordinary data nearly every guess is accepted."""
    binning = HistogramOptions(bins=1000, range=(0, 1000)).binning(np.dtype(dtype))
    samples = np.random.default_rng(0).uniform(0, 1000, 10_000).astype(dtype)
    _, accepted = replay(binning, samples)
    assert accepted.mean() > 0.99
