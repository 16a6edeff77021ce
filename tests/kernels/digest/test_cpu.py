"""Partials on the CPU, compiled and by NumPy: the official vectors, the reference, and the package `blake3`."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kernels.common import cxx
from kernels.digest import cpu
from kernels.digest.cpu import combine, digest_cpu
from kernels.digest.partial import DTYPES, KIB, Node, pack, unpack
from kernels.digest.reference import digest_reference, root_of
from tests.cases.blake3 import DIGESTS, content

Digest = Callable[[NDArray[Any], int], NDArray[np.int64]]


@pytest.fixture(params=["compiled", "NumPy"])
def digest(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Digest:
    if request.param == "compiled":
        assert cxx.library(cpu.SOURCE) or not cxx.compiler()
    else:
        monkeypatch.setattr(cpu, "_functions", lambda: None)
    return digest_cpu


def root(partial: NDArray[np.int64]) -> str:
    return root_of(unpack(partial)[1]).hex()


def in_parts(data: NDArray[Any], cuts: Any, start: int, order: np.random.Generator) -> list[NDArray[np.int64]]:
    """Partials of what lies between cuts, none of them empty, in random order."""
    ends = [0, *sorted(set(map(int, cuts)) - {0, len(data)}), len(data)]
    parts = [digest_cpu(data[low:high], start + low) for low, high in pairwise(ends)]
    return [parts[place] for place in order.permutation(len(parts))]


@pytest.mark.parametrize("length", DIGESTS)
def test_official_vectors(length: int, digest: Digest) -> None:
    assert root(digest(content(length), 0)) == DIGESTS[length]
    assert root(digest_reference(content(length), 0)) == DIGESTS[length]


@pytest.mark.parametrize("length", [length for length in DIGESTS if length > 1])
def test_official_vectors_in_parts(length: int) -> None:
    random = np.random.default_rng(length)
    for cuts in (1, 2, 5):
        parts = in_parts(content(length), random.integers(1, length, cuts), 0, random)
        assert root(reduce(combine, parts)) == DIGESTS[length]


def test_random_cuts_are_what_the_package_says() -> None:
    blake3 = pytest.importorskip("blake3").blake3
    random = np.random.default_rng(1)
    for _ in range(150):
        data = random.integers(0, 256, int(2 ** random.uniform(0, 18)), np.uint8)
        parts = in_parts(data, random.integers(0, len(data) + 1, random.integers(0, 9)), 0, random)
        assert root(reduce(combine, parts)) == blake3(data.tobytes()).hexdigest()


def test_partials_are_those_of_the_reference(digest: Digest) -> None:
    """Wherever samples begin, in every dtype and both byte orders, with gaps and unaligned."""
    random = np.random.default_rng(2)
    for number in range(120):
        dtype = np.dtype(DTYPES[number % len(DTYPES)]).newbyteorder("<>"[number % 2])
        samples = int(2 ** random.uniform(0, 13))
        raw = random.bytes(samples * 2 * dtype.itemsize + 1)
        data = np.frombuffer(raw, dtype, 2 * samples, number % 2)[:: 1 + number % 3 % 2]
        start = int(random.integers(0, [1, 300, 2**40][number % 3]))
        got = digest(data, start)
        assert got.dtype == np.int64
        np.testing.assert_array_equal(got, digest_reference(data, start))


def test_equal_content_has_equal_partials(digest: Digest) -> None:
    """Whatever the cuts and the order of combining, also while parts between them are missing."""
    random = np.random.default_rng(3)
    data = random.integers(0, 2**16, 20_000, np.uint16)
    for start in (0, 1, 511, 512, 5000):
        whole = digest_reference(data, start)
        for number in (2, 40) if start == 511 else (1, 7):
            parts = in_parts(data, random.integers(0, len(data), number), start, random)
            np.testing.assert_array_equal(reduce(combine, parts), whole)
            np.testing.assert_array_equal(reduce(combine, reversed(parts)), whole)
            half = len(parts) // 2 or 1
            halves = [reduce(combine, some) for some in (parts[:half], parts[half:]) if some]
            np.testing.assert_array_equal(reduce(combine, halves), whole)


def test_samples_one_by_one() -> None:
    data = content(2100)
    parts = [digest_cpu(data[place : place + 1], place) for place in range(len(data))]
    np.testing.assert_array_equal(reduce(combine, parts), digest_reference(data, 0))


def test_a_partial_is_small() -> None:
    """Two ends, and two subtrees of each size at most."""
    data = np.zeros(2**21, np.uint8)
    for start in (0, 1, 2**20 - 1):
        assert digest_cpu(data, start).nbytes < 2 * KIB + 2 * 12 * 48 + 16


def test_nodes_that_overlap_are_kept() -> None:
    """So that an invariant sees what came twice."""
    once = digest_cpu(content(5000), 100)
    assert len(unpack(combine(once, once))[1]) == 2 * len(unpack(once)[1])


@pytest.mark.parametrize("nodes", [[Node(0, 3, b"abc")], [], [Node(0, KIB, bytes(KIB)), Node(KIB, 2 * KIB, bytes(32))]])
def test_what_is_packed_is_unpacked(nodes: list[Node]) -> None:
    assert unpack(pack("int16", nodes)) == ("int16", nodes)


@pytest.mark.parametrize(
    "words", [[], [1], [99, 0], [-1, 0], [1, 5], [1, 1, 0, 0], [1, 1, 0, 8], [1, 0, 7], [1, 1, -1, 8, 0]]
)
def test_what_is_no_partial_is_refused(words: list[int]) -> None:
    with pytest.raises(ValueError, match="digest"):
        unpack(np.array(words, np.int64))


def test_compute_is_compiled() -> None:
    assert not cxx.compiler() or cxx.library(cpu.SOURCE) is not None
