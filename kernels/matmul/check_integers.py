"""Freivalds' check of products of integers: C r against A (B r) modulo primes, for random r."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common.tiles import on_tiles, tiles
from kernels.matmul.reference import Slabs

# No difference, below 2**158, is a multiple of more than 13 of these primes, and a vector hides one that is not with a
# probability of 1 / (p - 1): a wrong row escapes all trials with less than 2**-20.
PRIMES = tuple(n for n in range(2**12, 2**13) if all(n % d for d in range(2, 91)))
TRIALS = 4
ESCAPE = (13 / len(PRIMES) + 1 / (PRIMES[0] - 1)) ** TRIALS

MOST = 2**22  # numbers in a sum of products in float64: 16 bits times 13 bits, below 2**53

Array = NDArray[Any]


def wrong_integers(slabs: Slabs, product: Array, random: np.random.Generator) -> list[str]:
    """Rows whose sums with a random vector differ modulo a prime.

    Parameters
    ----------
    slabs
        Reads the factors A and B part by part.
    product : integer array, shape (..., M, N)
    random
    """
    primes = random.choice(PRIMES, TRIALS)
    vectors = np.stack([random.integers(1, prime, product.shape[-1]) for prime in primes], axis=-1)
    expected: Any = 0
    for a, b in slabs():
        expected = (expected + _times(a, _times(b, vectors, primes), primes)) % primes
    got = _times(product, vectors, primes)
    return [
        f"row {place} of the region: expected a sum of {expected[*place, number]} modulo {primes[number]}, got "
        f"{got[*place, number]}"
        for *place, number in np.argwhere(got != expected)[:3].tolist()
    ]


def _times(matrices: Array, vectors: Array, primes: Array) -> Array:
    """Products of matrices, shape (..., M, N), and vectors (..., N, primes), each modulo its prime; int64."""
    *batch, rows, columns = matrices.shape
    total = np.zeros((*np.broadcast_shapes(tuple(batch), vectors.shape[:-2]), rows, len(primes)), np.int64)

    def add(part: slice) -> None:
        for first in range(0, columns, MOST):
            some = slice(first, first + MOST)
            for power, piece in _pieces(matrices[..., part, some]):
                sums = piece @ vectors[..., some, :].astype(np.float64)  # exact, in any order
                total[..., part, :] += sums.astype(np.int64) % primes * (2**power % primes)
        total[..., part, :] %= primes

    on_tiles(add, [slice(rows)] if batch else tiles(rows))
    return total


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
