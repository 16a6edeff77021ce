"""Small ragged inputs for the stencil kernels: see all.py."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kernels.common import device
from kernels.stencil import box as box_module
from kernels.stencil import weighted as weighted_module
from kernels.stencil.cpu import box_cpu, weighted_cpu
from kernels.stencil.gpu import box, weighted
from tests.cases.case import RANDOM, Case
from tests.cases.stencil import adversarial, numbers, same

Where = tuple[int, int, str]


def _box(x: NDArray[Any], radius: int, where: Where, cp: Any) -> None:
    same(box(cp.asarray(x), radius, *where).get(), box_cpu(x, radius, *where))


def _in_one_span(check: Callable[[Any], None], cp: Any) -> None:
    """Each row is computed by one block, tile by tile, as much longer rows are on a device."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        for module in (box_module, weighted_module):
            monkeypatch.setattr(
                module, "step_of", lambda outputs, _radius, _resident, tile, _: -(-outputs // tile) * tile
            )
        check(cp)


def _apart(check: Callable[[Any], None], cp: Any) -> None:
    """Windows count as too wide for shared memory."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(box_module, "RESIDENT", 10**6)
        monkeypatch.setattr(box_module, "LARGE_RESIDENT", 10**6)
        check(cp)


def _large(check: Callable[[Any], None], cp: Any) -> None:
    """In blocks with many threads."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(box_module, "RESIDENT", 10**6)
        check(cp)


def _one_multiprocessor(check: Callable[[Any], None], cp: Any) -> None:
    """So few resident blocks that each has several spans."""
    few = dataclasses.replace(device.limits(), multiprocessors=1)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(device, "limits", lambda: few)
        check(cp)


def _sampled(check: Callable[[Any], None], cp: Any) -> None:
    """The range of exponents is sampled from few elements."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(box_module, "SAMPLE", 64)
        check(cp)


def _weighted(x: NDArray[Any], weights: NDArray[Any], where: Where, cp: Any) -> None:
    same(weighted(cp.asarray(x), cp.asarray(weights), *where).get(), weighted_cpu(x, weights, *where))


def _any_taps(check: Callable[[Any], None], cp: Any) -> None:
    """By the kernel for any number of taps."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(weighted_module, "FEW", {4: (), 8: ()})
        check(cp)


def _overflow(x: NDArray[Any], cp: Any) -> None:
    try:
        box(cp.asarray(x), 1)
    except OverflowError:
        return
    raise AssertionError("expected an OverflowError")


def _far(dtype: str) -> NDArray[Any]:
    """All exponents, NaN and infinities, windows of zeros, and of the smallest numbers only."""
    x = adversarial("all exponents", (2, 300), dtype)
    x[0, 40:42], x[0, 90], x[1, 60] = (np.inf, -np.inf), np.nan, -np.inf
    x[1, 200:] = np.resize([1, -1], 100) * x[1, 200]
    least = np.finfo(dtype).smallest_subnormal
    x[0, 180:260] = least * np.arange(1, 81)
    x[1, 100:180] = 0
    if dtype != "float16":
        x[1, 140:142] = least * 2.0**63, least * 2.0**10  # just between two of float64
    return x


def _middle(count: int) -> NDArray[Any]:
    """Factors that are far apart in the middle."""
    factors = np.ones(count)
    factors[count // 3 : count // 2 : 50] = 2.0**-300
    return factors


def _tiny_later(dtype: str, small: float, tiny: float) -> NDArray[Any]:
    """Ones and small numbers; later numbers so tiny that only where ones cancel do they show."""
    x = np.resize(np.array([1, small], dtype), (1, 8000))
    x[0, 3000:3400] = 0
    x[0, 3100:3300] = np.resize(np.array([1, -1, tiny, 0, 0], dtype), 200)
    return x


def _apart_cases() -> Iterator[Case]:
    """Windows of which shared memory holds two tiles only, with elements that do not fit or are not finite."""
    for dtype in ("int8", "int16", "int32", "int64", "uint64", "float16", "float32", "float64"):
        for length, radius, where in ((2600, 900, (3, 0, "zero")), (400, 380, (400, 400, "reflect"))):
            x = numbers(dtype, (2, length))
            if dtype.startswith("float") and length > 400:
                x[0, 70:73], x[1, 2500], x[1, 9] = (np.nan, np.inf, -np.inf), np.inf, -np.inf
            check = partial(_apart, partial(_box, x, radius, where))
            yield Case("stencil/gpu", "box", f"{dtype}, {length}, apart", check)
    for what, x, where in (
        ("float16, a last tile that is short", numbers("float16", (1, 3461)), (2, 1, "reflect")),
        ("float64, a tile with few outputs", adversarial("ties", (1, 41)), (1, 0, "reflect")),
    ):  # the boundary has no elements beyond those of the windows
        yield Case("stencil/gpu", "box", f"{what}, apart", partial(_apart, partial(_box, x, 2, where)))
    check = partial(_in_one_span, partial(_box, numbers("float32", (1, 6500)), 3000, (3000, 3000, "nearest")))
    yield Case("stencil/gpu", "box", "float32, tiles before the row begins, apart", partial(_apart, check))
    for dtype, factor in (("float32", 2.0**-80), ("float64", 2.0**-300), ("float64", 2.0**300)):
        x = numbers(dtype, (2, 6000))
        x[0, 100:110] *= factor
        x[1, 9] *= factor
        x[1, 4000] *= factor
        for radius in (16, 20):
            check = partial(_apart, partial(_box, x, radius, (radius, 20, "nearest")))
            yield Case("stencil/gpu", _later(radius), f"{dtype}, some of 2^{np.log2(factor):.0f}, {radius}", check)
    for dtype, small, tiny in (("float32", 2.0**-45, 2.0**-140), ("float64", 2.0**-20, 2.0**-300)):
        for radius in (2, 17):
            check = partial(_in_one_span, partial(_box, _tiny_later(dtype, small, tiny), radius, (0, 0, "zero")))
            yield Case("stencil/gpu", _later(radius), f"{dtype}, tiny ones later, {radius}", check)
    x = RANDOM(8).integers(1, 100, (1, 6000)).astype("float64")
    x[0, 45] = 2.0**300
    yield Case(
        "stencil/gpu",
        "box_range",
        "one that it misses",
        partial(_sampled, partial(_box, x, 1500, (1500, 0, "nearest"))),
    )
    for at in (1, 1500):
        x = np.zeros((2, 3000), np.int64)
        x[1, at - 1], x[1, at] = np.iinfo(np.int64).max, 1
        yield Case("stencil/gpu", "box", f"that do not fit at {at}, apart", partial(_apart, partial(_overflow, x)))
    x = np.where(np.arange(4500) < 4000, 0, numbers("float64", (1, 4500)))
    yield Case("stencil/gpu", "box_range", "zeros at first", partial(_box, x, 40, (0, 0, "zero")))


def _later(radius: int) -> str:
    """The kernel of what box defers."""
    return "box_few" if radius <= box_module.FEW else "box_layers"


def _far_cases() -> Iterator[Case]:
    """Exponents so far apart that box defers them."""
    for dtype in ("float16", "float32", "float64"):
        for radius in (0, 1, 16, 20, 100, 140):
            check = partial(_box, _far(dtype), radius, (radius, 7, "reflect"))
            yield Case("stencil/gpu", _later(radius), f"{dtype}, {radius}", check)
    x = RANDOM(7).choice([1, -1, 2.0**-53, -(2.0**-53), 2.0**-600, -(2.0**-600), 0], (2, 900))
    for radius in (1, 2, 80):
        yield Case("stencil/gpu", _later(radius), f"halfway, {radius}", partial(_box, x, radius, (radius, 0, "zero")))
    # Sums next to the largest number, and cancelling ones with the smallest numbers left.
    largest = np.finfo("float64").max
    x = RANDOM(9).choice([largest, -largest, 2.0**970, -(2.0**970), 2.0**969, 2.0**900, 5e-324, -5e-324], (2, 1900))
    for radius in (1, 16, 17, 60):
        yield Case("stencil/gpu", _later(radius), f"largest, {radius}", partial(_box, x, radius, (0, 0, "zero")))
    for shape, radius, where in (
        ((1, 4000), 3, (0, 0, "zero")),
        ((1, 4000), 30, (0, 0, "zero")),
        ((60, 40), 3, (0, 0, "zero")),
        ((1, 20), 20, (20, 20, "reflect")),
        ((1, 500), 4096, (4096, 4096, "zero")),
    ):
        check = partial(_box, adversarial("both ends", shape), radius, where)
        yield Case("stencil/gpu", _later(radius), f"{shape}, {radius}", check)
        yield Case("stencil/gpu", _later(radius), f"{shape}, {radius}, one span", partial(_in_one_span, check))
    for radius in (3, 100):
        check = partial(_box, adversarial("both ends", (30, 300)), radius, (0, 0, "zero"))
        yield Case("stencil/gpu", _later(radius), f"several spans, {radius}", partial(_one_multiprocessor, check))
    # Layers that go with a span from tile to tile, more of them than are kept, and elements that do not fit into them.
    x = adversarial("all exponents", (1, 9000))
    x[0, 2000:3500:2], x[0, 2001:3500:2] = x[0, 2000:3500:2], -x[0, 2000:3500:2]
    x[0, 4000:4400] = 0
    x[0, 6000], x[0, 7500:7503] = 2.0**1000, (np.nan, np.inf, -np.inf)
    check = partial(_in_one_span, partial(_box, x, 40, (0, 0, "zero")))
    yield Case("stencil/gpu", "box_layers", "layers kept", check)
    yield Case("stencil/gpu", "box_layers", "layers kept, apart", partial(_apart, check))


def window_cases() -> Iterator[Case]:
    """Spans of one tile and of several, rows of several spans; every boundary; floats of every kind."""
    for what, x, radius, where in (
        ("int8, two spans", numbers("int8", (1, 1900)), 3, (0, 0, "zero")),
        ("int16, two tiles", numbers("int16", (2, 1900)), 1792, (1792, 1792, "reflect")),
        ("uint64", numbers("uint64", (2, 90)), 30, (30, 30, "nearest")),
        ("int64", numbers("int64", (2, 301)), 5, (0, 5, "reflect")),
        ("float32, one word", adversarial("one word", (2, 300), "float32"), 40, (1, 40, "zero")),
        ("float64, two words", adversarial("two words", (2, 300)), 40, (1, 40, "nearest")),
        ("float32, specials", adversarial("specials", (1, 1900), "float32"), 4, (0, 4, "zero")),
        ("float64, subnormal", adversarial("subnormal", (1, 90)), 2, (2, 90, "reflect")),
        ("int8, as far as can be", numbers("int8", (1, 5)), 5, (5, 5, "reflect")),
    ):
        yield Case("stencil/gpu", "box", what, partial(_box, x, radius, where))
    for what, x, radius, where in (
        ("float16, several tiles", numbers("float16", (1, 6000)), 20, (20, 20, "nearest")),
        ("int8, several tiles", numbers("int8", (2, 6001)), 3, (0, 0, "zero")),
        ("float64, that grow", numbers("float64", (1, 7000)) * 2.0 ** (np.arange(7000) // 700), 9, (0, 0, "zero")),
        ("float64, far in the middle", adversarial("two words", (1, 9000)) * _middle(9000), 9, (0, 0, "zero")),
    ):
        yield Case("stencil/gpu", "box", what, partial(_in_one_span, partial(_box, x, radius, where)))
    for dtype in ("int16", "float32"):
        check = partial(_in_one_span, partial(_box, numbers(dtype, (1, 2100)), 2000, (2000, 2000, "reflect")))
        yield Case("stencil/gpu", "box", f"{dtype}, large", partial(_large, check))
    yield from _apart_cases()
    for dtype in ("int64", "uint64"):
        for at in (1, 150, 299):
            x = np.zeros((2, 301), dtype)
            x[1, at - 1], x[1, at] = np.iinfo(dtype).max, 1
            yield Case("stencil/gpu", "box", f"{dtype} that do not fit at {at}", partial(_overflow, x))
        x[:, 150:152] = np.iinfo(dtype).max, 1
        yield Case("stencil/gpu", "box", f"{dtype} that do not fit in two blocks", partial(_overflow, x))
    for case, radius in (("two words", 700), ("specials", 3), ("specials", 1100)):
        x = adversarial(case, (2, 3000), "float32") * np.resize(np.float32([1, 2.0**-40]), 3000)
        check = partial(_in_one_span, partial(_box, x, radius, (0, 0, "zero")))
        yield Case("stencil/gpu", _later(radius), f"{case}, {radius}", check)
    for dtype in ("float16", "float32", "float64"):
        x = numbers(dtype, (2, 3700))
        x[0, 90], x[0, 95], x[0, 300], x[0, 3000], x[1, 3699] = np.nan, np.inf, -np.inf, np.nan, np.inf
        for radius in (3, 150):
            check = partial(_in_one_span, partial(_box, x, radius, (0, 0, "zero")))
            yield Case("stencil/gpu", "box", f"{dtype}, not all finite, {radius}", check)
    for dtype in ("float32", "float64"):  # the first window of nothing else
        x = numbers(dtype, (1, 1900))
        x[0, :300] = np.nan
        yield Case("stencil/gpu", "box", f"{dtype}, NaN first", partial(_box, x, 140, (0, 0, "zero")))
    yield from _far_cases()
    for dtype, kind, shape, radius, where in (
        ("float32", "float32", (2, 501), 14, (14, 14, "nearest")),
        ("float32", "float32", (1, 3854), 7, (0, 0, "zero")),
        ("uint8", "float64", (1, 2500), 150, (150, 0, "zero")),
        ("float64", "float64", (3, 70), 4, (4, 70, "reflect")),
        ("float32", "float32", (3, 70), 4, (70, 70, "reflect")),
        ("float32", "float32", (1, 4000), 245, (0, 0, "zero")),
        ("float32", "float32", (2, 11003), 1, (0, 0, "zero")),
        ("int16", "float64", (1, 5003), 3, (0, 0, "zero")),
        ("float32", "float32", (1, 11000), 14, (14, 14, "nearest")),
        ("uint8", "float64", (1, 6000), 15, (15, 0, "zero")),
        ("float64", "float64", (1, 5), 5, (5, 5, "reflect")),
        ("float32", "float32", (1, 5200), 239, (0, 0, "zero")),
        ("float32", "float32", (1, 5000), 330, (0, 0, "zero")),
        ("float64", "float64", (1, 3000), 16, (3, 0, "zero")),
        ("float32", "float32", (1, 1538), 1, (0, 0, "zero")),  # a whole tile of either kernel
        ("float32", "float32", (1, 2562), 1, (0, 0, "zero")),
        ("float32", "float32", (1, 2900), 17, (0, 3, "nearest")),
    ):
        x, weights = numbers(dtype, shape), RANDOM(1).standard_normal(2 * radius + 1).astype(kind)
        if dtype == "float32":
            x[0, ::97], x[0, 5:9] = -0.0, (np.inf, np.nan, 1e-40, -np.inf)
        if dtype == kind and shape[1] >= 70:  # NaN of either sign, and from infinities
            x[-1, 40], x[-1, 60], x[-1, 62] = -np.nan, np.inf, -np.inf
        check = partial(_in_one_span, partial(_weighted, x, weights, where))
        yield Case("stencil/gpu", "weighted", f"{dtype}, {shape}, {radius}", check)
        if dtype == kind and radius <= 16:
            yield Case("stencil/gpu", "weighted", f"{dtype}, {shape}, {radius}, any taps", partial(_any_taps, check))
    # Sums of -0.0 alone are -0.0, beside others, in one chunk of taps and in several.
    for dtype, length, radius in (("float32", 2100, 17), ("float32", 2500, 200), ("float64", 1300, 17)):
        x, weights = numbers(dtype, (1, length)), 1 + np.abs(numbers(dtype, 2 * radius + 1))
        x[0, 100 : 100 + 5 * radius] = x[0, -3 * radius :] = -0.0
        check = partial(_in_one_span, partial(_weighted, x, weights, (radius, radius, "nearest")))
        yield Case("stencil/gpu", "weighted", f"{dtype}, {length}, {radius}, windows of -0.0", check)
