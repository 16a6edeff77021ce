"""Transpose: the reference, the wrappers' checks and launches, the source; every variant on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from kernels.common import nvrtc
from kernels.study.transpose import INSTANCES, TILES, VARIANTS
from kernels.transpose import gpu, unaligned
from kernels.transpose.gpu import DTYPES, transpose_reference
from tests.cases.global_functions import kernels_of
from tests.cases.sizes import sizes
from tests.emulator.array import to_device
from tests.emulator.launches import Launch, fill_memory, recorded
from tests.kernels.common import machine_code

RIGHT = tuple(name for name, variant in VARIANTS.items() if not variant.broken)
TILED = ("naive", "shared_tile", "padded_tile")
BY_BYTES = ("uint8", "int16", "float32", "float64", "complex128")

# --- the reference and the source -------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(arrays(st.sampled_from(["uint8", "int16", "int32", "int64"]), st.tuples(st.integers(1, 9), st.integers(1, 9))))
def test_reference_is_the_definition(matrix: NDArray[Any]) -> None:
    got = transpose_reference(matrix)
    assert got.dtype == matrix.dtype and got.flags.c_contiguous
    assert got.tolist() == [list(column) for column in zip(*matrix.tolist(), strict=True)]


def test_kernels_are_in_the_order_of_the_variants() -> None:
    assert kernels_of(nvrtc.KERNELS / "study/transpose.cu") == list(INSTANCES)
    for name, sector in (("transpose/tile.cuh", gpu.SECTOR), ("transpose/unaligned.cu", unaligned.SECTOR)):
        assert f"constexpr int SECTOR = {sector};" in (nvrtc.KERNELS / name).read_text("utf-8")


# --- wrappers, on NumPy arrays in place of CuPy arrays ----------------------------------------------------------------


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[Launch]:
    return recorded(monkeypatch, "transpose/gpu", "study/transpose", "transpose/unaligned")


@pytest.mark.parametrize("name", VARIANTS)
def test_wrappers_refuse(name: str, launches: list[Launch]) -> None:
    run = VARIANTS[name].run
    with pytest.raises(TypeError, match=r"expected bool or int8 .* got datetime64"):
        run(np.zeros((2, 2), "datetime64[s]"))
    with pytest.raises(ValueError, match=r"expected 2 dimension\(s\), got shape \(3,\)"):
        run(np.zeros(3, np.float32))
    with pytest.raises(ValueError, match=r"C-contiguous .* strides \(4, 12\) for shape \(3, 4\)"):
        run(np.zeros((4, 3), np.float32).T)
    with pytest.raises(ValueError, match=r"blocks of \d+ x \d+, the limit of a grid is 2147483647"):
        run(np.broadcast_to(np.int8(0), (1, 1)).view(Huge))
    with pytest.raises(ValueError, match="expected elements on multiples of 4 bytes, the first is at 0x"):
        run(to_device(np.zeros(17, np.uint8))[1:].view(np.float32).reshape(2, 2))
    if name in TILED:
        with pytest.raises(ValueError, match=r"block 64 x 64: .* at most 1024 threads, got 4096"):
            run(np.zeros((2, 2), np.float32), tile=64)
        with pytest.raises(ValueError, match=r"tile: expected one of \(8, 16, 32\), got 20"):
            run(np.zeros((2, 2), np.float32), tile=20)
    assert launches == []


class Huge(np.ndarray[Any, Any]):
    """An array that claims 2**41 x 2**10 elements."""

    shape = (2**41, 2**10)  # type: ignore[assignment]


def test_no_memory(launches: list[Launch], monkeypatch: pytest.MonkeyPatch) -> None:
    fill_memory(monkeypatch)
    for name in VARIANTS:
        with pytest.raises(MemoryError, match=r"transpose: needs \d+ bytes of device memory, 5 are free"):
            VARIANTS[name].run(to_device(np.zeros((3, 4))))
    assert launches == []


def test_launches(launches: list[Launch]) -> None:
    for rows, columns, tile in ((33, 65, 32), (7, 9, 8), (16, 1, 16)):
        out = VARIANTS["naive"].run(to_device(np.zeros((rows, columns), np.float16)), tile=tile)
        instance, grid, block, arguments, _ = launches.pop()
        assert (instance, block) == (f"naive<u16, {tile}>", (tile, tile))
        assert grid == (-(-rows // tile) * -(-columns // tile),)
        assert out.shape == (columns, rows) and [type(a) for a in arguments[2:]] == [np.int64, np.int64]
    for rows, columns, aligned, shape, blocks in (
        (144, 272, "true, true", (128, 256, 512), 4), (143, 272, "true, false", (128, 128, 160), 6),
        (144, 271, "false, true", (128, 128, 256), 6), (143, 271, "false, false", (128, 128, 160), 6),
    ):  # fmt: skip
        gpu.transpose(to_device(np.zeros((rows, columns), np.uint8)))
        instance, grid, block, arguments, _ = launches.pop()
        sizes = ", ".join(map(str, shape))
        assert (instance, grid, block) == (f"tiled<u8, {sizes}, {aligned}>", (blocks,), shape[2:])
        assert arguments[2:] == (rows, columns, columns, rows, 1, 0, 0, 0, 0)
        assert {type(a) for a in arguments[2:]} == {np.int64}
    gpu.transpose(to_device(np.zeros(16 * 32 + 1, np.uint8))[1:].reshape(16, 32))
    assert launches.pop()[0].endswith("false, true>")
    for rows, columns in ((63, 260), (64, 259), (63, 259)):
        gpu.transpose(to_device(np.zeros((rows, columns), np.float32)))
        instance, grid, block, arguments, _ = launches.pop()
        assert (instance, grid, block) == (unaligned.instance(4), (3,), (256,))
        assert arguments[2:] == (rows, columns, columns, rows, columns, 0, 1, 0, 0, 0, 0)
        assert {type(a) for a in arguments[2:]} == {np.int64}
    narrow = to_device(np.arange(24).reshape(8, 3))
    assert gpu.transpose(narrow).tolist() == narrow.T.tolist()  # by a copy
    row = to_device(np.arange(5))
    assert gpu.transpose(row.reshape(1, 5)).tolist() == [[0], [1], [2], [3], [4]]
    assert gpu.transpose(to_device(np.zeros((0, 3)))).shape == (3, 0)
    assert launches == []


def test_every_instance_is_compiled(launches: list[Launch]) -> None:
    for dtype in DTYPES:
        matrix = to_device(np.zeros((3, 4), dtype))
        for name, variant in VARIANTS.items():
            for tile in TILES if name in TILED else (None,):
                variant.run(matrix, **({} if tile is None else {"tile": tile}))
        for shape in ((32, 32), (32, 33), (33, 32), (33, 33)):
            gpu.transpose(to_device(np.zeros(shape, dtype)))
    instances = sorted({launch[0] for launch in launches})
    ragged = [name for name in instances if name.startswith("unaligned")]
    assert len(instances) == 5 * (len(TILED) * len(TILES) + 3) + 3 * len(gpu.UNALIGNED) + len(ragged)
    assert list(INSTANCES) == [name for name in VARIANTS if name != "production"]
    assert {*INSTANCES.values(), *gpu.INSTANCES} <= set(instances)
    assert ragged == sorted(machine_code.INSTANCES["transpose/unaligned"]("sm_90"))
    assert [name for name in instances if name not in ragged] == sorted(
        name for stem in ("transpose/gpu", "study/transpose") for name in machine_code.INSTANCES[stem]("sm_90")
    )


# --- on a GPU ---------------------------------------------------------------------------------------------------------

SHAPES = [(n, m) for n in (1, 31, 32, 33, 1023, 1024, 1025) for m in (1, 33, 64, n)]
SHAPES += [(100_003, 1), (1, 100_003), (100_003, 3), (3, 100_003), (16, 144), (272, 528), (128, 4096), (4095, 4097)]
SHAPES = list(sizes(*SHAPES))


def patterns(dtype: str, size: int, constant: bool = False) -> NDArray[Any]:
    """Random bits, so also every kind of NaN, -0.0 and subnormal numbers; or the same bits everywhere."""
    itemsize = np.dtype(dtype).itemsize
    bits = np.random.default_rng(size).bytes(itemsize if constant else size * itemsize)
    return np.frombuffer(bits * size if constant else bits, dtype)


def assert_transposed(got: Any, matrix: NDArray[Any]) -> None:
    """Shape, dtype and every bit."""
    result, expected = got.get(), transpose_reference(matrix)
    assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
    assert np.array_equal(result.reshape(-1).view(np.uint8), expected.reshape(-1).view(np.uint8))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", BY_BYTES)
@pytest.mark.parametrize("name", RIGHT)
def test_gpu_every_shape(name: str, dtype: str) -> None:
    cupy = pytest.importorskip("cupy")
    for shape in SHAPES:
        matrix = patterns(dtype, shape[0] * shape[1]).reshape(shape)
        assert_transposed(VARIANTS[name].run(cupy.asarray(matrix)), matrix)
    matrix = patterns(dtype, 145 * 33, constant=True).reshape(145, 33)
    assert_transposed(VARIANTS[name].run(cupy.asarray(matrix)), matrix)


@pytest.mark.gpu
@pytest.mark.parametrize("name", TILED)
def test_gpu_every_tile(name: str) -> None:
    cupy = pytest.importorskip("cupy")
    for shape in sizes((1, 1), (33, 65), (1023, 1025)):
        matrix = patterns("float32", shape[0] * shape[1]).reshape(shape)
        for tile in TILES:
            assert_transposed(VARIANTS[name].run(cupy.asarray(matrix), tile=tile), matrix)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", BY_BYTES)
def test_gpu_views_that_begin_anywhere(dtype: str) -> None:
    cupy = pytest.importorskip("cupy")
    for shape in sizes((256, 512), (160, 272), (255, 256), (256, 255), (64, 48), (63, 48), (64, 47)):
        whole = patterns(dtype, shape[0] * shape[1] + 3)
        on_device = cupy.asarray(whole)
        for start in (0, 1, 3):
            end = start + shape[0] * shape[1]
            assert_transposed(gpu.transpose(on_device[start:end].reshape(shape)), whole[start:end].reshape(shape))
    for empty in ((0, 5), (5, 0)):
        assert gpu.transpose(cupy.zeros(empty, dtype)).shape == empty[::-1]


@pytest.mark.gpu
@pytest.mark.hardware
@pytest.mark.parametrize("name", ["padded_tile", "production"])
def test_gpu_more_than_2_31_elements(name: str) -> None:
    cupy = pytest.importorskip("cupy")
    shape = (46_349, 46_352)
    assert shape[0] * shape[1] > 2**31
    if cupy.cuda.runtime.memGetInfo()[0] < 12 * 2**30:
        pytest.skip("needs 12 GiB of device memory")
    period = cupy.asarray(np.frombuffer(np.random.default_rng(0).bytes(1_000_003), np.uint8))
    matrix = cupy.tile(period, shape[0] * shape[1] // period.size + 1)[: shape[0] * shape[1]].reshape(shape)
    assert bool((VARIANTS[name].run(matrix) == matrix.T).all())
    cupy.get_default_memory_pool().free_all_blocks()
