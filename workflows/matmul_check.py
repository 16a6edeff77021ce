"""Freivalds' check of matrix products: C r against A (B r) for random r, whole, and some elements exactly."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.matmul.formats import FORMATS, result_dtype
from workflows.array_job import Checked, Read
from workflows.matmul_exact import exact_float, exact_integer
from workflows.matmul_float import FloatCheck, of_batch
from workflows.matmul_shapes import Matrices, matrices
from workflows.regions import Bounds, Spec

HELD = 2**23  # elements of A and B that are looked at at a time, about
RECOMPUTED = 4  # elements of a region, at most
RECOMPUTED_PRODUCTS = 2**16  # in all of them together, as long as that is one element

# Integers are compared modulo primes. No difference, below 2**158, is a multiple of more than 13 of them, and a vector
# hides one that is not with a probability of 1 / (p - 1): so a wrong row escapes all trials with less than 2**-20.
PRIMES = tuple(n for n in range(2**12, 2**13) if all(n % d for d in range(2, 91)))
TRIALS = 4
INTEGER_ESCAPE = (13 / len(PRIMES) + 1 / (PRIMES[0] - 1)) ** TRIALS

Array = NDArray[Any]
Slabs = Callable[[], Iterator[tuple[Array, Array]]]


def check(
    read: Read, found: Array, region: Bounds, specs: Sequence[Spec], options: Any, random: np.random.Generator
) -> Checked:
    """Check every element of a region at the cost of a few products with vectors, and a few of them to the last bit."""
    factors = matrices(specs)
    found = factors.as_stack(found, region)
    dtype = result_dtype([spec.dtype for spec in specs])
    slabs = _Seen(_slabs(read, region, factors, dtype), _chosen(found, factors.inner, random))
    with np.errstate(all="ignore"):
        if dtype.kind == "f":
            floats = FloatCheck(slabs, found, FORMATS[dtype.name], random)
            wrong, escape = floats.wrong(), floats.escape
        else:
            wrong, escape = _wrong_integers(slabs, found, random), INTEGER_ESCAPE
        wrong += _wrong_elements(slabs, found, dtype)
    return Checked(tuple(wrong[:3]), found.size, escape)


def _slabs(read: Read, region: Bounds, factors: Matrices, dtype: np.dtype[Any]) -> Slabs:
    """What goes into a region, part by part; floats in their common dtype. A single part is read once."""
    _, rows, columns = factors.parts(region)
    step = max(1, HELD // (rows[1] - rows[0] + columns[1] - columns[0]))

    kept: list[tuple[Array, Array]] = []

    def slabs() -> Iterator[tuple[Array, Array]]:
        if kept:
            yield kept[0]
            return
        for first in range(0, max(1, factors.inner), step):
            bounds = factors.needs(region, (first, min(first + step, factors.inner)))
            blocks = [read(number, bounds[number]) for number in (0, 1)]
            if dtype.kind == "f":
                blocks = [block.astype(dtype, copy=False) for block in blocks]
            part = factors.as_matrices(blocks)
            if step >= factors.inner:
                kept.append(part)
            yield part

    return slabs


def _wrong_integers(slabs: Slabs, found: Array, random: np.random.Generator) -> list[str]:
    """Rows whose sums differ modulo a prime. All of it are whole numbers below 2**53 in float64."""
    primes = [int(prime) for prime in random.choice(PRIMES, TRIALS)]
    vectors = [np.asarray(random.integers(1, prime, (found.shape[-1], 1)), np.float64) for prime in primes]
    sums: list[Array] = [np.zeros((*found.shape[:-1], 1)) for _ in primes]
    for a, b in slabs():
        for number, prime in enumerate(primes):
            inner = _modulo(b, prime) @ vectors[number] % prime
            sums[number] = (sums[number] + _modulo(a, prime) @ inner) % prime
    wrong = []
    for prime, vector, expected in zip(primes, vectors, sums, strict=True):
        got = np.asarray(_modulo(found, prime) @ vector % prime)
        for place in map(tuple, np.argwhere(~(got == expected))[:3].tolist()):
            wrong.append(f"row {place[:-1]}: expected {expected[place]:.0f} modulo {prime}, got {got[place]:.0f}")
    return wrong


def _modulo(values: Array, prime: int) -> Array:
    return np.remainder(values, values.dtype.type(prime) if values.dtype.itemsize > 1 else np.int64(prime)).astype(
        np.float64
    )


def _chosen(found: Array, inner: int, random: np.random.Generator) -> list[tuple[int, ...]]:
    count = max(1, min(RECOMPUTED, RECOMPUTED_PRODUCTS // max(1, inner)))
    return [tuple(int(random.integers(length)) for length in found.shape) for _ in range(count)]


class _Seen:
    """Parts of A and B for others to look at, who leave the rows and columns of some elements here the first time."""

    def __init__(self, slabs: Slabs, chosen: list[tuple[int, ...]]) -> None:
        self.slabs, self.chosen, self.first = slabs, chosen, True
        self.rows: list[list[Any]] = [[] for _ in chosen]
        self.columns: list[list[Any]] = [[] for _ in chosen]

    def __call__(self) -> Iterator[tuple[Array, Array]]:
        for a, b in self.slabs():
            for number, (*batch, i, j) in enumerate(self.chosen if self.first else ()):
                self.rows[number] += of_batch(a, batch)[i].tolist()
                self.columns[number] += of_batch(b, batch)[:, j].tolist()
            yield a, b
        self.first = False


def _wrong_elements(seen: _Seen, found: Array, dtype: np.dtype[Any]) -> list[str]:
    """Those of the chosen elements that are not what the definition says, in Python's integers."""
    wrong = []
    for place, row, column in zip(seen.chosen, seen.rows, seen.columns, strict=True):
        if dtype.kind == "f":
            expected: float = exact_float(row, column, FORMATS[dtype.name])
        else:
            expected = exact_integer(row, column)
        got = found[place].item()
        if repr(expected) != repr(got):  # also 0.0 and -0.0; NaN is NaN
            wrong.append(f"element {list(place)} of the region: expected {expected}, got {got}")
    return wrong
