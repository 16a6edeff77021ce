"""Latency and divergence: references, checks, launches, results."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.common import nvrtc
from kernels.study.architecture import INSTANCES, VARIANTS, chain_of, chain_reference, ways_reference
from tests.cases.global_functions import kernels_of
from tests.cases.sizes import ON_GPU


def test_source_has_what_is_inspected() -> None:
    kernels = kernels_of(nvrtc.KERNELS / "study/architecture.cu")
    assert list(dict.fromkeys(instance.partition("<")[0] for instance in INSTANCES.values())) == kernels
    assert set(INSTANCES) == set(VARIANTS)


@pytest.mark.parametrize("n", [8, 1024, 2**16])
def test_a_chain_visits_every_place_once(n: int) -> None:
    following, place, seen = chain_of(n), 0, set()
    for _ in range(n):
        seen.add(place)
        place = int(following[place])
    assert place == 0 and len(seen) == n
    assert chain_reference(following, n).tolist() == [0] and chain_reference(following, 1) == following[0]


def test_ways_by_hand() -> None:
    numbers = np.array([7, 7], np.uint32)
    one = (7 * 1664525 + 1013904223) % 2**32
    other = (7 ^ 7 >> 15) * 22695477 % 2**32
    assert ways_reference(numbers, 1, divergent=True).tolist() == [other, one]
    assert ways_reference(numbers, 1, divergent=False).tolist() == [other, other]


@pytest.mark.gpu
def test_wrong_calls_are_refused() -> None:
    import cupy

    for name in ("global_chain", "shared_chain"):
        run = VARIANTS[name].run
        for following, message in (
            (np.zeros(9, np.int16), "expected int32, got int16"), (np.zeros(0, np.int32), "got 0, 65536"),
            (np.array([1, 2], np.int32), "places from 0 to 1, got 1 to 2"),
            (np.array([-1, 0], np.int32), "places from 0 to 1, got -1 to 0"),
        ):  # fmt: skip
            with pytest.raises((TypeError, ValueError), match=message):
                run(cupy.asarray(following))
    with pytest.raises(ValueError, match="a chain of 1048576 places: needs 4194304 bytes of shared memory"):
        VARIANTS["shared_chain"].run(cupy.zeros(2**20, np.int32))
    with pytest.raises(ValueError, match=r"expected 0 to .* steps, got -1"):
        VARIANTS["divergent"].run(cupy.zeros(3, np.uint32), steps=-1)


@pytest.mark.gpu
def test_on_gpu() -> None:
    import cupy

    following = chain_of(1024)
    for steps in (0, 1, 1500):
        for name in ("global_chain", "shared_chain"):
            got = VARIANTS[name].run(cupy.asarray(following), steps=steps).get()
            np.testing.assert_array_equal(got, chain_reference(following, steps))
    for n in (0, 1, 257, *((10**6 + 1,) if ON_GPU else ())):
        numbers = np.random.default_rng(1).integers(0, 2**32, n, np.uint32)
        for name in ("uniform_warps", "divergent"):
            got = VARIANTS[name].run(cupy.asarray(numbers), steps=9).get()
            np.testing.assert_array_equal(got, ways_reference(numbers, 9, name == "divergent"))
