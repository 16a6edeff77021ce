"""Arrays whose elements all differ, and regions of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from workflows.regions import Bounds

DTYPES = ("uint8", ">i2", "<f4", ">f8", "<c16", ">c8", "bool", "S3", ">U2", "V5", "V16")
TINY = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

shapes = st.lists(st.integers(0, 6), max_size=4).map(tuple)


def counting(shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    """An array whose elements all differ, as far as the dtype can hold that many values."""
    numbers = np.arange(math.prod(shape)) + 1
    if np.dtype(dtype).kind == "V":
        data = np.zeros((numbers.size, np.dtype(dtype).itemsize), np.uint8)
        data[:, 0], data[:, -1] = numbers % 251, numbers // 251
        return data.reshape(-1).view(dtype).reshape(shape)
    return numbers.astype(dtype).reshape(shape)


@st.composite
def bounds_in(draw: st.DrawFn, shape: tuple[int, ...]) -> Bounds:
    ends = [draw(st.tuples(st.integers(0, length), st.integers(0, length))) for length in shape]
    return tuple((min(pair), max(pair)) for pair in ends)


def part(array: NDArray[Any], region: Bounds) -> NDArray[Any]:
    """A region by NumPy's slicing; an array even without axes."""
    return array[(*(slice(*ends) for ends in region), ...)]


def same(result: NDArray[Any], expected: NDArray[Any]) -> None:
    """Assert the same values in native byte order, C-contiguous."""
    assert result.shape == expected.shape
    assert result.dtype == expected.dtype.newbyteorder("=")
    assert result.flags.c_contiguous
    assert result.tobytes() == expected.astype(result.dtype).tobytes()
