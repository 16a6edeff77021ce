"""Small ragged inputs for the kernels of transpose and of its study: see all.py."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from kernels.study import transpose as study
from kernels.study.variant import Variant
from kernels.transpose import gpu as transpose
from kernels.transpose.axes import Matrices
from kernels.transpose.unaligned import transpose_unaligned
from tests.cases.case import RANDOM, Case, same


def _transpose(variant: Variant, dtype: str, shape: tuple[int, int], own: dict[str, int], cp: Any) -> None:
    matrix = np.frombuffer(RANDOM(2).bytes(shape[0] * shape[1] * np.dtype(dtype).itemsize), dtype).reshape(shape)
    got = variant.run(cp.asarray(matrix), **own)
    same(got.view(np.uint8), transpose.transpose_reference(matrix).view(np.uint8))


def transpose_cases() -> Iterator[Case]:
    """Ragged tiles; elements of every size, rows of whole packs and others."""
    for name, variant in study.VARIANTS.items():
        chosen: list[tuple[str, tuple[int, int], dict[str, int]]] = [
            ("int32", (33, 35), {}),
            ("int16", (40, 31), {}),
            ("int32", (64, 64), {}),
        ]
        if name == "past_the_end":
            chosen.pop()  # of whole tiles nothing is past the end
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
    """Ragged tiles; several matrices whose columns are adjacent in memory, and matrices with gaps."""
    for dtype, shape, axes in (
        ("float32", (83, 61), (1, 0)), ("float32", (131, 9), (1, 0)), ("float32", (8, 259), (1, 0)),
        ("float64", (133, 70), (1, 0)), ("float64", (65, 67), (1, 0)), ("float32", (17, 3, 67), (2, 1, 0)),
        ("float64", (9, 40, 5), (2, 1, 0)), ("float32", (3, 21, 19), (0, 2, 1)),
        ("float64", (33, 2, 3, 9), (3, 2, 1, 0)), ("float32", (3, 21, 128), (0, 2, 1)),
        ("float64", (3, 21, 128), (0, 2, 1)),
    ):  # fmt: skip
        check = partial(_permute, dtype, shape, axes)
        yield Case("transpose/unaligned", "unaligned", f"{dtype}, {shape} to {axes}", check)
    yield Case("transpose/unaligned", "unaligned", "fewer rows than before a sector", _few_rows)


def _few_rows(cp: Any) -> None:
    array = np.arange(3 * 41, dtype=np.float32).reshape(3, 41)
    got = cp.empty((41, 3), np.float32)
    transpose_unaligned(cp.asarray(array), got, Matrices(3, 41, 41, 3))
    same(got, array.T)


def copy_rows_cases() -> Iterator[Case]:
    """Units of every size; runs shorter than a group of lanes, and runs of several pieces; up to three outer axes."""
    for dtype, shape, axes in (
        ("uint8", (3, 2, 263), (1, 0, 2)), ("int16", (2, 3, 2, 131), (2, 1, 0, 3)),
        ("float32", (3, 2, 2100), (1, 0, 2)), ("float64", (2, 3, 2, 2, 33), (2, 0, 3, 1, 4)),
        ("complex128", (5, 3, 3), (1, 0, 2)),
    ):  # fmt: skip
        check = partial(_permute, dtype, shape, axes)
        yield Case("transpose/strided_copy", "copy_rows", f"{dtype}, {shape} to {axes}", check)


def _permute(dtype: str, shape: tuple[int, ...], axes: tuple[int, ...], cp: Any) -> None:
    array = np.frombuffer(RANDOM(2).bytes(int(np.prod(shape)) * np.dtype(dtype).itemsize), dtype).reshape(shape)
    got = transpose.permute_axes(cp.asarray(array), axes)
    same(got.view(np.uint8), np.ascontiguousarray(array.transpose(axes)).view(np.uint8))
