"""The bounds of the check of products of floats are those that docs/verification.md derives."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from kernels.matmul import check_floats
from kernels.matmul.check_floats import FloatCheck, random_signs
from kernels.matmul.formats import FORMATS
from tests.cases.matmul import FLOATS, on_cpu
from tests.cases.matmul_checks import finite_factors, use_sums


@pytest.mark.parametrize("kind", ["ordinary", "mixed", "huge", "blocks", "cancelling", "close"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_bounds_of_sums_hold_and_are_no_wider_than_derived(
    dtype: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compared with exact sums of what was rounded: room for one rounding of each element, and little for the check."""
    use_sums(monkeypatch, 3)
    format = FORMATS[dtype]
    a, b = finite_factors(kind, dtype, 5, 40, 7)
    right = on_cpu(a, b)
    check = FloatCheck(lambda: iter([(a, b)]), right, format, np.random.default_rng(0), 0)
    differences, bounds = check.compare()
    of_rows, of_columns = (
        [int(exponent) for exponent in lines.exponents.ravel()] for lines in (check.rows, check.columns)
    )

    def rounded(value: float, exponent: int) -> Fraction:
        return Fraction(round(Fraction(value) * Fraction(2) ** (format.kept - exponent))) / 2**format.kept

    for i in range(5):
        row = [rounded(float(value), of_rows[i]) for value in a[i]]
        exact = [sum(x * rounded(float(y), of_columns[j]) for x, y in zip(row, b[:, j], strict=True)) for j in range(7)]
        scales = [int(check.rows.scales[i, 0] + scale) for scale in check.columns.scales[0]]
        shifts = [Fraction(2) ** (of_rows[i] + of_columns[j] - scales[j]) for j in range(7)]
        got = [Fraction(float(right[i, j])) / Fraction(2) ** scales[j] for j in range(7)]
        for number in range(check.signs.shape[1]):
            signs = [Fraction(sign) for sign in check.signs[:, number]]
            true = abs(sum(s * (g - x * shift) for s, g, x, shift in zip(signs, got, exact, shifts, strict=True)))
            room = sum(abs(s) * (abs(g) / 2**format.precision + Fraction(2) ** (format.least - 1 - scale))
                       for s, g, scale in zip(signs, got, scales, strict=True))  # fmt: skip
            bound = Fraction(bounds[i, number])
            own = bound - room
            assert own >= 0
            assert abs(Fraction(differences[i, number]) - true) <= own, "the check's own arithmetic"
            # Roundings by Cauchy and Schwarz, from the norm of the row; and sums of 3 x 40 products up to 1.
            norm = Fraction(1.001 * math.sqrt(check.group * sum(g * g for g in got)))
            most = max(norm / 2**format.precision, room) + 3 * 40 * Fraction(2) ** -44
            assert own <= most + room / 2**19


@pytest.mark.parametrize("columns, group", [(8, 4), (12, 4), (11, 4), (30, 3), (64, 16), (100, 7), (512, 64)])
def test_a_round_hides_errors_no_more_often_than_derived(
    columns: int, group: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For any number of errors in a row: exactly, from the number of ways in which no error is alone in its group."""
    monkeypatch.setattr(check_floats, "ESCAPE", 0.999)  # one round
    signs, group, each = random_signs(columns, group, 64, np.random.default_rng(0))
    groups = signs.shape[1]
    assert (np.abs(signs).sum(1) == 1).all() and np.abs(signs).sum(0).max() <= group
    # Coefficient m of (1 + sum over s >= 2 of C(group, s) x^s / 2)^groups: m errors, each group of them hidden by 1/2.
    one = [Fraction(1), Fraction(0), *(Fraction(math.comb(group, s), 2) for s in range(2, group + 1))]
    ways = [Fraction(1)]
    for _ in range(groups):
        ways = [sum((ways[i] * one[m - i] for i in range(max(0, m - group), min(m, len(ways) - 1) + 1)), Fraction(0))
                for m in range(len(ways) + group)]  # fmt: skip
        if len(ways) > 60:
            ways = ways[:60]  # more errors are hidden less often
    hidden = [float(way / math.comb(groups * group, m)) for m, way in enumerate(ways) if m]
    assert max(hidden) <= each
    assert max(hidden) >= each / 2.001 or groups == 2  # two errors: half of the bound
