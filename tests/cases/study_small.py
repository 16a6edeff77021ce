"""Small ragged inputs for the kernels of kernels/study, save the histograms: see all.py."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np

from kernels.common import nvrtc
from kernels.study import architecture, failures, matmul, reduce, roofline, stencil
from kernels.study.variant import Variant
from tests.cases.case import Case, integers, same


def _reduction(variant: Variant, op: str, dtype: str, size: int, start: int, own: dict[str, int], cp: Any) -> None:
    # The largest is near the end, where a reduction that stops early does not see it.
    samples = integers(size + start, dtype, size)
    samples[-2 if size > 1 else -1] = 1000
    if variant.broken and dtype == "float32":
        samples[start] = 2**25  # from here on a float has no place for odd numbers
    if size == 200:  # and more threads than samples
        samples = -1 - np.abs(samples)
    if size == 300 and not variant.broken:
        samples[size // 2] = -np.nan
    partials = variant.run(cp.asarray(samples)[start:], op=op, **own).get()
    right = (reduce.sum_reference if op == "sum" else reduce.max_reference)(samples[start:])
    np.testing.assert_equal(reduce.finish(partials, op, dtype), right)


def reduction_cases() -> Iterator[Case]:
    """Sums and maxima over several blocks, from the first sample and from the second."""
    for name, variant in reduce.VARIANTS.items():
        if name == "production":
            continue
        for op, dtype, size, start in (
            ("sum", "int32", 1000, 1), ("max", "float64", 777, 0), ("sum", "float32", 401, 0), ("max", "int32", 250, 0),
            ("max", "float32", 300, 0), ("max", "float32", 303, 0), ("max", "float64", 300, 0),
            ("max", "float32", 200, 0), ("max", "float64", 200, 0), ("max", "int32", 200, 0),
        ):  # fmt: skip
            if (op == "sum" and name == "atomic_max") or (name == "float_drift" and (op, dtype) != ("sum", "float32")):
                continue
            own = {"block": 65 if name in ("any_size", "modulo") else 128} if "block" in variant.parameters else {}
            what = f"{op} of {dtype}, {size} from {start}, {own}"
            check = partial(_reduction, variant, op, dtype, size, start, own)
            yield Case("study/reduce", name, what, check, variant.broken is not None)


def _stencil(variant: Variant, dtype: str, size: int, own: dict[str, int], cp: Any) -> None:
    x = integers(size, dtype, most={"int32": 2**30, "float32": 2**24 - 1}.get(dtype, 2**40))
    same(variant.run(cp.asarray(x), **own), stencil.stencil_reference(x, own["radius"]).astype(stencil.OUT[dtype]))


def stencil_cases() -> Iterator[Case]:
    """Windows narrower and wider than a block."""
    for name, variant in stencil.VARIANTS.items():
        if name == "production":
            continue
        for number, radius in enumerate((3, 70)):
            dtype = ("int32", "float32", "float64")[number % 3]
            own = {"radius": radius, "block": 96}
            check = partial(_stencil, variant, dtype, 401, own)
            yield Case("study/stencil", name, f"{dtype}, 401, {own}", check, variant.broken is not None)


def _matmul(variant: Variant, dtype: str, sizes: tuple[int, int, int], own: dict[str, int], cp: Any) -> None:
    rows, inner, columns = sizes
    a, b = integers((rows, inner), dtype, 3, 9), integers((inner, columns), dtype, 4, 9)
    same(variant.run(cp.asarray(a), cp.asarray(b), **own), matmul.matmul_reference(a, b))


def matmul_cases() -> Iterator[Case]:
    """Ragged tiles on all three sides; rows of whole packs and others."""
    for name, variant in matmul.VARIANTS.items():
        if name in ("production", "cublas"):
            continue
        tile = {"x": 16} if variant.parameters == {"x": 32} else {"x": 16, "y": 8}
        chosen = [tile if "y" in tile and "y" in variant.parameters else {"x": 16}]
        if name == "register_tiled":
            chosen = [{"micro": 4}, {"micro": 8}]
        for own in chosen:
            inner = 33 if name == "shared_sums" else 36  # a last tile of a single product
            for dtype, sizes in (("float32", (37, 19, 21)), ("float64", (18, inner, 34)))[: 1 if variant.broken else 2]:
                check = partial(_matmul, variant, dtype, sizes, own)
                yield Case("study/matmul", name, f"{dtype}, {sizes}, {own}", check, variant.broken is not None)


def _read(name: str, size: int, start: int, cp: Any) -> None:
    on_device = cp.asarray(integers(size, "uint32"))[start:]
    getattr(roofline, name)(on_device)


def _keep(name: str, cp: Any) -> None:
    """A thread whose loads all give the guard value counts it; the count only keeps the loads from being dropped."""
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
    """A pure read stream stores nothing, so there is no result to check."""
    for sources in (1, 2, 3):
        yield Case("study/roofline", "merge", f"{sources} x 4100", partial(_merge, sources))
    for name in ("read_stream", "displace_cache"):
        for size, start in ((17_003, 0), (101, 1), (3, 1)):
            yield Case("study/roofline", name, f"uint32, {size} from {start}", partial(_read, name, size, start))
        yield Case("study/roofline", name, "kept", partial(_keep, name))


def _failure(variant: Variant, size: int, own: dict[str, int], cp: Any) -> None:
    pairs = variant.name.endswith("pair")
    samples = np.full(size, 40, np.int32) if pairs else integers(size, "int32", 5, 2**30) + np.int32(2**30)
    expected = failures.pairs_reference(samples) if pairs else failures.sum_reference(samples)
    with patch.object(failures, "BLOCKS", 1):  # so that a thread adds up several
        same(variant.run(cp.asarray(samples), **own), expected)


def failure_cases() -> Iterator[Case]:
    """Pairs of every turn; sums over several blocks; pieces of which the last is ragged."""
    for name, variant in failures.VARIANTS.items():
        size = 5 if name.endswith("pair") else 700
        own = {"cycles": 50} if name == "racing_pair" else {"cycles": 100} if name == "too_long" else {}
        if name == "short_launches":  # 5000 cycles a sample here: pieces end just in time
            own = {"cycles": 496_000, "piece": 99}
        yield Case("study/failures", name, f"{size}, {own}", partial(_failure, variant, size, own),
                   variant.broken is not None)  # fmt: skip


def _chain(variant: Variant, cp: Any) -> None:
    following = architecture.chain_of(512)
    same(variant.run(cp.asarray(following), steps=600), architecture.chain_reference(following, 600))


def _ways(variant: Variant, cp: Any) -> None:
    numbers = integers(300, "uint32", 6, 2**31)
    expected = architecture.ways_reference(numbers, 5, variant.name == "divergent")
    same(variant.run(cp.asarray(numbers), steps=5), expected)


def architecture_cases() -> Iterator[Case]:
    """A chain longer than a block; ways of a ragged last block."""
    for name, variant in architecture.VARIANTS.items():
        check = _chain if name.endswith("chain") else _ways
        yield Case("study/architecture", name, "512" if check is _chain else "300", partial(check, variant))
