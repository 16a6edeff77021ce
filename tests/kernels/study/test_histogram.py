"""Histograms of 10-bit samples: the wrappers' checks and launches, the study, and the kernels on a GPU."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from kernels.common import nvrtc
from kernels.study import histogram
from kernels.study.histogram import BINNING, INSTANCES, VALUES, VARIANTS, ten_bit_reference
from tests.cases.sizes import ON_GPU, sizes
from tests.emulator.array import to_device
from tests.emulator.device import HOST
from tests.emulator.launches import Launch, fill_memory, recorded
from workflows.study.histogram import COURSE_SAMPLES, STUDY

SOURCE = (nvrtc.KERNELS / "study/histogram.cu").read_text()
RIGHT = [name for name, variant in VARIANTS.items() if variant.broken is None]
SLICED = ("global_atomics", "unrolled", "ilp", "shared", "no_barrier", "plain_add", "past_the_end")
COURSE = ("course_slices", "course_unrolled", "course_ilp")


def test_kernels_are_in_the_order_of_the_variants() -> None:
    kernels = re.findall(r"__global__ void (\w+)\(", SOURCE)
    instances_of_others = ("banks2", "banks4", "banks_xor", "no_barrier", "production")
    assert kernels == [name for name in VARIANTS if name not in instances_of_others]
    assert f"VALUES = {VALUES};" in SOURCE


@given(hnp.arrays(np.int32, st.integers(0, 200), elements=st.integers(-2, 1026)))
def test_reference_counts_what_is_inside(samples: np.ndarray[Any, Any]) -> None:
    got, counter = ten_bit_reference(samples), Counter(samples.tolist())
    assert got.dtype == np.int64
    assert got.tolist() == [counter[value] for value in range(VALUES)]


def test_reference_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histogram, "REFERENCE_STEP", 7)
    assert ten_bit_reference(np.arange(-9, 2000, dtype=np.int32)).tolist() == [1] * VALUES


def test_production_bins_are_the_values() -> None:
    samples = np.array([-(2**31), -1, 0, 1, 1022, 1023, 1024, 2**31 - 1], np.int32)
    assert BINNING.find(samples).tolist() == [0, 0, 1, 2, 1023, 1024, 1025, 1025]
    assert BINNING.shift == 0


# --- the wrappers, without a GPU --------------------------------------------------------------------------------------


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[Launch]:
    return recorded(monkeypatch, "study/histogram")


WRONG_CALLS: list[tuple[Any, dict[str, int], str]] = [
    (np.zeros(9, np.int16), {}, "expected int32, got int16"),
    (np.zeros((9, 9), np.int32), {}, r"expected 1 dimension.*\(9, 9\)"),
    (np.zeros(18, np.int32)[::2], {}, r"strides \(8,\)"),
    (np.zeros(9, np.int32), {"threads": 2048}, "at most 1024 threads, got 2048"),
    (np.zeros(9, np.int32), {"threads": 0}, "sides of at least 1"),
    (np.zeros(9, np.int32), {"blocks": 0}, "blocks: expected 1 to 2147483647, got 0"),
    (np.zeros(9, np.int32), {"blocks": 2**31}, "blocks: expected 1 to 2147483647, got 2147483648"),
    (np.zeros(9, np.int32), {"slice": 0}, "slice: expected 1 to 2147483647, got 0"),
    (np.zeros(9, np.int32), {"blocks": 2**31 - 1, "slice": 2**31 - 1, "threads": 2}, r"2\*\*62, covers 9223372"),
    (np.zeros(513, np.int32), {"blocks": 2, "threads": 256, "slice": 1}, "cover the 513 samples.* covers 512"),
    (np.zeros(513, np.int32), {"blocks": 2, "slice": 2}, "cover the 513 samples"),
]


def takes(name: str, own: dict[str, int]) -> bool:
    """Whether a variant has these parameters; together they decide which samples a grid covers."""
    known = set(VARIANTS[name].parameters)
    return set(own) == known or (set(own) <= known and len(own) < 2)


@pytest.mark.parametrize(
    ("name", "samples", "own", "message"),
    [(name, *call) for name in VARIANTS for call in WRONG_CALLS if takes(name, call[1])],
)
def test_wrong_calls_are_refused(launches: list[Launch], name: str, samples: Any, own: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        VARIANTS[name].run(samples, **{**VARIANTS[name].parameters, **own})
    assert not launches


def test_what_a_block_cannot_count_or_hold_is_refused(launches: list[Launch]) -> None:
    samples = np.zeros(9, np.int32)
    with pytest.raises(ValueError, match=r"at most 4294967295 samples per block.* got 4294967296"):
        VARIANTS["shared"].run(samples, blocks=1, threads=1024, slice=2**22)
    with pytest.raises(ValueError, match="needs 266240 bytes of shared memory, the device has 232448"):
        VARIANTS["inverse"].run(samples, blocks=1, slice=2**16)
    assert not launches


def test_out_of_memory_says_how_much(launches: list[Launch], monkeypatch: pytest.MonkeyPatch) -> None:
    fill_memory(monkeypatch)
    with pytest.raises(MemoryError, match="histogram: needs 8192 bytes of device memory, 5 are free"):
        VARIANTS["shared"].run(np.zeros(9, np.int32))
    assert not launches


@pytest.mark.parametrize("name", COURSE)
def test_the_courses_loops_refuse_what_they_would_count_elsewhere(host: Any, name: str) -> None:
    """They have no guard, so the wrapper looks at the samples and their number before it launches."""
    own = {"blocks": 2, "threads": 32, "slice": 4}
    samples = np.arange(256, dtype=np.int32)
    variant = VARIANTS[name]
    assert variant.unfit and not variant.broken
    counts = variant.run(host.asarray(samples), **own)
    np.testing.assert_array_equal(counts.get(), ten_bit_reference(samples))
    HOST.launched.clear()
    for wrong in (-1, 1024, 2**31 - 1, -(2**31)):
        outside = samples.copy()
        outside[7] = wrong
        with pytest.raises(ValueError, match="expected samples of 10 bits, 1 are not; global_atomics skips them"):
            variant.run(host.asarray(outside), **own)
    for n in (255, 257):
        with pytest.raises(ValueError, match=r"expected 2 x 32 x 4 samples.* got 255|cover the 257 samples"):
            variant.run(host.asarray(np.zeros(n, np.int32)), **own)
    assert not [instance for stem, instance in HOST.launched if stem == "study/histogram"]


def test_ilp_takes_whole_fours(host: Any) -> None:
    with pytest.raises(ValueError, match="expected a slice of a multiple of 4, got 2"):
        VARIANTS["course_ilp"].run(host.asarray(np.zeros(4, np.int32)), blocks=1, threads=2, slice=2)


@pytest.mark.parametrize("name", COURSE)
def test_what_the_courses_loops_launch(launches: list[Launch], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histogram, "histogram", lambda samples, binning: to_device(np.zeros(VALUES + 2, np.int64)))
    samples = np.zeros(2**25, np.int32)
    counts = VARIANTS[name].run(samples, **VARIANTS[name].parameters)
    assert (counts.shape, counts.dtype) == ((VALUES,), np.int64)
    (launch,) = launches
    own = VARIANTS[name].parameters
    assert (launch.instance, launch.grid, launch.block) == (f"{name}<int>", (own["blocks"],), (own["threads"],))
    assert launch.arguments[1].dtype == np.int32 and launch.arguments[2] == np.int32(own["slice"])


@pytest.mark.parametrize("name", [name for name in INSTANCES if name not in COURSE])
def test_what_is_launched(launches: list[Launch], name: str) -> None:
    variant = VARIANTS[name]
    for n in (0, 1, 1025, 10**6):
        samples = np.zeros(n, np.int32)
        counts = variant.run(samples, **variant.parameters)
        assert (counts.shape, counts.dtype) == ((VALUES,), np.int64)
        launch = launches.pop()
        assert not launches
        assert launch.instance == INSTANCES[name]
        scalars = [argument for argument in launch.arguments if isinstance(argument, np.generic)]
        expected: list[np.generic] = [] if name == "past_the_end" else [np.int64(n)]
        if "slice" in variant.parameters:
            expected.append(np.int32(variant.parameters["slice"]))
        assert scalars == expected
        assert [type(scalar) for scalar in scalars] == [type(scalar) for scalar in expected]
        each = {"banks": 1, "banks2": 2, "banks4": 4, "banks_if": 1, "banks_xor": 1}.get(name)
        if each:
            assert (launch.grid, launch.block) == ((max(1, -(-n // VALUES)),), (VALUES // each,))
        else:
            threads = variant.parameters.get("threads", VALUES)
            assert (launch.grid, launch.block) == ((variant.parameters["blocks"],), (threads,))
        assert launch.shared_mem == (4 * 8192 if name == "inverse" else 0)
        assert launch.arguments[0].size == (65 * 2**19 if name == "past_the_end" else n)


# --- on a GPU ---------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("name", RIGHT)
def test_on_gpu(name: str) -> None:
    import cupy

    generator = np.random.default_rng(3)
    variant = VARIANTS[name]
    ragged = {"blocks": 1721 if ON_GPU else 4, "threads": 96, "slice": 7} if name in SLICED else {}
    if name in COURSE:
        check_whole_slices(name, cupy)
        return
    if name == "one_per_thread" and not ON_GPU:
        ragged = {"blocks": 11, "threads": 96}
    if name == "inverse":
        ragged = {"blocks": 1429 if ON_GPU else 2, "slice": 700}
    for n in sizes(1, 31, 32, 33, 1023, 1024, 1025, 1_000_003):
        outside = np.array([-(2**31), -1, 0, 1023, 1024, 2**31 - 1, -1024, 2**16], np.int32)
        for samples in (
            generator.integers(0, VALUES, n, np.int32),
            np.full(n, 1023, np.int32),
            generator.choice(outside, n),
        ):
            device = cupy.asarray(samples)
            for own in (variant.parameters, ragged) if ON_GPU else (ragged,):
                counts = variant.run(device, **own)
                assert counts.dtype == np.int64
                np.testing.assert_array_equal(counts.get(), ten_bit_reference(samples))


def check_whole_slices(name: str, cupy: Any) -> None:
    """The course's loops take no ragged sizes, and only 10 bits."""
    generator = np.random.default_rng(3)
    for own in ({"blocks": 1, "threads": 1, "slice": 4}, {"blocks": 5, "threads": 96, "slice": 12}):
        n = own["blocks"] * own["threads"] * own["slice"]
        for samples in (generator.integers(0, VALUES, n, np.int32), np.full(n, 1023, np.int32)):
            counts = VARIANTS[name].run(cupy.asarray(samples), **own)
            np.testing.assert_array_equal(counts.get(), ten_bit_reference(samples))


@pytest.mark.gpu
@pytest.mark.hardware
@pytest.mark.parametrize("name", VARIANTS)
def test_course_size_on_gpu(name: str) -> None:
    """On the course's data, right variants agree with the reference and broken ones are caught."""
    import cupy

    variant = VARIANTS[name]
    case = next(case for case in STUDY.cases if case.variant == name and case.sizes == (COURSE_SAMPLES,))
    arrays = STUDY.inputs(case, np.random.default_rng(4))
    expected, device = STUDY.reference(arrays, case), cupy.asarray(arrays[0])
    attempts = 20 if variant.broken else 1  # a race does not show every time
    mismatches = (
        STUDY.disagreement(variant.run(device, **variant.parameters).get(), expected, arrays, case)
        for _ in range(attempts)
    )
    assert any(mismatches) == bool(variant.broken)
