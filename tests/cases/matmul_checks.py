"""What the tests of the check of products share."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.matmul import check_floats
from kernels.matmul.formats import FORMATS
from tests.cases.matmul import FLOATS, Array, factors


def use_sums(monkeypatch: pytest.MonkeyPatch, group: int) -> None:
    """Check products of any size by sums of groups of so many columns."""
    monkeypatch.setattr(check_floats, "GROUP", dict.fromkeys(FLOATS, group))
    monkeypatch.setattr(check_floats, "PRODUCTS", 0)
    monkeypatch.setattr(check_floats, "SINGLY", 0)


def finite_factors(kind: str, dtype: str, *sizes: int) -> tuple[Array, Array]:
    """Factors without overflows in their product."""
    a, b = factors(kind, dtype, *sizes)
    if kind in ("mixed", "blocks"):
        a, b = (np.ldexp(factor, -FORMATS[dtype].top // 2 - 4) for factor in (a, b))
    return a, b
