"""Stencil: the reference against exact sums, the wrappers' checks and launches, and the kernels on a GPU."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from math import fsum
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from kernels.common import device, nvrtc
from kernels.study import stencil
from kernels.study.stencil import (
    COURSE_TYPES,
    MAX_RADIUS,
    OUT,
    VARIANTS,
    stencil_bound,
    stencil_reference,
)
from tests.cases.sizes import ON_GPU, sizes
from tests.emulator.launches import H200, Launch, fill_memory, recorded
from tests.kernels.common import machine_code

SOURCE = (nvrtc.KERNELS / "study/stencil.cu").read_text()
LADDER = [name for name in VARIANTS if name != "production"]
RIGHT = [name for name, variant in VARIANTS.items() if variant.broken is None]
INSTANCES = [
    *(f"{kernel}<{c_type}{rest}>" for c_type in COURSE_TYPES.values() for kernel, rest in (
        ("global_memory", ""), ("shared_halo", ", true"), ("shared_halo", ", false"), ("past_the_end", ""))),
]  # fmt: skip


def test_kernels_are_in_the_order_of_the_variants() -> None:
    kernels = re.findall(r"__global__ void (?:__launch_bounds__\(\d+\)\n)?(\w+)\(", SOURCE)
    assert len(kernels) == SOURCE.count("__global__")
    elsewhere = ("missing_barrier", "production")  # an instance of shared_halo; the job's
    assert kernels == [name for name in VARIANTS if name not in elsewhere]


# --- the reference ----------------------------------------------------------------------------------------------------


def exact(x: np.ndarray[Any, Any], radius: int) -> list[Fraction]:
    values = [Fraction(value.item()) for value in x]
    return [sum(values[max(0, i - radius) : i + radius + 1], Fraction(0)) for i in range(len(x))]


@given(hnp.arrays(np.int32, st.integers(0, 40)), st.integers(0, 50))
def test_reference_of_integers_is_exact(x: np.ndarray[Any, Any], radius: int) -> None:
    got = stencil_reference(x, radius)
    assert got.dtype == np.int64
    assert got.tolist() == exact(x, radius)


@given(
    st.sampled_from(("float32", "float64")).flatmap(
        lambda dtype: hnp.arrays(
            dtype, st.integers(1, 40), elements={"allow_nan": False, "min_value": -(2.0**100), "max_value": 2.0**100}
        )
    ),
    st.integers(0, 50),
)
def test_reference_of_floats_is_within_its_bound(x: np.ndarray[Any, Any], radius: int) -> None:
    got, bound = stencil_reference(x, radius), stencil_bound(x, radius)
    assert got.dtype == np.float64
    for value, limit, expected in zip(got, bound, exact(x, radius), strict=True):
        assert abs(Fraction(value.item()) - expected) <= Fraction(limit.item())


def test_reference_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stencil, "REFERENCE_STEP", 7)
    x = np.random.default_rng(1).standard_normal(100)
    expected = [fsum(x[max(0, i - 9) : i + 10]) for i in range(100)]
    assert np.all(np.abs(stencil_reference(x, 9) - expected) <= stencil_bound(x, 9))


def test_reference_keeps_infinities_and_nan_where_they_are() -> None:
    x = np.zeros(30)
    x[[5, 6, 20]] = np.inf, -np.inf, np.nan
    got = stencil_reference(x, 2)
    assert np.flatnonzero(got == np.inf).tolist() == [3]
    assert np.flatnonzero(got == -np.inf).tolist() == [8]
    assert np.flatnonzero(np.isnan(got)).tolist() == [4, 5, 6, 7, 18, 19, 20, 21, 22]


def test_reference_is_zero_outside() -> None:
    assert stencil_reference(np.ones(5, np.int32), 1).tolist() == [2, 3, 3, 3, 2]
    assert stencil_reference(np.ones(5, np.float32), 3).tolist() == [4, 5, 5, 5, 4]


# --- the wrappers, without a GPU --------------------------------------------------------------------------------------


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[Launch]:
    return recorded(monkeypatch, "study/stencil")


WRONG_CALLS: list[tuple[Any, dict[str, Any], str]] = [
    (np.zeros(9, np.int64), {}, "expected int32 or float32 or float64, got int64"),
    (np.zeros((9, 9), np.int32), {}, r"expected 1 dimension.*\(9, 9\)"),
    (np.zeros(18, np.int32)[::2], {}, r"strides \(8,\)"),
    (np.zeros(9, np.int32), {"radius": 10}, "radius: expected 0 to 9 .* got 10"),
    (np.zeros(9, np.int32), {"radius": -1}, "radius: expected 0 to 9 .* got -1"),
    (np.zeros(9000, np.int32), {"radius": 4097}, "radius: expected 0 to 4096 .* got 4097"),
    (np.zeros(9, np.int32), {"radius": 2.5}, "cannot be interpreted as an integer"),
    (np.zeros(9, np.int32), {"block": 1025}, "at most 1024 threads, got 1025"),
    (np.zeros(9, np.int32), {"block": 0}, "sides of at least 1"),
]


@pytest.mark.parametrize(
    ("name", "x", "own", "message"),
    [(name, *call) for name in VARIANTS for call in WRONG_CALLS if set(call[1]) <= set(VARIANTS[name].parameters)],
)
def test_wrong_calls_are_refused(launches: list[Launch], name: str, x: Any, own: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        VARIANTS[name].run(x, **{**VARIANTS[name].parameters, **own})
    assert not launches


@pytest.mark.parametrize("name", ["shared_halo", "missing_barrier"])
def test_a_halo_that_does_not_fit_is_refused(launches: list[Launch], monkeypatch: Any, name: str) -> None:
    monkeypatch.setattr(device, "limits", lambda: replace(H200, shared_per_block=65536))
    needed = 1024 + 2 * 4096
    with pytest.raises(ValueError, match=rf"needs {8 * needed} bytes of shared memory, the device has 65536"):
        VARIANTS[name].run(np.zeros(9000), radius=4096)
    assert not launches


def test_a_grid_that_is_too_large_is_refused(launches: list[Launch]) -> None:
    flags = SimpleNamespace(c_contiguous=True)
    x = SimpleNamespace(dtype=np.dtype(np.int32), ndim=1, flags=flags, size=2**31 + 5, shape=(2**31 + 5,))
    with pytest.raises(ValueError, match=r"2147483653 elements take 2147483653 blocks of 1, the limit .* 2147483647"):
        VARIANTS["global_memory"].run(x, radius=3, block=1)
    assert not launches


def test_out_of_memory_says_how_much(launches: list[Launch], monkeypatch: pytest.MonkeyPatch) -> None:
    fill_memory(monkeypatch)
    with pytest.raises(MemoryError, match="stencil: needs 72 bytes of device memory, 5 are free"):
        VARIANTS["global_memory"].run(np.zeros(9, np.int32))


@pytest.mark.parametrize("name", LADDER)
@pytest.mark.parametrize("dtype", COURSE_TYPES)
def test_what_is_launched(launches: list[Launch], name: str, dtype: str) -> None:
    variant = VARIANTS[name]
    for n in (3, 1024, 1025, 10**5):
        x = np.zeros(n, dtype)
        out = variant.run(x, **variant.parameters)
        assert (out.shape, out.dtype) == ((n,), np.dtype(OUT[dtype]))
        launch = launches.pop()
        assert not launches
        assert launch.instance in INSTANCES
        assert launch.instance.startswith(
            ("shared_halo" if name == "missing_barrier" else name) + f"<{COURSE_TYPES[dtype]}"
        )
        assert launch.grid == (-(-n // launch.block[0]),)
        *arrays, radius = launch.arguments
        assert isinstance(radius, np.int32)
        if name == "past_the_end":
            assert arrays[1].size == launch.grid[0] * launch.block[0]
            assert arrays[0].size == arrays[1].size + 3
            assert np.all(arrays[0].memory.bytes.view(arrays[0].dtype)[[0, 1, 2, -1]] == 1)
        else:
            assert isinstance(arrays.pop(), np.int64)
            assert arrays[0] is x
            held = (launch.block[0] + 6) * x.itemsize
            assert launch.shared_mem == (held if name != "global_memory" else 0)


def test_empty_launches_nothing(launches: list[Launch]) -> None:
    for name in LADDER:
        assert VARIANTS[name].run(np.zeros(0, np.float32), radius=0).shape == (0,)
    assert not launches


def test_every_instance_is_compiled() -> None:
    assert set(INSTANCES) == set(machine_code.INSTANCES["study/stencil"]("sm_90"))


# --- on a GPU ---------------------------------------------------------------------------------------------------------

SIZES = sizes(1, 31, 32, 33, 1023, 1024, 1025, 100_003)
GPU_RADII = (0, 1, 3, 27, 28, 240, 1000, 4096)


def samples(kind: str, n: int, dtype: str) -> np.ndarray[Any, Any]:
    generator = np.random.default_rng(n)
    if dtype == "int32":
        choices = {"constant": [2**31 - 1], "adversarial": [-(2**31), 2**31 - 1, 0, -1]}
        if kind == "random":
            return generator.integers(-(2**31), 2**31, n, np.int32)
        return generator.choice(np.array(choices[kind], np.int32), n)
    if kind == "random":
        return generator.standard_normal(n).astype(dtype)
    if kind == "constant":
        return np.full(n, 0.1, dtype)
    smallest = np.finfo(dtype).smallest_subnormal
    x = generator.choice(np.array([smallest, -smallest, 1e30, -1e30, 1.0, -0.0, 1e-38], dtype), n)
    x[n // 3 :: 20_011] = np.inf
    x[n // 2 :: 30_011] = np.nan
    x[n // 3 + 7 :: 40_009] = -np.inf
    return x


def agree(name: str, got: Any, x: np.ndarray[Any, Any], radius: int) -> None:
    host, expected = got.get(), stencil_reference(x, radius)
    dtype = "float64" if name == "production" and x.dtype.kind == "f" else OUT[str(x.dtype)]
    assert (host.shape, host.dtype) == (x.shape, np.dtype(dtype))
    if host.dtype.kind == "i":
        np.testing.assert_array_equal(host, expected)
        return
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(host[~finite].astype(np.float64), expected[~finite])
    far = np.abs(host[finite].astype(np.float64) - expected[finite])
    assert np.all(far <= stencil_bound(x, radius)[finite])


@pytest.mark.gpu
@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("dtype", COURSE_TYPES)
def test_on_gpu(name: str, dtype: str) -> None:
    import cupy

    for n in SIZES:
        for kind in ("random", "constant", "adversarial"):
            x = samples(kind, n, dtype)
            device = cupy.asarray(x)
            radii = sorted({*(radius for radius in GPU_RADII if radius <= n), min(n, MAX_RADIUS)})
            # The emulator is slow: one kind runs every radius, the others only the ends and the middle.
            for radius in radii if ON_GPU or kind == "random" else {radii[0], radii[len(radii) // 2], radii[-1]}:
                agree(name, VARIANTS[name].run(device, radius=radius), x, radius)


@pytest.mark.gpu
def test_blocks_and_views_on_gpu() -> None:
    import cupy

    x = samples("random", sizes(2007, 10_007)[-1], "int32")
    device = cupy.asarray(x)
    for block in (1, 7, 32, 100, 1024):
        for name in ("global_memory", "shared_halo"):
            agree(name, VARIANTS[name].run(device, radius=30, block=block), x, 30)
    for start in (1, 2, 3):  # contiguous, but not at the start of its allocation
        agree("production", VARIANTS["production"].run(device[start:], 5), x[start:], 5)


@pytest.mark.gpu
@pytest.mark.hardware
def test_past_2_to_the_31_on_gpu() -> None:
    import cupy

    n = 2**31 + 5000
    if cupy.cuda.runtime.memGetInfo()[0] < 10 * n:
        pytest.skip("needs 20 GB of device memory")
    x = cupy.ones(n, cupy.float32)
    for radius in (3, 1000):
        out = VARIANTS["production"].run(x, radius)
        assert bool((out[radius : n - radius] == 2 * radius + 1).all())
        assert out[0].item() == out[-1].item() == radius + 1
