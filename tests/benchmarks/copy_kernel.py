"""Kernels that write as much as they read on one GPU, map and transpose, next to their limits and CuPy.

python -m tests.benchmarks.copy_kernel OUT.json
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from kernels.map.gpu import elementwise
from kernels.map.reference import elementwise_reference
from kernels.study.roofline import copy, merge, read_stream
from kernels.transpose.gpu import permute_axes, transpose
from tests.benchmarks.common import device_medians, save

OPERATIONS = (("add", 2), ("multiply_add", 3))
# Rows of a power of two; rows aligned to 16 bytes but not to a cache line; unaligned rows.
MATRICES = {
    "uint8": ((32768, 32768), (32768, 32784), (30001, 32345)),
    "uint16": ((16384, 32768), (16384, 32784), (20001, 22345)),
    "float32": ((16384, 16384), (16384, 16400), (10000, 12345), (10001, 12345)),
    "float64": ((8192, 16384), (8192, 16400), (10000, 12345), (10001, 12345)),
    "complex128": ((8192, 8192), (8192, 8200), (6001, 8001)),
}
AXES = (
    ("float32", (64, 2048, 2048), (0, 2, 1)), ("float32", (64, 2001, 2003), (0, 2, 1)),
    ("float32", (512, 1024, 512), (2, 1, 0)), ("float32", (501, 1024, 513), (2, 1, 0)),
    ("float32", (512, 512, 1024), (1, 2, 0)), ("float64", (64, 64, 128, 256), (3, 2, 1, 0)),
    ("uint8", (1024, 1024, 1024), (2, 1, 0)), ("float64", (100_000, 32, 32), (0, 2, 1)),
    ("float32", (4096, 64, 1024), (1, 0, 2)),
)  # fmt: skip
PART = 2**24 - 3  # elements that are generated and then repeated; a prime number
HEAD = 2**18  # elements of which the results of map are compared with NumPy's


def numbers(dtype: str, elements: int, seed: int = 1) -> Any:
    """Device array of normally distributed numbers, or of any bytes."""
    import cupy

    random, size = np.random.default_rng(seed), min(PART, elements)
    part = random.integers(0, 256, size, dtype) if dtype == "uint8" else random.standard_normal(size) * 1000
    part = part.astype(dtype)
    return cupy.tile(cupy.asarray(part), -(-elements // part.size))[:elements]


def words(array: Any) -> Any:
    """Its bytes as 32-bit numbers, cut to whole 16-byte packs."""
    import cupy

    return array.reshape(-1).view(cupy.uint8)[: array.nbytes // 16 * 16].view(cupy.uint32)


def measure_map(nbytes: int, repeats: int, lead: Any) -> list[dict[str, Any]]:
    """Rates as a share of a kernel that reads the same number of arrays and writes one."""
    import cupy

    rows = []
    for dtype in ("float32", "float64", "int32"):
        arrays = [numbers(dtype, nbytes // np.dtype(dtype).itemsize, seed) for seed in range(3)]
        out = cupy.empty_like(arrays[0])
        for operation, count in OPERATIONS:
            of = arrays[:count]
            works: dict[str, Any] = {
                # Into a new array, as ours: the distance between arrays makes a difference.
                "limit": lambda of=of: merge(words(cupy.empty_like(of[0])), *map(words, of)),
                "copy": lambda of=of, out=out: copy(words(out), words(of[0])),
                "ours": lambda of=of, operation=operation: elementwise(*of, operation=operation),
            }
            if operation == "add":
                works["cupy"] = lambda of=of: cupy.add(*of)
            seconds = device_medians(works, repeats, lead)
            moved = {name: 2 if name == "copy" else count + 1 for name in seconds}
            rates = {name: moved[name] * out.nbytes / taken / 1e9 for name, taken in seconds.items()}
            head = [array[:HEAD] for array in of]
            expected = elementwise_reference(*(array.get() for array in head), operation=operation)
            right = elementwise(*head, operation=operation).get().tobytes() == expected.tobytes()
            rows.append({"dtype": dtype, "operation": operation, "GB/s": rates,
                         "share of limit": rates["ours"] / rates["limit"], "verified": right})  # fmt: skip
            print(dtype, operation, {k: round(v) for k, v in rates.items()},
                  f"{rows[-1]['share of limit']:.3f}", right, flush=True)  # fmt: skip
    return rows


def measure_turned(array: Any, axes: tuple[int, ...], repeats: int, lead: Any) -> dict[str, Any]:
    """Rates of permuting the axes of one array, as a share of a copy."""
    import cupy

    out = cupy.empty(tuple(array.shape[axis] for axis in axes), array.dtype)
    plain = array.ndim == 2
    works = {
        "copy": lambda: copy(words(out), words(array)),
        "ours": lambda: transpose(array) if plain else permute_axes(array, axes),
        "cupy": lambda: cupy.copyto(out, array.transpose(axes)),
    }
    seconds = device_medians(works, repeats, lead)
    cupy.copyto(out, array.transpose(axes))
    right = bool((works["ours"]().view(cupy.uint8) == out.view(cupy.uint8)).all())
    shares = {name: seconds["copy"] / taken for name, taken in seconds.items()}
    row = {"dtype": str(array.dtype), "shape": array.shape, "axes": axes, "copy GB/s": 2 * array.nbytes / 1e9 /
             seconds["copy"], "share of copy": shares, "verified": right}  # fmt: skip
    print(array.dtype, array.shape, axes, {k: f"{v:.3f}" for k, v in shares.items()}, right, flush=True)
    return row


def measure(nbytes: int = 2**30, repeats: int = 10) -> dict[str, Any]:
    """Rates of map, transposes of matrices and of arrays with more axes."""
    import cupy

    pool = cupy.cuda.MemoryPool()
    cupy.cuda.set_allocator(pool.malloc)
    ahead = cupy.zeros(nbytes // 4, cupy.uint32)

    def lead() -> None:
        read_stream(ahead)

    maps = measure_map(nbytes, repeats, lead)
    turned: dict[str, list[dict[str, Any]]] = {"matrices": [], "axes": []}
    for dtype, shapes in MATRICES.items():
        for shape in shapes:
            pool.free_all_blocks()
            array = numbers("uint8", int(np.prod(shape)) * np.dtype(dtype).itemsize).view(dtype).reshape(shape)
            turned["matrices"].append(measure_turned(array, (1, 0), repeats, lead))
    for dtype, shape, axes in AXES:
        pool.free_all_blocks()
        array = numbers("uint8", int(np.prod(shape)) * np.dtype(dtype).itemsize).view(dtype).reshape(shape)
        turned["axes"].append(measure_turned(array, axes, repeats, lead))
    return {"bytes": nbytes, "repeats": repeats, "map": maps, **turned}


if __name__ == "__main__":
    save(measure(), sys.argv[1])
