"""The check of products that a library rounds: any order of summation passes, what exceeds the bound does not."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

import kernels.matmul.factors
from kernels.common import cxx
from kernels.matmul import check_floats, check_groups, check_library
from kernels.matmul.check_library import LibraryCheck
from kernels.matmul.factors import Factors
from kernels.matmul.formats import FORMATS
from tests.cases.matmul import FLOATS, KINDS, Array, factors, generator, overflowing, strange
from tests.cases.matmul_checks import WAYS, finite_factors

TRIALS = 30


def accumulated(dtype: str) -> np.dtype:
    return np.dtype("float32" if dtype == "float16" else dtype)


def blas(a: Array, b: Array) -> Array:
    return a @ b


def from_the_first(a: Array, b: Array) -> Array:
    total = np.zeros((len(a), b.shape[1]), a.dtype)
    for k in range(a.shape[1]):
        total += a[:, k : k + 1] * b[k : k + 1]
    return total


def from_the_last(a: Array, b: Array) -> Array:
    return from_the_first(a[:, ::-1], b[::-1])


def fused(a: Array, b: Array) -> Array:
    """Each product and sum rounded once, or nearly: in long doubles first."""
    total, wide = np.zeros((len(a), b.shape[1]), a.dtype), np.longdouble
    for k in range(a.shape[1]):
        total = (a[:, k : k + 1].astype(wide) * b[k : k + 1] + total).astype(a.dtype)
    return total


def in_pairs(a: Array, b: Array) -> Array:
    terms = a[:, :, None] * b[None]
    while terms.shape[1] > 1:
        odd = terms[:, -1:] if terms.shape[1] % 2 else terms[:, :0]
        terms = np.concatenate([terms[:, 0:-1:2] + terms[:, 1::2], odd], 1)
    return terms.sum(1, dtype=a.dtype)


ORDERS: tuple[Callable[[Array, Array], Array], ...] = (blas, from_the_first, from_the_last, fused, in_pairs)


def rounded(a: Array, b: Array, order: Callable[[Array, Array], Array] = blas) -> Array:
    """The product as a library may compute it."""
    with np.errstate(all="ignore"):
        return order(*(factor.astype(accumulated(a.dtype.name)) for factor in (a, b))).astype(a.dtype)


def checked(a: Array, b: Array, product: Array, seed: int = 0) -> tuple[LibraryCheck, list[str]]:
    check = LibraryCheck(Factors.of(a, b), product.shape, FORMATS[product.dtype.name], np.random.default_rng(seed))
    with np.errstate(all="ignore"):
        return check, check.wrong(product)


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """All ways to check, whatever the size; sums have groups of 6 columns at most."""
    compiled = request.param.startswith("compiled")
    if compiled and cxx.compiler() is None:
        pytest.skip("no C++ compiler")
    monkeypatch.setattr(LibraryCheck, "_worth_it", lambda *_: request.param.endswith("sums"))
    monkeypatch.setattr(check_floats, "HEIGHT", 0)
    monkeypatch.setattr(check_floats, "COMPILED", 0 if compiled else 2**60)
    monkeypatch.setattr(check_groups, "SIGNED_COLUMNS", dict.fromkeys(FLOATS, 6))
    return str(request.param)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_any_order_of_summation_passes(dtype: str, kind: str, order: Callable[[Array, Array], Array]) -> None:
    a, b = factors(kind, dtype, 9, 50, 14)
    assert not checked(a, b, rounded(a, b, order))[1]


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("few", [0, 64])
@pytest.mark.parametrize("dtype", FLOATS)
def test_elements_that_sums_could_hide(monkeypatch: pytest.MonkeyPatch, dtype: str, few: int) -> None:
    """An element far below the others of its row, and far above its own bound, is neither zero nor negative."""
    monkeypatch.setattr(check_library, "FEW", few)
    a, b = factors("ordinary", dtype, 40, 50, 14)
    a[3, 7], b[:, 5] = np.ldexp(a[3, 7], 10 - FORMATS[dtype].precision), np.arange(50) == 7
    product = rounded(a, b)
    assert checked(a, b, product)[1] == []
    for factor in (0, -1, 2, 0.5):
        wrong = product.copy()
        wrong[3, 5] *= np.array(factor, dtype)
        assert checked(a, b, wrong)[1], factor


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_infinities_nan_and_overflows_on_the_way_pass(dtype: str, order: Callable[[Array, Array], Array]) -> None:
    pairs = [strange(dtype, 20, 9, 15)]
    if dtype == "float64":
        pairs.append(overflowing(9, 40, 12))
    largest = np.finfo(accumulated(dtype)).max
    if dtype != "float16":  # +inf, then -inf: NaN
        pairs.append((np.array([[1, 1, -1, -1, 0]] * 3, dtype) * np.array(largest, dtype), np.ones((5, 4), dtype)))
    for a, b in pairs:
        got = rounded(a, b, order)
        assert not np.isfinite(got).all() or order is in_pairs or a.dtype == np.float64
        assert not checked(a, b, got)[1]


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 1.0])
@pytest.mark.parametrize("dtype", FLOATS)
def test_infinities_and_nan_without_a_reason_are_found(dtype: str, value: float) -> None:
    a, b = strange(dtype, 20, 9, 15)
    right = rounded(a, b)
    for i, j in ((3, 4), *np.argwhere(~np.isfinite(right))[:3].tolist(), *np.argwhere(np.isfinite(right))[:3].tolist()):
        wrong = right.copy()
        wrong[i, j] = value
        if not np.array_equal(wrong, right, equal_nan=True):
            assert checked(a, b, wrong)[1], (i, j, right[i, j])


@pytest.mark.parametrize("kind", ["ordinary", "subnormal", "mixed", "blocks", "huge", "cancelling"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_errors_above_those_that_the_verdict_admits_are_found(way: str, dtype: str, kind: str) -> None:
    a, b = finite_factors(kind, dtype, 12, 40, 15)
    right = rounded(a, b)
    check, lines = checked(a, b, right)
    assert np.isfinite(right).all() and not lines
    assert (check.escape == 2.0**-20) == way.endswith("sums")
    sizes = np.sqrt(np.square(right.astype(np.longdouble)).mean(-1))
    random = generator("planted", dtype, kind)
    for trial in range(TRIALS):
        i, j = (int(random.integers(length)) for length in right.shape)
        if not sizes[i]:
            continue
        # What is admitted is an error of the right product, too, which may have the other sign.
        size = float(2.001 * check.undetected * sizes[i] * 2.0 ** random.choice([0, 1, 5, 20]))
        size = min(max(size, float(np.finfo(dtype).smallest_subnormal)), float(np.finfo(dtype).max) / 2)
        wrong = right.copy()
        with np.errstate(over="ignore"):
            wrong[i, j] = np.array(float(right[i, j]) + random.choice([-1, 1]) * size).astype(dtype)
        again, lines = checked(a, b, wrong, trial)
        off = abs(float(wrong[i, j]) - float(right[i, j]))
        size_now = np.sqrt(np.square(wrong[i].astype(np.longdouble)).mean())
        assert lines or off <= 2.001 * again.undetected * size_now, (i, j, size)


@pytest.mark.parametrize("kind", ["ordinary", "mixed", "huge", "blocks", "cancelling", "close", "subnormal"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_the_bound_of_an_element_is_that_of_the_textbook(dtype: str, kind: str) -> None:
    """Against fractions: what is inside passes, what is a little outside is found. The check computes in float64, too:
    there it has to allow for twice the bound."""
    a, b = finite_factors(kind, dtype, 5, 30, 6)
    right, random = rounded(a, b), generator("bound", dtype, kind)
    u = Fraction(2) ** (-53 if dtype == "float64" else -24)
    gamma = 30 * u / (1 - 30 * u)
    # What underflows: of the library's products, and in the check, whose numbers are scaled.
    tiny = 31 * Fraction(2) ** (FORMATS[dtype].least - 1)
    tiny += Fraction(2) ** -990 * Fraction(float(np.abs(a).max())) * Fraction(float(np.abs(b).max()))
    for trial in range(TRIALS):
        i, j = (int(random.integers(length)) for length in right.shape)
        terms = [Fraction(float(x)) * Fraction(float(y)) for x, y in zip(a[i], b[:, j], strict=True)]
        exact, magnitudes = sum(terms, Fraction(0)), sum(map(abs, terms), Fraction(0))
        bound = gamma * magnitudes
        if dtype == "float16":
            bound += (abs(exact) + bound) / 2**11
        outside = Fraction(23 if dtype == "float64" else 13, 10)
        for share, expected in ((Fraction(9, 10), False), (outside, True)):
            error = share * bound + (2 * tiny if expected else 0)
            target = exact + (error if trial % 2 else -error)
            wrong = right.copy()
            with np.errstate(over="ignore"):
                wrong[i, j] = np.array(float(target), np.float64).astype(dtype)
            off = abs(Fraction(float(wrong[i, j])) - exact) if np.isfinite(wrong[i, j]) else None
            if off is None or (off <= (outside - Fraction(1, 10)) * bound + tiny if expected else off > bound):
                continue  # rounding has moved it to the other side
            assert bool(checked(a, b, wrong)[1]) == expected, (trial, float(off), float(bound))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_where_all_round_in_one_direction_the_verdict_admits_more(monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    """Partial sums that grow and vanish again: sums exceed what is likely, and every element keeps the bound."""
    monkeypatch.setattr(LibraryCheck, "_worth_it", lambda *_: True)
    monkeypatch.setattr(check_floats, "COMPILED", 0)
    inner = 20_000
    a = np.full((4, inner), 0.1, dtype)
    a[:, inner // 2 :] *= -1
    b = np.full((inner, 40), 0.1, dtype)
    check, lines = checked(a, b, from_the_first(a, b))
    assert check.groups.size > 1 and not lines
    usual, _ = checked(*(ordinary := factors("ordinary", dtype, 4, inner, 40)), rounded(*ordinary))
    assert check.undetected > 100 * usual.undetected


def test_wrong_everywhere_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many sums are off that examining their elements would take longer than all of them."""
    monkeypatch.setattr(check_floats, "COMPILED", 0)
    monkeypatch.setattr(check_floats, "BUDGET", 0)
    a, b = factors("ordinary", "float32", 100, 200, 300)
    right = rounded(a, b)
    wrong = right.copy()
    wrong[:, 7] = 0
    check, lines = checked(a, b, wrong)
    assert check.groups.size > 1 and lines
    assert not checked(a, b, right)[1]


def test_factors_larger_than_memory_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels.matmul.factors, "HELD", 1000)
    monkeypatch.setattr(check_floats, "COMPILED", 0)
    a, b = factors("ordinary", "float32", 60, 500, 200)
    right = rounded(a, b)
    assert not checked(a, b, right)[1]
    right[5, 6] = 0
    assert checked(a, b, right)[1]


@pytest.mark.parametrize("dtype", FLOATS)
def test_stacks(dtype: str) -> None:
    random = generator("stacks", dtype)
    a, b = (random.standard_normal(shape).astype(dtype) for shape in ((3, 8, 20), (1, 20, 9)))
    right = rounded(a, b)
    assert not checked(a, b, right)[1]
    right[1, 2, 3] += np.array(1, dtype)
    assert checked(a, b, right)[1]
