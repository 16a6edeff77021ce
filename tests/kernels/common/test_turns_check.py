"""Rows that take turns: each check gets its row's samples, each once, with their indices in the row."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.common import turns_check
from kernels.common.turns_check import fits
from tests.cases.cpp_turns import NBYTES, Turns, check_turns

pytestmark = pytest.mark.usefixtures("compiled")

SOURCE = turns_check.SOURCE
DTYPES = ("u1", "i2", "f4", "f8")


def parts_of(samples: int, data: st.DataObject) -> list[range]:
    """Of consecutive samples, in any order; some are left out."""
    cuts = [0, *sorted(data.draw(st.sets(st.integers(1, samples), max_size=6))), samples]
    parts = [range(*ends) for ends in pairwise(cuts)]
    return data.draw(st.permutations(parts))[: data.draw(st.integers(1, len(parts)))]


@settings(deadline=None)
@given(
    st.sampled_from(DTYPES), st.integers(2, 70), st.integers(1, 900), st.integers(1, 9), st.integers(0, 200), st.data()
)  # fmt: skip
def test_each_row_gets_its_samples(
    name: str, rows: int, samples: int, line: int, start: int, data: st.DataObject
) -> None:  # fmt: skip
    dtype = np.dtype(name)
    values = np.arange(samples).astype(dtype)
    expected: list[list[tuple[int, Any]]] = [[] for _ in range(rows)]
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(turns_check, "LINE_SAMPLES", line)
        check = Turns(rows, dtype)
    assert check.count_from(start)
    for part in parts_of(samples, data):
        given_ = values[part.start : part.stop]
        check.add(given_.astype(dtype.newbyteorder()) if data.draw(st.booleans()) else given_, part.start)
        for index in part:
            expected[(start + index) % rows].append(((start + index) // rows, values[index].item()))
    assert check.samples() == list(map(len, expected))
    assert [of_row.given for of_row in check.noted] == expected


def test_a_check_gets_many_samples_at_a_time() -> None:
    """However few are given at once."""
    dtype, rows = np.dtype("f4"), 3
    check = Turns(rows, dtype)
    turns = 2 * turns_check.LINE_SAMPLES
    for first in range(0, rows * turns, 100):
        check.add(np.zeros(min(100, rows * turns - first), dtype), first)
    assert check.samples() == [turns] * rows
    assert [of_row.calls for of_row in check.noted] == [2] * rows


def test_what_needs_too_much_memory_does_not_fit() -> None:
    most = turns_check.MOST_BYTES // (4 * turns_check.LINE_SAMPLES)
    assert fits(most, np.dtype("f4"), 0) and not fits(most + 1, np.dtype("f4"), 0)
    assert fits(2 * most, np.dtype("i2"), 0) and not fits(2 * most, np.dtype("i2"), 1)
    assert Turns(3, np.dtype("f4")).nbytes == 3 * (NBYTES + 4 * turns_check.LINE_SAMPLES)


def test_the_case_of_sanitizers_and_mutants() -> None:
    assert check_turns((0, 1, 63, 1024, 4097)) > 100_000
