"""How two blocks divide counters, against Python's integers."""

from __future__ import annotations

import re

import numpy as np
import pytest

from kernels.common.nvrtc import KERNELS
from kernels.histogram.halves import half_bytes, halves

# From the first that takes two windows on any architecture to the last on an H200.
COUNTERS = (16_003, 16_387, 25_001, 40_003, 57_004, 65_539, 65_540, 85_182, 96_763, 99_999, 112_000)


def placed(counters: int) -> list[tuple[int, int]]:
    """Half and place of each counter, as `Halves` in halves.cuh finds them for one block or the other."""
    places, multiplier = halves(counters)
    found = []
    for counter in range(counters):
        for half in range(2):
            turned = (counter * multiplier + (half << 31)) % 2**32
            if (place := min(turned, 2**31) * 2 * places >> 32) < places:
                found.append((half, place))
            else:
                assert place == places
    return found


@pytest.mark.parametrize("counters", COUNTERS)
def test_every_counter_has_a_place_of_its_own(counters: int) -> None:
    found = placed(counters)
    assert len(found) == len(set(found)) == counters
    assert half_bytes(halves(counters)[0]) < 4 * counters * 0.52  # as little as every second one, spread over banks


def test_multiples_are_divided_among_both_halves_and_the_banks() -> None:
    found = np.array(placed(65_539))
    for step in (*range(2, 40), 64, 100, 128, 256, 512, 1000, 1024, 2048):
        half, place = found[1:-1:step].T
        assert 0.4 < half.mean() < 0.6, step
        banks = np.bincount(place % 32, minlength=32) / len(place)
        assert banks.max() < 0.125, step


def test_source_divides_as_the_tests_do() -> None:
    source = (KERNELS / "histogram" / "halves.cuh").read_text(encoding="utf-8")
    assert re.search(r"__umulhi\(min\(counter \* multiplier \+ phase, 1u << 31\), 2 \* places\)", source)
    assert "phase = blockIdx.x << 31" in source
