"""The kernels of the exact product: the bits of the CPU from any dtype, shape, part and tile."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import workflows.matmul
from kernels.common import device
from kernels.matmul import planes, residue
from kernels.matmul.formats import multiplied
from kernels.matmul.gpu import exact_matmul
from kernels.matmul.planes import HOPPER, LARGE, SMALL, Warpgroups, Warps
from kernels.matmul.residue import ResidueProduct
from tests.benchmarks import matmul_kernel
from tests.cases.matmul import (
    EVERY_KIND,
    FLOATS,
    factors,
    generator,
    in_residues,
    on_cpu,
    residue_cases,
    same_bits,
    strange,
)
from tests.cases.matmul_rare import rare_cases
from tests.cases.sizes import ON_GPU, first_of_each
from workflows.matmul import MATMUL, MatmulOptions
from workflows.regions import Bounds, Spec


@pytest.mark.gpu
@pytest.mark.parametrize("case", first_of_each([*residue_cases(), *rare_cases()]), ids=str)
def test_case(cp: Any, case: Any) -> None:
    case.check(cp)


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "kind"), EVERY_KIND)
def test_bits_of_the_cpu(cp: Any, dtype: str, kind: str) -> None:
    # In the emulator one element takes as long as a tile, so only two kinds run it.
    one = ((1, 1, 1),) * (ON_GPU or kind in ("mixed", "special"))
    for sizes in (*one, (6, 33, 5), *[(129, 1000, 257), (1000, 77, 65), (130, 4100, 300)] * ON_GPU):
        a, b = factors(kind, dtype, *sizes)
        try:
            expected = on_cpu(a, b)
        except OverflowError:  # long sums of large integers
            with pytest.raises(OverflowError, match="got a sum outside of int64"):
                exact_matmul(cp.asarray(a), cp.asarray(b))
            continue
        same_bits(in_residues(cp.asarray(a), cp.asarray(b)).get(), expected)


@pytest.mark.gpu
@pytest.mark.parametrize("inner", [64, 128])
@pytest.mark.parametrize("dtype", ["float64", "int32"])
def test_any_parts(cp: Any, monkeypatch: pytest.MonkeyPatch, dtype: str, inner: int) -> None:
    """Parts of any size, each multiplied in several steps."""
    monkeypatch.setattr(residue, "INNER", inner)
    a, b = factors("special" if dtype == "float64" else "mixed", dtype, 9, 300, 20)
    expected = on_cpu(a, b)
    for cuts in ((0, 300), (0, 1, 1, 200, 300)):
        parts = [(cp.asarray(a[:, i:j].copy()), cp.asarray(b[i:j].copy())) for i, j in pairwise(cuts)]
        product = ResidueProduct((a.dtype, b.dtype), expected.dtype, 300)
        same_bits(multiplied(product, lambda parts=parts: parts).get(), expected)


@pytest.mark.gpu
@pytest.mark.parametrize("shared", [232448, 101376, 65536])
@pytest.mark.parametrize("tile", [LARGE, SMALL])
def test_any_tile_and_any_number_of_stages(cp: Any, monkeypatch: pytest.MonkeyPatch, tile: Any, shared: int) -> None:
    limits = replace(device.limits(), shared_per_block=min(shared, device.limits().shared_per_block))
    monkeypatch.setattr(device, "limits", lambda: limits)
    stages = planes.stages_of(tile)
    assert stages == (2 if tile == LARGE and shared == 65536 else 4)
    multiplied_with(cp, monkeypatch, Warps(*tile, stages))


@pytest.mark.gpu
@pytest.mark.parametrize("stages", [2, 3, 4])
def test_any_stages_of_warpgroups(cp: Any, monkeypatch: pytest.MonkeyPatch, stages: int) -> None:
    if ON_GPU and not device.limits().hopper:
        pytest.skip("there are no such instructions")
    multiplied_with(cp, monkeypatch, replace(HOPPER, stages=stages) if ON_GPU else Warpgroups(64, stages))


def multiplied_with(cp: Any, monkeypatch: pytest.MonkeyPatch, tile: Any) -> None:
    monkeypatch.setattr(residue, "choose_tile", lambda *_: tile)
    # Sums of more than 256 products reuse all stages. In the emulator only int8 has them: floats take many matrices.
    floats = ("ordinary", "float64", (150, 600, 48)) if ON_GPU else ("ordinary", "float32", (9, 40, 5))
    for kind, dtype, sizes in (("mixed", "int8", (65, 64, 80)), ("mixed", "int8", (130, 330, 20)), floats):
        a, b = factors(kind, dtype, *sizes)
        same_bits(exact_matmul(cp.asarray(a), cp.asarray(b)).get(), on_cpu(a, b))


@pytest.mark.gpu
def test_more_matrices_than_a_grid_has_blocks_along_y(cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planes, "MAX_MATRICES", 2)
    random = generator("matrices")
    a, b = random.standard_normal((5, 1, 3, 4)), random.standard_normal((3, 4, 2))
    same_bits(in_residues(cp.asarray(a), cp.asarray(b)).get(), on_cpu(a, b))


@pytest.mark.gpu
def test_dtypes_that_mix(cp: Any) -> None:
    for one, other in (("int8", "uint64"), ("float32", "float64"), ("int32", "float32"), ("uint16", "int16")):
        a, b = factors("ordinary", one, 3, 5, 4)[0], factors("ordinary", other, 3, 5, 4)[1]
        same_bits(exact_matmul(cp.asarray(a), cp.asarray(b)).get(), on_cpu(a, b))


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "result"), [("int64", "int64"), ("uint32", "int64"), ("int32", "int32")])
def test_integers_that_do_not_fit(cp: Any, dtype: str, result: str) -> None:
    largest = np.iinfo(dtype).max
    a, b = np.full((3, 4), largest, dtype), np.zeros((4, 2), dtype)
    b[:, 1] = largest
    kind = np.dtype(dtype)
    product = ResidueProduct((kind, kind), np.dtype(result), 4)
    product.measure(cp.asarray(a), cp.asarray(b))
    product.add(cp.asarray(a), cp.asarray(b))
    with pytest.raises(OverflowError, match=rf"expected sums of products .* outside of {result}"):
        product.finish()


@pytest.mark.gpu
def test_nothing_to_add_up(cp: Any) -> None:
    for dtype in ("float32", "int16"):
        got = exact_matmul(cp.asarray(np.ones((2, 0), dtype)), cp.asarray(np.ones((0, 3), dtype))).get()
        same_bits(got, np.zeros((2, 3), "float32" if dtype == "float32" else "int64"))
        assert exact_matmul(cp.asarray(np.ones((0, 4), dtype)), cp.asarray(np.ones((4, 3), dtype))).shape == (0, 3)


@pytest.mark.gpu
def test_what_is_refused(cp: Any) -> None:
    a, b = cp.asarray(np.ones((4, 6))), cp.asarray(np.ones((6, 5)))
    for wrong, error, message in (
        ((a, b[:5]), ValueError, r"as columns in the first, got shapes \(4, 6\) and \(5, 5\)"),
        ((a[:, ::2], b[:3]), ValueError, "C-contiguous memory"),
        ((a, b[0]), ValueError, r"expected 2 dimension\(s\)"),
        ((cp.asarray(np.ones((2, 2), complex)), b), TypeError, "got complex128"),
    ):
        with pytest.raises(error, match=message):
            exact_matmul(*wrong)
    with pytest.raises(MemoryError, match=r"matmul: needs \d+ bytes of device memory, \d+ are free"):
        column = cp.asarray(np.ones((2**19, 1)))
        exact_matmul(column, column.reshape(1, -1))


@pytest.mark.gpu
@pytest.mark.hardware
@pytest.mark.parametrize("dtype", ["float64", "float32", "int32"])
@pytest.mark.parametrize("sizes", [(2048, 2048, 2048), (1031, 4133, 2057), (300, 20_000, 500)])
def test_large_products(cp: Any, sizes: tuple[int, int, int], dtype: str) -> None:
    pairs = [factors("ordinary", dtype, *sizes), strange(dtype, *sizes)] if dtype in FLOATS else []
    for a, b in pairs or [factors("mixed", dtype, *sizes)]:
        if dtype == "int32":
            b >>= 20
        same_bits(exact_matmul(cp.asarray(a), cp.asarray(b)).get(), on_cpu(a, b))


@pytest.mark.gpu
@pytest.mark.parametrize("slab", [8192, 40])
@pytest.mark.parametrize("dtype", ["float32", "uint16"])
def test_regions_of_the_job(cp: Any, monkeypatch: pytest.MonkeyPatch, dtype: str, slab: int) -> None:
    """The job's result for a region, from blocks on the device."""
    monkeypatch.setattr(workflows.matmul, "SLAB", slab)
    a, b = factors("special", dtype, 30, 70, 20)
    a, specs = np.stack((a, a[::-1])), [Spec((2, 30, 70), np.dtype(dtype)), Spec((70, 20), np.dtype(dtype))]

    def read(number: int, bounds: Bounds) -> Any:
        return cp.asarray(np.ascontiguousarray((a, b)[number][tuple(slice(*ends) for ends in bounds)]))

    for region in (((0, 2), (0, 30), (0, 20)), ((1, 2), (3, 19), (7, 20))):
        got = MATMUL.compute(read, region, specs, MatmulOptions())
        same_bits(got.elements.get(), on_cpu(a, b)[tuple(slice(*ends) for ends in region)])


@pytest.mark.gpu
@pytest.mark.hardware
def test_benchmark_runs(cp: Any) -> None:
    figures = matmul_kernel.measure(1, (256,))
    assert all(case["verified"] for case in figures["cases"] + figures["hard cases"]) and figures["TOP/s by tile"]
    assert any(case["share of elements term by term"] > 0 for case in figures["hard cases"])
