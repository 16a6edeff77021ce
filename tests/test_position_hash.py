"""Hashes of matrices by position: the definition in whole numbers, what changes them, and how often nothing does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kernels import position_hash as module
from kernels.position_hash import ESCAPE, FUNCTIONS, PRIME, WORDS, Keys, position_hash, random_keys

DTYPES = ("uint8", "int16", "S3", "float32", "V5", "S6", "int64", "V12", "S15", "complex128")


def matrix(rows: int, columns: int, dtype: str, seed: int = 0) -> NDArray[Any]:
    data = np.random.default_rng(seed).bytes(rows * columns * np.dtype(dtype).itemsize)
    return np.frombuffer(bytearray(data), dtype).reshape(rows, columns)


def both(found: NDArray[Any], turned: NDArray[Any], keys: Keys) -> tuple[list[int], list[int]]:
    """Hashes of a matrix and of another one that is held the other way round."""
    return (position_hash(found, keys.rows, keys.columns, keys),
            position_hash(np.ascontiguousarray(turned.T), keys.columns, keys.rows, keys))  # fmt: skip


def defined(array: NDArray[Any], keys: Keys) -> list[int]:
    """The sum, in Python's integers."""
    itemsize = array.dtype.itemsize
    width = 1 if itemsize % 2 else 2
    totals = [0] * FUNCTIONS
    for i, row in enumerate(array):
        for j, item in enumerate(row):
            data = np.asarray(item, array.dtype).tobytes()
            for k in range(itemsize // width):
                word = int.from_bytes(data[k * width : (k + 1) * width], "little")
                for f in range(FUNCTIONS):
                    totals[f] += word * int(keys.rows[i, f]) * int(keys.columns[j, f]) * int(keys.words[k, f])
    return [total % PRIME for total in totals]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 9), st.integers(1, 9), st.sampled_from(DTYPES), st.integers(0, 2**32))
def test_hash_is_the_definition(rows: int, columns: int, dtype: str, seed: int) -> None:
    array = matrix(rows, columns, dtype, seed)
    keys = random_keys(rows, columns, array.dtype, np.random.default_rng(seed))
    assert both(array, array, keys) == (defined(array, keys), defined(array, keys))


@pytest.mark.parametrize("shape", [(1, 3 * WORDS + 1), (WORDS + 1, 40), (40, WORDS - 1), (300, 301)])
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint64"])
def test_sums_stay_exact(shape: tuple[int, int], dtype: str) -> None:
    """All bits set and all keys as large as can be: what float64 has to hold is largest."""
    array = np.full(shape, np.iinfo(dtype).max, dtype)
    keys = Keys(*(np.full((length, FUNCTIONS), PRIME - 1.0) for length in (*shape, 4 if dtype == "uint64" else 1)))
    words = array.size * (4 if dtype == "uint64" else 1)
    # Minus one for each key: a product of three of them is minus one.
    expected = -words * (255 if dtype == "uint8" else 65535) % PRIME
    assert both(array, array, keys) == ([expected] * FUNCTIONS, [expected] * FUNCTIONS)
    assert WORDS * (2**16 - 1) * (PRIME - 1) < 2**53


def test_modulus_is_a_prime_that_no_word_reaches() -> None:
    assert all(PRIME % divisor for divisor in range(2, int(PRIME**0.5) + 1))
    assert PRIME > 2**16


def swapped(array: NDArray[Any], random: np.random.Generator) -> None:
    a, b = random.choice(array.size, 2, replace=False)
    array.reshape(-1)[[a, b]] = array.reshape(-1)[[b, a]]


def flipped(array: NDArray[Any], random: np.random.Generator) -> None:
    data = array.view(np.uint8).reshape(-1)
    data[random.integers(data.size)] ^= 1 << random.integers(8)


def shifted(array: NDArray[Any], random: np.random.Generator) -> None:
    row = random.integers(len(array))
    array[row] = np.roll(array[row], 1)


def exchanged_words(array: NDArray[Any], random: np.random.Generator) -> None:
    words = array.view(np.uint16).reshape(array.size, -1)
    place = random.integers(array.size)
    words[place] = words[place][::-1]


@pytest.mark.parametrize("error", [flipped, swapped, shifted, exchanged_words])
@pytest.mark.parametrize("dtype", ["uint32", "float64"])
def test_every_error_is_noticed(error: Any, dtype: str) -> None:
    right = matrix(48, 40, dtype, 1)
    random = np.random.default_rng(2)
    for _ in range(1000):
        wrong = right.copy()
        error(wrong, random)
        keys = random_keys(48, 40, right.dtype, random)
        first, second = both(right, wrong, keys)
        assert (first == second) == (wrong.tobytes() == right.tobytes())


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_errors_escape_as_rarely_as_stated(rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a prime and a single function so small that some do: at most 3 of PRIME, whatever the error looks like."""
    monkeypatch.setattr(module, "PRIME", 257)
    random = np.random.default_rng(3)
    right = np.zeros((4, 4), np.uint16)
    wrong = right.copy()
    wrong[:rank, :rank] = np.eye(rank) * 100 + 1
    trials = 20_000
    escaped = 0
    for _ in range(trials):
        keys = random_keys(4, 4, right.dtype, random)
        first, second = both(right, wrong, keys)
        escaped += first[0] == second[0]
    assert 0 < escaped / trials < 3 / 257
    assert 2**-74 < ESCAPE < 2**-73
