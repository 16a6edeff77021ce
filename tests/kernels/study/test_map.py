"""Elementwise operations: the reference, the wrappers' checks and launches, the source; every variant on a GPU."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kernels.common import nvrtc
from kernels.map import gpu
from kernels.map.gpu import KERNEL_TYPES, OPERATIONS
from kernels.map.reference import elementwise_reference
from kernels.study.map import COURSE_TYPES, INSTANCES, VARIANTS
from tests.cases.global_functions import kernels_of
from tests.cases.sizes import sizes
from tests.emulator.array import DeviceArray, to_device
from tests.emulator.launches import Launch, fill_memory, recorded
from tests.kernels.common import machine_code

WITH_BLOCK = ("one_block", "grid", "no_index", "past_the_end")


# --- the reference and the source -------------------------------------------------------------------------------------

EXACT: dict[str, Any] = {
    "add": lambda a, b, _: a + b, "subtract": lambda a, b, _: a - b, "multiply": lambda a, b, _: a * b,
    "minimum": lambda a, b, _: min(a, b), "maximum": lambda a, b, _: max(a, b),
}  # fmt: skip
ints = st.integers(-(2**31), 2**31 - 1)
numbers = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e150, max_value=1e150)


@settings(max_examples=40, deadline=None)
@given(ints, ints, ints)
def test_reference_wraps_integers(a: int, b: int, c: int) -> None:
    for operation, (_, operands) in OPERATIONS.items():
        exact = a * b + c if operation == "multiply_add" else EXACT[operation](a, b, c)
        given_arrays = [np.array([x], np.int32) for x in (a, b, c)[:operands]]
        got = elementwise_reference(*given_arrays, operation=operation)
        assert (got.dtype, got.tolist()) == (np.int32, [(exact + 2**31) % 2**32 - 2**31])


@settings(max_examples=40, deadline=None)
@given(numbers, numbers, numbers)
def test_reference_rounds_once_per_operation(a: float, b: float, c: float) -> None:
    for operation, (_, operands) in OPERATIONS.items():
        if operation == "multiply_add":
            exact = float(Fraction(float(Fraction(a) * Fraction(b))) + Fraction(c))
        else:
            exact = float(EXACT[operation](Fraction(a), Fraction(b), None))
        got = elementwise_reference(*(np.array([x]) for x in (a, b, c)[:operands]), operation=operation)
        assert got.tolist() == [exact]


def test_reference_of_zeros_and_nan() -> None:
    a, b = np.array([0.0, -0.0, -0.0, 1.0, np.nan]), np.array([-0.0, 0.0, -0.0, np.nan, 1.0])
    for operation, signs in (("minimum", [True, True, True]), ("maximum", [False, False, True])):
        got = elementwise_reference(a, b, operation=operation)
        assert np.signbit(got[:3]).tolist() == signs and np.isnan(got[3:]).all()


def test_kernels_are_in_the_order_of_the_variants() -> None:
    assert kernels_of(nvrtc.KERNELS / "study/map.cu") == list(INSTANCES)
    assert f"constexpr int THREADS = {gpu.THREADS};" in gpu.SOURCE.read_text(encoding="utf-8")


# --- wrappers, on NumPy arrays in place of CuPy arrays ----------------------------------------------------------------


def fake(shape: Any, dtype: Any = np.float32) -> Any:
    return to_device(np.zeros(shape, dtype))


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[Launch]:
    return recorded(monkeypatch, "map/gpu", "study/map")


@pytest.mark.parametrize("name", VARIANTS)
def test_wrappers_refuse(name: str, launches: list[Launch]) -> None:
    run, shape = VARIANTS[name].run, (3, 4) if name == "matrix_2d" else (6,)
    right = fake(shape)
    with pytest.raises(TypeError, match=r"a: expected .*int32 or .*float32 or float64.*, got complex64"):
        run(fake(shape, np.complex64), right)
    with pytest.raises(TypeError, match="b: expected float32 as in a, got int32"):
        run(right, fake(shape, np.int32))
    with pytest.raises(ValueError, match=r"b: expected shape \(\d.*\) as in a, got \(2"):
        run(right, fake((2, *shape[1:])))
    with pytest.raises(ValueError, match=r"expected . dimension\(s\), got shape \(1, 2, 3\)"):
        run(fake((1, 2, 3)), fake((1, 2, 3)))
    with pytest.raises(ValueError, match="C-contiguous"):
        run(fake((6, 8))[::2, ::2] if name == "matrix_2d" else fake(12)[::2], right)
    with pytest.raises(ValueError, match="expected elements on multiples of 4 bytes, the first is at 0x"):
        run(right, fake(right.nbytes + 1, np.uint8)[1:].view(np.float32).reshape(shape))
    if name in WITH_BLOCK:
        with pytest.raises(ValueError, match=r"block 1025 x 1: .* at most 1024 threads, got 1025"):
            run(right, right, block=1025)
    assert launches == []


def test_wrappers_refuse_what_is_theirs_alone(launches: list[Launch]) -> None:
    with pytest.raises(ValueError, match=r"block 32 x 33: .* at most 1024 threads, got 1056"):
        VARIANTS["matrix_2d"].run(fake((2, 2)), fake((2, 2)), block_x=32, block_y=33)
    with pytest.raises(ValueError, match=r"65536 elements take 65536 blocks of 1, the limit of the grid is 65535"):
        VARIANTS["matrix_2d"].run(fake((65536, 1)), fake((65536, 1)), block_x=1, block_y=1)
    with pytest.raises(ValueError, match=r"block 1025 x 1: .* at most 1024 threads, got 1025"):
        VARIANTS["product"].run(fake(1025), fake(1025))
    with pytest.raises(ValueError, match=r"operation: expected one of add, .*, maximum, got 'divide'"):
        gpu.elementwise(fake(3), fake(3), operation="divide")
    with pytest.raises(TypeError, match="multiply_add: expected 3 arrays, got 2"):
        gpu.elementwise(fake(3), fake(3), operation="multiply_add")
    assert launches == []


def test_no_memory(launches: list[Launch], monkeypatch: pytest.MonkeyPatch) -> None:
    fill_memory(monkeypatch)
    for name, variant in VARIANTS.items():
        a = fake((3, 4) if name == "matrix_2d" else 12)
        with pytest.raises(MemoryError, match=r"map: needs \d+ bytes of device memory, 5 are free"):
            variant.run(a, a)
    assert launches == []


def test_launches(launches: list[Launch]) -> None:
    for name, grid, block in (
        ("one_thread", (1,), (1,)), ("one_block", (1,), (256,)), ("grid", (3,), (1024,)),
        ("no_index", (1,), (256,)), ("past_the_end", (2,), (1024,)),
    ):  # fmt: skip
        VARIANTS[name].run(fake(2051), fake(2051))
        assert launches[-1][:3] == (f"{name}<float>", grid, block)
        sizes = [argument for argument in launches[-1][3] if not isinstance(argument, DeviceArray)]
        assert [type(size) for size in sizes] == ([] if name == "past_the_end" else [np.int64])
        VARIANTS[name].run(fake(0), fake(0))
    assert len(launches) == 6  # past_the_end launches twice; empty arrays launch nothing
    VARIANTS["matrix_2d"].run(fake((65, 33)), fake((65, 33)))
    assert launches[-1][:3] == ("matrix_2d<float>", (2, 3), (32, 32)) and launches[-1][3][3:] == (65, 33)
    VARIANTS["product"].run(fake(400), fake(400))
    assert launches[-1][:3] == ("product<float>", (1,), (400,))


@pytest.mark.parametrize(("starts", "head"), [((0, 0), 0), ((0, 1), 10_000), ((4, 8), 0), ((1, 1), 10_000)])
def test_production_launches(starts: tuple[int, int], head: int, launches: list[Launch]) -> None:
    """The result is aligned to 16 bytes: packs are loaded if the operands are, too."""
    a, b = (fake(10_008)[start : start + 10_000] for start in starts)
    gpu.elementwise(a, b)
    instance, grid, block, arguments, _ = launches.pop()
    assert (instance, block) == ("elementwise<float, Add>", (256,))
    assert grid == ((9,) if head == 0 else (40,))  # nine tiles of 1024 and the rest; all one by one
    assert arguments[4:] == (10_000, head) and [type(n) for n in arguments[4:]] == [np.int64, np.int64]


def test_every_instance_is_compiled(launches: list[Launch]) -> None:
    for name, variant in VARIANTS.items():
        for dtype in KERNEL_TYPES if name == "production" else COURSE_TYPES:
            a = fake((3, 4) if name == "matrix_2d" else 12, dtype)
            for operation, (_, operands) in OPERATIONS.items() if name == "production" else [("", ("", 2))]:
                variant.run(*[a] * operands, **({"operation": operation} if operation else {}))
    instances = sorted({launch[0] for launch in launches})
    assert len(instances) == 3 * (len(VARIANTS) - 1) + 10 * len(OPERATIONS)
    assert list(INSTANCES) == [name for name in VARIANTS if name != "production"]
    assert {*INSTANCES.values(), *gpu.INSTANCES} <= set(instances)
    assert instances == sorted(
        name for stem in ("map/gpu", "study/map") for name in machine_code.INSTANCES[stem]("sm_90")
    )


# --- on a GPU ---------------------------------------------------------------------------------------------------------

SIZES = sizes(1, 31, 32, 33, 1023, 1024, 1025, 4096, 4999, 100_003, 2**20)
MATRIX_SHAPES = sizes((1, 1), (31, 33), (32, 32), (1025, 1023), (1, 1025), (1025, 1), (100_003, 3))


def adversarial(dtype: str, size: int, seed: int) -> NDArray[Any]:
    """Half extremes (zeros of both signs, subnormal numbers, infinities, NaN), half any numbers."""
    rng, kind = np.random.default_rng(seed), np.dtype(dtype)
    if kind.kind == "i":
        extremes, anything = [0, 1, -1, 2**31 - 1, -(2**31), 46_341], rng.integers(-(2**31), 2**31, size)
    else:
        info = np.finfo(kind)
        ends = [0.0, 1.0, 1.0 + info.eps, info.max, info.tiny, info.smallest_subnormal, info.tiny / 2, np.inf, np.nan]
        extremes, anything = [*ends, *(-end for end in ends)], rng.normal(0, 1000, size)
    return np.where(rng.random(size) < 0.5, rng.choice(np.array(extremes, kind), size), anything.astype(kind))


def assert_equals_numpy(got: Any, arrays: tuple[NDArray[Any], ...], operation: str) -> None:
    """Shape, dtype and every bit, except those of NaN."""
    result, expected = got.get(), elementwise_reference(*arrays, operation=operation)
    assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
    numbers = ~np.isnan(expected)
    assert np.isnan(result[~numbers]).all()
    bits = f"u{expected.dtype.itemsize}"
    assert np.array_equal(result[numbers].view(bits), expected[numbers].view(bits))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", COURSE_TYPES)
@pytest.mark.parametrize("name", ["one_thread", "one_block", "grid", "product"])
def test_gpu_vectors(name: str, dtype: str) -> None:
    cupy = pytest.importorskip("cupy")
    for size in (400, *SIZES):
        pairs = [tuple(adversarial(dtype, size, seed) for seed in (1, 2)), (np.full(size, 3, dtype),) * 2]
        for a, b in pairs if name != "product" or size <= 1024 else []:
            got = VARIANTS[name].run(cupy.asarray(a), cupy.asarray(b))
            assert_equals_numpy(got, (a, b), "multiply" if name == "product" else "add")


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", COURSE_TYPES)
def test_gpu_matrices(dtype: str) -> None:
    cupy = pytest.importorskip("cupy")
    for shape in MATRIX_SHAPES:
        a, b = (adversarial(dtype, math.prod(shape), seed).reshape(shape) for seed in (1, 2))
        for run in (VARIANTS["matrix_2d"].run, gpu.elementwise):
            assert_equals_numpy(run(cupy.asarray(a), cupy.asarray(b)), (a, b), "add")


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", COURSE_TYPES)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_gpu_production(operation: str, dtype: str) -> None:
    """Every size; operands aligned to 16 bytes, equally misaligned, and differently misaligned."""
    cupy = pytest.importorskip("cupy")
    operands = OPERATIONS[operation][1]
    for size in SIZES:
        for starts in ((0, 0, 0), (1, 1, 1), (0, 1, 2), (4, 8, 4)) if size < 2**20 else ((0, 0, 0),):
            whole = [adversarial(dtype, size + 8, seed) for seed in range(operands)]
            parts = [slice(start, start + size) for start in starts[:operands]]
            on_device = [cupy.asarray(array)[part] for array, part in zip(whole, parts, strict=True)]
            arrays = tuple(array[part] for array, part in zip(whole, parts, strict=True))
            assert_equals_numpy(gpu.elementwise(*on_device, operation=operation), arrays, operation)
    assert gpu.elementwise(*[cupy.zeros(0, dtype)] * operands, operation=operation).size == 0


@pytest.mark.gpu
@pytest.mark.hardware
@pytest.mark.parametrize("name", ["grid", "production"])
def test_gpu_more_than_2_31_elements(name: str) -> None:
    cupy = pytest.importorskip("cupy")
    size = 2**31 + 1025
    if cupy.cuda.runtime.memGetInfo()[0] < 48 * 2**30:
        pytest.skip("needs 48 GiB of device memory")
    period = cupy.asarray(np.random.default_rng(0).integers(-(2**31), 2**31, 1_000_003, np.int32))
    a = cupy.tile(period, size // period.size + 1)[:size]
    assert bool((VARIANTS[name].run(a, a) == a + a).all())
    del a
    cupy.get_default_memory_pool().free_all_blocks()
