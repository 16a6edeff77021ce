"""Windows in which ranks lie, and the ranges of keys that they span."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from kernels.quantile.keys import to_keys
from kernels.quantile.ranges import HEAVY, Picked, Range, Window, ends_of, ranges_of, targets_of


def windows_of(ranks: list[int], numbers: int, drawn: int) -> list[Window]:
    places = [round(drawn * share + beyond) for share, beyond in targets_of(ranks, numbers, drawn)]
    return [Window(*ends) for ends in zip(places[::2], places[1::2], strict=True)]


@pytest.mark.parametrize("share", [0.0, 0.001, 0.1, 0.5, 1.0])
def test_ranks_lie_in_their_windows(share: float) -> None:
    """Of numbers that are drawn at random: the order statistic is between those that were drawn at the ends."""
    random, numbers, drawn = np.random.default_rng(0), 10**6, 2000
    rank = round(share * (numbers - 1))
    (window,) = windows_of([rank], numbers, drawn)
    missed = 0
    for _ in range(500):
        places = np.sort(random.integers(0, numbers, drawn))
        low = places[window.first] if window.first >= 0 else -1
        high = places[window.last] if window.last < drawn else numbers
        missed += not low <= rank <= high
    assert missed <= 3


def test_windows_that_overlap_are_one() -> None:
    windows = windows_of([0, 1, 500_000, 500_001, 510_000, 999_999], 10**6, 10_000)
    assert len(windows) == 3 and windows[0].first < 0 and windows[-1].last >= 10_000
    assert all(a.last < b.first for a, b in pairwise(windows))


def picked_of(keys: Any, windows: list[Window]) -> Picked:
    """As a search among keys that were drawn picks them."""
    places = [min(max(place, 0), len(keys) - 1) for window in windows for place in window]
    chosen = keys[places]
    return Picked(
        chosen.tolist(),
        [place - int(np.searchsorted(keys, key)) for place, key in zip(places, chosen, strict=True)],
        [int((keys == key).sum()) for key in chosen],
    )


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint64", "float64"])
def test_ranges_hold_the_keys_of_their_windows(dtype: str) -> None:
    """They overlap nowhere; every key of a window is in one; what is gathered is few, and about as much as is said."""
    random = np.random.default_rng(1)
    for number in range(300):
        most = int(random.choice([1, 2, 5, 40, 10**6]))
        keys = np.sort(to_keys(random.integers(0, most, 4096).astype(dtype)))
        ranks = np.unique(random.integers(0, 10**6, 1 + number % 5)).tolist()
        windows = windows_of([*([0] if number % 3 == 0 else []), *ranks, *([10**6 - 1] if number % 2 else [])],
                             10**6, len(keys))  # fmt: skip
        found = ranges_of(np.dtype(dtype), windows, picked_of(keys, windows), len(keys))
        every = sorted([*found.gathered, *found.counted])
        assert all(a.last < b.first for a, b in pairwise(every))
        assert all(first <= last for first, last in every)
        inside = np.zeros(len(keys), bool)
        for first, last in every:
            inside |= (keys >= first) & (keys <= last)
        for first, last in windows:
            assert inside[max(first, 0) : last + 1].all()
        kept = sum(int(((keys >= first) & (keys <= last)).sum()) for first, last in found.gathered)
        assert kept <= found.share * len(keys) + len(windows)
        assert kept <= sum(last - first + 1 for first, last in windows) + 2 * len(windows) * len(keys) / HEAVY
        assert all((keys == key).sum() * HEAVY > len(keys) for key, _ in found.counted)


def test_open_ends_reach_beyond_what_was_drawn() -> None:
    keys = np.sort(to_keys(np.random.default_rng(2).normal(size=1000)))
    windows = [Window(-3, 5), Window(990, 1004)]
    found = ranges_of(np.dtype(np.float64), windows, picked_of(keys, windows), len(keys))
    assert found.gathered == [Range(0, int(keys[5])), Range(int(keys[990]), ends_of(np.dtype(np.float64))[1])]
    assert ends_of(np.dtype(np.float64)) == tuple(to_keys(np.array([-np.inf, np.inf])).tolist())
    assert [ends_of(np.dtype(name)) for name in ("int32", "uint64")] == [(0, 2**32 - 1), (0, 2**64 - 1)]
