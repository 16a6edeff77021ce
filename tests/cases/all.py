"""Small ragged inputs for every variant of every kernel: what is run under many schedules, sanitizers and mutants."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from kernels.common import nvrtc
from kernels.map.gpu import OPERATIONS
from kernels.map.reference import elementwise_reference
from kernels.study import map as map_study
from kernels.study import matmul, reduce, roofline, stencil
from kernels.study import transpose as transpose_study
from kernels.study.variant import Variant
from kernels.transpose import gpu as transpose
from kernels.transpose.axes import Matrices
from kernels.transpose.unaligned import transpose_unaligned
from tests.cases.case import RANDOM, Case, integers, same
from tests.cases.histogram_small import histogram_cases, ladder_cases
from tests.cases.matmul import modular_cases
from tests.cases.matmul_small import short_cases, small_cases
from tests.cases.reduce_small import exact_cases
from tests.cases.stencil_small import window_cases


def _reduction(variant: Variant, op: str, dtype: str, size: int, start: int, own: dict[str, int], cp: Any) -> None:
    # The largest is near the end, where a reduction that stops early does not see it.
    samples = integers(size + start, dtype, size)
    samples[-2 if size > 1 else -1] = 1000
    if variant.broken and dtype == "float32":
        samples[start] = 2**25  # from here on a float has no place for odd numbers
    if size == 300 and not variant.broken:
        samples[size // 2] = -np.nan
    partials = variant.run(cp.asarray(samples)[start:], op=op, **own).get()
    right = (reduce.sum_reference if op == "sum" else reduce.max_reference)(samples[start:])
    np.testing.assert_equal(reduce.finish(partials, op, dtype), right)


def reduction_cases() -> Iterator[Case]:
    """Sums and maxima over several blocks, from the first sample and from the second."""
    for name, variant in reduce.VARIANTS.items():
        for op, dtype, size, start in (
            ("sum", "int32", 1000, 1), ("max", "float64", 777, 0), ("sum", "float32", 401, 0), ("max", "int32", 250, 0),
            ("max", "float32", 300, 0), ("max", "float32", 303, 0),
            ("sum", "int32", 9001, 1), ("sum", "int32", 2, 1),
        ):  # fmt: skip
            if (op == "sum" and name == "atomic_max") or (name == "float_drift" and (op, dtype) != ("sum", "float32")):
                continue
            if name != "production" and not 2 < size <= 1000:
                continue
            own = {"block": 96 if name in ("any_size", "modulo") else 128} if "block" in variant.parameters else {}
            what = f"{op} of {dtype}, {size} from {start}, {own}"
            check = partial(_reduction, variant, op, dtype, size, start, own)
            yield Case("study/reduce", name, what, check, variant.broken is not None)


def _stencil(variant: Variant, dtype: str, size: int, own: dict[str, int], cp: Any) -> None:
    x = integers(size, dtype)
    same(variant.run(cp.asarray(x), **own), stencil.stencil_reference(x, own["radius"]))


def stencil_cases() -> Iterator[Case]:
    """Windows narrower and wider than a block."""
    for name, variant in stencil.VARIANTS.items():
        if name == "production":  # the kernels of the job: see stencil_small.py
            continue
        for number, radius in enumerate((3, 70)):
            dtype = ("int32", "float32", "float64")[number % 3]
            own = {"radius": radius} | ({"block": 96} if "block" in variant.parameters else {})
            size = max(401, 2 * radius + 7)
            check = partial(_stencil, variant, dtype, size, own)
            yield Case("study/stencil", name, f"{dtype}, {size}, {own}", check, variant.broken is not None)


def _transpose(variant: Variant, dtype: str, shape: tuple[int, int], own: dict[str, int], cp: Any) -> None:
    matrix = np.frombuffer(RANDOM(2).bytes(shape[0] * shape[1] * np.dtype(dtype).itemsize), dtype).reshape(shape)
    found = variant.run(cp.asarray(matrix), **own)
    same(found.view(np.uint8), transpose.transpose_reference(matrix).view(np.uint8))


def transpose_cases() -> Iterator[Case]:
    """Ragged tiles; elements of every size, rows of whole packs and others."""
    for name, variant in transpose_study.VARIANTS.items():
        chosen: list[tuple[str, tuple[int, int], dict[str, int]]] = [("int32", (33, 35), {}), ("int16", (40, 31), {})]
        if name == "production":
            chosen = [("uint8", (144, 32), {}), ("uint8", (289, 67), {}), ("int16", (16, 130), {}),
                      ("int16", (145, 33), {}), ("float32", (72, 68), {}), ("float32", (83, 61), {}),
                      ("float64", (34, 5), {}), ("float64", (36, 34), {}), ("complex128", (6, 33), {}),
                      ("complex128", (37, 5), {})]  # fmt: skip
        elif variant.parameters:
            chosen.append(("float64", (9, 17), {"tile": 8}))
        for dtype, shape, own in chosen:
            check = partial(_transpose, variant, dtype, shape, own)
            stem, kernel = ("transpose/gpu", "tiled") if name == "production" else ("study/transpose", name)
            yield Case(stem, kernel, f"{dtype}, {shape}, {own}", check, variant.broken is not None)
    for dtype, shape, axes in (
        ("uint8", (2, 40, 33), (0, 2, 1)), ("float32", (17, 3, 68), (2, 1, 0)),
        ("float64", (16, 2, 3, 20), (3, 2, 1, 0)), ("float32", (32, 3, 64), (2, 1, 0)),
    ):  # fmt: skip
        check = partial(_permute, dtype, shape, axes)
        yield Case("transpose/gpu", "tiled", f"{dtype}, {shape} to {axes}", check)


def unaligned_cases() -> Iterator[Case]:
    """Tiles that end anywhere; columns of several matrices behind each other, and matrices that are not."""
    for dtype, shape, axes in (
        ("float32", (83, 61), (1, 0)), ("float32", (131, 9), (1, 0)), ("float32", (8, 259), (1, 0)),
        ("float64", (133, 70), (1, 0)), ("float64", (65, 67), (1, 0)), ("float32", (17, 3, 67), (2, 1, 0)),
        ("float64", (9, 40, 5), (2, 1, 0)), ("float32", (3, 21, 19), (0, 2, 1)),
        ("float64", (33, 2, 3, 9), (3, 2, 1, 0)),
    ):  # fmt: skip
        check = partial(_permute, dtype, shape, axes)
        yield Case("transpose/unaligned", "unaligned", f"{dtype}, {shape} to {axes}", check)
    yield Case("transpose/unaligned", "unaligned", "fewer rows than before a sector", _few_rows)


def _few_rows(cp: Any) -> None:
    array = np.arange(3 * 41, dtype=np.float32).reshape(3, 41)
    found = cp.empty((41, 3), np.float32)
    transpose_unaligned(cp.asarray(array), found, Matrices(3, 41, 41, 3))
    same(found, array.T)


def copy_rows_cases() -> Iterator[Case]:
    """Units of every size; runs shorter than a group of lanes, and of several pieces; up to three axes before them."""
    for dtype, shape, axes in (
        ("uint8", (3, 2, 263), (1, 0, 2)), ("int16", (2, 3, 2, 131), (2, 1, 0, 3)),
        ("float32", (3, 2, 2100), (1, 0, 2)), ("float64", (2, 3, 2, 2, 33), (2, 0, 3, 1, 4)),
        ("complex128", (5, 3, 3), (1, 0, 2)),
    ):  # fmt: skip
        check = partial(_permute, dtype, shape, axes)
        yield Case("transpose/strided_copy", "copy_rows", f"{dtype}, {shape} to {axes}", check)


def _permute(dtype: str, shape: tuple[int, ...], axes: tuple[int, ...], cp: Any) -> None:
    array = np.frombuffer(RANDOM(2).bytes(int(np.prod(shape)) * np.dtype(dtype).itemsize), dtype).reshape(shape)
    found = transpose.permute_axes(cp.asarray(array), axes)
    same(found.view(np.uint8), np.ascontiguousarray(array.transpose(axes)).view(np.uint8))


def _matmul(variant: Variant, dtype: str, sizes: tuple[int, int, int], own: dict[str, int], cp: Any) -> None:
    rows, inner, columns = sizes
    a, b = integers((rows, inner), dtype, 3, 9), integers((inner, columns), dtype, 4, 9)
    same(variant.run(cp.asarray(a), cp.asarray(b), **own), matmul.matmul_reference(a, b))


def matmul_cases() -> Iterator[Case]:
    """Ragged tiles on all three sides; rows of whole packs and others."""
    for name, variant in matmul.VARIANTS.items():
        if name == "cublas":
            continue
        tile = {"x": 16} if variant.parameters == {"x": 32} else {"x": 16, "y": 8}
        chosen = [tile if "y" in tile and "y" in variant.parameters else {"x": 16}]
        if name == "register_tiled":
            chosen = [{"micro": 4}, {"micro": 8}]
        for own in chosen:
            for dtype, sizes in (("float32", (37, 19, 21)), ("float64", (18, 36, 34)))[: 1 if variant.broken else 2]:
                check = partial(_matmul, variant, dtype, sizes, own)
                yield Case("study/matmul", name, f"{dtype}, {sizes}, {own}", check, variant.broken is not None)


def _elementwise(variant: Variant, dtype: str, shape: Any, start: int, own: dict[str, Any], cp: Any) -> None:
    operation = own.get("operation", "multiply" if variant.name == "product" else "add")
    count = OPERATIONS[operation][1]
    arrays = [integers(np.prod(shape) + start, dtype, seed) for seed in range(count)]
    on_device = [cp.asarray(array)[start:].reshape(shape) for array in arrays]
    expected = elementwise_reference(*(array[start:].reshape(shape) for array in arrays), operation=operation)
    same(variant.run(*on_device, **own), expected)


def _ragged_product(cp: Any) -> None:
    """More threads than elements, which its wrapper does not launch."""
    a, out = cp.asarray(integers(97, "int32")), cp.empty(97, np.int32)
    nvrtc.load(nvrtc.KERNELS / "study/map.cu", "product<int>")((1,), (128,), (a, a, out, np.int64(97)))
    same(out, a.get() ** 2)


def elementwise_cases() -> Iterator[Case]:
    """Operands that begin on 16 bytes and beside them; every operation of the job."""
    for name, variant in map_study.VARIANTS.items():
        own: dict[str, Any] = {"block": 96} if "block" in variant.parameters else {}
        chosen: list[tuple[str, Any, int, dict[str, Any]]] = [("int32", 401, 0, own), ("float64", 97, 1, own)]
        if name == "matrix_2d":
            chosen = [("float32", (17, 35), 0, {"block_x": 16, "block_y": 8}), ("int32", (1, 40), 0, {})]
        if name == "production":
            chosen = [(dtype, (4096 * 4 // np.dtype(dtype).itemsize + 77), start, {"operation": operation})
                      for (operation, dtype, start) in zip(OPERATIONS, ("int32", "float32", "float64") * 2,
                                                           (0, 1, 0, 1, 0, 0), strict=True)]  # fmt: skip
        if name == "product":
            yield Case("study/map", name, "128 threads for 97 elements", _ragged_product)
        for dtype, shape, start, chosen_own in chosen:
            check = partial(_elementwise, variant, dtype, shape, start, chosen_own)
            what = f"{dtype}, {shape} from {start}, {chosen_own}"
            stem, kernel = ("map/gpu", "elementwise") if name == "production" else ("study/map", name)
            yield Case(stem, kernel, what, check, variant.broken is not None)


def _read(name: str, size: int, start: int, cp: Any) -> None:
    on_device = cp.asarray(integers(size, "uint32"))[start:]
    getattr(roofline, name)(on_device)


def _keep(name: str, cp: Any) -> None:
    """The one number that a thread counts, where it sees nothing else: which is there for the compiler alone."""
    sink = cp.zeros(1, np.uint32)
    nvrtc.load(nvrtc.KERNELS / "study/roofline.cu", name)(
        (1,), (roofline.THREADS,), (cp.full(70, 0x9E3779B9, np.uint32), np.int64(70), sink)
    )
    same(sink, np.array([70]))


def _merge(sources: int, cp: Any) -> None:
    arrays = [integers(4100, "uint32", seed) for seed in range(sources)]
    target = cp.empty(4100, np.uint32)
    roofline.merge(target, *map(cp.asarray, arrays))
    same(target, np.bitwise_xor.reduce(arrays))


def limits_cases() -> Iterator[Case]:
    """Nothing is kept of what is only read, so that there is no result to check."""
    for sources in (1, 2, 3):
        yield Case("study/roofline", "merge", f"{sources} x 4100", partial(_merge, sources))
    for name in ("read_stream", "displace_cache"):
        for size, start in ((17_003, 0), (101, 1), (3, 1)):
            yield Case("study/roofline", name, f"uint32, {size} from {start}", partial(_read, name, size, start))
        yield Case("study/roofline", name, "kept", partial(_keep, name))


CASES = [
    case
    for cases in (histogram_cases, ladder_cases, reduction_cases, stencil_cases, transpose_cases, unaligned_cases,
                  copy_rows_cases, matmul_cases, elementwise_cases, limits_cases, exact_cases, modular_cases,
                  small_cases, short_cases, window_cases)
    for case in cases()
]  # fmt: skip
