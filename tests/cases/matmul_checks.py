"""What the tests of the check of products share."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.common import cxx
from kernels.matmul import check_each, check_floats, check_groups
from kernels.matmul.check_floats import FloatCheck
from kernels.matmul.formats import FORMATS
from tests.cases.matmul import FLOATS, Array, factors

WAYS = ("sums", "element by element", "compiled sums", "compiled, element by element")


def use(monkeypatch: pytest.MonkeyPatch, way: str, group: int = 4) -> None:
    """Check products of any size in one of `WAYS`; sums have groups of about so many columns.

    Products of float16 are never checked by sums that are not compiled.
    """
    compiled = way.startswith("compiled")
    if compiled and cxx.compiler() is None:
        pytest.skip("no C++ compiler")
    monkeypatch.setattr(FloatCheck, "_worth_it", lambda check, *sizes: _sums(check, way))
    monkeypatch.setattr(check_floats, "HEIGHT", 0)  # few rows, too
    monkeypatch.setattr(check_floats, "COMPILED", 0 if compiled else 2**60)
    monkeypatch.setattr(check_each, "COMPILED", 2**60)
    monkeypatch.setattr(check_groups, "GROUPS", dict.fromkeys(FLOATS, (group, 64)))


def _sums(check: FloatCheck, way: str) -> bool:
    return way.endswith("sums") and (way.startswith("compiled") or check.format.dtype != "float16")


def finite_factors(kind: str, dtype: str, *sizes: int) -> tuple[Array, Array]:
    """Factors without overflows in their product."""
    a, b = factors(kind, dtype, *sizes)
    if kind in ("mixed", "blocks"):
        a, b = (np.ldexp(factor, -FORMATS[dtype].top // 2 - 4) for factor in (a, b))
    return a, b
