"""Copies of rows: the rows of a permutation and their launches; their elements on a GPU, against NumPy."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.common import nvrtc
from kernels.transpose import gpu, strided_copy
from kernels.transpose.axes import Rows, as_rows, merged
from tests.cases.sizes import sizes
from tests.emulator.array import to_device
from tests.kernels.common import machine_code

SHAPES_AND_AXES = st.lists(st.integers(1, 4), min_size=1, max_size=6).flatmap(
    lambda shape: st.tuples(
        st.just(tuple(shape)), st.permutations(range(len(shape) - 1)).map(lambda axes: (*axes, len(shape) - 1))
    )
)


@settings(max_examples=120, deadline=None)
@given(SHAPES_AND_AXES)
def test_rows_are_the_transposed_array(case: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    """The rows in order give NumPy's result; None only for a documented reason."""
    shape, axes = case
    array = np.arange(math.prod(shape)).reshape(shape)
    lengths, order = merged(shape, axes)
    rows = as_rows(lengths, order)
    if rows is None:
        assert len(order) < 2 or len(order) > 4 or order[-1] != len(order) - 1
        return
    inner, middle, outer = rows.counts
    begins = [
        i * rows.steps[0] + j * rows.steps[1] + k * rows.steps[2]
        for k, j, i in itertools.product(range(outer), range(middle), range(inner))
    ]
    copied = np.concatenate([array.ravel()[begin : begin + rows.length] for begin in begins])
    assert (copied == np.transpose(array, axes).ravel()).all()


def test_rows_of_small_shapes() -> None:
    assert as_rows(*merged((2, 3, 4), (1, 0, 2))) == Rows(4, (2, 3, 1), (12, 4, 0))
    assert as_rows(*merged((2, 3, 4, 5), (2, 1, 0, 3))) == Rows(5, (2, 3, 4), (60, 20, 5))
    for axes in ((0, 1, 2), (2, 1, 0), (0, 2, 1)):
        assert as_rows(*merged((2, 3, 4), axes)) is None
    assert as_rows(*merged((2,) * 5, (3, 2, 1, 0, 4))) is None


def test_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Units as wide as rows and alignment allow; every unit has a lane; row numbers fit 32 bits."""
    launches: list[tuple[Any, ...]] = []
    monkeypatch.setattr(
        nvrtc, "load", lambda source, instance: lambda *launch: launches.append((source, instance, *launch))
    )
    for dtype, length, start, unit in (
        ("uint8", 257, 0, 1), ("uint8", 32, 0, 16), ("uint8", 258, 2, 2), ("int16", 130, 0, 4), ("float32", 66, 0, 8),
        ("float32", 100_000, 0, 16), ("float64", 4, 0, 16), ("complex128", 1, 0, 16),
    ):  # fmt: skip
        itemsize = np.dtype(dtype).itemsize
        array = to_device(np.zeros(6 * length * itemsize + start, np.uint8))[start:].view(dtype).reshape(2, 3, length)
        rows = Rows(length, (2, 3, 1), (3 * length, length, 0))
        assert strided_copy.copy_rows(array, to_device(np.zeros(array.shape, dtype)), rows)
        source, instance, (grid,), (threads,), arguments = launches.pop()
        assert (source, instance, threads) == (strided_copy.SOURCE, strided_copy.instance(unit), strided_copy.THREADS)
        assert [each.itemsize for each in arguments[:2]] == [unit, unit]
        count, units, *counts_and_steps, pieces, shift = arguments[2:]
        assert (count, units * unit) == (6, length * itemsize)
        assert counts_and_steps[:2] == [2, 3]
        assert [step * unit for step in counts_and_steps[2:]] == [3 * length * itemsize, length * itemsize, 0]
        each = min(strided_copy.IN_FLIGHT // unit, 16)
        assert units <= pieces * (each << shift) and units > (pieces - 1) * (each << shift)
        assert grid * (threads >> shift) >= count * pieces > (grid - 1) * (threads >> shift)
    for length in (7, 255):
        array = to_device(np.zeros((2, 3, length), np.uint8))
        assert not strided_copy.copy_rows(array, array, Rows(length, (2, 3, 1), (3 * length, length, 0)))
    array = to_device(np.zeros(16, np.uint8))
    assert not strided_copy.copy_rows(array, array, Rows(16, (2**16, 2**16, 1), (16, 16, 0)))
    assert launches == []


def test_machine_code_of_every_unit_is_checked() -> None:
    assert machine_code.INSTANCES["transpose/strided_copy"]("sm_90") == [
        strided_copy.instance(unit) for unit in (1, 2, 4, 8, 16)
    ]


CASES: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((40, 3, 50), (1, 0, 2)), ((33, 17, 1), (1, 0, 2)), ((33, 17, 2), (1, 0, 2)), ((33, 17, 3), (1, 0, 2)),
    ((9, 8, 16), (1, 0, 2)), ((5, 4, 3, 77), (2, 1, 0, 3)), ((2, 3, 4, 5, 6), (3, 1, 0, 2, 4)),
    ((3, 2, 9001), (1, 0, 2)), ((5, 3, 260), (1, 0, 2)), ((2, 3, 2, 5, 4, 7), (4, 3, 2, 1, 0, 5)),
)  # fmt: skip


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32", "float64", "complex128"])
def test_gpu_rows(cp: Any, dtype: str) -> None:
    """Rows of any length, in unaligned arrays."""
    for shape, axes in sizes(*CASES):
        size = math.prod(shape)
        whole = np.frombuffer(np.random.default_rng(size).bytes((size + 1) * np.dtype(dtype).itemsize), dtype)
        on_device = cp.asarray(whole)
        for start in (0, 1):
            array = whole[start : start + size].reshape(shape)
            rows = gpu.permute_axes(on_device[start : start + size].reshape(shape), axes).get()
            expected = np.ascontiguousarray(np.transpose(array, axes))
            assert (rows.shape, rows.dtype) == (expected.shape, expected.dtype)
            assert rows.tobytes() == expected.tobytes()
