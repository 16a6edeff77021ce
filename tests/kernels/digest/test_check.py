"""The check of a digest: what the reference says, for samples that come in any order, aligned or not."""

from __future__ import annotations

import gc
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from numpy.typing import NDArray

from kernels.digest import check
from kernels.digest.check import digest_check
from kernels.digest.partial import DTYPES, unpack
from kernels.digest.reference import digest_reference, root_of
from tests.cases.blake3 import DIGESTS, content
from workflows.digest import DIGEST, DigestOptions

pytestmark = pytest.mark.usefixtures("compiled")
SOURCE = check.SOURCE


def checked(samples: NDArray[Any], start: int, cuts: Any = (), order: Any = None) -> NDArray[np.int64]:
    one = digest_check(samples.dtype.newbyteorder("="))
    assert one is not None
    ends = [0, *sorted(set(map(int, cuts)) - {0, len(samples)}), len(samples)]
    for place in range(len(ends) - 1) if order is None else order.permutation(len(ends) - 1):
        one.add(samples[ends[place] : ends[place + 1]], start + ends[place])
    return one.partial()


@pytest.mark.parametrize("length", [length for length in DIGESTS if length])
def test_official_vectors(length: int) -> None:
    assert root_of(unpack(checked(content(length), 0))[1]).hex() == DIGESTS[length]


def test_what_the_reference_says() -> None:
    """In every dtype and both byte orders, unaligned and with gaps, in any order."""
    random = np.random.default_rng(2)
    for number in range(200):
        dtype = np.dtype(DTYPES[number % len(DTYPES)]).newbyteorder("<>"[number % 2])
        samples = int(2 ** random.uniform(0, 15))
        raw = random.bytes(samples * 2 * dtype.itemsize + 1)
        data = np.frombuffer(raw, dtype, 2 * samples, number % 2)[:: 1 + number % 3 % 2]
        start = int(random.integers(0, [1, 300, 2**40][number % 3]))
        cuts = random.integers(0, len(data), number % 7)
        np.testing.assert_array_equal(checked(data, start, cuts, random), digest_reference(data, start))


def test_partials_so_far() -> None:
    """It may be asked before the end, and what lies between is missing."""
    data = content(100_000)
    one = digest_check(data.dtype)
    assert one is not None
    one.add(data[:3000], 0)
    np.testing.assert_array_equal(one.partial(), digest_reference(data[:3000], 0))
    one.add(data[50_000:], 50_000)
    assert len(unpack(one.partial())[1]) > 3
    one.add(data[3000:50_000], 3000)
    np.testing.assert_array_equal(one.partial(), digest_reference(data, 0))


def test_its_memory_is_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    one = digest_check(np.dtype("int16"))
    assert one is not None
    discard = Mock(wraps=one._functions.discard)
    monkeypatch.setattr(one._functions, "discard", discard)
    second = check.DigestCheck(one._functions, np.dtype("int16"))
    state = second._state
    del second
    gc.collect()
    discard.assert_called_once_with(state)


def test_the_job_declares_it() -> None:
    made = DIGEST.check(DigestOptions(), np.dtype("float32"))
    assert made is not None
    samples = content(4000).view("<f4")
    assert made.count_from(3)  # type: ignore[attr-defined]
    made.add(samples, 4)
    np.testing.assert_array_equal(made.partial(), digest_reference(samples, 7))
