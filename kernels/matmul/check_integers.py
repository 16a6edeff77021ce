"""Freivalds' check of products of integers: C r against A (B r) modulo primes, for random r."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.matmul.reference import Slabs

# No difference, below 2**158, is a multiple of more than 13 of these primes, and a vector hides one that is not with a
# probability of 1 / (p - 1): a wrong row escapes all trials with less than 2**-20.
PRIMES = tuple(n for n in range(2**12, 2**13) if all(n % d for d in range(2, 91)))
TRIALS = 4
ESCAPE = (13 / len(PRIMES) + 1 / (PRIMES[0] - 1)) ** TRIALS

Array = NDArray[Any]


def wrong_integers(slabs: Slabs, product: Array, random: np.random.Generator) -> list[str]:
    """Rows whose sums with a random vector differ modulo a prime. All numbers are integers below 2**53, in float64."""
    primes = [int(prime) for prime in random.choice(PRIMES, TRIALS)]
    vectors = [np.asarray(random.integers(1, prime, (product.shape[-1], 1)), np.float64) for prime in primes]
    sums: list[Array] = [np.zeros((*product.shape[:-1], 1)) for _ in primes]
    for a, b in slabs():
        for number, prime in enumerate(primes):
            inner = _modulo(b, prime) @ vectors[number] % prime
            sums[number] = (sums[number] + _modulo(a, prime) @ inner) % prime
    wrong = []
    for prime, vector, expected in zip(primes, vectors, sums, strict=True):
        got = np.asarray(_modulo(product, prime) @ vector % prime)
        for place in map(tuple, np.argwhere(~(got == expected))[:3].tolist()):
            wrong.append(f"row {place[:-1]}: expected {expected[place]:.0f} modulo {prime}, got {got[place]:.0f}")
    return wrong


def _modulo(values: Array, prime: int) -> Array:
    return np.remainder(values, values.dtype.type(prime) if values.dtype.itemsize > 1 else np.int64(prime)).astype(
        np.float64
    )
