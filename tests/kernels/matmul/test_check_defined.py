"""Elements computed from their definition, compiled: the bits of Python's integers; and which rows and columns meet."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

import kernels.matmul.factors
from kernels.matmul import check_defined
from kernels.matmul.check_defined import Support, defined, functions, sums_and_sizes
from kernels.matmul.check_lines import Lines
from kernels.matmul.factors import Factors
from kernels.matmul.formats import FORMATS
from tests.cases.matmul import FLOATS, KINDS, Array, factors, generator, on_cpu, overflowing, same_bits
from tests.cases.matmul import defined as by_definition


@pytest.fixture
def library() -> ctypes.CDLL:
    compiled = functions()
    if compiled is None:
        pytest.skip("no C++ compiler")
    return compiled


def exponents_of(a: Array, b: Array) -> list[Array]:
    exponents = []
    for axis, block in ((-1, a), (-2, b)):
        lines = Lines(axis, 0)
        lines.settle(*lines.measured([block]))
        exponents.append(lines.exponents.reshape(-1))
    return exponents


def all_defined(library: ctypes.CDLL, a: Array, b: Array) -> Array:
    """Every element of a product of finite numbers."""
    places = np.argwhere(np.ones((len(a), b.shape[1]), bool))
    with np.errstate(all="ignore"):
        elements = defined(library, Factors.of(a, b), exponents_of(a, b), places, FORMATS[a.dtype.name])
    return elements.reshape(len(a), -1)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "special"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_bits_are_those_of_the_definition(library: ctypes.CDLL, dtype: str, kind: str) -> None:
    for sizes in ((1, 1, 1), (5, 9, 7), (2, 300, 9)):
        a, b = factors(kind, dtype, *sizes)
        same_bits(all_defined(library, a, b), by_definition(a, b))


def test_sums_that_overflow_in_order_are_scaled(library: ctypes.CDLL) -> None:
    a, b = overflowing(7, 30, 9)
    right = by_definition(a, b)
    assert np.isfinite(right).all()
    same_bits(all_defined(library, a, b), right)


@pytest.mark.parametrize(("held", "places", "kept"), [(1, 1, 64), (2**21, 3, 64), (100, 2**12, 2**24)])
@pytest.mark.parametrize("dtype", FLOATS)
def test_some_lines_in_parts(
    library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch, dtype: str, held: int, places: int, kept: int
) -> None:
    """Of factors that are read part by part, in any order of places, some twice; in stacks."""
    for name, number in (("HELD", held), ("LINES", 3), ("PLACES", places), ("ELEMENTS", 17)):
        monkeypatch.setattr(check_defined, name, number)
    monkeypatch.setattr(kernels.matmul.factors, "HELD", kept)
    a, b = factors("huge", dtype, 9, 70, 11)
    right, some = on_cpu(a, b), generator("places").integers(0, (9, 11), (40, 2))
    stack = np.stack([a[::-1], a])
    for of, batch in ((Factors.of(a, b), None), (Factors.of(stack, b), (1,))):
        got = defined(library, of, exponents_of(a, b), some, FORMATS[dtype], batch)
        same_bits(got, right[tuple(some.T)])


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("length", [0, 2**16 - 1, 2**16 + 1, 2**18 + 5])
def test_long_sums_of_the_largest_numbers(library: ctypes.CDLL, length: int, sign: int) -> None:
    """More products than 128 bits can add up, and more than 2**32 - 1 in leading bits."""
    largest = np.nextafter(1.0, 0)
    a, b = np.full((1, length), largest), np.full((length, 1), sign * largest)
    a[0, 7:8] = 2.0**-60  # so that it is not certain without the leading bits
    same_bits(all_defined(library, a, b), by_definition(a, b))


def test_sums_and_sizes_are_those_of_numpy(library: ctypes.CDLL) -> None:
    a, b = factors("cancelling", "float64", 6, 90, 7)
    places = np.argwhere(np.ones((6, 7), bool))[::-2]
    scales = np.arange(6) - 3, np.arange(7)
    sums, sizes = sums_and_sizes(library, Factors.of(a, b), scales, places)
    x, y = np.ldexp(a, -scales[0][:, None]), np.ldexp(b, -scales[1])
    np.testing.assert_allclose(sizes, (np.abs(x) @ np.abs(y))[tuple(places.T)], rtol=1e-14)
    assert (np.abs(sums - (x @ y)[tuple(places.T)]) <= 1e-14 * sizes).all()


@pytest.mark.parametrize("inner", [1, 63, 65, 64 * 64 + 1, 9000])
def test_rows_and_columns_that_meet(library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch, inner: int) -> None:
    """In their first place, their last one, any, or none."""
    monkeypatch.setattr(kernels.matmul.factors, "READ", 700)
    random = generator("support", inner)
    a, b = (random.random(sizes) < 1 / np.sqrt(inner) for sizes in ((12, inner), (inner, 9)))
    a[:, 0] = a[:, -1] = b[0] = b[-1] = False
    a[0, 0] = b[0, 0] = a[1, -1] = b[-1, 1] = True
    numbers = [np.where(of, -np.array(2.0**-149, np.float32), np.float32(-0.0)) for of in (a, b)]
    meet = (a.astype(int) @ b.astype(int)) > 0
    support, marked = Support(Factors.of(*numbers)), random.random((12, 9)) < 0.7
    np.testing.assert_array_equal(support.disjoint(slice(None), slice(None), marked), marked & ~meet)
    np.testing.assert_array_equal(
        support.disjoint(np.array([1, 0]), slice(0, 2), np.ones((2, 2), bool)), ~meet[1::-1, :2]
    )
