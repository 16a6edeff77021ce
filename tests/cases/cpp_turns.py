"""A case of rows that take turns: what each row's check is given."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kernels.common import turns_check
from kernels.common.compiled_check import CompiledCheck
from kernels.common.turns_check import TurnsCheck

Add = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64)
NBYTES = 100  # that a check says it takes


class Noting(CompiledCheck):
    """Notes what it is given: index and sample."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.given: list[tuple[int, Any]] = []
        self.calls = 0

        def add(state: int, samples: int, n: int, first: int) -> None:
            some = np.frombuffer(ctypes.string_at(samples, n * dtype.itemsize), dtype)
            self.given += zip(range(first, first + n), some.tolist(), strict=True)
            self.calls += 1

        self._add = Add(add)
        super().__init__(self._add, 0, dtype, NBYTES)

    def partial(self) -> NDArray[Any]:
        raise NotImplementedError


class Turns(TurnsCheck):
    """Notes what each row is given."""

    def __init__(self, rows: int, dtype: np.dtype[Any]) -> None:
        self.noted = [Noting(dtype) for _ in range(rows)]
        super().__init__(self.noted, dtype)

    def partial(self) -> NDArray[Any]:
        raise NotImplementedError


def check_turns(sizes: Sequence[int]) -> int:
    """Each row's check gets its samples, with their indices in the row; the number of samples."""
    compared = 0
    for name, rows, line, size in product(("u1", "i2", "f4", "f8"), (2, 3, 70), (1, 5, 64), sizes):
        dtype, start = np.dtype(name), 7 * rows + size % rows
        samples = np.random.default_rng(size).integers(0, 256, size).astype(dtype)
        cut = size // 3
        with pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.setattr(turns_check, "LINE_SAMPLES", line)
            turns = Turns(rows, dtype)
        assert turns.count_from(start)
        for first, part in ((cut, samples[cut:]), (0, samples[:cut])):
            turns.add(part, first)
        indices = start + np.concatenate([np.arange(cut, size), np.arange(cut)])
        assert turns.samples() == np.bincount(indices % rows, minlength=rows).tolist()
        for row, check in enumerate(turns.noted):
            own = indices[indices % rows == row]
            assert check.given == list(zip((own // rows).tolist(), samples[own - start].tolist(), strict=True))
        compared += size
    return compared
