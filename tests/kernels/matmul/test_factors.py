"""The factors of a product are read part by part, by threads that end with the check."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from kernels.matmul import factors as module
from kernels.matmul.check_sample import Sample
from kernels.matmul.factors import ALIGNED, Factors, of_batch
from kernels.matmul.formats import FORMATS

LIMIT = 20  # seconds to wait for what takes milliseconds
A, B = np.arange(35.0).reshape(5, 7), np.arange(28.0).reshape(7, 4) - 9


def read(number: int, lines: slice, inner: slice) -> Any:
    """As a file would be read: a copy."""
    return np.array(B[inner, lines] if number else A[lines, inner])


@pytest.mark.parametrize("held", [1, 20, 2**24])
def test_parts_are_those_of_the_matrices(monkeypatch: pytest.MonkeyPatch, held: int) -> None:
    monkeypatch.setattr(module, "HELD", held)
    factors = Factors(read, 5, 7, 4)
    np.testing.assert_array_equal(factors.a(slice(1, 3), slice(2, 6)), A[1:3, 2:6])
    np.testing.assert_array_equal(factors.b(slice(2, 6)), B[2:6])
    slabs = list(factors.slabs())
    np.testing.assert_array_equal(np.concatenate([a for a, _ in slabs], -1), A)
    np.testing.assert_array_equal(np.concatenate([b for _, b in slabs], -2), B)
    assert len(slabs) == len(factors.slices) == {1: 7, 20: 4, 2**24: 1}[held]


def test_small_factors_are_read_once() -> None:
    calls = []

    def counted(number: int, lines: slice, inner: slice) -> Any:
        calls.append(number)
        return read(number, lines, inner)

    factors = Factors(counted, 5, 7, 4)
    for _ in range(3):
        factors.a(slice(0, 2), slice(0, 7))
        factors.b(slice(0, 7))
        list(factors.slabs())
    assert calls == [0, 1]


@pytest.mark.parametrize(("lines", "within"), [(3, None), (2**14, None), (2**30, None), (2**14, slice(64, 250))])
def test_parts_cover_the_sums_once(lines: int, within: slice | None) -> None:
    factors = Factors.of(np.zeros((2, 1000)), np.zeros((1000, 2)))
    parts = factors.parts(lines, within)
    covered = [k for part in parts for k in range(part.start, part.stop)]
    assert covered == list(range(1000))[within or slice(None)]
    first = within.start if within else 0
    assert all((part.start - first) % ALIGNED == 0 for part in parts)
    assert all((part.stop - part.start) * lines <= max(module.READ, lines * ALIGNED) for part in parts)


def test_a_sum_without_products_has_one_empty_part() -> None:
    factors = Factors.of(np.zeros((2, 0)), np.zeros((0, 3)))
    assert factors.parts(2) == factors.slices == [slice(0, 0)]
    assert [(a.shape, b.shape) for a, b in factors.slabs()] == [((2, 0), (0, 3))]


def test_what_is_read_ahead_ends_with_the_slabs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever makes the check end early: the files are closed then."""
    monkeypatch.setattr(module, "HELD", 1)
    second, go, reading = threading.Event(), threading.Event(), []

    def slow(number: int, lines: slice, inner: slice) -> Any:
        if inner.start == 1:
            reading.append(number)
            second.set()
            assert go.wait(LIMIT)
            reading.remove(number)
        return read(number, lines, inner)

    slabs = Factors(slow, 5, 7, 4).slabs()
    next(slabs)
    assert second.wait(LIMIT)
    threading.Timer(0.2, go.set).start()
    slabs.close()  # as when the loop over them raises an error
    assert go.is_set() and not reading


@pytest.mark.parametrize("held", [1, 20, 2**24])
def test_a_sample_sees_what_it_needs(monkeypatch: pytest.MonkeyPatch, held: int) -> None:
    """In parts of any size, in any order, some of them more than once."""
    monkeypatch.setattr(module, "HELD", held)
    product = A @ B
    sample = Sample([(0, 0), (4, 3), (2, 3)], 7, (A.dtype, B.dtype))
    factors = Factors(read, 5, 7, 4, sample.see)
    for inner in (slice(4, 7), slice(0, 4), slice(3, 5)):
        factors.b(inner)
        for rows in (slice(0, 3), slice(3, 5)):
            factors.a(rows, inner)
    for lines, seen in zip(sample.lines, (A[[0, 4, 2]], B.T[[0, 3, 3]]), strict=True):
        np.testing.assert_array_equal(lines, seen)
    expected = sample.expected(FORMATS["float64"])
    assert sample.wrong(expected, product) == []
    product[2, 3] = np.nextafter(product[2, 3], np.inf)
    assert len(sample.wrong(expected, product)) == 1


def test_matrices_of_stacks_are_those_that_broadcast() -> None:
    stack = np.arange(24).reshape(2, 1, 3, 4)
    np.testing.assert_array_equal(of_batch(stack, (1, 5)), stack[1, 0])
    np.testing.assert_array_equal(of_batch(stack[0, 0], (1, 5)), stack[0, 0])
