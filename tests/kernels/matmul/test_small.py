"""The kernel for small matrices: accepted sizes, and the assumptions of its shortcuts; more in test_small_bits.py."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.common import nvrtc
from kernels.matmul.formats import BITS, FORMATS, Format
from kernels.matmul.gpu import exact_matmul
from kernels.matmul.memory import MOST_SMALL, device_bytes, is_small
from kernels.matmul.small import SmallProduct
from tests.benchmarks import matmul_small
from tests.cases.matmul import FLOATS, factors, generator, on_cpu, same_bits
from tests.cases.matmul_small import EXPONENTS, by_small, check
from tests.cases.sizes import ON_GPU
from workflows.matmul import COPIES, MATMUL, TERM_BY_TERM, MatmulOptions
from workflows.regions import Bounds, Spec

KERNEL = (nvrtc.KERNELS / "matmul/small.cu").read_text()
DIGITS = (nvrtc.KERNELS / "matmul/digits.cuh").read_text()


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", FLOATS)
def test_sparse_matrices(cp: Any, dtype: str) -> None:
    """Zeros everywhere, in whole lines, and in most places; identity and triangular matrices."""
    random = generator("sparse", dtype)
    for size in (16, 20):
        ones, values = np.eye(size, dtype=dtype), random.standard_normal((size, size)).astype(dtype)
        some = values * (random.random((size, size)) < 0.1)
        some[3] = -0.0
        for a, b in ((ones, values), (np.triu(values), np.tril(values)), (some, some.T.copy()), (0 * ones, -values)):
            check(cp, a, b)


@pytest.mark.gpu
@settings(max_examples=40 if not ON_GPU else 400, deadline=None)
@given(data=st.data(), dtype=st.sampled_from(FLOATS), inner=st.integers(1, 5), columns=st.integers(1, 3))
def test_any_numbers(data: st.DataObject, dtype: str, inner: int, columns: int) -> None:
    import cupy

    numbers = st.floats(width=np.dtype(dtype).itemsize * 8)  # type: ignore[call-overload]
    a, b = (np.array(data.draw(st.lists(numbers, min_size=inner * n, max_size=inner * n)), dtype) for n in (2, columns))
    with np.errstate(all="ignore"):
        check(cupy, a.reshape(2, inner), b.reshape(inner, columns))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("batches", [((7,), (7,)), ((), (6,)), ((3, 1), (2,)), ((2, 1, 3), (4, 1)), ((0,), (1,))])
def test_stacks_broadcast(cp: Any, dtype: str, batches: Any) -> None:
    random = generator("stacks", batches)
    for sizes in ((16, 16, 16), (32, 16, 4)):
        a, b = (
            random.standard_normal((*batch, *shape)).astype(dtype)
            for batch, shape in zip(batches, (sizes[:2], sizes[1:]), strict=True)
        )
        if 0 in batches[0]:
            assert by_small(cp, a, b)[0].shape == (0, sizes[0], sizes[2])
        else:
            check(cp, a, b)


@pytest.mark.gpu
def test_matrices_that_begin_anywhere(cp: Any) -> None:
    """Unaligned to 16 bytes; more matrices than a block has."""
    a, b = (generator(name).standard_normal((9, 16, 16)).astype("float32") for name in "ab")
    shifted = cp.concatenate((cp.zeros(1, np.float32), cp.asarray(a.ravel())))[1:].reshape(a.shape)
    product = SmallProduct(a.dtype)
    product.add(shifted, cp.asarray(b))
    same_bits(product.finish().get(), on_cpu(a, b))


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "size"), [("float32", 16), ("float32", 40), ("float64", 32), ("float64", 64)])
def test_ordinary_elements_are_not_looked_at_one_by_one(
    cp: Any, monkeypatch: pytest.MonkeyPatch, dtype: str, size: int
) -> None:
    """Otherwise all elements would be counted as uncertain."""
    monkeypatch.setattr(Format, "share", lambda *_: -1.0)
    a, b = (generator(name, size).standard_normal((3, size, size)).astype(dtype) for name in "ab")
    assert by_small(cp, a, b)[1] == 0
    a[0, 0], b[0, :, 0] = 2.0**-60, 0  # magnitudes that are not moderate, and an element that is zero
    a[0, 0, 0] = 1.1 * 2.0**40
    assert by_small(cp, a, b)[1] > 0


@pytest.mark.gpu
def test_small_matrices_go_there_and_others_do_not(cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = []
    monkeypatch.setattr(SmallProduct, "add", lambda self, a, b: gone.append(a.shape) or _add(self, a, b))
    for dtype, sizes, there in (
        ("float32", (64, 64, 64), True), ("float64", (1, 64, 3), True), ("float64", (65, 2, 2), False),
        ("float32", (2, 65, 2), False), ("int32", (4, 4, 4), False), ("float64", (2, 0, 2), False),
    ):  # fmt: skip
        a, b = factors("ordinary", dtype, *sizes)
        same_bits(exact_matmul(cp.asarray(a), cp.asarray(b)).get(), on_cpu(a, b))
        assert gone == [(sizes[:2])] * there
        gone.clear()
    a, b = factors("ordinary", "float32", 5, 6, 7)
    same_bits(exact_matmul(cp.asarray(a), cp.asarray(b.astype("float64"))).get(), on_cpu(a, b.astype("float64")))


_add = SmallProduct.add


@pytest.mark.gpu
def test_what_is_refused(cp: Any) -> None:
    a, b = cp.asarray(np.ones((4, 6))), cp.asarray(np.ones((6, 5)))
    for wrong, message in (
        ((a, b[:5]), r"to multiply, got shapes \(4, 6\) and \(5, 5\)"), ((a[:, ::2], b[:3]), "C-contiguous"),
        ((cp.asarray(np.ones((65, 6))), b), r"expected small matrices .* got shapes \(65, 6\)"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            SmallProduct(np.dtype("float64")).add(*wrong)


@pytest.mark.gpu
def test_regions_of_the_job(cp: Any) -> None:
    a, b = factors("huge", "float64", 20, 16, 18)
    a, specs = np.stack((a, a[::-1])), [Spec((2, 20, 16), np.dtype("float64")), Spec((16, 18), np.dtype("float64"))]

    def read(number: int, bounds: Bounds) -> Any:
        return cp.asarray(np.ascontiguousarray((a, b)[number][tuple(slice(*ends) for ends in bounds)]))

    region = ((0, 2), (0, 20), (0, 18))
    got = MATMUL.compute(read, region, specs, MatmulOptions())
    same_bits(got.elements.get(), on_cpu(a, b))
    assert got.counts[TERM_BY_TERM] > 0
    assert "in digits of 8 bits" in MATMUL.notes(specs, MatmulOptions())["arithmetic"]


def test_tasks_are_as_large_as_their_arrays_allow() -> None:
    """No workspace: only the factors, the product, and the indices of the matrices that are multiplied."""
    dtype = np.dtype("float32")
    assert device_bytes((dtype, dtype), dtype, (10, 16, 16, 16), 16, (dtype, dtype)) == 10 * (3 * 1024 + 8)
    specs = [Spec((1000, 16, 16), dtype)] * 2
    elements = 100 * 256
    regions = list(MATMUL.regions(specs, specs[0], MatmulOptions(), elements))
    assert len(regions) == 10 and COPIES >= 1
    assert is_small(dtype, MOST_SMALL, 1, 1) and not is_small(np.dtype("int32"), 4, 4, 4)


def test_source_says_what_it_holds() -> None:
    listed = re.findall(r"^//   (\w+) ", KERNEL.partition("#include")[0], re.MULTILINE)
    assert listed == re.findall(r"__global__ void __launch_bounds__\([^\n]*\)\n(\w+)\(", KERNEL) == ["multiply_small"]


@pytest.mark.parametrize("dtype", FLOATS)
def test_scaled_numbers_fit_their_digits(dtype: str) -> None:
    """The largest magnitude of a line keeps all of its bits, so that no other number is rounded up beyond it."""
    format = FORMATS[dtype]
    count = (format.kept + 8) // 8
    assert format.precision <= format.kept and 2 ** (8 * count - 1) > 2**format.kept - 1
    assert format.kept - BITS == 8 * (count - 1)  # magnitudes are the last digits


def test_moderate_exponents_need_no_care() -> None:
    """The bounds of Scaling in matmul/digits.cuh: no step of the last rounding overflows before it or is subnormal."""
    (least_32, most_32), (least_64, most_64) = (
        (int(a), int(b)) for a, b in re.findall(r"LEAST = (-?\d+), MOST = (\d+);", DIGITS)
    )
    assert set(EXPONENTS["float32"]) >= {least_32, most_32} and set(EXPONENTS["float64"]) >= {least_64, most_64}
    # A head of 2^32 to 2^62 times 2^(e - 28) times 2^(f - 28).
    assert 62 + most_32 - 28 < 128 and least_32 - 28 >= -126 and most_32 - 28 <= 127
    assert 32 + least_32 - 28 >= -126 and 32 + 2 * (least_32 - 28) >= -126
    # A head of 2^62 to 2^63 times 2^(e + f - 46 - shift), which is 10 at least where products are below 2^117.
    assert 2 * least_64 - 46 - 62 >= -1022 and 2 * most_64 - 46 - 10 <= 1023


@pytest.mark.gpu
@pytest.mark.hardware
def test_benchmark_runs(cp: Any) -> None:
    figures = matmul_small.measure(1, ((500, 16), (300, 32), (200, 64)))
    assert all(case["verified"] for case in figures["cases"] + figures["other cases"])


@pytest.mark.gpu
@pytest.mark.hardware
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_many_matrices(cp: Any, dtype: str) -> None:
    """Enough to occupy all multiprocessors; ordinary numbers and a few special ones."""
    random = generator("many", dtype)
    for size in (16, 32, 64):
        a, b = (random.standard_normal((40_000 // size, size, size)).astype(dtype) for _ in range(2))
        a[::7, 1, 2] *= 2.0**60
        b[::11, 3, 4] = np.inf
        a[::13, 5] = 0
        check(cp, a, b)
