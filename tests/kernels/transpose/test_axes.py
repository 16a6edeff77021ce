"""Permuted axes: the matrices to transpose, against NumPy; their elements on a GPU."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.transpose import gpu
from kernels.transpose.axes import Matrices, matrices, merged
from kernels.transpose.unaligned import in_spans
from tests.cases.sizes import sizes

SHAPES_AND_AXES = st.lists(st.integers(1, 5), max_size=6).flatmap(
    lambda shape: st.tuples(st.just(tuple(shape)), st.permutations(range(len(shape))).map(tuple))
)


@settings(max_examples=120, deadline=None)
@given(SHAPES_AND_AXES)
def test_matrices_are_the_transposition(case: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    """Every element is moved once, to its place; None only for a documented reason."""
    shape, axes = case
    array = np.arange(math.prod(shape)).reshape(shape)
    expected = np.transpose(array, axes).ravel()
    split = matrices(shape, axes)
    if split is None:
        lengths, order = merged(shape, axes)
        assert math.prod(lengths) == array.size and sorted(order) == list(range(len(order)))
        assert len(order) < 2 or order[-1] == len(order) - 1 or len(order) > 4
        return
    out = np.full(array.size, -1)
    for outer, inner in itertools.product(range(split.outer), range(split.inner)):
        begin = outer * split.in_outer + inner * split.in_inner
        to = outer * split.out_outer + inner * split.out_inner
        for row, column in itertools.product(range(split.rows), range(split.columns)):
            place = to + column * split.pitch_out + row
            assert out[place] == -1
            out[place] = array.ravel()[begin + row * split.pitch_in + column]
    assert (out == expected).all()


def test_what_it_amounts_to() -> None:
    assert matrices((2, 3, 4), (1, 2, 0)) == Matrices(2, 12, 12, 2)  # axes that stay adjacent are merged
    assert matrices((2, 1, 4), (2, 1, 0)) == Matrices(2, 4, 4, 2)  # an axis of length 1 is dropped
    assert matrices((2, 3, 4), (0, 2, 1)) == Matrices(3, 4, 4, 3, inner=2, in_inner=12, out_inner=12)
    assert matrices((2, 3, 4), (2, 1, 0)) == Matrices(2, 4, 12, 6, inner=3, in_inner=4, out_inner=2)
    for axes in ((0, 1, 2), (1, 0, 2)):
        assert matrices((2, 3, 4), axes) is None
    assert matrices((2, 2, 2, 2, 2), (4, 3, 2, 1, 0)) is None


def test_columns_that_lie_behind_each_other_are_those_of_one_matrix() -> None:
    turned = matrices((5, 3, 7), (2, 1, 0))
    assert turned and in_spans(turned) == (Matrices(5, 21, 21, 15), 7, 5)
    behind = matrices((2, 5, 7), (0, 2, 1))
    assert behind and in_spans(behind) == (behind, 7, 0)
    both = matrices((5, 2, 3, 7), (3, 2, 1, 0))
    assert both and in_spans(both) == (Matrices(5, 21, 42, 30, outer=2, in_outer=21, out_outer=5), 7, 10)


CASES: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((3, 100, 70), (0, 2, 1)), ((70, 3, 101), (2, 1, 0)), ((17, 5, 33), (1, 2, 0)), ((64, 2, 64), (2, 1, 0)),
    ((33, 3, 2, 65), (3, 2, 1, 0)), ((33, 3, 2, 65), (0, 3, 1, 2)), ((2, 3, 4), (2, 1, 0)), ((40, 3, 50), (1, 0, 2)),
    ((2, 20, 3, 2, 24), (4, 3, 2, 1, 0)), ((130, 1, 160), (2, 0, 1)), ((), ()), ((5,), (0,)),
)  # fmt: skip


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32", "float64", "complex128"])
def test_gpu_axes(cp: Any, dtype: str) -> None:
    """Matrices by the kernel, also if all are aligned to 16 bytes; the rest by a copy."""
    for shape, axes in sizes(*CASES):
        bits = np.random.default_rng(len(shape)).bytes(math.prod(shape) * np.dtype(dtype).itemsize)
        array = np.frombuffer(bits, dtype).reshape(shape)
        got, expected = gpu.permute_axes(cp.asarray(array), axes).get(), np.transpose(array, axes)
        assert (got.shape, got.dtype) == (expected.shape, expected.dtype)
        assert got.tobytes() == np.ascontiguousarray(expected).tobytes()
