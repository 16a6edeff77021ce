"""Compiled sums of groups of columns against the same sums by NumPy."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from kernels.common import cxx
from kernels.matmul import check_sums, factors
from kernels.matmul.check_compiled import functions
from kernels.matmul.check_defined import Support
from kernels.matmul.check_dense import DenseSums
from kernels.matmul.check_groups import Groups, random_groups, single_columns
from kernels.matmul.check_limits import Limits, gammas, share_of
from kernels.matmul.check_lines import Lines
from kernels.matmul.check_measured import Measured
from kernels.matmul.check_sums import TileSums
from kernels.matmul.factors import Factors
from kernels.matmul.formats import FORMATS
from tests.cases.matmul import FLOATS, KINDS, Array, generator, on_cpu
from tests.cases.matmul_checks import finite_factors

pytestmark = pytest.mark.skipif(cxx.compiler() is None, reason="no C++ compiler")

SHAPES = [(1, 1, 1), (17, 129, 33), (130, 300, 67)]


@pytest.fixture(params=[1, 2**20], ids=["many parts", "few parts"])
def parts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts and slabs of any size."""
    monkeypatch.setattr(factors, "HELD", request.param)
    monkeypatch.setattr(factors, "READ", request.param)
    monkeypatch.setattr(check_sums, "HELD", request.param)


def measured(a: Array, b: Array, product: Array) -> Measured:
    with np.errstate(all="ignore"):
        of = Measured(Factors.of(a, b), product.shape, FORMATS[product.dtype.name])
        of.take(product)
    return of


def compiled(of: Measured, groups: Groups) -> TileSums:
    library = functions()
    assert library is not None
    sums = TileSums(library, of, groups)
    sums.run()
    return sums


def rounded(of: Measured, a: Array, b: Array) -> tuple[Array, Array]:
    with np.errstate(all="ignore"):
        return of.rows.rounded(a, None, slice(None)), of.columns.rounded(b, None, slice(None))


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("dtype", FLOATS)
def test_overflows_are_noted_where_they_are_met(dtype: str, value: float) -> None:
    """As if C had been measured first."""
    a, b = KINDS["ordinary"](dtype, (130, 300)), KINDS["ordinary"](dtype, (300, 67))
    c = on_cpu(a, b)
    c[[3, 128], [5, 66]] = value
    groups = random_groups(300, 67, dtype, np.random.default_rng(1))
    before, met = measured(a, b, c), measured(a, b, c)
    met.take(c, measure=False)
    assert before.overflowed_rows[:, 0].nonzero()[0].tolist() == [3, 128] and not met.overflowed_rows.any()
    expected, got = ([sums.compared(number, Limits(of, sums, groups)) for number in range(2)]
                     for of in (before, met) for sums in [compiled(of, groups)])  # fmt: skip
    np.testing.assert_array_equal(met.overflowed_rows, before.overflowed_rows)
    for one, other in zip(expected, got, strict=True):
        for field in fields(one):
            np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name))


@pytest.mark.parametrize("kind", ["ordinary", "mixed", "subnormal", "special"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_tiles_are_judged_as_by_numpy(dtype: str, kind: str) -> None:
    a, b = KINDS[kind](dtype, (130, 300)), KINDS[kind](dtype, (300, 67))
    c = on_cpu(a, b)
    c[7] *= 2
    c[129, 3] -= c.dtype.type(3)
    of, groups = measured(a, b, c), random_groups(300, 67, dtype, np.random.default_rng(1))
    sums = compiled(of, groups)
    for number, elsewhere in enumerate((np.arange(128) % 3 == 1, np.zeros(2, bool))):
        with np.errstate(all="ignore"):
            compared = sums.compared(number, Limits(of, sums, groups))
            off = ~(np.abs(compared.differences) <= compared.likely) & ~elsewhere[:, None]
            errors = compared.likely + compared.most, 2 * compared.most
        count, *admitted = sums.judged(number, compared, elsewhere)
        assert count == np.count_nonzero(off)
        np.testing.assert_allclose(admitted, [share_of(each, compared.sizes) for each in errors], rtol=1e-6)


@pytest.mark.usefixtures("parts")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["ordinary", "mixed", "subnormal", "special", "cancelling"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_sums_are_those_of_numpy(dtype: str, kind: str, shape: tuple[int, int, int]) -> None:
    """Within what both may be off by; rows and columns with infinities and NaN count as zeros."""
    a, b = KINDS[kind](dtype, shape[:2]), KINDS[kind](dtype, shape[1:])
    c = on_cpu(a, b)
    of = measured(a, b, c)
    for groups in (random_groups(*shape[1:], dtype, np.random.default_rng(1)), single_columns(shape[2])):
        sums, dense = compiled(of, groups), DenseSums(of, groups)
        with np.errstate(all="ignore"):
            dense.run()
            a_, b_ = rounded(of, a, b)
            limits = Limits(of, sums, groups)
            theirs = dense.compared(0, Limits(of, dense, groups))
            vectors = b_ @ groups.matrix
            own = sum(gammas(sums)) * (np.abs(a_) @ (np.abs(b_) @ np.abs(groups.matrix)))
        np.testing.assert_allclose(sums.squares_of_columns, np.square(b_).sum(0), rtol=1e-6)
        off = gammas(sums)[1] * (np.abs(b_) @ np.abs(groups.matrix))
        most = np.square(np.abs(vectors) + off).sum(0)
        assert (sums.squares_of_sums <= most * (1 + 1e-6)).all()
        assert (sums.squares_of_sums >= np.square(np.maximum(np.abs(vectors) - off, 0)).sum(0) * (1 - 1e-6)).all()
        for number, part in enumerate(sums.parts):
            ours = sums.compared(number, limits)
            np.testing.assert_allclose(ours.norms, theirs.norms[part], rtol=1e-6)
            np.testing.assert_allclose(ours.sizes, theirs.sizes[part], rtol=1e-6)
            bound = (own[part] + theirs.most[part]) * (1 + 1e-6) + 1e-300
            assert (np.abs(ours.differences - theirs.differences[part]) <= bound).all()
            assert ours.differences.shape == (part.stop - part.start, groups.number)


@pytest.mark.usefixtures("parts")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", FLOATS)
def test_bounds_are_those_of_numpy(dtype: str, shape: tuple[int, int, int]) -> None:
    """From the same norms and constants; with and without closer bounds of the check's own rounding."""
    a, b = finite_factors("mixed", dtype, *shape)
    of = measured(a, b, on_cpu(a, b))
    groups = random_groups(*shape[1:], dtype, np.random.default_rng(1))
    sums, matrix = compiled(of, groups), groups.matrix
    limits, closer = Limits(of, sums, groups), sums.own_bounds(range(len(sums.parts)))
    a_, b_ = rounded(of, a, b)
    of_product, of_group = gammas(sums)
    expected = np.abs(a_) @ (of_product * np.abs(b_ @ matrix) + of_group * (np.abs(b_) @ np.abs(matrix)))
    for number, part in enumerate(sums.parts):
        np.testing.assert_allclose(
            closer[number], expected[part], rtol=1e-3 if dtype == "float16" else 1e-9, atol=1e-30
        )
        with np.errstate(all="ignore"):
            tile = of.scaled_product(None, part, slice(None))
        powers = np.ldexp(0.5, np.frexp(tile)[1]) * (tile != 0)
        for own in (None, closer[number]):
            ours = sums.compared(number, limits, own)
            sums_of_powers = powers @ np.abs(matrix), np.square(powers) @ np.abs(matrix)
            likely, most = limits.bounds(part, ours.norms, *sums_of_powers, own)
            np.testing.assert_allclose(ours.most, most, rtol=1e-5, atol=1e-290)
            np.testing.assert_allclose(ours.likely, likely, rtol=1e-5, atol=1e-290)
            assert (ours.likely <= ours.most).all()


@pytest.mark.usefixtures("parts")
@pytest.mark.parametrize("shape", SHAPES[1:])
@pytest.mark.parametrize("dtype", FLOATS)
def test_suspects_are_those_of_numpy(dtype: str, shape: tuple[int, int, int]) -> None:
    """Random elements are wrong, and some are zero; suspects are looked for in every row."""
    random = generator("suspects", dtype, shape)
    a, b = (random.standard_normal(sizes).astype(dtype) for sizes in (shape[:2], shape[1:]))
    c = on_cpu(a, b)
    wrong = random.random(c.shape) < 0.02
    c[wrong] *= random.choice(np.array([0, 0.5, 1.01], dtype), np.count_nonzero(wrong))
    of, groups = measured(a, b, c), random_groups(*shape[1:], "float16", np.random.default_rng(2))
    sums = compiled(of, groups)
    limits = Limits(of, sums, groups)
    for number, part in enumerate(sums.parts):
        compared = sums.compared(number, limits)
        score, squares = np.zeros((2, part.stop - part.start, shape[2]))
        for places, signs in zip(groups.sums, groups.signs, strict=True):
            score += signs * compared.differences[:, places]
            squares += np.square(0.5 * compared.likely[:, places])
        sizes = np.square(groups.rounds / 1.5 * of.scaled_product(None, part, slice(None)))
        expected = np.argwhere((score**2 > squares) | (sizes < squares))
        close = np.minimum(np.abs(score**2 / squares - 1), np.abs(sizes / squares - 1)) < 1e-4
        suspects = sums.suspects(number, compared, 0.5, c.size)
        assert suspects is not None
        both = np.zeros((2, *c[part].shape), bool)
        for which, places in zip(both, (expected, suspects - [part.start, 0]), strict=True):
            which[tuple(places.T)] = True
        assert (both[0] == both[1])[~close].all() and both[1].any()
        assert sums.suspects(number, compared, 0.5, len(suspects)) is not None
        assert sums.suspects(number, compared, 0.5, len(suspects) - 1) is None


@pytest.mark.usefixtures("parts")
@pytest.mark.parametrize("shape", SHAPES[1:])
@pytest.mark.parametrize("dtype", FLOATS)
def test_small_elements_are_those_of_numpy(
    monkeypatch: pytest.MonkeyPatch, dtype: str, shape: tuple[int, int, int]
) -> None:
    """Up to the largest limit of their sums; with bits, not those that are +0 and have no terms."""
    random = generator("small", dtype, shape)
    a, b = (np.where(random.random(sizes) < 0.3 / sizes[1] ** 0.5, random.standard_normal(sizes), 0).astype(dtype)
            for sizes in (shape[:2], shape[1:]))  # fmt: skip
    c = on_cpu(a, b)
    c[random.random(c.shape) < 0.2] *= -1
    of, groups = measured(a, b, c), random_groups(*shape[1:], dtype, np.random.default_rng(3))
    sums, meet = compiled(of, groups), (a != 0).astype(int) @ (b != 0).astype(int) > 0
    for number, part in enumerate(sums.parts):
        limits = random.random((part.stop - part.start, groups.number)) ** 4
        limits[0] = -1
        of_elements = np.max([limits[:, places] for places in groups.sums], 0)
        small = np.abs(of.scaled_product(None, part, slice(None))) <= of_elements
        for zeros, expected in (
            (2**60, small), (0, small & ~((c[part] == 0) & ~np.signbit(c[part]) & ~meet[part])),
        ):  # fmt: skip
            monkeypatch.setattr(check_sums, "ZEROS", zeros)
            places = sums.small(number, limits, c.size, lambda: Support(of.factors))
            assert places is not None and len(places)
            np.testing.assert_array_equal(places, np.argwhere(expected) + np.array([part.start, 0]))
            assert sums.small(number, limits, len(places) - 1, lambda: Support(of.factors)) is None


@pytest.mark.usefixtures("parts")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", FLOATS)
def test_elements_are_those_of_numpy(monkeypatch: pytest.MonkeyPatch, dtype: str, shape: tuple[int, int, int]) -> None:
    a, b = finite_factors("ordinary", dtype, *shape)
    c = on_cpu(a, b)
    of = measured(a, b, c)
    sums = compiled(of, single_columns(shape[2]))
    for number in range(len(sums.parts)):
        sums.compared(number, Limits(of, sums, single_columns(shape[2])))
    places = np.argwhere(np.ones(c.shape, bool))[::-3]
    with monkeypatch.context() as patch:
        patch.setattr(
            np, "empty", lambda shape, dtype=np.float64: np.full(shape, np.nan, dtype)
        )  # what was in memory before
        elements, bounds, sizes = sums.dots(places)
    a_, b_ = rounded(of, a, b)
    difference = np.abs(elements - (a_ @ b_)[tuple(places.T)])
    assert (difference <= bounds + 2.0**-40).all() and (bounds < 2.0**-40).all()
    weights: Any = np.ldexp(1.0, of.columns.scales - of.columns.scales.max())
    scaled = of.scaled_product(None, slice(None), slice(None)) * weights
    np.testing.assert_allclose(sizes, np.sqrt(np.square(scaled).mean(-1))[places[:, 0]], rtol=1e-6)


def test_without_a_compiler_nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cxx, "library", lambda source: None)
    assert functions() is None


@pytest.mark.parametrize("part", [(slice(None), slice(None)), (slice(3, 9), slice(1, 40)), (slice(1), slice(1))])
@pytest.mark.parametrize("kind", ["ordinary", "mixed", "subnormal", "special"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_lines_are_measured_as_by_numpy(dtype: str, kind: str, part: tuple[slice, slice]) -> None:
    block = KINDS[kind](dtype, (70, 131))[part]
    finite, magnitudes = np.isfinite(block), np.abs(np.nan_to_num(block, nan=0, posinf=0, neginf=0))
    for axis in (-1, -2):
        for library in (functions(), None):
            largest, nonfinite = Lines(axis, 0, library).measured([block])
            np.testing.assert_array_equal(largest, magnitudes.max(axis, keepdims=True))
            np.testing.assert_array_equal(nonfinite, ~finite.all(axis, keepdims=True))
