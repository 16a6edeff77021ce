"""Matrix products: the list of kernels, the wrappers' checks and launches, compiling."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kernels.common import device, nvrtc
from kernels.study.matmul import C_TYPES, INSTANCES, SOURCE, VARIANTS
from tests.cases.global_functions import kernels_of
from tests.emulator.launches import H200, Launch, recorded
from tests.kernels.common import machine_code

DTYPES = tuple(C_TYPES)
ELSEWHERE = ("production", "cublas")  # whose kernels are not those of study/matmul.cu
OWN = [name for name, variant in VARIANTS.items() if name not in ELSEWHERE and not variant.broken]


def matrices(kind: str, sizes: tuple[int, int, int], dtype: str, seed: int = 0) -> tuple[NDArray[Any], NDArray[Any]]:
    """Two matrices whose sums of magnitudes do not overflow."""
    rows, inner, columns = sizes
    rng, info = np.random.default_rng(seed), np.finfo(dtype)

    def one(shape: tuple[int, int], first: bool) -> NDArray[Any]:
        numbers = rng.uniform(-1, 1, shape)
        if kind == "constant":
            numbers = np.full(shape, 0.1)
        elif kind == "integers":
            numbers = rng.integers(-8, 9, shape).astype(float)
        elif kind == "cancelling":  # large sums that nearly cancel
            numbers += np.where(np.arange(inner) % 2, 1e6, -1e6) if first else 1e6
        elif kind == "subnormal":
            numbers *= float(info.smallest_normal) if first else 1.0
        elif kind == "zeros":  # some products underflow to -0
            numbers = rng.choice([0.0, -0.0, float(info.smallest_subnormal), -float(info.smallest_normal)], shape)
        elif kind == "extreme":
            numbers = np.sign(numbers) * float(info.max) ** 0.5 / (2 * inner**0.5)
        return numbers.astype(dtype)

    return one((rows, inner), True), one((inner, columns), False)


KINDS = ("random", "constant", "integers", "cancelling", "subnormal", "zeros", "extreme")


def test_every_variant_is_a_kernel() -> None:
    assert set(kernels_of(SOURCE)) == set(VARIANTS) - set(ELSEWHERE)


class DeviceArray(np.ndarray[Any, Any]):
    """A NumPy array with the address interface of a CuPy array."""

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=self.ctypes.data)

    @data.setter
    def data(self, value: Any) -> None: ...


def on_device(shape: tuple[int, ...], dtype: str, aligned: bool = True) -> Any:
    """Zeros aligned to 16 bytes, or one element past."""
    itemsize = np.dtype(dtype).itemsize
    memory = np.zeros(int(np.prod(shape)) * itemsize + 32, np.uint8)
    start = -memory.ctypes.data % 16 + (0 if aligned else itemsize)
    return memory[start : start + int(np.prod(shape)) * itemsize].view(dtype).reshape(shape).view(DeviceArray)


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device of which only the limits may be queried."""
    monkeypatch.setattr(device, "limits", lambda: H200)
    monkeypatch.setattr(nvrtc, "load", lambda *names: pytest.fail(f"{names} was loaded"))
    monkeypatch.setitem(sys.modules, "cupy", None)


@pytest.mark.usefixtures("refused")
@pytest.mark.parametrize("run", [variant.run for variant in VARIANTS.values()])
def test_wrong_matrices_are_refused(run: Callable[..., Any]) -> None:
    a, b = on_device((4, 6), "float32"), on_device((6, 5), "float32")
    for wrong, error, message in (
        ((a.astype("int32"), b), TypeError, "first matrix: expected float32 or float64, got int32"),
        ((a, b.astype("float16")), TypeError, "second matrix: expected float32 or float64, got float16"),
        ((a, b.astype("float64")), TypeError, "of one dtype, got float32 and float64"),
        ((a, b[0]), ValueError, r"expected 2 dimension\(s\), got shape \(5,\)"),
        ((a, b[:5]), ValueError, r"as columns in the first, 6, got shapes \(4, 6\) and \(5, 5\)"),
        ((a[:, ::2], b), ValueError, r"C-contiguous memory, got strides \(24, 8\)"),
        ((a, b.reshape(5, 6).T), ValueError, "C-contiguous memory"),
    ):
        with pytest.raises(error, match=message):
            run(*wrong)


@pytest.mark.usefixtures("refused")
@pytest.mark.parametrize(
    ("variant", "inner", "own", "message"),
    [
        *(("blocks_1d", 6, {"x": x}, f"at most 1024 threads, got {x}") for x in (0, 1025)),
        *((name, 6, {"x": 64, "y": 32}, "64 x 32: .* at most 1024 threads, got 2048")
          for name in ("blocks_2d", "uncoalesced", "unrolled", "whole_rows", "past_the_end")),
        ("blocks_2d", 6, {"x": -4, "y": -4}, "sides of at least 1"),
        ("blocks_2d", 6, {"x": 32, "y": 1}, "70000 blocks along y, the limit of a grid is 65535"),
        ("uncoalesced", 6, {"x": 1, "y": 1, "transposed": True}, "70000 blocks along y, the limit of a grid is 65535"),
        ("whole_rows", 1024, {}, "needs 262144 bytes of shared memory, the device has 232448"),
        ("shared_tile", 6, {"x": 12}, "x: expected a tile 8, 16, 32 wide, got 12"),
        ("missing_barrier", 6, {"x": 64}, "x: expected a tile 8, 16, 32 wide, got 64"),
        ("register_tiled", 6, {"micro": 2}, "micro: expected 4 or 8 elements a side, got 2"),
    ],
)  # fmt: skip
def test_wrong_parameters_are_refused(variant: str, inner: int, own: dict[str, Any], message: str) -> None:
    a, b = on_device((70000 if inner < 10 else 4, inner), "float32"), on_device((inner, 5), "float32")
    if own.pop("transposed", False):
        a, b = on_device((5, inner), "float32"), on_device((inner, 70000), "float32")
    with pytest.raises(ValueError, match=message):
        VARIANTS[variant].run(a, b, **own)


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[Launch]:
    return recorded(monkeypatch, "study/matmul")


def with_sizes(launch: Launch) -> tuple[Any, ...]:
    """A launch without its matrices, which share a dtype."""
    instance, grid, block, arguments, shared = launch
    assert len({array.dtype for array in arguments[:3]}) == 1
    assert all(type(size) is np.int64 for size in arguments[3:])
    return instance, grid, block, tuple(int(size) for size in arguments[3:]), shared


def instances(launches: list[Launch]) -> list[str]:
    """Every instance that a wrapper can request."""
    for dtype in DTYPES:
        for aligned in (True, False):
            a, b = on_device((40, 8), dtype, aligned), on_device((8, 48), dtype)
            for name in (*OWN, "past_the_end", "missing_barrier", "stale_tile"):
                choices = {
                    "shared_tile": [{"x": x} for x in (8, 16, 32)],
                    "shared_sums": [{"x": x} for x in (8, 16, 32)],
                    "register_tiled": [{"micro": 4}, {"micro": 8}],
                }
                for own in choices.get(name, [{}]):
                    assert VARIANTS[name].run(a, b, **own).shape == (40, 48)
    return list(dict.fromkeys(with_sizes(launch)[0] for launch in launches))


def test_launches(launched: list[Launch]) -> None:
    got = instances(launched)
    assert len(got) == 40 and set(INSTANCES.values()) <= set(got) and set(INSTANCES) == set(VARIANTS) - set(ELSEWHERE)
    launched.clear()
    a, b = on_device((33, 12), "float32"), on_device((12, 70), "float32")
    sizes = (33, 12, 70)
    block = {"x": 16, "y": 4}
    calls = {"blocks_1d": {"x": 128}, "blocks_2d": block, "uncoalesced": block, "whole_rows": block}
    for name, own in (calls | {"shared_tile": {"x": 16}, "register_tiled": {}}).items():
        VARIANTS[name].run(a, b, **own)
    VARIANTS["register_tiled"].run(a, b, micro=4)
    assert [with_sizes(launch) for launch in launched] == [
        ("blocks_1d<float>", (19, 1), (128, 1), sizes, 0),
        ("blocks_2d<float>", (5, 9), (16, 4), sizes, 0),
        ("uncoalesced<float>", (3, 18), (16, 4), sizes, 0),
        ("whole_rows<float>", (5, 9), (16, 4), sizes, 20 * 12 * 4),
        ("shared_tile<float, 16>", (5, 3), (16, 16), sizes, 0),
        ("register_tiled<float, 8, false>", (1, 1), (256, 1), sizes, 0),
        ("register_tiled<float, 4, false>", (2, 1), (256, 1), sizes, 0),
    ]
    launched.clear()
    register_tiled = VARIANTS["register_tiled"].run
    register_tiled(on_device((1600, 4), "float64"), on_device((4, 1600), "float64"))
    assert launched[0][:2] == ("register_tiled<double, 8, true>", (13, 13))
    assert (
        register_tiled(on_device((0, 4), "float64"), on_device((4, 3), "float64")).shape == (0, 3)
        and len(launched) == 1
    )


def test_every_instance_is_compiled(launched: list[Launch]) -> None:
    assert set(instances(launched)) <= set(machine_code.INSTANCES["study/matmul"]("sm_90"))
