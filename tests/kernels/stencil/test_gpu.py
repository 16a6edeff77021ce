"""The stencil kernels against the CPU, bit for bit; arguments that their wrappers refuse."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kernels.common import nvrtc
from kernels.common.dtypes import C_TYPES
from kernels.stencil.cpu import box_cpu, weighted_cpu
from kernels.stencil.gpu import INSTANCES, box, weighted
from kernels.stencil.windows import OUTSIDE

SOURCE = (nvrtc.KERNELS / "stencil/gpu.cu").read_text()


def numbers(dtype: str, shape: Any, seed: int = 0) -> NDArray[Any]:
    random = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "f":
        return (random.standard_normal(shape) * 100).astype(dtype)
    limits = np.iinfo(dtype)
    scale = 2**13 if limits.bits == 64 else 1
    return random.integers(limits.min // scale, limits.max // scale, shape, dtype, endpoint=True)


def check_box(cp: Any, x: NDArray[Any], radius: int, before: int = 0, after: int = 0, outside: str = "zero") -> None:
    result = box(cp.asarray(x), radius, before, after, outside).get()
    expected = box_cpu(x, radius, before, after, outside)
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(result, expected)
    assert result.tobytes() == expected.tobytes()


def test_header_names_the_kernels() -> None:
    listed = re.findall(r"^//   (\w+)  +", SOURCE, re.MULTILINE)
    assert listed == re.findall(r"__global__ void __launch_bounds__\((?:BLOCK|SIZE).*\)\n(\w+)\(", SOURCE)
    assert len(listed) == SOURCE.count("__global__")
    assert {instance.partition("<")[0] for instance in INSTANCES} == set(listed)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", C_TYPES)
def test_box_of_every_dtype(cp: Any, dtype: str) -> None:
    for shape, radius in (((1, 4500), 3), ((3, 200), 60), ((2, 1), 0)):
        check_box(cp, numbers(dtype, shape), radius)


@pytest.mark.gpu
@pytest.mark.parametrize("outside", OUTSIDE)
def test_box_beyond_the_ends(cp: Any, outside: str) -> None:
    for dtype in ("int16", "float32", "uint64"):
        x = numbers(dtype, (2, 301))
        for radius, before, after in ((5, 5, 5), (5, 0, 3), (301, 301, 301), (100, 90, 110), (400, 300, 300)):
            check_box(cp, x, radius, before, after, outside)


@pytest.mark.gpu
@pytest.mark.parametrize("radius", (0, 1, 3, 1000, 4096))
def test_box_of_every_radius(cp: Any, radius: int) -> None:
    for dtype in ("int32", "float64"):
        check_box(cp, numbers(dtype, (1, 9000)), radius, radius, radius)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ("float32", "float64"))
@pytest.mark.parametrize("case", ("one word", "two words", "far", "subnormal", "largest", "bits", "specials"))
def test_box_of_adversarial_floats(cp: Any, case: str, dtype: str) -> None:
    random = np.random.default_rng(1)
    shape = (2, 700)
    normal = random.standard_normal(shape)
    limits = np.finfo(dtype)
    low, high = limits.minexp - limits.nmant, limits.maxexp - 3
    x = {
        "one word": random.integers(-4, 5, shape) * 1.0,
        "two words": normal * 2.0 ** random.integers(0, 30, shape),
        "far": normal * 2.0 ** random.integers(low, high, shape),
        "subnormal": normal * 2.0 ** (low + 3),
        "largest": np.sign(normal) * float(limits.max),
        "bits": random.integers(0, 2 ** (limits.bits - 1), shape).astype(f"u{limits.bits // 8}").view(dtype),
        "specials": random.choice([*[1.0] * 300, np.inf, -np.inf, np.nan, -0.0], shape),
    }[case].astype(dtype)
    for radius in (0, 2, 40):
        check_box(cp, x, radius, 1, radius)


@pytest.mark.hardware
@pytest.mark.parametrize("dtype", ("float16", "float32", "float64"))
def test_box_of_wide_windows_with_nan_and_infinities(cp: Any, dtype: str) -> None:
    """Windows short enough to count their nonfinite elements, and longer ones."""
    x = numbers(dtype, (2, 2_300_001))
    x[0, 5::70001], x[1, 900_000] = np.inf, np.nan
    x[1, 400_000:400_100] *= x.dtype.type(2.0**-13)
    for radius in (3, 50_000, 2**20 + 5):
        check_box(cp, x, radius)


@pytest.mark.hardware
@pytest.mark.parametrize("dtype", ("int16", "int32", "int64", "float16", "float32", "float64"))
def test_box_of_long_rows(cp: Any, dtype: str) -> None:
    """Blocks that slide over many tiles, aligned to 16 bytes or not, with ring buffers of all sizes."""
    x = numbers(dtype, (3, 700_001))
    for radius, shift in ((0, 1), (3, 0), (250, 2), (4096, 3), (50_000, 0)):
        check_box(cp, np.ascontiguousarray(x[:, shift:]), radius, radius)


@pytest.mark.hardware
@pytest.mark.parametrize("dtype", ("float16", "float32", "float64"))
def test_box_of_floats_whose_exponents_change_along_a_row(cp: Any, dtype: str) -> None:
    """From one grid to another, on to the kernels that box defers to, and back."""
    x = numbers(dtype, (2, 400_000)).astype(np.float64)
    limits = np.finfo(dtype)
    x[0, 50_000:] *= 2.0 ** min(40, limits.maxexp - 9)
    x[0, 100_000:150_000:1000] = limits.smallest_subnormal
    x[0, 250_000:250_003] = np.nan, np.inf, -np.inf
    x[1, 300_000:] = 0
    x[1, :200_000] *= float(limits.smallest_normal)
    for radius in (2, 600, 5000):
        check_box(cp, x.astype(dtype), radius)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ("int64", "uint64"))
def test_box_that_overflows(cp: Any, dtype: str) -> None:
    most = np.iinfo(dtype).max
    x = np.array([[0, most - 1, 1, 0, 0, 7], [1, 0, 0, 2, 0, 0]], dtype)
    check_box(cp, x, 1)
    x[1, 2] = most
    with pytest.raises(OverflowError, match=f"expected sums that fit into {dtype}, got {most + 1}; choose a smaller"):
        box(cp.asarray(x), 1)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ("float32", "float64"))
@pytest.mark.parametrize("dtype", C_TYPES)
def test_weighted_of_every_dtype(cp: Any, dtype: str, kind: str) -> None:
    for shape, radius in (((1, 4200), 2), ((3, 200), 23), ((2, 1), 0)):
        x, weights = numbers(dtype, shape), numbers(kind, 2 * radius + 1, 1)
        result = weighted(cp.asarray(x), cp.asarray(weights), radius, 0, "reflect" if radius <= shape[1] else "zero")
        expected = weighted_cpu(x, weights, radius, 0, "reflect" if radius <= shape[1] else "zero")
        assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
        assert result.get().tobytes() == expected.tobytes()


@pytest.mark.gpu
@pytest.mark.parametrize("radius", (3, 7, 8, 16, 17, 250, 1000))
def test_weighted_of_several_chunks_of_taps(cp: Any, radius: int) -> None:
    """Products that are not finite, zeros of either sign and sums that underflow are as on the CPU."""
    x, weights = numbers("float32", (2, 800)), numbers("float32", 2 * radius + 1, 1)
    x[0, ::97], x[1, 5:9], x[1, 300:] = -0.0, (np.inf, np.nan, 1e-40, -np.inf), -0.0
    weights[:3] = 0.0, -0.0, 1e-42
    result = weighted(cp.asarray(x), cp.asarray(weights), radius, radius, "nearest").get()
    assert result.tobytes() == weighted_cpu(x, weights, radius, radius, "nearest").tobytes()


@pytest.mark.hardware
@pytest.mark.parametrize("kind", ("float32", "float64"))
def test_weighted_of_long_rows(cp: Any, kind: str) -> None:
    for dtype in (kind, "int16"):
        for radius in (8, 20):
            x, weights = numbers(dtype, (2, 200_003)), numbers(kind, 2 * radius + 1, 1)
            for shift in range(4):
                part = np.ascontiguousarray(x[:, shift:])
                result = weighted(cp.asarray(part), cp.asarray(weights), 8).get()
                assert result.tobytes() == weighted_cpu(part, weights, 8).tobytes()


@pytest.mark.gpu
def test_what_is_refused(cp: Any) -> None:
    x = cp.asarray(np.zeros((2, 10), np.float32))
    with pytest.raises(ValueError, match=f"expected a radius below {2**31}, got {2**31}"):
        box(x, 2**31, 2**31, 2**31)
    with pytest.raises(ValueError, match="outside: expected one of zero, nearest, reflect, got 'wrap'"):
        box(x, 1, outside="wrap")
    with pytest.raises(ValueError, match="from 0 to 10 elements before and after a row, got 11 and 0"):
        box(x, 1, 11, 0, "reflect")
    with pytest.raises(ValueError, match="expected windows of at most 10 elements, got 11"):
        box(x, 5)
    with pytest.raises(ValueError, match="expected 2 dimension"):
        box(x[0], 1)
    with pytest.raises(TypeError, match="expected int8 or"):
        box(cp.asarray(np.zeros((2, 10), complex)), 1)
    assert box(cp.asarray(np.zeros((0, 10), np.float32)), 1).shape == (0, 8)
