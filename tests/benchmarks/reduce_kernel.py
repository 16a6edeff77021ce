"""The exact reductions on one GPU next to the read stream, CUB's sums (plain and reproducible) and its minimum.

python -m tests.benchmarks.reduce_kernel OUT.json
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from kernels.reduce.cpu import reduce_cpu
from kernels.reduce.gpu import reduce_on_device
from kernels.reduce.reference import reduce_reference
from kernels.study.roofline import read_stream
from tests.benchmarks.common import device_medians, save
from tests.benchmarks.cub import cub_sum

DTYPES = ("float32", "float64", "int32", "float16", "uint8", "int64")
NAMES = {1: "sum", 3: "sum, squares", 4: "extremes", 5: "sum, extremes", 7: "everything"}
PART = 2**20  # samples that are generated and then repeated
ORDINARY, ANY = "ordinary", "any bits"
KINDS = (ORDINARY, ANY, "constant", "zeros")
OF_FLOATS = ("subnormal", "huge, signs in turns", "NaN and infinities among them", "half NaN", "two far exponents")


def part_of(dtype: str, kind: str) -> Any:
    """Samples, shape (PART,): normally distributed, of random bits (floats of all exponents), or of another kind."""
    rng, of = np.random.default_rng(1), np.dtype(dtype)
    ordinary = rng.integers(0, 99, PART, of) if of.kind == "u" else (1000 * rng.standard_normal(PART)).astype(of)
    if kind in ("constant", "zeros"):
        return np.full(PART, 7 if kind == "constant" else 0, of)
    if kind == ANY:
        bits = np.frombuffer(rng.bytes(PART * of.itemsize), of)
        return np.where(np.isfinite(bits), bits, 1).astype(of) if of.kind == "f" else bits
    if of.kind != "f":
        return ordinary
    limits, turns = np.finfo(of), np.arange(PART)
    if kind == "subnormal":
        return (rng.integers(-1000, 1000, PART) * limits.smallest_subnormal).astype(of)
    if kind == "huge, signs in turns":
        return np.where(turns % 2 == 0, limits.max, -limits.max).astype(of)
    if kind == "two far exponents":
        return np.where(turns % 2 == 0, ordinary, ordinary * (limits.tiny * 1000)).astype(of)
    if kind == "NaN and infinities among them":
        ordinary[rng.random(PART) < 0.001] = np.nan
        ordinary[rng.random(PART) < 0.001] = np.inf
    elif kind == "half NaN":
        ordinary[rng.random(PART) < 0.5] = np.nan
    return ordinary


def samples_of(dtype: str, kind: str, nbytes: int) -> Any:
    """Device array of so many bytes."""
    import cupy

    part = part_of(dtype, kind)
    return cupy.tile(cupy.asarray(part), max(1, nbytes // part.nbytes))


def measure(nbytes: int = 2**30, repeats: int = 20) -> dict[str, Any]:
    """Rates of every combination of results, as a share of the read stream, measured alternately."""
    import cupy

    cupy.cuda.set_allocator(cupy.cuda.MemoryPool().malloc)
    ahead = cupy.zeros(nbytes // 4, cupy.uint32)
    rows = []
    for dtype in DTYPES:
        for kind in (*KINDS, *(OF_FLOATS if dtype[0] == "f" else ())):
            samples = samples_of(dtype, kind, nbytes)
            works: dict[str, Any] = {"read": lambda s=samples.view(cupy.uint32): read_stream(s)}
            for parts, name in NAMES.items():
                works[name] = lambda s=samples, p=parts: reduce_on_device(s, p)
            seconds = device_medians(works, repeats, lambda: read_stream(ahead))
            if kind in (ORDINARY, ANY):
                peers = {"cupy.sum": lambda s=samples: cupy.sum(s), "cupy.min": lambda s=samples: cupy.min(s)}
                if reproducible := cub_sum(samples):
                    peers["CUB, reproducible"] = reproducible
                seconds |= device_medians(peers, repeats, lambda: read_stream(ahead))
            head = samples[: 2**16 + 1]
            right = all(
                np.array_equal(reduce_on_device(head, parts).get()[:], reduce_cpu(head.get(), parts)) for parts in NAMES
            ) and np.array_equal(reduce_on_device(head, 7).get(), reduce_reference(head.get(), 7))
            rates = {name: samples.nbytes / taken / 1e9 for name, taken in seconds.items()}
            shares = {name: rate / rates["read"] for name, rate in rates.items()}
            rows.append({"dtype": dtype, "samples": kind, "GB/s": rates, "share of read": shares, "verified": right})
            print(dtype, kind, {name: f"{share:.3f}" for name, share in shares.items()}, right, flush=True)
    return {"bytes": nbytes, "repeats": repeats, "cases": rows}


if __name__ == "__main__":
    save(measure(), sys.argv[1])
