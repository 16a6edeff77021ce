"""Calibrated samples: on a CPU, on a device, by the compiled check and by the reference; the same bits."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from kernels.calibrate.apply import STEP, calibrate
from kernels.calibrate.calibration import LOGS, TRANSFORMS, Calibration
from kernels.calibrate.check import CalibratedSamples
from kernels.calibrate.logarithm import ERROR, _pairs, exactly, logarithm
from kernels.calibrate.reference import calibrate_reference
from tests.cases.conditions import DTYPES, hostile

MAPS = ((1.0, 0.0), (-2.5, 3.0), (1e-3, 1.0), (3.3, -1e-310), (1e300, -0.0))


def same(a: Any, b: Any) -> bool:
    """Equal bits, except that any NaN is as good as another."""
    nan = np.isnan(a)
    return bool((nan == np.isnan(b)).all() and (a.view(np.int64) == b.view(np.int64))[~nan].all())


def arguments(count: int) -> Any:
    """Positive finite numbers: near 1, of any size, powers of 2 and 10, subnormal ones."""
    random = np.random.default_rng(3)
    near = 1 + random.standard_normal(count) * 10.0 ** random.uniform(-16, 0, count)
    numbers = np.concatenate([near, random.random(count) * 10.0 ** random.uniform(-300, 300, count),
                              10.0 ** np.arange(-300, 301), 2.0 ** np.arange(-1074, 1024),
                              [5e-324, 1e-310, 1.7e308, np.nextafter(1, 0), np.nextafter(1, 2)]])  # fmt: skip
    return numbers[numbers > 0]


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_all_give_the_same_bits(transform: str, dtype: str, host: Any) -> None:
    samples = hostile(dtype, 400 if transform in LOGS else 4000, np.random.default_rng(DTYPES.index(dtype)))
    for gain, bias in MAPS:
        calibration = Calibration(gain, bias, transform)
        expected = calibrate_reference(samples, calibration)
        check = CalibratedSamples.of(calibration, samples.dtype)
        assert check is not None
        assert same(calibrate(samples, calibration), expected)
        assert same(check.of_samples(samples), expected)
        assert same(check.of_samples(samples.astype(samples.dtype.newbyteorder(">"))), expected)
        with np.errstate(all="ignore"):
            assert same(calibrate(host.asarray(samples), calibration).get(), expected)


def test_numpys_own_rounding() -> None:
    """Converted, multiplied, added and transformed, each rounded by itself."""
    samples = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, STEP + 5)
    got = calibrate(samples, Calibration(0.1, 0.7, "abs"))
    assert np.array_equal(got, np.abs(samples.astype(np.float64) * 0.1 + 0.7))
    fused = [float(Fraction(x) * Fraction(0.1) + Fraction(0.7)) for x in samples[:1000].astype(float).tolist()]
    assert (got[:1000] != np.abs(fused)).any()  # what one rounding less would give


@pytest.mark.parametrize("name", LOGS)
def test_logarithms_are_rounded_correctly(name: str) -> None:
    numbers = arguments(700)
    with np.errstate(all="ignore"):
        got = logarithm(numbers, name)
    assert got.tolist() == [exactly(number, name) for number in numbers.tolist()]


@pytest.mark.parametrize("name", LOGS)
def test_the_error_of_pairs_is_below_its_bound(name: str) -> None:
    """Four times, on what was tried; `decimal` is asked only where that could change the rounding."""
    numbers = arguments(700)
    with np.errstate(all="ignore"):
        high, low = _pairs(np, numbers, name)
    with localcontext(prec=60):
        for number, first, second in zip(numbers.tolist(), high.tolist(), low.tolist(), strict=True):
            exact = Decimal(number).ln() / {"log": 1, "log2": Decimal(2).ln(), "log10": Decimal(10).ln()}[name]
            assert abs(Decimal(first) + Decimal(second) - exact) <= abs(exact) * Decimal(ERROR / 4)


def test_where_rounding_is_unsure_decimal_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    numbers = np.random.default_rng(1).random(20_000) + 0.5
    monkeypatch.setattr("kernels.calibrate.logarithm.exactly", lambda x, name: asked.append(x) or 7.0)
    got = logarithm(numbers, "log")
    assert 0 < len(asked) < 40 and (got == 7).sum() == len(asked)


@pytest.mark.parametrize(("name", "number"), [("log", 37281.0), ("log2", 63898.0), ("log10", 64610.0)])
def test_decimal_decides_once_for_equal_numbers(name: str, number: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers whose logarithms are close to halfway between two float64."""
    asked: list[float] = []
    monkeypatch.setattr("kernels.calibrate.logarithm.exactly", lambda x, name: asked.append(x) or exactly(x, name))
    got = logarithm(np.tile([number, 2.0, number + 1, 0.0, number], 1000), name)
    assert asked == [number]
    expected = [exactly(x, name) for x in (number, 2.0, number + 1)]
    assert got.tolist() == [*expected, -np.inf, expected[0]] * 1000


def test_special_arguments() -> None:
    numbers = np.array([0.0, -0.0, -1.0, np.inf, -np.inf, np.nan])
    expected = [-np.inf, -np.inf, np.nan, np.inf, np.nan, np.nan]
    for name in LOGS:
        assert same(logarithm(numbers, name), np.array(expected))
