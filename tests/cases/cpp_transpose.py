"""Cases of the compiled transposes and of their check."""

from __future__ import annotations

import ctypes
from itertools import product
from unittest.mock import patch

import numpy as np

SHAPES = ((), (1,), (7,), (1, 5, 1), (3, 4), (1, 700), (33, 257), (70, 66), (300, 3), (3, 300), (5, 6, 7), (40, 1, 33),
          (2, 3, 4, 5), (2,) * 9)  # fmt: skip


def check_transposed() -> int:
    """Transposes are accepted, and rejected with any bit flipped; returns how many were compared."""
    from kernels.transpose.check import is_transpose

    compared = 0
    for itemsize, shape in product((*range(1, 18), 40), SHAPES):
        random = np.random.default_rng(itemsize)
        size = int(np.prod(shape))
        data = bytearray(random.bytes(size * itemsize + 1))
        array = np.frombuffer(data, f"V{itemsize}", size, offset=1).reshape(shape)
        transposed = array.T.copy().reshape(array.shape[::-1])
        assert is_transpose(transposed, array)
        bits = transposed.reshape(-1).view(np.uint8)
        for place in (0, len(bits) - 1, *random.integers(len(bits), size=8)):
            bits[place] ^= 1 << int(random.integers(8))
            assert not is_transpose(transposed, array)
            bits[:] = array.T.copy().reshape(-1).view(np.uint8)
            compared += 1
        assert is_transpose(transposed, array)
    return compared


def check_transpose() -> int:
    """Transposed as by NumPy, to where it belongs and nowhere else, in one box and in many; how many arrays were."""
    from kernels.transpose import cpu

    compared = 0
    for itemsize, shape in product((*range(1, 18), 40), (*SHAPES, (300, 9), (0, 3), (100, 3, 5), (5, 3, 100))):
        size = int(np.prod(shape))
        data = bytearray(np.random.default_rng(itemsize).bytes(size * itemsize + 1))
        array = np.frombuffer(data, f"V{itemsize}", size, offset=1).reshape(shape)
        for box in (cpu.COMPILED_BOX, 50):
            with patch.object(cpu, "COMPILED_BOX", box):
                got = cpu.transpose_cpu(array)
            assert got.shape == shape[::-1] and got.tobytes() == array.T.tobytes()
            compared += 1
    return compared + _most_axes()


def _most_axes() -> int:
    """As many axes as the function takes, of which NumPy's callers drop most."""
    from kernels.common import cxx
    from kernels.transpose import cpu

    if (library := cxx.library(cpu.SOURCE)) is None:
        return 0
    array, got = np.arange(6), np.zeros(6, np.int64)
    shape = (ctypes.c_size_t * 64)(2, *[1] * 62, 3)
    addresses = (ctypes.c_void_p(part.ctypes.data) for part in (array, got))
    library.transpose(*addresses, ctypes.c_size_t(8), ctypes.c_size_t(64), shape, shape)
    np.testing.assert_array_equal(got, array.reshape(2, 3).T.reshape(-1))
    return 1
