"""Small ragged inputs for exact sums and extremes: see all.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from unittest import mock

import numpy as np

from kernels.common import device
from kernels.reduce import gpu
from kernels.reduce import partial as layout
from kernels.reduce.reference import reduce_reference
from tests.cases import reduce as reduce_cases
from tests.cases.case import Case, same


def _reduce(dtype: str, parts: int, size: int, start: int, name: str, cp: Any) -> None:
    samples = reduce_cases.case(name, dtype, size + start)
    got = gpu.reduce_on_device(cp.asarray(samples)[start:], parts)
    same(got, reduce_reference(samples[start:], parts))


@contextmanager
def _limited(holder: Any, name: str, value: Any) -> Iterator[None]:
    """With other limits, by which launches are planned."""
    with mock.patch.object(holder, name, value):
        gpu.launch_plan.cache_clear()
        try:
            yield
        finally:
            gpu.launch_plan.cache_clear()


def _many_blocks(cp: Any) -> None:
    """More than a warp of them."""
    with _limited(device, "limits", lambda: device.Limits(40, 1024, 2048, 65536, 233472, 232448)):
        _reduce("int64", layout.SUM, 80_001, 0, "any", cp)


def _one_block(dtype: str, parts: int, size: int, name: str, cp: Any) -> None:
    """Its warps see many tiles each."""
    with _limited(device.Limits, "resident_blocks", lambda *_: 1):
        _reduce(dtype, parts, size, 0, name, cp)


def _far_apart(cp: Any) -> None:
    """Of every eight numbers one is tiny, the others are the largest of an exponent, the last one of a cell."""
    samples = np.full(16 * 2048, np.ldexp(2 - 2.0**-52, 449 - 1023))
    samples[::8] = 2.0**-1000
    with _limited(device.Limits, "resident_blocks", lambda *_: 1):
        got = gpu.reduce_on_device(cp.asarray(samples), layout.SUM)
    same(got, reduce_reference(samples, layout.SUM))


def _combine(dtype: str, cp: Any) -> None:
    samples = reduce_cases.case("specials", dtype, 700)
    if dtype == "float64":
        samples[:300] = 1  # NaN in the second half only
    parts = [gpu.reduce_on_device(cp.asarray(part), layout.PARTS[-1]) for part in (samples[:300], samples[300:])]
    total = gpu.combine_on_device(parts[0], gpu.place_on_device(parts[1], 300))
    same(total, reduce_reference(samples, layout.PARTS[-1]))


def exact_cases() -> Iterator[Case]:
    """Those below, whose launches are planned anew: a plan keeps a kernel, which a mutant replaces."""
    for case in _exact_cases():
        yield replace(case, check=partial(_planned, case.check))


def _planned(check: Callable[[Any], None], cp: Any) -> None:
    gpu.launch_plan.cache_clear()
    check(cp)


def _exact_cases() -> Iterator[Case]:
    """Exact sums and extremes: types of every width, samples of every magnitude, every operation."""
    for number, (dtype, name) in enumerate((
        ("uint8", "ordinary"), ("int16", "extreme"), ("int32", "any"), ("uint64", "extreme"), ("int64", "ordinary"),
        ("float16", "specials"), ("float32", "rising"), ("float32", "specials"), ("float64", "cancelling"),
        ("float64", "steps"), ("float64", "specials"), ("float64", "subnormal"), ("float32", "zeros"),
        ("float32", "subnormal"), ("float16", "negative"), ("float16", "equal"), ("int8", "negative"),
        ("float32", "negative"), ("float64", "negative"), ("float64", "late"), ("float32", "late"),
        ("float64", "nothing"), ("float64", "lanes"), ("float32", "lanes"), ("int8", "negative"),
        ("float64", "missing"), ("float32", "missing"), ("float16", "missing"),
    )):  # fmt: skip
        tile = 256 * 64 // np.dtype(dtype).itemsize
        size, start, parts = tile + (1, 501)[number % 2], number % 3, layout.PARTS[-1 - number % 3]
        if name in ("specials", "subnormal", "zeros", "negative", "equal", "nothing", "missing"):
            size, parts = 2 * tile + 809, layout.PARTS[-1]
        if name in ("lanes", "late"):  # one magnitude per lane, several tiles per thread
            start, size, parts = 0, {"lanes": 2, "late": 20}[name] * tile, {"lanes": 1, "late": 7}[name]
        if name == "steps":
            parts = layout.SUM | layout.SQUARES
        check = partial(_reduce, dtype, parts, size, start, name)
        yield Case("reduce/gpu", "moments", f"{dtype}, {name}, {size} from {start}, parts {parts}", check)
    for dtype, parts, size, start, name in (
        ("int32", layout.PARTS[-1], 2, 1, "any"), ("float64", layout.SUM, 9001, 0, "specials"),
        ("float64", layout.EXTREMES, 38_912, 0, "climbing"), ("float64", layout.EXTREMES, 38_912, 0, "falling"),
        ("float64", layout.EXTREMES, 38_912, 0, "sinking"), ("float64", layout.EXTREMES, 38_912, 0, "last bits"),
        ("float64", layout.EXTREMES, 38_912, 0, "last bits below zero"),
        ("float32", layout.PARTS[-1], 9001, 0, "infinite"), ("float64", layout.EXTREMES, 9001, 0, "infinite"),
    ):  # fmt: skip
        check = partial(_reduce, dtype, parts, size, start, name)
        yield Case("reduce/gpu", "moments", f"{dtype}, {name}, {size} from {start}, parts {parts}", check)
    for dtype, parts, size, name in (
        ("float64", layout.PARTS[-1], 32 * 2048, "any"), ("float64", layout.PARTS[-1], 12 * 2048, "uneven"),
        ("float32", layout.SUM | layout.SQUARES, 34 * 4096 + 1, "any"), ("float64", layout.SUM, 130 * 2048, "any"),
        ("float64", layout.PARTS[-1], 32 * 2048, "full"), ("float64", layout.SUM, 130 * 2048, "full"),
        ("float32", layout.SUM | layout.SQUARES, 34 * 4096 + 1, "full"),
    ):  # fmt: skip
        check = partial(_one_block, dtype, parts, size, name)
        yield Case("reduce/gpu", "moments", f"{dtype}, {name}, {size} in one block, parts {parts}", check)
    yield Case("reduce/gpu", "moments", "40 blocks", _many_blocks)
    yield Case("reduce/gpu", "moments", "float64, far apart, in one block", _far_apart)
    for dtype in ("int32", "float64"):
        for kernel in ("combine", "place"):
            yield Case("reduce/gpu", kernel, dtype, partial(_combine, dtype))
