"""The cases of the study of matrix products."""

from __future__ import annotations

from collections.abc import Mapping

from kernels.study.baselines import BASELINES
from kernels.study.matmul import WIDTHS
from workflows.study.study import BROKEN, COLD, ON_CPU, THOUSAND, WARM, Case, parameters

LARGE = (4096, 4096, 4096)
CPU_GFLOPS = 36.81  # of the CPU in the first course: 3.73 s
POWERS = tuple(2**k for k in range(11))
BLOCK_GFLOPS = {(16, 64): 70.94, (16, 32): 70.0, (16, 16): 68.16, (64, 8): 61.2, (128, 8): 61.16, (8, 16): 55.94,
                (32, 32): 60.27}  # fmt: skip
TILE_GFLOPS = {8: 69.7, 16: 99.65, 32: 104.51}
SMALL_US: Mapping[str, Mapping[int, float]] = {
    "blocks_2d": {16: 3.24, 32: 8.47, 64: 15.31, 128: 29.22, 512: 532.12},
    "rolled": {}, "unrolled": {},  # "very similar"
    "whole_rows": {16: 4.32, 32: 20.0, 64: 37.56, 128: 71.82},
    "unrolled_rows": {},
}  # fmt: skip
COPIES_US: Mapping[str, Mapping[int, tuple[float, float]]] = {  # to the device and back
    "blocks_2d": {16: (3.23, 1.72), 32: (3.77, 1.82), 64: (6.33, 2.52), 128: (17.76, 6.59), 512: (180.9, 80.70)},
    "whole_rows": {16: (3.52, 1.95), 32: (3.87, 2.11), 64: (5.86, 3.01), 128: (14.05, 7.10)},
}
SMALL = (16, 32, 64, 128, 512, 1024)  # 512 did not fit into shared memory then; 1024 does not today
CACHES, SUMS = "cold and warm caches", "where sums are kept"
QUICK_BLOCKS = ((8, 8), (16, 16), (16, 32), (32, 32), (16, 64), (64, 8), (128, 8))


def work(case: Case) -> float:
    """Floating-point operations: a multiplication and an addition for each product."""
    rows, inner, columns = case.sizes
    return 2.0 * rows * inner * columns


def _ms(gflops: float | None) -> float | None:
    """Milliseconds of a large product at this rate."""
    return None if gflops is None else 2 * 4096**3 / gflops / 1e6


def _large(
    table: str, variant: str, quick: bool, course: float | None = None, dtype: str = "float64", **own: int
) -> Case:
    return Case(table, variant, LARGE, dtype, parameters(**own), _ms(course), quick)


def _small(variant: str, size: int) -> Case:
    us, copies = SMALL_US[variant].get(size), COPIES_US.get(variant, {}).get(size)
    return Case("small matrices", variant, (size,) * 3, "float32", parameters(x=32, y=32), us and us / 1000, True,
                course_transfers_ms=copies and (copies[0] / 1000, copies[1] / 1000))  # fmt: skip


def _cached(variant: str, size: int, timing: str) -> Case:
    return Case(CACHES, variant, (size,) * 3, "float32", parameters(x=32, y=32), quick=True, timing=timing)


def _ragged(variant: str) -> Case:
    """1000 is no multiple of the 32 of a tile."""
    return Case(BROKEN, variant, (1000, 1000, 1000), "float64", parameters(x=32), quick=True)


CASES = (
    *(_large("1-D blocks", "blocks_1d", x in (32, 64, 256), x=x) for x in POWERS if x >= 32),
    *(_large("2-D blocks", "blocks_2d", (x, y) in QUICK_BLOCKS, BLOCK_GFLOPS.get((x, y)), x=x, y=y)
      for x in POWERS for y in POWERS if x * y <= 1024),
    *(_large("coalescing violated", "uncoalesced", (x, y) == (32, 32), x=x, y=y) for x, y in QUICK_BLOCKS),
    *(_large("shared tile", "blocks_2d", True, BLOCK_GFLOPS.get((x, x)), x=x, y=x) for x in WIDTHS),
    *(_large("shared tile", "shared_tile", True, TILE_GFLOPS[x], x=x) for x in WIDTHS),
    *(_small(variant, size) for variant in SMALL_US for size in SMALL),
    *(_large("today", "shared_tile", False, dtype=dtype, x=32) for dtype in ("float32", "float64")),
    *(_large("today", "register_tiled", micro == 8, dtype=dtype, micro=micro)
      for dtype in ("float32", "float64") for micro in (4, 8)),
    *(_large("today", "production", True, dtype=dtype) for dtype in ("float32", "float64")),
    *(_large("today", "cublas", True, dtype=dtype) for dtype in ("float32", "float64")),
    *(_cached(variant, size, timing) for variant in ("blocks_2d", "whole_rows") for size in (16, 64, 128, 512)
      for timing in (COLD, WARM, THOUSAND)),
    *(_large(SUMS, variant, x == 32, x=x) for x in (16, 32) for variant in ("shared_tile", "shared_sums")),
    *(Case(ON_CPU, variant, (512, 512, 512), dtype, quick=True) for variant in BASELINES["matmul"]
      for dtype in ("float32", "float64")),
    *(_large(ON_CPU, "cpu_blas", True, dtype=dtype) for dtype in ("float32", "float64")),
    *(_large(BROKEN, variant, True, x=32, y=32) for variant in ("past_the_end", "blocks_2d")),
    *(_large(BROKEN, variant, True, x=32) for variant in ("missing_barrier", "shared_tile")),
    *(_ragged(variant) for variant in ("stale_tile", "shared_tile")),
)  # fmt: skip
