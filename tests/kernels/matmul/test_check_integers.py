"""Products of integers with vectors, modulo primes: compiled and by NumPy, against Python's integers."""

from __future__ import annotations

from operator import mul

import numpy as np
import pytest

from kernels.matmul import check_integers, factors
from kernels.matmul.check_integers import PRIMES, TRIALS, IntegerCheck, residues, residues_numpy
from kernels.matmul.factors import Factors
from kernels.matmul.formats import INTEGERS
from tests.cases.matmul import Array, generator, on_cpu

EXTREME = "extreme"  # the largest and the smallest numbers only


def numbers(dtype: str, shape: tuple[int, int], kind: str) -> Array:
    random, info = generator(dtype, shape, kind), np.iinfo(dtype)
    if kind == EXTREME:
        return np.asarray(random.choice(np.array([info.min, info.max], dtype), shape))
    return random.integers(info.min, info.max, shape, dtype, True)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
    ("shape", "kind"),
    [((1, 1), "any"), ((4, 0), "any"), ((3, 63), "any"), ((5, 1025), EXTREME), ((2, 300_000), EXTREME)],
)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_residues_are_exact(dtype: str, kind: str, shape: tuple[int, int], compiled: bool) -> None:
    library = check_integers.functions() if compiled else None
    if compiled and library is None:
        pytest.skip("no C++ compiler")
    matrix, random = numbers(dtype, shape, kind), generator("vectors", shape)
    primes = np.array([PRIMES[0], PRIMES[-1], *random.choice(PRIMES, TRIALS - 2)])
    # The largest residues come with the largest numbers.
    vectors = np.stack([np.full(shape[1], prime - 1) if n < 2 else random.integers(1, prime, shape[1])
                        for n, prime in enumerate(primes)], axis=-1)  # fmt: skip
    got = residues(library, matrix, vectors, primes)
    pairs = list(zip(vectors.T.tolist(), primes.tolist(), strict=True))
    expected = [[sum(map(mul, row, vector)) % prime for vector, prime in pairs] for row in matrix.tolist()]
    assert got.tolist() == expected and got.dtype == np.int64
    wide = np.repeat(matrix, 2, axis=1)[:, ::2]  # with gaps between numbers
    np.testing.assert_array_equal(residues(library, wide, vectors, primes), got)
    np.testing.assert_array_equal(residues(library, np.repeat(matrix, 2, axis=0)[::2], vectors, primes), got)


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint64"])
def test_sums_of_more_products_than_64_bits_can_add_up(dtype: str) -> None:
    """All numbers, and all residues, are the largest: twice as many products would not fit."""
    library = check_integers.functions()
    if library is None:
        pytest.skip("no C++ compiler")
    primes, length = np.array([8191] * TRIALS), 2**21 + 3  # the largest prime below 2**13
    assert 8191 in PRIMES
    for number in (np.iinfo(dtype).max, np.iinfo(dtype).min):
        row, vectors = np.full((1, length), number, dtype), np.full((length, TRIALS), 8190)
        expected = int(number) * 8190 * length % 8191
        assert residues(library, row, vectors, primes).tolist() == [[expected] * TRIALS]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_residues_of_stacks(monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    """Matrices and vectors that broadcast, some at a time."""
    library = check_integers.functions()
    if library is None:
        pytest.skip("no C++ compiler")
    primes, random = np.array(PRIMES[-TRIALS:]), generator("stacks", dtype)
    stack = numbers(dtype, (24 * 3, 7), "any").reshape(4, 6, 3, 7)
    for stacked in (check_integers.STACKED, 1, 100):
        monkeypatch.setattr(check_integers, "STACKED", stacked)
        for of_vectors in ((), (6,), (4, 1), (4, 6)):
            vectors = np.stack([random.integers(1, prime, (*of_vectors, 7)) for prime in primes], axis=-1)
            for matrices in (stack, stack[:, ::2][:, [0, 1, 2, 0, 1, 2]], stack[0], stack[:, :1], stack[0, 0]):
                got = residues(library, matrices, vectors, primes)
                np.testing.assert_array_equal(got, residues_numpy(matrices, vectors, primes))


def wrong_rows(a: Array, b: Array, product: Array, seed: int) -> list[str]:
    return IntegerCheck(Factors.of(a, b), product.shape, np.random.default_rng(seed)).wrong(product)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("held", [1, 100, 2**24])
@pytest.mark.parametrize("dtype", ["int8", "int32", "uint64"])
def test_every_wrong_element_is_seen_whatever_is_read_at_a_time(
    monkeypatch: pytest.MonkeyPatch, dtype: str, held: int, compiled: bool
) -> None:
    monkeypatch.setattr(factors, "HELD", held)
    monkeypatch.setattr(factors, "READ", held)
    monkeypatch.setattr(check_integers, "SLAB", max(1, held // 2))
    monkeypatch.setattr(check_integers, "COMPILED", 0 if compiled else 2**60)
    a, b = (numbers(dtype, shape, "any") >> max(0, np.iinfo(dtype).bits - 28) for shape in ((6, 33), (33, 7)))
    product, random = on_cpu(a, b), generator("wrong", dtype)
    for seed in range(20):
        assert wrong_rows(a, b, product, seed) == []
        wrong = product.copy()
        wrong[tuple(random.integers(wrong.shape))] ^= np.int64(1) << random.integers(64)
        assert wrong_rows(a, b, wrong, seed)
