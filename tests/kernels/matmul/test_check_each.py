"""The compiled check of single elements: right products pass, and nothing else does."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.matmul import check_each
from kernels.matmul.check_each import EachCheck, float_check, functions
from kernels.matmul.check_floats import FloatCheck
from kernels.matmul.factors import Factors
from kernels.matmul.formats import FORMATS
from tests.cases.matmul import FLOATS, KINDS, Array, defined, factors, generator, on_cpu


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    if functions() is None:
        pytest.skip("no C++ compiler")
    monkeypatch.setattr(check_each, "COMPILED", 1)


def checked(a: Array, b: Array, product: Array) -> tuple[list[str], float]:
    """What is wrong with a product, and the largest error that may be."""
    library = functions()
    assert library is not None
    format = FORMATS[product.dtype.name]
    check = EachCheck(library, Factors.of(a, b), product.shape, format)
    with np.errstate(all="ignore"):
        return check.wrong(product), check.undetected


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_right_products_pass(dtype: str, kind: str) -> None:
    """By the definition, element by element: uncertain ones, infinities and NaN, too."""
    for sizes in ((1, 1, 1), (9, 1, 8), (5, 2, 7), (3, 8, 40), (4, 64, 3), (40, 3, 130)):
        a, b = factors(kind, dtype, *sizes)
        assert checked(a, b, defined(a, b))[0] == []


def test_sums_that_overflow_in_order_are_scaled() -> None:
    a, b = np.array([[2.0**1023, 2.0**1023, -(2.0**1023), 2.0**-99]]).repeat(5, 0), np.ones((4, 3))
    b[3] = 2.0**700
    with np.errstate(all="ignore"):
        right = defined(a, b)
    assert np.isfinite(right).all() and checked(a, b, right)[0] == []
    wrong = right.copy()
    wrong[4, 2] = np.nextafter(right[4, 2], 0)
    assert checked(a, b, wrong)[0]


@pytest.mark.parametrize("kind", ["ordinary", "subnormal", "close", "special", "mixed", "extreme"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_every_element_is_compared(dtype: str, kind: str) -> None:
    """A few steps to another number, in either direction, a sign, zero, infinities and NaN."""
    for inner in (1, 2, 5):
        a, b = factors(kind, dtype, 3, inner, 5)
        right = defined(a, b)
        steps = (2 if dtype != "float64" else 3) * (inner + 2)
        for place in np.ndindex(right.shape):
            element, others = right[place], [np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0]
            if np.isfinite(element):
                others += [-element, element / 2, 2 * element]
            with np.errstate(all="ignore"):
                terms = np.abs(a[place[0]].astype(np.float64) * b[:, place[1]].astype(np.float64)).sum()
                if np.isfinite(element) and terms == abs(float(element)):  # nothing cancels
                    for end in (np.inf, -np.inf):
                        other = element
                        for _ in range(steps):
                            other = np.nextafter(other, np.array(end, dtype))
                        others.append(other)
                if not np.isfinite(element):
                    others += [-element, np.copysign(np.finfo(dtype).max / 4, element)]
            for other in others:
                wrong = right.copy()
                wrong[place] = other
                if np.array(other, dtype).tobytes() == element.tobytes():
                    continue
                assert checked(a, b, wrong)[0], f"{place}: {element} replaced by {other}"


@pytest.mark.parametrize("dtype", FLOATS)
def test_errors_above_what_is_admitted_are_found(dtype: str) -> None:
    """Whatever the element, and no more is admitted than by the other check, but for what is uncertain."""
    random = generator("admitted", dtype)
    for inner in (1, 3, 8, 40):
        a, b = random.standard_normal((6, inner)).astype(dtype), random.standard_normal((inner, 50)).astype(dtype)
        right = on_cpu(a, b)
        lines, admitted = checked(a, b, right)
        assert lines == [] and 0 < admitted < 2.0 ** (8 - FORMATS[dtype].precision) * (inner + 1)
        exact = right.astype(np.float64)
        sizes = np.sqrt(np.square(exact).mean(-1))
        for i, j in random.integers(0, (6, 50), (40, 2)).tolist():
            wrong = right.copy()
            off = 2.5 * admitted * sizes[i] + 2 * np.spacing(np.abs(right[i, j])).astype(np.float64)
            wrong[i, j] = exact[i, j] + random.choice([-1, 1]) * off
            assert checked(a, b, wrong)[0], (i, j)


@pytest.mark.parametrize("dtype", FLOATS)
def test_what_is_admitted(dtype: str) -> None:
    """Twice the bound of the largest element; nothing of one that is uncertain."""
    random, half = generator("bound", dtype), 2.0 ** -FORMATS[dtype].precision
    a, b = np.ones((1, 1), dtype), random.uniform(0.6, 0.9, (1, 20)).astype(dtype)
    lines, admitted = checked(a, b, on_cpu(a, b))
    numbers = b.astype(np.float64)
    expected = 2 * (half + 2 * 2.0**-53) * numbers.max() / np.sqrt(np.square(numbers).mean())
    assert lines == [] and admitted == pytest.approx(expected, rel=1e-3, abs=0)
    tiny = 2.0**-60 if dtype == "float64" else 2.0**-14 if dtype == "float16" else 2.0**-40
    a, b = np.array([[1, tiny]], dtype), np.array([[tiny], [1]], dtype)
    lines, admitted = checked(a, b, on_cpu(a, b))
    # Of float16, which keeps all of these bits, it is certain; otherwise it has to equal its definition.
    assert lines == [] and (admitted > 0) == (dtype == "float16")


@pytest.mark.parametrize("dtype", FLOATS)
def test_stacks_parts_and_gaps(monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    a, b = factors("special", dtype, 70, 3, 140)
    left, right = np.stack([a, a[::-1], a + a[0, 0]]), np.stack([b, b[:, ::-1]])
    for elements, rows in ((check_each.ELEMENTS, check_each.ROWS), (1, 3)):
        monkeypatch.setattr(check_each, "ELEMENTS", elements)
        monkeypatch.setattr(check_each, "ROWS", rows)
        for x, y in ((left[:, None], right), (a, right), (left, b), (a, b), (a, b[:, ::2]), (left[:, :1], right[:1])):
            product = on_cpu(x, y)
            assert checked(x, y, product)[0] == []
            gaps = np.repeat(product, 2, axis=-2)[..., ::2, :]
            assert checked(x, y, gaps)[0] == []
            place = tuple(length - 1 for length in product.shape)
            product[place] = 77 if product[place] != 77 else 78
            lines, _ = checked(x, y, product)
            assert len(lines) == 1 and str(list(place)) in lines[0]


def test_what_it_is_chosen_for() -> None:
    """Short sums; factors that are in memory."""
    random = np.random.default_rng(0)

    def chosen(*shapes: tuple[int, ...]) -> bool:
        a, b = (np.zeros(shape) for shape in shapes)
        made = float_check(Factors.of(a, b), np.matmul(a, b).shape, FORMATS["float64"], random)
        return isinstance(made, EachCheck)

    assert chosen((3, 8), (8, 4)) and not chosen((3, 9), (9, 4))
    assert not chosen((1, 1), (1, 2**16 + 1))
    assert chosen((5, 3, 64), (5, 64, 4)) and not chosen((5, 3, 65), (5, 65, 4))
    parts = Factors(lambda *_: np.zeros((3, 3)), 3, 8, 3, most=6)
    assert len(parts.slices) > 1
    assert isinstance(float_check(parts, (3, 3), FORMATS["float64"], random), FloatCheck)
