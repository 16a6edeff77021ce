"""Differences of arrays: against plain Python over hostile pairs; ulp by counting steps."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import kernels.common.difference
from kernels.common.difference import Difference, difference

FLOATS = ("float16", "float32", "float64")
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


def hostile(dtype: str) -> NDArray[Any]:
    kind = np.dtype(dtype)
    if kind.kind != "f":
        info = np.iinfo(kind)
        return np.array([info.min, info.min + 1, 0, 1, info.max // 2, info.max - 1, info.max], kind)
    info = np.finfo(kind)
    numbers = np.array([0.0, -0.0, 1, -1, info.max, info.min, info.tiny, -info.tiny, info.smallest_subnormal,
                        -info.smallest_subnormal, np.inf, -np.inf, np.nan, -np.nan], kind)  # fmt: skip
    other = np.array([np.nan], kind)
    other.view(f"u{kind.itemsize}")[0] |= 1  # another payload
    signalling = np.array([np.inf], kind)
    signalling.view(f"u{kind.itemsize}")[0] += 1
    return np.concatenate([numbers, other, signalling])


def place(value: Any) -> int | None:
    """Which number of its dtype it is, counted from 0; None for NaN. From sign, exponent and fraction."""
    if value.dtype.kind != "f":
        return int(value)
    if math.isnan(value) or not value:
        return None if value else 0
    digits, least = np.finfo(value.dtype).nmant, int(np.finfo(value.dtype).minexp)
    if math.isinf(value):
        steps = (int(np.finfo(value.dtype).maxexp) - least + 1) << digits
    else:
        fraction, exponent = math.frexp(abs(float(value)))
        shift = max(exponent - 1, least)
        in_units = int(math.ldexp(fraction, exponent - shift + digits))  # exact
        steps = in_units + ((shift - least) << digits)
    return -steps if math.copysign(1.0, float(value)) < 0 else steps


def plainly(a: NDArray[Any], b: NDArray[Any], as_values: bool) -> Difference:
    """Pair by pair."""
    first, differing, distances, nan = None, 0, [], 0
    for index, (x, y) in enumerate(zip(a, b, strict=True)):
        equal = x.tobytes() == y.tobytes()
        if as_values:
            equal = bool(x == y) or (x != x and y != y)
        if equal:
            continue
        first, differing = index if first is None else first, differing + 1
        steps = place(x), place(y)
        if steps[0] is None or steps[1] is None:
            nan += 1
        else:
            distances.append(abs(steps[0] - steps[1]))
    return Difference(differing, first, max(distances, default=None), nan)


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("as_values", [False, True])
@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
def test_hostile_pairs(dtype: str, as_values: bool) -> None:
    pairs = np.array(list(product(range(len(hostile(dtype))), repeat=2)))
    a, b = (hostile(dtype)[pairs[:, side]] for side in (0, 1))
    swapped = b.astype(b.dtype.newbyteorder())
    assert difference(a, b, as_values) == difference(a, swapped, as_values) == plainly(a, b, as_values)
    for x, y in zip(a, b, strict=True):  # each pair by itself
        alone = np.array([x]), np.array([y])
        alone[0].view(np.uint8)[:], alone[1].view(np.uint8)[:] = (
            np.frombuffer(one.tobytes(), np.uint8) for one in (x, y)
        )
        assert difference(*alone, as_values) == plainly(*alone, as_values)


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_step_is_an_ulp(dtype: str) -> None:
    random = np.random.default_rng(1)
    starts = np.concatenate([random.normal(0, 1, 50).astype(dtype), hostile(dtype)[:10]])  # finite
    for start in starts:
        value = start
        for steps in range(1, 8 if start < np.finfo(dtype).max else 2):
            with np.errstate(all="ignore"):
                value = np.nextafter(value, np.array(np.inf, dtype))
            assert difference(np.array([start]), np.array([value]), False).ulp == steps


def test_integers_are_exact() -> None:
    a, b = np.array([-(2**63), 2**53 + 1]), np.array([2**63 - 1, 2**53])
    assert difference(a, b, False) == Difference(2, 0, 2**64 - 1, 0)
    assert difference(a[1:], b[1:], True) == Difference(1, 0, 1, 0)
    assert difference(np.array([0], "u8"), np.array([2**64 - 1], "u8"), False).ulp == 2**64 - 1


def test_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels.common.difference, "STEP", 7)
    random = np.random.default_rng(2)
    for number in range(50):
        a = random.integers(0, 9, int(random.integers(0, 100))).astype("float32")
        b = a.copy()
        b[random.integers(0, max(len(a), 1), number % 4) % max(len(a), 1)] += 1 if len(a) else 0
        assert difference(a, b, bool(number % 2)) == plainly(a, b, bool(number % 2))
    assert difference(a[:0], a[:0], False) == Difference(0, None, None, 0)
