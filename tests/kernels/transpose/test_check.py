"""Comparing an array with its transpose, compiled and by NumPy: every shape, item size and wrong bit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kernels.transpose import check as module
from kernels.transpose.check import is_transpose
from tests.cases import cpp as cpp_cases

SOURCE = module.SOURCE
pytestmark = pytest.mark.usefixtures("by")

DTYPES = ("uint8", "int16", "S3", "float32", "V5", "S6", "int64", "V12", "S15", "complex128", "V40")


def random_bits(shape: tuple[int, ...], dtype: str, seed: int = 0) -> NDArray[Any]:
    nbytes = math.prod(shape) * np.dtype(dtype).itemsize
    return np.frombuffer(bytearray(np.random.default_rng(seed).bytes(nbytes)), dtype).reshape(shape)


def turned(array: NDArray[Any]) -> NDArray[Any]:
    return array.T.copy().reshape(array.shape[::-1])


SHAPES = [(), (1,), (900,), (0, 5), (1, 70_000), (70_000, 1), (3, 40_000), (40_000, 3), (300, 257), (9, 20, 40),
          (3, 200, 150), (200, 150, 3), (2,) * 17]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", ["uint8", "V3", "float32", "complex128"])
def test_a_transpose_is_one(shape: tuple[int, ...], dtype: str) -> None:
    array = random_bits(shape, dtype)
    assert is_transpose(turned(array), array)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(1, 9), max_size=4).map(tuple), st.sampled_from(DTYPES), st.integers(1, 50), st.data())
def test_one_wrong_bit_is_always_found(shape: tuple[int, ...], dtype: str, tile: int, data: st.DataObject) -> None:
    """Also with tiles so small that there are many, some ragged."""
    array = random_bits(shape, dtype, tile)
    transposed = turned(array)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "TILE", tile)
        assert is_transpose(transposed, array)
        bit = data.draw(st.integers(0, 8 * array.nbytes - 1))
        transposed.reshape(-1).view(np.uint8)[bit // 8] ^= 1 << bit % 8
        assert not is_transpose(transposed, array)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32", "int64", "V12"])
def test_every_element_of_many_tiles_counts(dtype: str) -> None:
    array = random_bits((700, 600), dtype)
    transposed = turned(array)
    elements = transposed.reshape(-1)
    random = np.random.default_rng(1)
    for place in [0, len(elements) - 1, *random.integers(len(elements), size=60)]:
        right = elements[place].copy()
        data = elements[place : place + 1].view(np.uint8)
        data[-1] ^= 128
        assert not is_transpose(transposed, array)
        elements[place] = right
    assert is_transpose(transposed, array)


def test_an_array_that_was_not_transposed_is_none() -> None:
    array = random_bits((300, 300), "float32")
    assert not is_transpose(array, array)
    for axis in (0, 1):
        assert not is_transpose(np.ascontiguousarray(np.roll(array.T, 1, axis)), array)


def test_nan_and_zeros_count_by_their_bits() -> None:
    array = np.array([[np.nan, -0.0], [0.0, np.inf]])
    assert is_transpose(turned(array), array)
    assert not is_transpose(turned(array + 0.0), array)


def test_tiles_that_leave_something_out_are_noticed(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    boxes, compared = module.boxes, module._compiled
    monkeypatch.setattr(module, "TILE", 2**16)
    if by == "NumPy":
        monkeypatch.setattr(module, "boxes", lambda *arguments: list(boxes(*arguments))[:-1])
    else:
        monkeypatch.setattr(module, "_compiled", lambda *arrays_and_lengths: compared(*arrays_and_lengths) - 1)
    array = random_bits((700, 600), "uint8")
    assert not is_transpose(turned(array), array)


def test_one_wrong_bit_of_every_size_of_element() -> None:
    """Anywhere, in unaligned arrays; shapes with ragged tiles, and with axes of one element."""
    assert cpp_cases.check_transposed() > 1000
