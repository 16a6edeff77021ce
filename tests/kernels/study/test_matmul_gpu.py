"""The ladder of matrix products on a GPU: the same bits from all its kernels, within the bound of the reference."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kernels.study.matmul import VARIANTS, matmul_reference
from tests.cases.sizes import ON_GPU
from tests.kernels.study.test_matmul import DTYPES, KINDS, OWN, matrices
from workflows.study.matmul import STUDY

matmul = VARIANTS["register_tiled"].run
CHOICES: dict[str, list[dict[str, int]]] = {
    "blocks_1d": [{"x": 64}, {"x": 96}],
    "shared_tile": [{"x": 8}, {"x": 16}, {"x": 32}],
    "register_tiled": [{"micro": 4}, {"micro": 8}],
    "shared_sums": [{"x": 8}, {"x": 16}],
    "whole_rows": [{"x": 4, "y": 2}],  # fits at every size here
    "unrolled_rows": [{"x": 4, "y": 2}],
}


def gpu_bits(array: Any) -> Any:
    """Bits of a device array as integers: -0 is not 0."""
    return array.view(np.dtype(f"u{array.dtype.itemsize}"))


def gpu_products(cp: Any, arrays: tuple[NDArray[Any], ...]) -> NDArray[Any]:
    """The product, after checking that all variants that promise equal bits agree."""
    a, b = (cp.asarray(array) for array in arrays)
    first = VARIANTS["blocks_1d"].run(a, b)
    for name in OWN:
        for own in CHOICES.get(name, [{}, {"x": 16, "y": 8}]):
            got = VARIANTS[name].run(a, b, **own)
            assert got.dtype == a.dtype and got.shape == first.shape
            assert bool((gpu_bits(got) == gpu_bits(first)).all()), (name, own)
    return cp.asnumpy(first)


def gpu_check(got: NDArray[Any], arrays: tuple[NDArray[Any], ...]) -> None:
    case = replace(STUDY.cases[0], dtype=str(got.dtype), sizes=(*arrays[0].shape, arrays[1].shape[1]))
    assert STUDY.disagreement(got, STUDY.reference(arrays, case), arrays, case) is None


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1, 31, 32, 33, *(size for size in (1023, 1024, 1025) if ON_GPU)])
def test_gpu_all_variants_agree(size: int, dtype: str) -> None:
    import cupy as cp

    for kind in KINDS:
        shapes = ((size, size, size), (size, 37, 65), (70, size, 4))
        # The emulator is slow: one kind runs every shape (in float64 only squares around one tile), the
        # others run only the largest square.
        fewer = shapes[: size == 33] if kind != "random" else shapes[:1] if dtype == "float64" and size > 1 else shapes
        for sizes in shapes if ON_GPU else fewer:
            arrays = matrices(kind, sizes, dtype)
            got = gpu_products(cp, arrays)
            gpu_check(got, arrays)
            if kind == "integers":
                np.testing.assert_array_equal(got, matmul_reference(*arrays))
            gpu_check(cp.asnumpy(VARIANTS["production"].run(*map(cp.asarray, arrays))), arrays)
            if ON_GPU and kind in ("random", "constant", "integers"):
                gpu_check(cp.asnumpy(VARIANTS["cublas"].run(*map(cp.asarray, arrays))), arrays)


@pytest.mark.gpu
@pytest.mark.hardware
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", [(4099, 4093, 4099), (4096, 4096, 4096)])
def test_gpu_large_products(sizes: tuple[int, int, int], dtype: str) -> None:
    import cupy as cp

    arrays = matrices("random", sizes, dtype)
    a, b = (cp.asarray(array) for array in arrays)
    first = matmul(a, b)
    for name in OWN:
        if name != "whole_rows":
            assert bool((gpu_bits(VARIANTS[name].run(a, b)) == gpu_bits(first)).all()), name
    gpu_check(cp.asnumpy(first), arrays)
    gpu_check(cp.asnumpy(VARIANTS["cublas"].run(a, b)), arrays)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
def test_gpu_blocks_of_the_sweep(dtype: str) -> None:
    import cupy as cp

    a, b = (cp.asarray(array) for array in matrices("random", (67, 11, 45), dtype))
    first = matmul(a, b)
    # In the emulator float64, which differs only in its dtype, runs only the longest and the widest blocks.
    for x, y in ((2**i, 2**j) for i in range(11) for j in range(11 - i) if ON_GPU or dtype == "float32" or i * j == 0):
        for name in ("blocks_2d", "uncoalesced", "unrolled", "whole_rows"):
            assert bool((gpu_bits(VARIANTS[name].run(a, b, x=x, y=y)) == gpu_bits(first)).all()), (name, x, y)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
def test_gpu_infinity_and_nan_stay_in_their_rows_and_columns(dtype: str) -> None:
    """Also in padded tiles: infinity times the padding would be NaN."""
    import cupy as cp

    for sizes in ((33, 33, 33), (32, 36, 40), (130, 7, 129)):
        a, b = clean = matrices("random", sizes, dtype)
        a, b = a.copy(), b.copy()
        a[3, 5], a[-1, -1], b[6, 2], b[0, -1] = np.inf, -np.inf, np.inf, np.nan
        expected = matmul_reference(a, b)
        finite = np.isfinite(expected)
        for name in OWN:
            got = cp.asnumpy(VARIANTS[name].run(cp.asarray(a), cp.asarray(b)))
            np.testing.assert_array_equal(got[~finite], expected[~finite])
            gpu_check(np.where(finite, got, matmul_reference(*clean)).astype(dtype), clean)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
def test_gpu_matrices_that_begin_anywhere(dtype: str) -> None:
    import cupy as cp

    a, b = (cp.asarray(array) for array in matrices("random", (64, 64, 64), dtype))
    shifted = cp.concatenate((cp.zeros(1, dtype), a.ravel()))[1:].reshape(a.shape)
    assert bool((gpu_bits(matmul(shifted, b)) == gpu_bits(matmul(a, b))).all())
    for sizes in ((0, 3, 4), (3, 0, 4), (3, 4, 0)):
        rows, inner, columns = sizes
        for name in OWN:
            empty = VARIANTS[name].run(cp.ones((rows, inner), dtype), cp.ones((inner, columns), dtype))
            assert empty.shape == (rows, columns) and not empty.any()


@pytest.mark.gpu
@pytest.mark.hardware
@pytest.mark.parametrize("case", [c for c in STUDY.cases if STUDY.variants[c.variant].broken], ids=lambda c: c.variant)
def test_gpu_broken_variants_are_caught(case: Any) -> None:
    """In one of several runs: a race does not show every time."""
    import cupy as cp

    arrays = STUDY.inputs(case, np.random.default_rng(0))
    expected, device_arrays = STUDY.reference(arrays, case), [cp.asarray(array) for array in arrays]
    products = (VARIANTS[case.variant].run(*device_arrays, **case.parameters) for _ in range(20))
    assert any(STUDY.disagreement(cp.asnumpy(got), expected, arrays, case) for got in products)


@pytest.mark.gpu
def test_gpu_refuses_what_does_not_fit() -> None:
    import cupy as cp

    a = cp.ones((2**20, 1))
    with pytest.raises(MemoryError, match=rf"matmul: needs {2**43} bytes of device memory, \d+ are free"):
        matmul(a, a.reshape(1, -1))
    with pytest.raises(ValueError, match=r"needs 1048576 bytes of shared memory, the device has \d+ per block"):
        VARIANTS["whole_rows"].run(cp.ones((2, 2048)), cp.ones((2048, 2)))
