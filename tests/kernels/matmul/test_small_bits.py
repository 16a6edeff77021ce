"""The kernels for small matrices and for short sums: the bits of the CPU for any numbers and shapes."""

from __future__ import annotations

from typing import Any

import pytest

from kernels.matmul.small import SmallProduct
from kernels.matmul.small_k import SmallKProduct
from tests.cases.matmul import FLOATS, KINDS, Sizes, factors
from tests.cases.matmul_small import by_lines, check, small_cases, small_k_cases, vanishing
from tests.cases.sizes import ON_GPU, first_of_each

SMALL = ((1, 1, 1), (16, 16, 16), (2, 3, 2), (17, 5, 1), (3, 40, 33), (64, 64, 64), (32, 16, 48), (63, 31, 50))
SHORT = ((5, 70, 3), (66, 256, 33), *[(64, 128, 16), (128, 256, 64), (200, 129, 300), (1, 65, 1)] * ON_GPU)


@pytest.mark.gpu
@pytest.mark.parametrize("case", first_of_each([*small_cases(), *small_k_cases()]), ids=str)
def test_case(cp: Any, case: Any) -> None:
    case.check(cp)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("how", "shapes"), [(SmallProduct, SMALL), (SmallKProduct, SHORT if ON_GPU else SHORT[:1])])
def test_bits_of_the_cpu(cp: Any, how: type[SmallProduct], shapes: tuple[Sizes, ...], dtype: str, kind: str) -> None:
    # In the emulator some kinds run every shape, the others only three, of one and of several tiles.
    every = ON_GPU or how is SmallKProduct or kind == "ordinary" or (kind, dtype) == ("special", "float32")
    for sizes in shapes if every else SMALL[2:5]:
        check(cp, *factors(kind, dtype, *sizes), how)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("how", "shapes"), [(SmallProduct, SMALL), (SmallKProduct, SHORT)])
def test_lines_of_any_magnitude(cp: Any, how: type[SmallProduct], shapes: tuple[Sizes, ...], dtype: str) -> None:
    for sizes in shapes:
        if not ON_GPU and sizes == SHORT[1] and dtype != "float32":
            continue  # in the emulator one dtype has several tiles of long sums
        check(cp, *by_lines(dtype, *sizes), how)
        if ON_GPU or sizes in (SMALL[2], SMALL[4], SMALL[7], SHORT[0]):
            check(cp, *vanishing(dtype, *sizes), how)
