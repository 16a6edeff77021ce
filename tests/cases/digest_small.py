"""Small ragged inputs for the kernels of the digest: see all.py."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from kernels.digest import gpu
from kernels.digest.reference import digest_reference
from tests.cases.case import RANDOM, Case

STEM = "digest/gpu"


def _digest(dtype: str, samples: int, start: int, cp: Any) -> None:
    data = np.frombuffer(RANDOM(3).bytes(samples * np.dtype(dtype).itemsize), dtype)
    np.testing.assert_array_equal(gpu.digest_on_device(cp.asarray(data), start), digest_reference(data, start))


def digest_cases() -> Iterator[Case]:
    """One leaf; levels of parents with nodes left over at both ends; every width of loads; a counter of 64 bits."""
    for dtype, samples, start in (
        ("uint8", 1024, 1024), ("uint8", 9 * 1024, 3 * 1024), ("uint8", 5000, 1001), ("int16", 4001, 511),
        ("float32", 3073, 0), ("int32", 13 * 256, 256), ("float64", 129, 2**40 + 1), ("uint8", 257 * 1024, 1024),
    ):  # fmt: skip
        for kernel in ("leaves", "parents"):
            if kernel == "leaves" or samples * np.dtype(dtype).itemsize > 2048:
                yield Case(STEM, kernel, f"{samples} of {dtype} from {start}", partial(_digest, dtype, samples, start))
