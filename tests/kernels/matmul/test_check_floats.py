"""The bounds of the check of products of floats are those that docs/verification.md derives."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

import kernels.matmul.factors
from kernels.matmul.check_compiled import functions
from kernels.matmul.check_floats import FloatCheck
from kernels.matmul.check_groups import Groups
from kernels.matmul.check_limits import Limits
from kernels.matmul.check_lines import gamma_of
from kernels.matmul.factors import Factors
from kernels.matmul.formats import FORMATS
from tests.cases.matmul import FLOATS, Array, on_cpu
from tests.cases.matmul_checks import WAYS, finite_factors, use

ROUNDED_UP = Fraction(1, 2**16)  # share by which bounds are rounded up, at most


class Exact:
    """The scaled elements of a product and of A' B', as fractions.

    Attributes
    ----------
    got, right
        Elements, by row and column.
    subnormal
        Half of the least number above zero, likewise.
    """

    def __init__(self, check: FloatCheck, a: Array, b: Array) -> None:
        kept, least = check.format.kept, check.format.least
        of_rows, of_columns, row_scales, column_scales = (
            [int(number) for number in numbers.ravel()]
            for numbers in (check.rows.exponents, check.columns.exponents, check.rows.scales, check.columns.scales)
        )

        def rounded(value: float, exponent: int) -> Fraction:
            return round(Fraction(value) * Fraction(2) ** (kept - exponent)) * Fraction(2) ** (exponent - kept)

        rows = [[rounded(float(x), of_rows[i]) for x in row] for i, row in enumerate(a)]
        columns = [[rounded(float(x), of_columns[j]) for x in column] for j, column in enumerate(b.T)]
        unit = [[Fraction(2) ** -(i + j) for j in column_scales] for i in row_scales]
        self.got = [[Fraction(float(c)) * u for c, u in zip(*line, strict=True)]
                    for line in zip(check.product, unit, strict=True)]  # fmt: skip
        self.right = [[sum(x * y for x, y in zip(row, column, strict=True)) * u
                       for column, u in zip(columns, units, strict=True)]
                      for row, units in zip(rows, unit, strict=True)]  # fmt: skip
        self.subnormal = [[Fraction(2) ** (least - 1) * u for u in units] for units in unit]


def power_below(value: Fraction) -> Fraction:
    """The power of two at or below a magnitude."""
    if not value:
        return Fraction(0)
    power = Fraction(2) ** (abs(value.numerator).bit_length() - value.denominator.bit_length())
    return power if power <= abs(value) else power / 2


@pytest.mark.parametrize("kind", ["ordinary", "mixed", "huge", "blocks", "cancelling", "close"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_bounds_of_sums_hold_and_are_no_wider_than_derived(
    dtype: str, way: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compared with exact sums of what was rounded: room for one rounding of each element, and little for the check."""
    use(monkeypatch, way, 3)
    a, b = finite_factors(kind, dtype, 5, 40, 7)
    right = on_cpu(a, b)
    check = FloatCheck(Factors.of(a, b), right.shape, FORMATS[dtype], np.random.default_rng(0))
    check.take(right)
    if dtype == "float16" and way == "sums":
        assert check.groups.size == 1  # never by sums that are not compiled
        return
    exact, groups = Exact(check, a, b), check.groups
    sums = check.sums_of(groups)
    sums.run()
    limits = Limits(check, sums, groups)
    compared = sums.compared(0, limits)
    if limits.are_loose(compared.norms, compared.sizes):
        compared = sums.compared(0, limits, sums.own_bounds([0])[0])
    for i in range(5):
        for number in range(groups.number):
            signs = [int(sign) for sign in groups.matrix[:, number]]
            pairs = zip(signs, exact.got[i], exact.right[i], strict=True)
            true = sum(sign * (x - got) for sign, got, x in pairs)
            half = Fraction(2) ** -check.format.precision
            members = [j for j, sign in enumerate(signs) if sign]
            rooms = [(half * power_below(exact.got[i][j]), exact.subnormal[i][j]) for j in members]
            room = sum(most + least for most, least in rooms)
            bound, likely = (Fraction(float(bounds[i, number])) for bounds in (compared.most, compared.likely))
            own = bound - room
            assert own >= 0
            difference = Fraction(float(compared.differences[i, number]))
            assert abs(difference - true) <= own, "the check's own arithmetic"
            # Sums of 40 products up to 1 with sums of groups.
            unit = Fraction(sums.unit)
            assert own <= groups.size * 40 * 2 * sums.terms * unit + room * ROUNDED_UP
            assert likely <= bound
            if groups.size > 1:
                least = sum(least for _, least in rooms)
                root = Fraction(math.sqrt(sum(most * most for most, _ in rooms)))
                rounding = Fraction(limits.roundings) * 2**check.format.precision
                assert likely <= rounding * root * (1 + ROUNDED_UP) + least + groups.size * 40 * 2 * sums.terms * unit
                assert likely >= min(bound, rounding * root) * (1 - ROUNDED_UP)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_of_right_products_are_not_examined(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is multiplied: random signs make roundings in one direction as unlikely as others."""
    use(monkeypatch, "compiled sums", 16)
    examined: list[Groups] = []
    monkeypatch.setattr(FloatCheck, "wrong_block", lambda *arguments: examined.append(arguments[0].groups) or [])
    random = np.random.default_rng(1)
    ordinary = random.standard_normal((60, 50)).astype(dtype), random.standard_normal((50, 80)).astype(dtype)
    # Every product is half a unit in the last place above an even number, so that all are rounded down.
    precision = FORMATS[dtype].precision
    ties = (
        np.full((60, 1), 1 + 2.0 ** -(precision // 2), dtype),
        np.full((1, 80), 1 + 2.0 ** -((precision + 1) // 2), dtype),
    )
    same = np.ones((60, 1), dtype) * ordinary[0][0], np.ones((1, 80), dtype) * ordinary[1][:, :1]
    for a, b in (ordinary, ties, same):
        product = on_cpu(a, b)
        for seed in range(3):
            check = FloatCheck(Factors.of(a, b), product.shape, FORMATS[dtype], np.random.default_rng(seed))
            assert check.wrong(product) == [] and not examined and check.groups.size > 1


def test_factors_are_read_once_more_for_rows_with_infinities(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not twice: there are no such columns."""
    monkeypatch.setattr(kernels.matmul.factors, "HELD", 64)  # several parts, none of them kept
    a, b = np.ones((8, 32)), np.ones((32, 8))
    a[3, 5] = np.inf
    read: list[int] = []

    def counted(number: int, lines: slice, inner: slice) -> Array:
        read.append(number)
        return b[inner, lines] if number else a[lines, inner]

    factors = Factors(counted, 8, 32, 8)
    check = FloatCheck(factors, (a @ b).shape, FORMATS["float64"], np.random.default_rng(0))
    check.take(a @ b)
    read.clear()
    assert check.wrong_elsewhere() == []
    assert len(factors.slices) > 1 and read.count(0) == read.count(1) == len(factors.slices)


@pytest.mark.parametrize("dtype", FLOATS)
def test_errors_that_pass_beside_an_overflow_are_admitted(dtype: str) -> None:
    """Elements of such a row are compared within a wider bound: in units of its finite elements."""
    a, b = (np.random.default_rng(seed).standard_normal((40, 40)).astype(dtype) for seed in range(2))
    a[3], b[:, 5] = np.finfo(dtype).max / 4, 1
    with np.errstate(all="ignore"):
        right = on_cpu(a, b)
        size = np.sqrt(np.square(right[3][np.isfinite(right[3])].astype(np.longdouble)).sum() / 40)
        assert np.isinf(right[3, 5])
        passed = 0.0
        for error in np.abs(right[3, 7]) * 2.0 ** -np.arange(1, 2 * FORMATS[dtype].precision, 0.5):
            wrong = right.copy()
            wrong[3, 7] -= np.array(error, dtype)
            check = FloatCheck(Factors.of(a, b), right.shape, FORMATS[dtype], np.random.default_rng(0))
            if not check.wrong(wrong):
                passed = max(passed, abs(float(right[3, 7]) - float(wrong[3, 7])))
                assert passed <= check.undetected * size
    assert passed or dtype == "float16"  # whose elements are all below four times their bound, and recomputed


def test_powers_of_a_large_group_are_added_up_upwards() -> None:
    """In float32 one large number hides 100 small ones, as they are added one by one."""
    a, b = np.eye(2, dtype=np.float16), np.ones((2, 200), np.float16)
    b[0, 2:] = 2.0**-24
    check = FloatCheck(Factors.of(a, b), (2, 200), FORMATS["float16"], np.random.default_rng(0))
    check._library = functions()
    if check._library is None:
        pytest.skip("no C++ compiler")
    check.take(a @ b)
    groups = Groups(np.zeros((1, 200), np.int64), np.ones((1, 200)), 200, 0.0)
    sums = check.sums_of(groups)
    sums.run()
    limits = Limits(check, sums, groups)
    limits.own, limits.of_halves = limits.own * 0, limits.of_halves * 0
    share = 2.0**-11 + 2 * gamma_of(sums.depth, sums.unit)
    powers = float(np.sum(check.scaled_product(None, slice(0, 1), slice(None))))  # all are powers of two
    assert float(sums.compared(0, limits).most[0, 0]) >= share * powers
