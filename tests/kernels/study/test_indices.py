"""Indices of the variants: the course's own pictures, the expressions of the sources, conflicts counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.common import nvrtc
from kernels.study.indices import REDUCTIONS, bank_map, conflicts, reduced

ONE_TO_EIGHT = list(range(1, 9))


def test_reductions_are_those_of_the_slides() -> None:
    """Seminar, réduction –1 to –4 and –6 to –9."""
    assert reduced("modulo", ONE_TO_EIGHT) == [
        [1, 2, 3, 4, 5, 6, 7, 8], [3, 2, 7, 4, 11, 6, 15, 8], [10, 2, 7, 4, 26, 6, 15, 8], [36, 2, 7, 4, 26, 6, 15, 8],
    ]  # fmt: skip
    assert reduced("sequential", ONE_TO_EIGHT) == [
        [1, 2, 3, 4, 5, 6, 7, 8], [6, 8, 10, 12, 5, 6, 7, 8], [16, 20, 10, 12, 5, 6, 7, 8],
        [36, 20, 10, 12, 5, 6, 7, 8],
    ]  # fmt: skip


@pytest.mark.parametrize("variant", REDUCTIONS)
@pytest.mark.parametrize("size", [1, 2, 7, 8, 1000, 1024])
def test_reductions_reach_the_sum(variant: str, size: int) -> None:
    if variant == "sequential" and size & (size - 1):
        return  # which its wrapper refuses
    assert reduced(variant, list(range(size)))[-1][0] == size * (size - 1) // 2


def test_expressions_are_those_of_the_sources() -> None:
    """Whoever changes a loop there finds this line."""
    source = (nvrtc.KERNELS / "study/reduce.cu").read_text()
    for expression in (
        "if (tid % (offset * 2) == 0 && tid + offset < size) vect[tid] = Op::combine(vect[tid], vect[tid + offset]);",
        "for (int offset = size / 2; offset > 0; offset /= 2) {",
        "for (int s = (size - 1) / 2 + 1, b = size / 2; b > 0; b = s / 2, s = (s - 1) / 2 + 1) {",
    ):
        assert expression in source
    source = (nvrtc.KERNELS / "study/transpose.cu").read_text()
    assert "__shared__ T tile[TILE][TILE];" in source and "__shared__ T tile[TILE][TILE + 1];" in source
    assert source.count("tile[threadIdx.y][threadIdx.x] = in") == source.count("= tile[threadIdx.x][threadIdx.y];") == 3


def test_banks() -> None:
    plain, padded = bank_map("shared_tile"), bank_map("padded_tile")
    assert (plain == np.arange(32)).all()  # a column lies in one bank
    assert padded[0].tolist() == list(range(32)) and padded[:, 0].tolist() == list(range(32))
    assert padded[31].tolist() == [31, *range(31)]
    assert conflicts("shared_tile") == {"store": 1, "load": 32} and conflicts("padded_tile") == {"store": 1, "load": 1}
    assert conflicts("shared_tile", 8)["load"] == 2  # rows that are four apart are 32 words apart


def test_conflicts_of_narrow_tiles() -> None:
    """Counted lane by lane, from the words' addresses."""
    for tile in (8, 16, 32):
        for variant, padding in (("shared_tile", 0), ("padded_tile", 1)):
            words = {(lane % tile) * (tile + padding) + lane // tile for lane in range(32)}
            most = max(sum(word % 32 == bank for word in words) for bank in range(32))
            assert conflicts(variant, tile)["load"] == most
