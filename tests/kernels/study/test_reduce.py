"""Reductions: the reference, the wrappers' checks and launches, the source; every variant on a GPU."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from kernels.common import device, nvrtc
from kernels.study.reduce import (
    COURSE_TYPES,
    IN_TIME,
    LATE,
    OPERATIONS,
    PARTIALS,
    SMALLEST_POWER,
    VARIANTS,
    finish,
    finish_exact,
    max_reference,
    ordered,
    sum_bound,
    sum_reference,
)
from tests.cases.global_functions import kernels_of
from tests.cases.sizes import ON_GPU, sizes
from tests.emulator.array import to_device
from tests.emulator.launches import Launch, fill_memory, recorded
from tests.kernels.common import machine_code

RIGHT = tuple(name for name, variant in VARIANTS.items() if not variant.broken)
DTYPES = tuple(COURSE_TYPES)
FINITE32, FINITE64 = st.floats(width=32, allow_nan=False, allow_infinity=False), st.floats(-1e290, 1e290)
SIZES = sizes(1, 31, 32, 33, 1023, 1024, 1025, 1_000_003)
ALIKE = {"equal_nan": True}


def operations(name: str) -> tuple[str, ...]:
    """Result of a variant."""
    return {"atomic_max": ("max",), "float_drift": ("sum",)}.get(name, tuple(OPERATIONS))


# --- the reference, the second pass, the source -----------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(arrays("float64", st.integers(1, 200), elements=FINITE64) | arrays("float32", 50, elements=FINITE32))
def test_float_sums_are_those_of_fsum(samples: NDArray[Any]) -> None:
    exact = math.fsum(samples.tolist())
    assert sum_reference(samples) == exact
    in_order = finish(samples.astype(np.float64), "sum", "float64")
    assert abs(in_order - exact) <= sum_bound(samples, len(samples))


def test_float_sums_of_many_parts_and_of_what_is_not_finite() -> None:
    generator = np.random.default_rng(0)
    wide = generator.standard_normal(150_001) * 10.0 ** generator.integers(-300, 300, 150_001)
    assert sum_reference(wide) == math.fsum(wide)
    assert sum_reference(np.array([1e308, -1e308, 5e-324])) == 5e-324
    with pytest.raises(OverflowError):
        sum_reference(np.full(3, 1e308))
    assert sum_reference(np.array([1, np.inf, np.inf])) == np.inf
    assert math.isnan(sum_reference(np.array([-np.inf, np.inf]))) and math.isnan(sum_reference(np.array([0, np.nan])))


def test_integer_sums_never_wrap() -> None:
    lowest = np.full(70_000, -(2**31), np.int32)
    assert sum_reference(lowest) == -(2**31) * 70_000
    assert finish(np.full(4, 2**63 - 1), "sum", "int32") == 4 * (2**63 - 1)


@settings(max_examples=40, deadline=None)
@given(arrays("float64", st.integers(1, 9), elements=st.floats()) | arrays("float32", 5, elements=st.floats(width=32)))
def test_order_of_floats(samples: NDArray[Any]) -> None:
    keys = ordered(samples)
    assert keys.dtype == PARTIALS["max", str(samples.dtype)]
    places = [(math.isnan(x), 0 if math.isnan(x) else x, math.isnan(x) or not np.signbit(x)) for x in samples]
    for a, one in zip(keys, places, strict=True):
        for b, other in zip(keys, places, strict=True):
            assert (a < b) == (one < other)
    got, right = finish(keys, "max", str(samples.dtype)), max_reference(samples)
    assert np.array_equal(got, samples.max(), **ALIKE) and np.array_equal(got, right, **ALIKE)
    assert math.isnan(right) or math.copysign(1, got) == math.copysign(1, right)


def test_positive_zero_is_the_larger() -> None:
    assert str(max_reference(np.array([-0.0, 0.0, -1.0]))) == "0.0" and str(max_reference(np.array([-0.0]))) == "-0.0"
    assert str(finish(np.array([-0.0]), "sum", "float64")) == "0.0"
    assert max_reference(np.array([-5, -7], np.int32)) == -5 == finish(np.array([-5, -7], np.int32), "max", "int32")


def test_kernels_are_in_the_order_of_the_variants() -> None:
    assert kernels_of(nvrtc.KERNELS / "study/reduce.cu") == [name for name in VARIANTS if name != "production"]
    for variant in VARIANTS.values():
        defaults = {name: p.default for name, p in inspect.signature(variant.run).parameters.items()}
        assert defaults == {"samples": inspect.Parameter.empty, **variant.parameters}


def test_every_instance_is_compiled() -> None:
    instances = [
        f"{name}<{OPERATIONS[op]}<{COURSE_TYPES[dtype]}>{own}>"
        for name in VARIANTS if name not in ("production", "float_drift") for op in operations(name) for dtype in DTYPES
        for own in ((LATE, IN_TIME) if name == "missing_barrier" else ("",))
    ]  # fmt: skip
    assert {*instances, "float_drift"} == set(machine_code.INSTANCES["study/reduce"]("sm_90"))


# --- wrappers, on NumPy arrays in place of CuPy arrays ----------------------------------------------------------------


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[Launch]:
    return recorded(monkeypatch, "study/reduce")


@pytest.mark.parametrize("name", VARIANTS)
def test_wrappers_refuse(name: str, launches: list[Launch], monkeypatch: pytest.MonkeyPatch) -> None:
    run = VARIANTS[name].run
    with pytest.raises(TypeError, match="expected int32 or float32 or float64, got int64"):
        run(to_device(np.zeros(3, np.int64)))
    with pytest.raises(ValueError, match=r"expected 1 dimension\(s\), got shape \(2, 2\)"):
        run(to_device(np.zeros(4, np.float32)).reshape(2, 2))
    with pytest.raises(ValueError, match=r"C-contiguous .* strides \(8,\) for shape \(3,\)"):
        run(to_device(np.zeros(6, np.float32))[::2])
    with pytest.raises(ValueError, match="at least 1 sample, got an empty array"):
        run(to_device(np.zeros(0, np.float32)))
    with pytest.raises(ValueError, match="expected elements on multiples of 4 bytes, the first is at 0x"):
        run(to_device(np.zeros(9, np.uint8))[1:].view(np.float32))
    for op in {"sum", "max", "mean"} - set(operations(name)):
        with pytest.raises(ValueError, match=f"expected op .* got '{op}'"):
            run(to_device(np.zeros(3, np.float32)), op=op)
    if "block" in VARIANTS[name].parameters:
        with pytest.raises(ValueError, match=r"block 2048 x 1: .* at most 1024 threads, got 2048"):
            run(to_device(np.zeros(3, np.float32)), block=2048)
    if name in SMALLEST_POWER:
        for block in (1000, SMALLEST_POWER[name] // 2 or 3):
            with pytest.raises(ValueError, match=f"a power of two of at least .* got {block}; any_size"):
                run(to_device(np.zeros(3, np.float32)), block=block)
    if "block" in VARIANTS[name].parameters and name != "float_drift":
        with pytest.raises(ValueError, match="4294967296 blocks of 32, the limit of the grid is 2147483647"):
            run(Huge(), block=32)
        monkeypatch.setattr(device, "limits", lambda: device.Limits(1, 1024, 2048, 65536, 4096, 4095))
        with pytest.raises(ValueError, match=r"needs \d+ bytes of shared memory, the device has 4095 per block"):
            run(to_device(np.zeros(3, np.float32)), block=1024)
    assert launches == []


class Huge(SimpleNamespace):
    """Stands for an array of 2**37 samples: the attributes that the checks read."""

    dtype, ndim, size, shape = np.dtype(np.float32), 1, 2**37, (2**37,)
    flags, data = SimpleNamespace(c_contiguous=True), SimpleNamespace(ptr=512)


def test_no_memory(launches: list[Launch], monkeypatch: pytest.MonkeyPatch) -> None:
    fill_memory(monkeypatch)
    for variant in (variant for name, variant in VARIANTS.items() if name != "production"):
        with pytest.raises(MemoryError, match=r"reduce: needs \d+ bytes of device memory, 5 are free"):
            variant.run(to_device(np.zeros(3, np.float32)))
    assert launches == []


@pytest.mark.parametrize("name", [name for name in VARIANTS if name != "production"])
def test_launches(name: str, launches: list[Launch]) -> None:
    for dtype in ("float32",) if name == "float_drift" else DTYPES:
        for op in operations(name):
            samples = to_device(np.zeros(3000, dtype))
            partials = VARIANTS[name].run(samples, op=op)
            instance, grid, block, arguments, shared = launches.pop()
            own = LATE if name == "missing_barrier" else ""
            of_op = f"{name}<{OPERATIONS[op]}<{COURSE_TYPES[dtype]}>{own}>"
            assert instance == (name if name == "float_drift" else of_op)
            assert (grid, block) == (((1,), (32,)) if name == "float_drift" else ((3,), (1024,)))
            assert shared == (0 if name == "float_drift" else 1024 * partials.itemsize)
            assert type(arguments[1]) is np.int64 and arguments[2] is partials
            assert partials.dtype == PARTIALS[op, dtype]
            assert partials.shape == ({"atomic_max": 1, "float_drift": 32}.get(name, 3),)
            assert (arguments[0] is samples) == (name != "past_the_end") and arguments[1] in (3000, 3072)
            if name == "atomic_max":
                assert partials[0] == np.iinfo(partials.dtype).min
    assert launches == []


# --- on a GPU ---------------------------------------------------------------------------------------------------------


def nasty(size: int, dtype: str) -> Iterator[NDArray[Any]]:
    """Random, constant and adversarial data."""
    generator = np.random.default_rng(size)
    if dtype == "int32":
        yield generator.integers(-(2**31), 2**31, size, np.int32)
        yield np.full(size, 2**31 - 1, np.int32)
        yield np.full(size, -(2**31), np.int32)
        return
    wide = generator.standard_normal(size) * 10.0 ** generator.integers(-30, 30, size)
    tiny = np.finfo(dtype).smallest_subnormal * generator.integers(-9, 0, size)
    yield from (wide.astype(dtype), tiny.astype(dtype), np.full(size, 0.1, dtype), np.full(size, -1e37, dtype))
    for last, middle in ((-0.0, -0.0), (0.0, -0.0), (-np.nan, 1), (np.inf, 1), (-np.inf, np.inf), (1, np.nan)):
        got = np.full(size, -0.0, dtype)
        got[-1], got[size // 2] = last, middle
        yield got


def assert_reduced(name: str, on_device: Any, samples: NDArray[Any], **chosen: Any) -> None:
    """Within the proven bound of the reference, and the same bits when repeated."""
    op, dtype = chosen["op"], str(samples.dtype)
    partials, again = (VARIANTS[name].run(on_device, **chosen).get() for _ in range(2))
    right = (sum_reference if op == "sum" else max_reference)(samples)
    if name == "production" and op == "max":
        right = samples[np.argmax(samples)].item()  # the job's kernel returns the first zero
    assert partials.tobytes() == again.tobytes()
    if name == "production":
        got = finish_exact(partials, op, dtype)
    else:
        assert partials.dtype == PARTIALS[op, dtype]
        got = finish(partials, op, dtype)
    if name == "production" or op == "max" or dtype == "int32" or not math.isfinite(right):
        assert str(got) == str(right), (name, chosen, len(samples))  # distinguishes 0.0 from -0.0, and equates NaN
    else:
        assert abs(got - right) <= sum_bound(samples, len(partials)), (name, chosen, len(samples))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", RIGHT)
def test_gpu_every_size(name: str, dtype: str) -> None:
    """Also from the second sample on, which is not aligned to 16 bytes."""
    cupy = pytest.importorskip("cupy")
    for size in SIZES:
        for number, samples in enumerate(nasty(size + 1, dtype)):
            if number and not ON_GPU and size not in (1, 33, 1025):
                break  # the emulator is slow: random data runs every size, other data only both sides of a boundary
            on_device = cupy.asarray(samples)
            for start in (0, 1) if size < 2000 and (ON_GPU or not number) else (1,):
                for op in operations(name):
                    assert_reduced(name, on_device[start : start + size], samples[start : start + size], op=op)


@pytest.mark.gpu
@pytest.mark.parametrize("name", [name for name in RIGHT if "block" in VARIANTS[name].parameters])
def test_gpu_every_block(name: str) -> None:
    cupy = pytest.importorskip("cupy")
    samples = np.random.default_rng(0).random(sizes(2003, 100_003)[-1], np.float32)
    smallest = SMALLEST_POWER.get(name)
    for block in (32, 64, 128, 256, 512) if smallest else (1, 3, 33, 100, 1000, 1023):
        for op in operations(name):
            assert_reduced(name, cupy.asarray(samples), samples, op=op, block=block)


@pytest.mark.gpu
def test_gpu_more_than_2_31_samples() -> None:
    cupy = pytest.importorskip("cupy")
    if cupy.cuda.runtime.memGetInfo()[0] < 12 * 2**30:
        pytest.skip("needs 12 GiB of device memory")
    samples = cupy.full(2**31 + 5, -(2**31), cupy.int32)
    samples[-1] = 7
    for name in RIGHT:
        for op in operations(name):
            read = finish_exact if name == "production" else finish
            got = read(VARIANTS[name].run(samples, op=op).get(), op, "int32")
            assert got == (7 if op == "max" else -(2**31) * (2**31 + 4) + 7), (name, op)
    del samples
    cupy.get_default_memory_pool().free_all_blocks()
