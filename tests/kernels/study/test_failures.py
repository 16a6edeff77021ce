"""Failures beside the right way: references, checks, launches; on a GPU or in the emulator, right and wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernels.common import nvrtc
from kernels.study import failures
from kernels.study.failures import INSTANCES, VARIANTS, pairs_reference, sum_reference
from tests.cases.global_functions import kernels_of
from tests.cases.sizes import ON_GPU
from tests.emulator.launches import Launch, recorded

SUMS = ("wide_sum", "narrow_sum", "uninitialised")


def test_source_has_what_is_inspected() -> None:
    kernels = kernels_of(nvrtc.KERNELS / "study/failures.cu")
    assert list(dict.fromkeys(instance.partition("<")[0] for instance in INSTANCES.values())) == kernels
    assert set(INSTANCES) == set(VARIANTS)


def test_references() -> None:
    assert pairs_reference(np.zeros(3, np.int32)).tolist() == [1, 2] * 3
    assert sum_reference(np.array([2**31 - 1, 2**31 - 1, -5], np.int32)).tolist() == [2**32 - 7]


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[Launch]:
    return recorded(monkeypatch, "study/failures")


@pytest.mark.parametrize("name", VARIANTS)
def test_wrong_calls_are_refused(launches: list[Launch], name: str) -> None:
    run = VARIANTS[name].run
    for samples, message in (
        (np.zeros(9, np.int16), "expected int32, got int16"), (np.zeros((3, 3), np.int32), "expected 1 dimension"),
        (np.zeros(0, np.int32), "expected 1 to .* samples, got 0"),
    ):  # fmt: skip
        with pytest.raises((TypeError, ValueError), match=message):
            run(samples)
    if name == "short_launches":
        with pytest.raises(ValueError, match="piece: expected at least 1 sample, got 0"):
            run(np.zeros(9, np.int32), piece=0)
    assert not launches


@pytest.mark.parametrize("name", VARIANTS)
def test_what_is_launched(launches: list[Launch], name: str) -> None:
    VARIANTS[name].run(np.zeros(10_000, np.int32))
    if name.endswith("pair"):
        assert [(launch.instance, launch.grid, launch.block) for launch in launches] == [
            (INSTANCES[name], (10_000,), (64,))
        ]
    elif name in SUMS:
        assert [(launch.instance, launch.grid, launch.block) for launch in launches] == [
            (INSTANCES[name], (40,), (256,))
        ]
    else:  # pieces of 4096, or all at once
        sizes = [4096, 4096, 1808] if name == "short_launches" else [10_000]
        assert [int(launch.arguments[1]) for launch in launches] == sizes
        assert {(launch.instance, launch.grid, launch.block) for launch in launches} == {("one_by_one", (1,), (1,))}
        assert all(launch.arguments[3] == np.int64(10_000_000) for launch in launches)


@pytest.mark.gpu
@pytest.mark.parametrize("sign", [1, -1])
def test_on_gpu(sign: int) -> None:
    """Right ones at ragged sizes, also beyond 32 bits; wrong ones are wrong each time."""
    import cupy

    for n in (1, 255, 257, *((2**20 + 1,) if ON_GPU else ())):
        samples = np.full(n, sign * (2**31 - 1), np.int32)
        device = cupy.asarray(samples)
        own: dict[str, Any] = {} if ON_GPU else {"piece": 99, "cycles": 10**6}
        for name, values in (("wide_sum", {}), ("short_launches", own)):
            got = VARIANTS[name].run(device, **values).get()
            assert got.dtype == np.int64
            np.testing.assert_array_equal(got, sum_reference(samples))
        np.testing.assert_array_equal(VARIANTS["ordered_pair"].run(device).get(), pairs_reference(samples))
        if n > 1:
            for name in ("narrow_sum", "uninitialised", "too_long"):
                cut = {"cycles": 10} if name == "too_long" else {}
                assert VARIANTS[name].run(device, **cut).get() != sum_reference(samples), name


@pytest.mark.gpu
@pytest.mark.hardware
def test_a_race_has_every_outcome() -> None:
    import cupy

    results = VARIANTS["racing_pair"].run(cupy.full(3000, 40, np.int32)).get()
    assert set(results[1::2].tolist()) == {1, 2, 41} and set(results[::2].tolist()) == {1}


def test_memory_of_others_is_never_read(launches: list[Launch]) -> None:
    """The part that is not copied has a value of ours."""
    VARIANTS["uninitialised"].run(np.arange(10, dtype=np.int32))
    (launch,) = launches
    assert launch.arguments[0].get().tolist() == [0, 1, 2, 3, 4, *[failures.LEFT_BEHIND] * 5]
