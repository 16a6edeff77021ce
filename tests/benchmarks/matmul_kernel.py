"""The exact product on one GPU next to cuBLAS, and the time of each of its steps.

python -m tests.benchmarks.matmul_kernel OUT.json
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from kernels.common import device
from kernels.map.gpu import elementwise
from kernels.matmul import residue
from kernels.matmul.cpu import CpuProduct
from kernels.matmul.formats import multiplied
from kernels.matmul.gpu import exact_matmul
from kernels.matmul.planes import HOPPER, Tile, Warps
from kernels.matmul.residue import ResidueProduct
from kernels.study.roofline import product, read_stream
from tests.benchmarks.common import device_medians, save

DTYPES = ("float64", "float32")
SIZES = (4096, 8192, 16384)
STACKED = 256  # matrices in a stack, and their rows and columns
# Other tile sizes, for the multiply step alone.
BY_WARPS = ((128, 256, 64, 64), (256, 128, 64, 64), (128, 128, 64, 64), (64, 64, 32, 32))


def matrices(size: int, dtype: str) -> tuple[Any, Any]:
    """Two matrices on the device, normally distributed."""
    import cupy

    random = np.random.default_rng(size)
    strip = random.standard_normal((2, 512, size)).astype(dtype)
    repeats = (-(-size // 512), 1)
    a, b = (cupy.tile(cupy.asarray(part), repeats)[:size] for part in strip)
    return cupy.ascontiguousarray(a), cupy.ascontiguousarray(b)


def hard(kind: str, size: int) -> tuple[Any, Any]:
    """Two float64 matrices whose product has uncertain elements."""
    import cupy

    a, b = matrices(size, "float64")
    places = cupy.arange(size)
    if kind == "triangular":
        return cupy.triu(a), cupy.triu(b)
    if kind == "block diagonal, 64 blocks":
        where = places[:, None] * 64 // size == places * 64 // size
        return a * where, b * where
    if kind == "one number of 100 not zero":
        where = cupy.random.RandomState(0).random_sample((size, size)) < 0.01
        return a * where, b * where.T
    if kind == "one number in each row times 2^400":
        a[places, places * 7 % size] *= 2.0**400
        return a, b
    assert kind == "magnitudes of 2^-300 to 2^300"
    exponents = cupy.random.RandomState(0).randint(-300, 300, (size, size))
    return cupy.ldexp(a, exponents), cupy.ldexp(b, exponents.T)


HARD = (
    "triangular", "block diagonal, 64 blocks", "one number of 100 not zero", "one number in each row times 2^400",
    "magnitudes of 2^-300 to 2^300",
)  # fmt: skip


def verified(a: Any, b: Any) -> bool:
    """Whether the first rows and columns have the bits of the CPU's product."""
    product = exact_matmul(a, b)[:32, :32].get()
    on_cpu = CpuProduct((a.dtype, b.dtype), a.dtype)
    parts = a[:32].get(), np.ascontiguousarray(b[:, :32].get())
    expected = multiplied(on_cpu, lambda: [parts])
    return bool(product.tobytes() == expected.tobytes())


def steps(a: Any, b: Any) -> dict[str, Callable[[], Any]]:
    """Each of the steps of `exact_matmul` alone."""
    work = ResidueProduct((a.dtype, b.dtype), a.dtype, b.shape[-2])
    work.measure(a, b)
    work.add(a, b)
    length = min(residue.INNER, b.shape[-2])
    planes, sizes = work.planes(a, b, 0, length), work.sizes
    assert sizes
    return {
        "measure": lambda: work.measure(a, b),
        "split": lambda: work.planes(a, b, 0, length),
        "multiply": lambda: work.tile.multiply(planes, sizes),
        "finish": work.finish,  # which finds the uncertain elements
    }


def measure(repeats: int = 10, sizes: tuple[int, ...] = SIZES) -> dict[str, Any]:
    """Seconds and rates of every size and dtype, alternating with cuBLAS without TF32."""
    import cupy

    ahead = cupy.zeros(2**28, cupy.uint32)
    rows = []
    for dtype in DTYPES:
        for size in sizes:
            a, b = matrices(size, dtype)
            out = cupy.empty_like(a)
            works: dict[str, Callable[[], Any]] = {
                "cublas": lambda a=a, b=b, out=out: product(a, b, out),
                "ours": lambda a=a, b=b: exact_matmul(a, b),
            }
            seconds = device_medians(works, repeats, lambda: read_stream(ahead))
            rates = {name: 2 * size**3 / taken / 1e12 for name, taken in seconds.items()}
            parts = device_medians(steps(a, b), repeats, lambda: read_stream(ahead))
            work = ResidueProduct((a.dtype, b.dtype), a.dtype, size)
            operations = 2 * size**2 * min(size, residue.INNER) * work.moduli
            row = {
                "dtype": dtype, "size": size, "moduli": work.moduli, "TFLOP/s": rates,
                "share of cublas": rates["ours"] / rates["cublas"],
                "milliseconds of a slab": {name: 1000 * taken for name, taken in parts.items()},
                "TOP/s of multiply": operations / parts["multiply"] / 1e12, "verified": verified(a, b),
            }  # fmt: skip
            print(row, flush=True)
            rows.append(row)
            del a, b, out
            cupy.get_default_memory_pool().free_all_blocks()
    stacks = [stack(dtype, min(STACKED, sizes[0]), repeats) for dtype in DTYPES]
    hard_rows = [hard_case(kind, sizes[0], repeats) for kind in HARD]
    rates_of_tiles = {str(size): tiles(repeats, size) for size in sizes[:2]}
    return {
        "repeats": repeats, "cases": rows, "stacks": stacks, "hard cases": hard_rows, "TOP/s by tile": rates_of_tiles,
    }  # fmt: skip


def stack(dtype: str, size: int, repeats: int) -> dict[str, Any]:
    """Time for a stack of matrices, next to cuBLAS and to reading and writing the same bytes."""
    import cupy

    a, b = (cupy.ascontiguousarray(cupy.stack([matrix] * size)) for matrix in matrices(size, dtype))
    out, ahead = cupy.empty_like(a), cupy.zeros(2**28, cupy.uint32)
    flat = a.reshape(-1), b.reshape(-1)
    works: dict[str, Callable[[], Any]] = {
        "cublas": lambda: cupy.matmul(a, b, out=out), "ours": lambda: exact_matmul(a, b),
        "sum of A and B": lambda: elementwise(*flat, operation="add"),
    }  # fmt: skip
    seconds = device_medians(works, repeats, lambda: read_stream(ahead))
    row = {
        "dtype": dtype, "matrices": size, "size": size, "share of cublas": seconds["cublas"] / seconds["ours"],
        "milliseconds": {name: 1000 * taken for name, taken in seconds.items()}, "verified": verified(a[0], b[0]),
    }  # fmt: skip
    print(row, flush=True)
    return row


def hard_case(kind: str, size: int, repeats: int) -> dict[str, Any]:
    """Number of elements of a hard product that are computed term by term, and the cost."""
    import cupy

    a, b = hard(kind, size)
    out, ahead = cupy.empty_like(a), cupy.zeros(2**28, cupy.uint32)
    work = ResidueProduct((a.dtype, b.dtype), a.dtype, size)
    work.measure(a, b)
    work.add(a, b)
    work.finish()
    works: dict[str, Callable[[], Any]] = {
        "cublas": lambda: product(a, b, out), "ours": lambda: exact_matmul(a, b),
    }  # fmt: skip
    seconds = device_medians(works, repeats, lambda: read_stream(ahead))
    row = {
        "what": kind, "size": size, "share of elements term by term": work.uncertain / size**2,
        "milliseconds": {name: 1000 * taken for name, taken in seconds.items()},
        "share of cublas": seconds["cublas"] / seconds["ours"], "verified": verified(a, b),
    }  # fmt: skip
    print(row, flush=True)
    return row


def tiles(repeats: int, size: int) -> dict[str, float]:
    """Rates of the multiply step by tile, in float64, for tiles that fit into shared memory."""
    import cupy

    a, b = matrices(size, "float64")
    ahead = cupy.zeros(2**28, cupy.uint32)
    rates, limits = {}, device.limits()
    tiles: list[Tile] = [Warps(*tile, stages) for tile in BY_WARPS for stages in (3, 4)]
    tiles += [replace(HOPPER, stages=stages) for stages in (2, 3, 4) if limits.hopper]
    chosen = residue.choose_tile
    try:
        for tile in tiles:
            if tile.shared > limits.shared_per_block:
                continue
            residue.choose_tile = lambda *_, tile=tile: tile
            seconds = device_medians({"it": steps(a, b)["multiply"]}, repeats, lambda: read_stream(ahead))["it"]
            rates[tile.kernel] = 2 * size**2 * min(size, residue.INNER) * 16 / seconds / 1e12
            print(tile, rates[tile.kernel], flush=True)
    finally:
        residue.choose_tile = chosen
    return rates


if __name__ == "__main__":
    save(measure(), sys.argv[1])
