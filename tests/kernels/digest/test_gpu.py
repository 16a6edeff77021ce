"""The kernels of the digest against the reference, and their wrapper."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernels.digest import gpu
from kernels.digest.gpu import digest_on_device
from kernels.digest.partial import DTYPES, unpack
from kernels.digest.reference import digest_reference, root_of
from tests.cases.blake3 import DIGESTS, content
from tests.cases.case import Case
from tests.cases.digest_small import digest_cases
from tests.cases.sizes import ON_GPU, first_of_each

LENGTHS = [length for length in DIGESTS if length and (ON_GPU or length <= 31744)]


@pytest.mark.gpu
@pytest.mark.parametrize("case", first_of_each(digest_cases()), ids=str)
def test_case(cp: Any, case: Case) -> None:
    case.check(cp)


@pytest.mark.gpu
@pytest.mark.parametrize("length", LENGTHS)
def test_official_vectors(cp: Any, length: int) -> None:
    partial = digest_on_device(cp.asarray(content(length)), 0)
    assert isinstance(partial, np.ndarray)
    assert root_of(unpack(partial)[1]).hex() == DIGESTS[length]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
def test_samples_that_begin_anywhere(cp: Any, dtype: str) -> None:
    """In the content, and in the memory of the device: loads are as wide as that allows."""
    random = np.random.default_rng(4)
    for at in (0, 1, 3):
        data = np.frombuffer(random.bytes(2500 * np.dtype(dtype).itemsize), dtype)
        on_device = cp.asarray(data)[at:]
        for start in (0, 5, 1024, 2**33 + 1):
            np.testing.assert_array_equal(digest_on_device(on_device, start), digest_reference(data[at:], start))


@pytest.mark.gpu
def test_arrays_that_a_kernel_would_misread(cp: Any) -> None:
    with pytest.raises(TypeError, match="digest: expected int8"):
        digest_on_device(cp.zeros(3, np.complex64), 0)
    with pytest.raises(ValueError, match="1 dimension"):
        digest_on_device(cp.zeros((3, 3), np.int16), 0)
    with pytest.raises(ValueError, match="contiguous"):
        digest_on_device(cp.zeros(8, np.int16)[::2], 0)


def test_every_load_is_compiled() -> None:
    assert {f"leaves<{load}>" for load in gpu.LOADS.values()} | {"parents"} == set(gpu.INSTANCES)
