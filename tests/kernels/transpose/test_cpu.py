"""Transposing on the CPU, compiled and by NumPy: every shape and item size, without writes outside the result."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernels.transpose import cpu as module
from kernels.transpose.cpu import transpose_cpu
from tests.cases import cpp as cpp_cases

SOURCE = module.SOURCE
pytestmark = pytest.mark.usefixtures("by")


def test_every_shape_and_size_of_element() -> None:
    assert cpp_cases.check_transpose() > 300


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(shape=st.lists(st.integers(0, 9), max_size=5).map(tuple), dtype=st.sampled_from(["i2", "f8", "V5"]),
       box=st.integers(1, 60), order=st.sampled_from("CF"))  # fmt: skip
def test_boxes_of_any_size(shape: tuple[int, ...], dtype: str, box: int, order: Any) -> None:
    """Also with tiles so small that there are many, some ragged; strided arrays, too."""
    random = np.random.default_rng(box)
    size = int(np.prod(shape))
    array = np.frombuffer(random.bytes(size * np.dtype(dtype).itemsize), dtype, size).reshape(shape).copy(order)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BOX", box)
        patch.setattr(module, "COMPILED_BOX", box)
        got = transpose_cpu(array)
        assert got.shape == shape[::-1] and got.flags.c_contiguous
        assert got.tobytes() == array.T.tobytes()
        if array.ndim:
            assert transpose_cpu(array[::2]).tobytes() == array[::2].T.tobytes()


def test_which_of_them_it_is(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(module, "_transpose", lambda *arrays: asked.append(arrays))
    transpose_cpu(np.zeros((3, 4)))
    assert len(asked) == (by == "NumPy")
