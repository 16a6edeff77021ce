"""Exact products of stacks of small matrices on one GPU, next to cuBLAS and to reading and writing the same bytes.

python -m tests.benchmarks.matmul_small OUT.json
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from kernels.map.gpu import elementwise
from kernels.matmul.cpu import CpuProduct
from kernels.matmul.formats import multiplied
from kernels.matmul.gpu import exact_matmul
from kernels.matmul.small import SmallProduct
from kernels.study.roofline import read_stream
from tests.benchmarks.common import device_medians, save

DTYPES = ("float32", "float64")
CASES = ((100_000, 16), (50_000, 32), (10_000, 64))
PRODUCTS_PER_SECOND = 9e14  # of bytes, as measured for mma.sync in matmul_kernel_H200.json
DIGITS = {"float32": 4, "float64": 7}


def stacks(matrices: int, size: int, dtype: str) -> tuple[Any, Any]:
    """Two stacks on the device, normally distributed."""
    import cupy

    random = np.random.default_rng(size)
    few = random.standard_normal((2, 997, size, size)).astype(dtype)
    repeats = (-(-matrices // 997), 1, 1)
    a, b = (cupy.tile(cupy.asarray(part), repeats)[:matrices] for part in few)
    return cupy.ascontiguousarray(a), cupy.ascontiguousarray(b)


def verified(a: Any, b: Any) -> bool:
    """Whether the first matrices have the bits of the CPU's product."""
    a, b = a[:997], b[:997] if b.ndim > 2 else b
    product = CpuProduct((a.dtype, b.dtype), a.dtype)
    parts = a.get(), b.get()
    with np.errstate(all="ignore"):
        expected = multiplied(product, lambda: [parts])
    return bool(exact_matmul(a, b).get().tobytes() == expected.tobytes())


def measure(repeats: int = 20, cases: tuple[tuple[int, int], ...] = CASES) -> dict[str, Any]:
    """Seconds of every case, alternating with the peers; rates in bytes of A, B and C."""
    import cupy

    ahead = cupy.zeros(2**28, cupy.uint32)
    rows = []
    for dtype in DTYPES:
        for matrices, size in cases:
            a, b = stacks(matrices, size, dtype)
            out = cupy.empty_like(a)
            flat = a.reshape(-1), b.reshape(-1)
            product = SmallProduct(a.dtype)
            works: dict[str, Callable[[], Any]] = {
                "ours": lambda product=product, a=a, b=b: product.add(a, b),
                "cublas": lambda a=a, b=b, out=out: cupy.matmul(a, b, out=out),
                "sum of A and B": lambda flat=flat: elementwise(*flat, operation="add"),
            }
            seconds = device_medians(works, repeats, lambda: read_stream(ahead))
            rates = {name: 3 * a.nbytes / taken / 1e9 for name, taken in seconds.items()}
            bytes_multiplied = 2 * DIGITS[dtype] ** 2 * size**3 * matrices
            limit = max(seconds["sum of A and B"], bytes_multiplied / PRODUCTS_PER_SECOND)
            row = {
                "dtype": dtype, "matrices": matrices, "size": size, "GB/s": rates,
                "milliseconds": {name: 1000 * taken for name, taken in seconds.items()},
                "times cublas": seconds["cublas"] / seconds["ours"],
                "share of memory": seconds["sum of A and B"] / seconds["ours"],
                "share of the limit": limit / seconds["ours"], "elements term by term": product.uncertain,
                "verified": verified(a, b),
            }  # fmt: skip
            print(row, flush=True)
            rows.append(row)
            del a, b, out, flat, works, product
            cupy.get_default_memory_pool().free_all_blocks()
    return {"repeats": repeats, "cases": rows, "other cases": [other(kind, cases[0][0], repeats) for kind in OTHERS]}


OTHERS = (
    "12 x 12", "one B for all", "one number of 10 not zero", "a row of zeros", "one NaN in each A",
    "a row times 2^-70 in each A", "one number times 2^60 in each A",
)  # fmt: skip


def other(kind: str, matrices: int, repeats: int) -> dict[str, Any]:
    """Cost of a float64 stack of 16 x 16 that keeps the kernel from its fastest path."""
    import cupy

    a, b = stacks(matrices, 12 if kind == "12 x 12" else 16, "float64")
    if kind == "one B for all":
        b = b[0].copy()
    elif kind == "one number of 10 not zero":
        a, b = (x * (cupy.random.RandomState(0).random_sample(x.shape) < 0.1) for x in (a, b))
    elif kind == "a row of zeros":
        a[:, 3] = 0
    elif kind == "one NaN in each A":
        a[:, 1, 2] = np.nan
    elif kind == "a row times 2^-70 in each A":
        a[:, 5] *= 2.0**-70
    elif kind == "one number times 2^60 in each A":
        a[:, 1, 2] *= 2.0**60
    product, ahead = SmallProduct(a.dtype), cupy.zeros(2**28, cupy.uint32)
    seconds = device_medians({"ours": lambda: product.add(a, b)}, repeats, lambda: read_stream(ahead))["ours"]
    row = {
        "what": kind, "milliseconds": 1000 * seconds, "GB/s": (2 * a.nbytes + b.nbytes) / seconds / 1e9,
        "share of elements term by term": product.uncertain / product.product.size,
        "verified": verified(a, b),
    }  # fmt: skip
    print(row, flush=True)
    return row


if __name__ == "__main__":
    save(measure(), sys.argv[1])
