"""Random groups of columns: what they are, and how likely errors hide in them."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from kernels.matmul import check_groups
from kernels.matmul.check_compiled import depth_of
from kernels.matmul.check_groups import ESCAPE, Groups, hidden, random_groups, single_columns
from tests.cases.matmul import FLOATS


def hiding(groups: int, size: int, most: int) -> list[Fraction]:
    """The largest probability that a round hides 1, 2, … errors of a row, whatever they are.

    They hide only if no error is alone in its group; a group of several passes with a probability of 1/2 at most.
    """
    # Coefficient m of (1 + sum over s >= 2 of C(size, s) x^s / 2)^groups: m errors, each group of them hidden by 1/2.
    one = [Fraction(1), Fraction(0), *(Fraction(math.comb(size, s), 2) for s in range(2, size + 1))]
    ways = [Fraction(1)]
    for _ in range(groups):
        ways = [sum((ways[i] * one[m - i] for i in range(max(0, m - size), min(m, len(ways) - 1) + 1)), Fraction(0))
                for m in range(min(len(ways) + size, most + 1))]  # fmt: skip
    return [way / math.comb(groups * size, m) for m, way in enumerate(ways) if m]


@pytest.mark.parametrize("size", [2, 3, 4, 5, 16, 64])
@pytest.mark.parametrize("groups", [2, 3, 4, 7, 64])
def test_a_round_hides_errors_no_more_often_than_derived(groups: int, size: int) -> None:
    """For any number of errors in a row, exactly."""
    most, bound = max(hiding(groups, size, 60)), Fraction(hidden(groups, size)) * Fraction(1 + 2**-50)
    assert most <= bound
    assert most >= bound * Fraction(99, 100) or groups == 2 or size < 4  # two errors: the bound itself
    assert most >= bound / 3


@pytest.mark.parametrize("columns", [1, 2, 3, 40, 128, 512, 1000, 1792, 4096, 20_000])
@pytest.mark.parametrize("inner", [1, 30_000])
@pytest.mark.parametrize("dtype", FLOATS)
def test_every_column_is_in_one_group_of_each_round(dtype: str, inner: int, columns: int) -> None:
    groups = random_groups(inner, columns, dtype, np.random.default_rng(columns))
    assert groups.escape <= ESCAPE and groups.sums.shape == groups.signs.shape == (groups.rounds, columns)
    assert np.isin(groups.signs, (-1, 1)).all()
    counts = np.bincount(groups.sums.ravel(), minlength=groups.number)
    assert counts.max() <= groups.size and len(counts) == groups.number and counts.sum() == groups.rounds * columns
    rounds = [set(places) for places in groups.sums.tolist()]
    assert sum(map(len, rounds)) == len(set().union(*rounds))  # each round has sums of its own


@pytest.mark.parametrize("width", [1, 7, 64, 300, 1000])
@pytest.mark.parametrize("dtype", FLOATS)
def test_members_are_those_of_the_matrix(dtype: str, width: int) -> None:
    groups = random_groups(300, 300, dtype, np.random.default_rng(0))
    members, starts = groups.members(width)
    matrix = np.zeros((300, groups.number))
    for block, of_block in enumerate(starts):
        for number in range(groups.number):
            first, second, end = of_block[2 * number : 2 * number + 3]
            matrix[width * block + members[first:second], number] += 1
            matrix[width * block + members[second:end], number] -= 1
    np.testing.assert_array_equal(matrix, groups.matrix)
    assert members.max() < width and len(starts) == -(-300 // width)
    assert len(members) == starts[-1, -1] == np.count_nonzero(matrix) == 300 * groups.rounds


def test_depth_counts_the_additions_of_the_longest_way() -> None:
    starts = np.array([[0, 5, 6, 6, 6], [6, 6, 10, 13, 20]])  # in lanes of four: 2 + 1, 0 + 0; 0 + 1, 1 + 2
    assert depth_of(starts) == 3 + 2 + 2 + 1  # then lanes are added up, the parts of both blocks, and those of eight
    assert depth_of(np.tile(starts, (9, 1))) == 3 + 2 + 8 + 3


def test_elements_of_sums() -> None:
    groups = Groups(np.array([[0, 1, 1, 0], [2, 2, 3, 3]]), np.ones((2, 4)), 2, 0.0)
    elements = groups.elements(np.array([[7, 1], [9, 3]]))
    assert elements.tolist() == [[7, 1], [7, 2], [9, 2], [9, 3]]
    assert groups.elements(np.empty((0, 2), np.int64)).shape == (0, 2)


def test_single_columns_hide_nothing() -> None:
    groups = single_columns(5)
    assert groups.escape == 0 and groups.size == 1
    np.testing.assert_array_equal(groups.matrix, np.eye(5))


def test_signs_and_groups_are_random(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two columns are in the same group, and have the same sign, as often as at random."""
    monkeypatch.setattr(check_groups, "GROUPS", {"float64": (8, 64)})
    same = signs = rounds = 0
    for seed in range(300):
        groups = random_groups(64, 64, "float64", np.random.default_rng(seed))
        same += np.count_nonzero(groups.sums[:, 3] == groups.sums[:, 60])
        signs += np.count_nonzero(groups.signs[:, 3] == groups.signs[:, 60])
        rounds += groups.rounds
    for number, share in ((same, 7 / 63), (signs, 1 / 2)):
        assert abs(number - share * rounds) < 5 * math.sqrt(share * (1 - share) * rounds)
