"""The stencil kernels on one GPU next to a copy, to CuPy's functions and to the rate of multiplications.

python -m tests.benchmarks.stencil_kernel OUT.json
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from kernels.common import device, nvrtc
from kernels.stencil.cpu import box_cpu, weighted_cpu
from kernels.stencil.gpu import box, weighted
from kernels.study.roofline import copy
from tests.benchmarks.common import device_medians, save
from tests.benchmarks.reduce_kernel import OF_FLOATS, part_of

RADII = (3, 16, 100, 1000, 4096, 100_000, 1_000_000)
WEIGHTED_RADII = (1, 3, 8, 16, 100, 1000, 4096)
PART = 2**24  # elements that are generated and then repeated
OTHERS = ("constant", *OF_FLOATS)
HEAD = 2**18  # elements whose sums are compared with the CPU's, plus a window and a half


def elements_of(dtype: str, kind: str, nbytes: int) -> Any:
    """Device array of one row: normal, spread over every exponent, with a NaN in a thousand, or of another kind."""
    import cupy

    if kind in OTHERS:
        part = part_of(dtype, kind)
        return cupy.tile(cupy.asarray(part), nbytes // part.nbytes)[None]
    rng = np.random.default_rng(1)
    part = 1000 * rng.standard_normal(PART)
    if kind == "far":
        limits = np.finfo(dtype)
        part = np.ldexp(rng.standard_normal(PART), rng.integers(limits.minexp, limits.maxexp - 3, PART))
    elif kind == "with NaN":
        part[rng.random(PART) < 0.001] = np.nan
    return cupy.tile(cupy.asarray(part.astype(dtype)), nbytes // np.dtype(dtype).itemsize // PART)[None]


def verified(x: Any, radius: int, compute: Any, on_cpu: Any) -> bool:
    """Whether the first sums have the bits of the CPU's."""
    head = x[:, : HEAD + 3 * radius].copy()
    return bool(compute(head).get().tobytes() == on_cpu(head.get()).tobytes())


def products_rate(dtype: str) -> float:
    """Separately rounded products and sums per second, in registers."""
    import cupy

    c_type = {"float32": "float", "float64": "double"}[dtype]
    kernel = nvrtc.load(Path(__file__).parent / "products.cu", f"products<{c_type}>")
    blocks, threads, rounds = 16 * device.limits().multiprocessors, 256, 4000
    of, out = np.dtype(dtype).type, cupy.empty(blocks * threads, dtype)
    arguments = (out, of(0.5), of(1), np.int32(rounds))
    work = {"products": lambda: kernel((blocks,), (threads,), arguments)}
    return 2 * 16 * rounds * out.size / device_medians(work, 5, lambda: None)["products"]


def measure(nbytes: int = 2**29, repeats: int = 10) -> dict[str, Any]:
    """Rates of reading and writing together, as a share of a copy measured alternately."""
    import cupy
    from cupyx.scipy import ndimage

    one, other = cupy.zeros(nbytes // 2, cupy.uint32), cupy.zeros(nbytes // 2, cupy.uint32)
    plain: list[dict[str, Any]] = []
    with_weights: list[dict[str, Any]] = []

    def lead() -> None:
        copy(one, other)

    def taken(works: dict[str, Any]) -> dict[str, float]:
        return device_medians({"copy": lambda: copy(one, other), **works}, repeats, lead)

    for dtype, kind in (
        ("int32", "normal"), ("int16", "normal"), ("int8", "normal"), ("int64", "normal"), ("float16", "normal"),
        ("float32", "normal"), ("float64", "normal"), ("float32", "far"), ("float64", "far"), ("float16", "with NaN"),
        ("float32", "with NaN"), ("float64", "with NaN"),
        *((dtype, kind) for dtype in ("float32", "float64") for kind in OTHERS),
    ):  # fmt: skip
        x = elements_of(dtype, kind, nbytes)
        for radius in RADII if kind == "normal" else (3, 1000, 100_000):
            works: dict[str, Any] = {"ours": lambda x=x, r=radius: box(x, r)}
            if kind == "normal" and radius <= 100 and dtype in ("float32", "float64"):
                works["uniform_filter1d"] = lambda x=x, r=radius: ndimage.uniform_filter1d(x[0], 2 * r + 1)
            seconds = taken(works)
            moved = x.nbytes + box(x, radius).nbytes
            copied = 2 * one.nbytes / seconds.pop("copy")
            rates = {name: moved / one_time / 1e9 for name, one_time in seconds.items()}
            right = verified(x, radius, lambda part, r=radius: box(part, r), lambda part, r=radius: box_cpu(part, r))
            plain.append({"dtype": dtype, "elements": kind, "radius": radius, "GB/s": rates,
                          "share of copy": rates["ours"] * 1e9 / copied, "verified": right})  # fmt: skip
            print(dtype, kind, radius, {k: round(v) for k, v in rates.items()},
                  f"{plain[-1]['share of copy']:.3f}", right, flush=True)  # fmt: skip
    for dtype in ("float32", "float64"):
        x = elements_of(dtype, "normal", nbytes // 4)
        limit = products_rate(dtype)
        for radius in WEIGHTED_RADII:
            weights = cupy.asarray(np.random.default_rng(2).standard_normal(2 * radius + 1).astype(dtype))
            works = {"ours": lambda x=x, w=weights: weighted(x, w)}
            if radius <= 100:
                works["correlate1d"] = lambda x=x, w=weights: ndimage.correlate1d(x[0], w)
            seconds = taken(works)
            copied = 2 * one.nbytes / seconds.pop("copy")
            operations = {name: 2 * weights.size * x.size / one_time / 1e12 for name, one_time in seconds.items()}
            right = verified(x, radius, lambda part, w=weights: weighted(part, w),
                             lambda part, w=weights.get(): weighted_cpu(part, w))  # fmt: skip
            of_products = operations["ours"] * 1e12 / limit
            share = 2 * x.nbytes / seconds["ours"] / copied
            with_weights.append({"dtype": dtype, "radius": radius, "Tflop/s": operations, "share of copy": share,
                                 "products and sums in registers, Tflop/s": limit / 1e12,
                                 "share of these": of_products, "verified": right})  # fmt: skip
            print(dtype, radius, {k: f"{v:.2f} Tflop/s" for k, v in operations.items()},
                  f"{share:.3f} {of_products:.3f}", right, flush=True)  # fmt: skip
    return {"bytes": nbytes, "repeats": repeats, "plain": plain, "weighted": with_weights}


if __name__ == "__main__":
    save(measure(), sys.argv[1])
