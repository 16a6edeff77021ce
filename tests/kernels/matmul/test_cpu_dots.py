"""Elements that are dot products by definition: compiled and by NumPy, the bits of Python's own floats, in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernels.matmul import cpu_dots
from kernels.matmul.cpu_dots import DotProducts
from tests.cases.matmul import Array, defined, generator, on_cpu, overflowing, same_bits

SIZES = ((9, 8, 8), (13, 300, 50), (70, 3, 60), (8, 513, 24))


@pytest.fixture(params=["compiled", "NumPy"], autouse=True)
def _computed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With and without a C++ compiler."""
    if request.param == "NumPy":
        monkeypatch.setattr(cpu_dots, "functions", lambda: None)


def far_apart(rows: int, inner: int, columns: int) -> tuple[Array, Array]:
    """Exponents over most of the range, so that each sum depends on its order, and on every rounding."""
    random = generator("far apart", rows, inner, columns)
    a, b = random.standard_normal((rows, inner)), random.standard_normal((inner, columns))
    return np.ldexp(a, random.integers(-450, 450, a.shape)), np.ldexp(b, random.integers(-450, 450, b.shape))


def in_order(row: list[float], column: list[float]) -> float:
    total = 0.0
    for x, y in zip(row, column, strict=True):
        total += x * y
    return total


@pytest.mark.parametrize("share", [1.0, 0.1, 0.001])
@pytest.mark.parametrize("sizes", SIZES)
def test_terms_are_added_in_order_and_in_parts(
    monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, int, int], share: float
) -> None:
    monkeypatch.setattr(cpu_dots, "HIGH", 20)
    monkeypatch.setattr(cpu_dots, "ACROSS", 30)
    a, b = far_apart(*sizes)
    which = generator("which", *sizes).uniform(size=(sizes[0], sizes[2])) < share
    which[-1, -1] = True
    expected = np.array([in_order(a[i].tolist(), b[:, j].tolist()) for i, j in np.argwhere(which)])
    for left, right in ((a, b), (np.asfortranarray(a), np.asfortranarray(b))):
        for step in (sizes[1], max(1, sizes[1] // 3)):
            dots = DotProducts(which, None)
            for first in range(0, sizes[1], step):
                dots.add(left[:, first : first + step], right[first : first + step])
            assert dots.inner == sizes[1]
            same_bits(dots.sums[which], expected)


def test_stacks() -> None:
    a, b = far_apart(12, 40, 20)
    left, right = np.stack([a, -a, a[::-1]])[:, None], np.stack([b, b[:, ::-1]])
    which = generator("which", 12).uniform(size=(3, 2, 12, 20)) < 0.2
    which[1] = False
    dots = DotProducts(which, None)
    dots.add(left, right)
    for i, j in np.ndindex(3, 2):
        alone = DotProducts(which[i, j], None)
        alone.add(left[i, 0], right[j])
        same_bits(dots.sums[i, j][which[i, j]], alone.sums[which[i, j]])
        assert i != 1 or not dots.sums[i, j].any()


def test_sums_that_overflow_are_scaled() -> None:
    a, b = overflowing(9, 40, 11)
    same_bits(on_cpu(a, b), defined(a, b))


def test_compiled_code_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where most elements are dot products, NumPy takes 100 times as long."""
    numpy_terms: list[Any] = []
    monkeypatch.setattr(DotProducts, "_add", lambda *arguments: numpy_terms.append(arguments))
    a, b = far_apart(9, 40, 11)
    DotProducts(np.ones((9, 11), bool), None).add(a, b)
    assert bool(numpy_terms) == (cpu_dots.functions() is None)
