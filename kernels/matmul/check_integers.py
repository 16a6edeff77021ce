"""Freivalds' check of products of integers: C r against A (B r) modulo primes, for random r."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.common import cxx
from kernels.common.row_tiles import on_tiles, tiles
from kernels.matmul.check_lines import row_tiles, work
from kernels.matmul.factors import Factors
from kernels.matmul.formats import INTEGERS

SOURCE = Path(__file__).with_suffix(".cpp")

# No difference, below 2**158, is a multiple of more than 13 of these primes, and a vector hides one that is not with a
# probability of 1 / (p - 1): a wrong row escapes all trials with less than 2**-20.
PRIMES = tuple(n for n in range(2**12, 2**13) if all(n % d for d in range(2, 91)))
TRIALS = 4
ESCAPE = (13 / len(PRIMES) + 1 / (PRIMES[0] - 1)) ** TRIALS

TYPES = INTEGERS  # numbered as in check_integers.cpp
SLAB = 2**22  # sums of rows of B that are held at a time
STACKED = 2**16  # numbers of a stack that a thread takes at a time
COMPILED = 2**24  # `work` that makes it worth compiling
MOST = 2**22  # numbers in a sum of products in float64: 16 bits times 13 bits, below 2**53

Array = NDArray[Any]


class Side(NamedTuple):
    """What checks of several products with the same B share: primes, the vectors r, shape (N, primes), and B r.

    The last only if it is small: shape (..., K, primes).
    """

    primes: Array
    vectors: Array
    sums: Array | None


class IntegerCheck:
    """Checks a stack of products C of factors A and B. What does not need C is done when it is created.

    Parameters
    ----------
    factors
    shape
        Of the product: (..., M, N).
    random
    side
        Of a check of other rows with the same B.

    Attributes
    ----------
    side
        What checks of other rows with the same B can use.
    """

    escape, undetected = ESCAPE, 0.0

    def __init__(
        self, factors: Factors, shape: tuple[int, ...], random: np.random.Generator, side: Side | None = None
    ) -> None:
        large = math.prod(shape[:-2]) * work(shape[-2], factors.inner, shape[-1]) >= COMPILED
        self._library = library = functions() if large else None
        if side:
            primes, vectors = side.primes, side.vectors
        else:
            primes = random.choice(PRIMES, TRIALS)
            vectors = np.stack([random.integers(1, prime, shape[-1]) for prime in primes], axis=-1)
        self._parts = row_tiles(shape[:-2], shape[-2])
        self._expected = expected = np.zeros((*shape[:-1], TRIALS), np.int64)
        slabs, b = tiles(factors.inner, max(1, factors.within(SLAB))), side.sums if side else None
        for slab in slabs:
            if b is None or len(slabs) > 1:
                of_parts = factors.parts(factors.columns, slab)
                b = np.concatenate(
                    on_tiles(lambda inner: residues(library, factors.b(inner), vectors, primes), of_parts), -2
                )

            def add(part: slice, slab: slice = slab, b: Array = b) -> None:
                for inner in factors.parts(part.stop - part.start, slab):
                    some = b[..., inner.start - slab.start : inner.stop - slab.start, :]
                    expected[..., part, :] += residues(library, factors.a(part, inner), some, primes)
                expected[..., part, :] %= primes

            on_tiles(add, self._parts)
        self.side = Side(primes, vectors, b if len(slabs) == 1 else None)

    def wrong(self, product: Array) -> list[str]:
        """Rows of an int32 or int64 array, shape (..., M, N), whose sums with a vector differ modulo a prime."""
        library, expected, (primes, vectors, _) = self._library, self._expected, self.side
        got = np.concatenate(
            on_tiles(lambda part: residues(library, product[..., part, :], vectors, primes), self._parts), -2
        )
        return [
            f"row {place} of the region: expected a sum of {expected[*place, number]} modulo {primes[number]}, got "
            f"{got[*place, number]}"
            for *place, number in np.argwhere(got != expected)[:3].tolist()
        ]


def residues(library: ctypes.CDLL | None, matrices: Array, vectors: Array, primes: Array) -> Array:
    """Products of matrices, shape (..., M, N), and vectors (..., N, primes), each modulo its prime; int64.

    `library` is that of check_integers.cpp.
    """
    if library is None:
        return residues_numpy(matrices, vectors, primes)
    batch, rows = np.broadcast_shapes(matrices.shape[:-2], vectors.shape[:-2]), matrices.shape[-2]
    if matrices.strides[-1] != matrices.itemsize or matrices.ndim > 2:
        matrices = np.ascontiguousarray(matrices)
    of, of_vectors = (_numbered(stack.shape[:-2], batch) for stack in (matrices, vectors))
    matrices = matrices.reshape(math.prod(matrices.shape[:-2]), *matrices.shape[-2:])
    of_rows = np.ascontiguousarray(np.swapaxes(vectors, -1, -2), np.int32)
    out = np.empty((len(of), rows, TRIALS), np.int64)

    def times(part: slice) -> None:
        matrix, row, _ = (stride // matrices.itemsize for stride in matrices.strides)
        library.times(
            TYPES.index(matrices.dtype.name), matrices.ctypes.data, part.stop - part.start, *matrices.shape[1:], row,
            matrix, of[part].ctypes.data, of_rows.ctypes.data, of_vectors[part].ctypes.data, primes.ctypes.data,
            out[part].ctypes.data,
        )  # fmt: skip

    on_tiles(times, tiles(len(of), max(1, STACKED // max(1, math.prod(matrices.shape[1:])))))
    return out.reshape(*batch, rows, TRIALS)


def _numbered(own: tuple[int, ...], batch: tuple[int, ...]) -> Array:
    """For each matrix of a stack that is broadcast, which one of its own it is."""
    numbers = np.broadcast_to(np.arange(math.prod(own)).reshape(own), batch)
    return np.ascontiguousarray(numbers.reshape(-1))


def functions() -> ctypes.CDLL | None:
    """What is compiled; None without a C++ compiler."""
    library = cxx.library(SOURCE)
    if library is not None:
        size, address = ctypes.c_size_t, ctypes.c_void_p
        library.times.argtypes, library.times.restype = (ctypes.c_int, address, *[size] * 5, *[address] * 5), None
    return library


def residues_numpy(matrices: Array, vectors: Array, primes: Array) -> Array:
    """The same with NumPy."""
    total: Any = 0
    for first in range(0, max(1, matrices.shape[-1]), MOST):
        some = slice(first, first + MOST)
        for power, piece in _pieces(matrices[..., some]):
            sums = piece @ vectors[..., some, :].astype(np.float64)  # exact, in any order
            total = total + sums.astype(np.int64) % primes * (2**power % primes)
    return np.asarray(total % primes)


def _pieces(values: Array) -> Iterator[tuple[int, Array]]:
    """Integers as float64 arrays of 16 bits each, the highest with the sign, and their powers of two."""
    if values.itemsize == 1:
        yield 0, values.astype(np.float64)
        return
    digits = np.ascontiguousarray(values).view(np.uint16).reshape(*values.shape, values.itemsize // 2)
    for place in range(digits.shape[-1]):
        digit = digits[..., place]
        if place == digits.shape[-1] - 1 and values.dtype.kind == "i":
            digit = digit.view(np.int16)
        yield 16 * place, digit.astype(np.float64)
