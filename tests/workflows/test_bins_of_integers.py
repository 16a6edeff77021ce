"""Bins of integers: a whole number wide, unless the user says otherwise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tests.cases.reduce import DTYPES, FLOATS
from tests.workflows.test_bins import ECG, counted

pytestmark = pytest.mark.usefixtures("shared")


@pytest.mark.parametrize("dtype", [name for name in DTYPES if name not in FLOATS])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_bins_of_integers_hold_equally_many(dtype: str, data: st.DataObject) -> None:
    samples = data.draw(arrays(dtype, st.integers(1, 20)))
    got = counted(samples, range="auto")
    lowest, highest = int(samples.min()), int(samples.max())
    assert got.choice is not None and 1 <= len(got.counts) <= 1024
    width, first = int(got.choice.width), int(got.edges[0])
    assert (np.diff(got.edges) == width).all() and first <= lowest and highest < int(got.edges[-1])
    if int(got.edges[-1]) <= 2**53 and -first <= 2**53:  # float64 has all integers
        assert first == lowest and int(got.edges[-1]) <= highest + width  # nothing lies on the last edge
        assert width == 1 or (highest - lowest + 1) > 1024 * (width - 1)
    counts = np.bincount(
        [(int(float(value)) - first) // width for value in samples.tolist()], minlength=len(got.counts)
    )
    assert np.array_equal(got.counts, counts)


def test_span_beyond_what_either_end_is() -> None:
    """Of 2^55 and more, whose parts float64 has only as multiples of 8."""
    samples = np.array([25607474419126027, -18014398509453553])
    got = counted(samples, range="auto")
    assert (np.diff(got.edges) == got.edges[1] - got.edges[0]).all() and got.counts.sum() == 2


def test_the_recording_is_no_comb() -> None:
    samples = np.load(ECG)
    got = counted(samples, range="auto")
    assert (got.edges[0], got.edges[-1], len(got.counts)) == (327, 1755, 714)
    assert np.array_equal(got.counts, np.bincount((samples - 327) // 2, minlength=714))
    assert dict(got.lines())["bins"] == "each 2 wide: as many integers"
    one = counted(np.full(9, 5, np.int8), range="auto")
    assert (one.edges.tolist(), one.counts.tolist()) == ([5, 6], [9])


def test_what_the_user_says_holds() -> None:
    samples = np.load(ECG)
    said = counted(samples, bins=1024, range="auto")
    assert np.array_equal(said.edges, np.linspace(327, 1754, 1025)) and said.choice is None
    assert np.array_equal(counted(samples).edges, np.arange(1025))
    for ends, number in (
        ((0, 2000), 1000),
        ((0, 2000.5), 1024),
        ((0, 2047), 2047),
        ((900, 1000), 100),
        ((-0.5, 1999.5), 1000),
    ):
        got = counted(samples, range=ends)
        assert np.array_equal(got.edges, np.linspace(*ends, number + 1))
        assert np.array_equal(got.counts, np.histogram(samples, number, ends)[0])
        assert len(counted(samples, range=ends, bins=1024).counts) == 1024
        assert len(counted(samples.astype(float), range=ends).counts) == 1024
    floats = counted(samples.astype(np.float32), range="auto")
    assert np.array_equal(floats.edges, np.linspace(327, 1754, 1025))
