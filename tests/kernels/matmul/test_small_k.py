"""The kernel for short sums: when its result is certain; test_small_bits.py compares bits."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kernels.common import device, nvrtc
from kernels.matmul.formats import multiplied
from kernels.matmul.gpu import exact_matmul, product_for
from kernels.matmul.memory import device_bytes
from kernels.matmul.residue import ResidueProduct
from kernels.matmul.small import SmallProduct
from kernels.matmul.small_k import SmallKProduct, suits
from tests.cases.matmul import FLOATS, factors, generator, on_cpu, same_bits


def found_by(cp: Any, a: Any, b: Any) -> SmallKProduct:
    """The product, after comparing its bits with the CPU's."""
    product = SmallKProduct(np.result_type(a, b))
    same_bits(multiplied(product, lambda: [(cp.asarray(a), cp.asarray(b))]).get(), on_cpu(a, b))
    return product


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", FLOATS)
def test_what_the_kernel_vouches_for(cp: Any, dtype: str) -> None:
    """Ordinary numbers, nearly cancelling sums, rows and columns of zeros; not infinities, NaN, or large losses."""
    a, b = factors("cancelling", dtype, 20, 128, 20)
    b[64:] = b[:64]  # only the last bits of A remain of each sum
    assert found_by(cp, a, b).replacement is None
    a, b = factors("ordinary", dtype, 20, 100, 20)
    a[3], b[:, 4], a[5, 7] = 0, -0.0, 0
    assert found_by(cp, a, b).replacement is None
    a[6, 7] = np.inf
    assert found_by(cp, a, b).replacement is not None
    a[6, 7], a[3, 5] = 0, np.nan
    assert found_by(cp, a, b).replacement is not None
    a, b = factors("huge", dtype, 20, 100, 20)
    product = found_by(cp, a, b)
    assert product.replacement is not None and product.uncertain == product.replacement.uncertain


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("batches", [((3,), (3,)), ((), (3,)), ((3, 1), (2,)), ((0,), (1,))])
def test_stacks_broadcast(cp: Any, dtype: str, batches: Any) -> None:
    random = generator("stacks", batches)
    a, b = (
        random.standard_normal((*batch, *shape)).astype(dtype)
        for batch, shape in zip(batches, ((5, 70), (70, 18)), strict=True)
    )
    if 0 not in batches[0]:
        found_by(cp, a, b)
        return
    product = SmallKProduct(a.dtype)
    product.add(cp.asarray(a), cp.asarray(b))
    assert product.finish().shape == (0, 5, 18) and not product.needs_recompute()


@pytest.mark.gpu
def test_matrices_that_begin_anywhere(cp: Any) -> None:
    """Unaligned to 16 bytes."""
    a, b = (generator(name).standard_normal((2, 128, 128))[:, :64].astype("float32") for name in "ab")
    b = np.ascontiguousarray(np.swapaxes(b, 1, 2))
    shifted = cp.concatenate((cp.zeros(1, np.float32), cp.asarray(a.ravel())))[1:].reshape(a.shape)
    product = SmallKProduct(a.dtype)
    product.add(shifted, cp.asarray(b))
    same_bits(product.finish().get(), on_cpu(a, b))


@pytest.mark.gpu
@pytest.mark.parametrize("multiprocessors", [1, 2, 40])
def test_columns_by_several_blocks(cp: Any, monkeypatch: pytest.MonkeyPatch, multiprocessors: int) -> None:
    limits = replace(device.limits(), multiprocessors=multiprocessors)
    monkeypatch.setattr(device, "limits", lambda: limits)
    found_by(cp, *factors("ordinary", "float64", 3, 64, 150))


@pytest.mark.gpu
def test_what_goes_there(cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """On Hopper sums of 64 to 256 products, for matrices that are not small and whose tiles are at least half full."""
    for hopper in (True, False):
        limits = replace(device.limits(), hopper=hopper)
        monkeypatch.setattr(device, "limits", lambda limits=limits: limits)
        for dtype, sizes, way in (
            ("float64", (70, 64, 112), SmallKProduct), ("float32", (64, 256, 16), SmallKProduct),
            ("float64", (64, 64, 64), SmallProduct), ("float64", (300, 257, 300), ResidueProduct),
            ("float64", (300, 63, 300), ResidueProduct), ("float32", (20, 100, 20), ResidueProduct),
            ("int32", (64, 100, 64), ResidueProduct),
        ):  # fmt: skip
            a, b = (cp.asarray(np.zeros(shape, dtype)) for shape in (sizes[:2], sizes[1:]))
            own = np.dtype("int64" if dtype == "int32" else dtype)
            expected = way if hopper or way is not SmallKProduct else ResidueProduct
            assert type(product_for((a.dtype, b.dtype), own, sizes[1], a, b)) is expected, (dtype, sizes)
    assert not suits(np.dtype("float64"), 200, cp.asarray(np.zeros((99, 100))), cp.asarray(np.zeros((100, 99))))


@pytest.mark.gpu
def test_what_is_refused(cp: Any) -> None:
    a, b = cp.asarray(np.ones((4, 70))), cp.asarray(np.ones((70, 5)))
    for wrong, message in (
        ((a, b[:5]), r"expected small-K matrices to multiply, got shapes \(4, 70\) and \(5, 5\)"),
        ((a[:, ::2], b[:35]), "C-contiguous"),
        ((cp.asarray(np.ones((4, 257))), cp.asarray(np.ones((257, 5)))), r"got shapes \(4, 257\) and \(257, 5\)"),
    ):
        with pytest.raises(ValueError, match=message):
            SmallKProduct(np.dtype("float64")).add(*wrong)


def test_memory_includes_both_results() -> None:
    """The kernel's, and the one that may replace it."""
    dtype = np.dtype("float64")
    both = (device_bytes((dtype, dtype), dtype, (1, 100, inner, 100), inner, (dtype, dtype)) for inner in (256, 257))
    short, longer = both
    assert short > longer - 2 * 100 * (8 + 18) - 200 * 18 * 128 - 100 * 100


def test_source_says_what_it_holds() -> None:
    kernel = (nvrtc.KERNELS / "matmul/small_k.cu").read_text()
    listed = re.findall(r"^//   (\w+) ", kernel.partition("#include")[0], re.MULTILINE)
    assert listed == re.findall(r"\n(multiply\w+)\(", kernel) == ["multiply_small_k"]


@pytest.mark.gpu
@pytest.mark.hardware
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [128, 200, 256])
def test_many_matrices(cp: Any, dtype: str, size: int) -> None:
    """Enough to occupy all multiprocessors, compared with residues."""
    a, b = (cp.random.RandomState(seed).standard_normal((30_000 // size, size, size)).astype(dtype) for seed in (1, 2))
    a[::7, 5] = 0
    product = ResidueProduct((a.dtype, b.dtype), a.dtype, size)
    expected = multiplied(product, lambda: [(a, b)])
    same_bits(exact_matmul(a, b).get(), expected.get())
