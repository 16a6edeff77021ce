"""Small ragged inputs for sums of third and fourth powers: see all.py."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any
from unittest import mock

from kernels.common import device
from kernels.reduce import gpu, gpu_powers
from kernels.reduce import partial as layout
from kernels.reduce.partial import DTYPES, SQUARES, SUM
from kernels.reduce.powers import POWERS
from kernels.reduce.reference_powers import reduce_reference_with_powers
from tests.cases import reduce as reduce_cases
from tests.cases.case import Case, same

PARTS = SUM | SQUARES | POWERS


def _reduce(dtype: str, size: int, start: int, name: str, cp: Any) -> None:
    samples = reduce_cases.case(name, dtype, size + start)
    got = gpu_powers.reduce_on_device_with_powers(cp.asarray(samples)[start:], PARTS)
    same(got, reduce_reference_with_powers(samples[start:], PARTS))


def _one_block(dtype: str, size: int, name: str, cp: Any) -> None:
    """Its threads see many samples each, and move their windows."""
    with mock.patch.object(device.Limits, "resident_blocks", lambda *_: 1):
        _reduce(dtype, size, 0, name, cp)


def _many_launches(cp: Any) -> None:
    """Their sums add up in the same digits."""
    with mock.patch.object(gpu_powers, "MOST_SAMPLES", 700):
        _reduce("float64", 2000, 0, "cancelling", cp)


def _combine(dtype: str, parts: int, cp: Any) -> None:
    samples = reduce_cases.case("specials", dtype, 700)
    halves = [
        gpu_powers.reduce_on_device_with_powers(cp.asarray(half), parts) for half in (samples[:300], samples[300:])
    ]
    total = gpu_powers.combine_on_device_with_powers(halves[0], gpu.place_on_device(halves[1], 300))
    same(total, reduce_reference_with_powers(samples, parts))


def powers_cases() -> Iterator[Case]:
    """Every dtype, samples of every magnitude, few and many to a thread."""
    for number, (dtype, name) in enumerate((
        *((dtype, "any") for dtype in DTYPES), *((dtype, "extreme") for dtype in DTYPES),
        ("float64", "specials"), ("float32", "specials"), ("float16", "specials"), ("float64", "subnormal"),
        ("float32", "ordinary"), ("float64", "nothing"), ("float64", "zeros"), ("int8", "negative"),
    )):  # fmt: skip
        size, start = (1, 255, 1031)[number % 3], number % 2
        yield Case("reduce/gpu_powers", "powers", f"{dtype}, {name}, {size} from {start}",
                   partial(_reduce, dtype, size, start, name))  # fmt: skip
    for dtype, size, name in (
        ("float64", 3001, "any"), ("float32", 2049, "any"), ("float64", 1500, "steps"), ("int64", 2300, "full"),
        ("float64", 2300, "full"), ("float32", 1100, "rising"), ("uint64", 1025, "extreme"),
    ):  # fmt: skip
        what = f"{dtype}, {name}, {size} in one block"
        yield Case("reduce/gpu_powers", "powers", what, partial(_one_block, dtype, size, name))
    yield Case("reduce/gpu_powers", "powers", "many launches", _many_launches)
    for dtype, kernel in (("int32", "extend"), ("float64", "combine_powers"), ("int64", "combine_powers")):
        yield Case("reduce/gpu_powers", kernel, dtype, partial(_combine, dtype, PARTS))
    yield Case("reduce/gpu_powers", "combine_powers", "without powers",
               partial(_combine, "float64", layout.PARTS[-1]))  # fmt: skip
