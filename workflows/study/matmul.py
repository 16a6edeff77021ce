"""The study of matrix products: the shape of blocks, coalescing, shared memory, unrolling, and what is best today.

The courses: T. Ehlinger and B. Herb, "Systèmes distribués et grilles : TP CUDA" (Strasbourg, 2016), float64 products of
4096 x 4096 on a GTX 680, in GFLOP/s; A. Cabana Suárez and Ó. Gómez Borzdynski, "Programación GPGPU", float32 products
of small matrices on the GPU of a notebook service, in microseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.study.matmul import VARIANTS, WIDTHS, error_bound, matmul_reference
from workflows.study.study import Arrays, Case, Conclusion, Figure, Row, Study, farther_than, parameters

LARGE = (4096, 4096, 4096)
CPU_GFLOPS = 36.81  # of the CPU in the first course: 3.73 s
POWERS = tuple(2**k for k in range(11))
BLOCK_GFLOPS = {(16, 64): 70.94, (16, 32): 70.0, (16, 16): 68.16, (64, 8): 61.2, (128, 8): 61.16, (8, 16): 55.94,
                (32, 32): 60.27}  # fmt: skip
TILE_GFLOPS = {8: 69.7, 16: 99.65, 32: 104.51}
SMALL_US: Mapping[str, Mapping[int, float]] = {
    "blocks_2d": {16: 3.24, 32: 8.47, 64: 15.31, 128: 29.22, 512: 532.12},
    "unrolled": {},  # "very similar"
    "whole_rows": {16: 4.32, 32: 20.0, 64: 37.56, 128: 71.82},
}
SMALL = (16, 32, 64, 128, 512, 1024)  # 512 did not fit into shared memory then; 1024 does not today
QUICK_BLOCKS = ((8, 8), (16, 16), (32, 32), (16, 64), (64, 8))


def work(case: Case) -> float:
    """Floating-point operations: a multiplication and an addition for each product."""
    rows, inner, columns = case.sizes
    return 2.0 * rows * inner * columns


def inputs(case: Case, generator: np.random.Generator) -> Arrays:
    """Two matrices of numbers between -1 and 1."""
    rows, inner, columns = case.sizes
    shapes = ((rows, inner), (inner, columns))
    return tuple((2 * generator.random(shape, np.dtype(case.dtype).type) - 1) for shape in shapes)


def reference(arrays: Arrays, case: Case) -> NDArray[np.float64]:
    """The product in float64."""
    return matmul_reference(*arrays)


_kept: list[tuple[NDArray[Any], NDArray[Any], NDArray[np.float64]]] = []


def _bound(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.float64]:
    """Error bound; cached for the last matrices, since it costs as much as the reference and many cases share them."""
    if not _kept or _kept[0][0] is not a or _kept[0][1] is not b:
        _kept[:] = [(a, b, error_bound(a, b))]
    return _kept[0][2]


def disagreement(got: NDArray[Any], expected: NDArray[Any], arrays: Arrays, case: Case) -> str | None:
    """Elements farther from the reference than rounding explains; for the bound and its proof see `error_bound`."""
    return farther_than(got, expected, _bound(*arrays), case.dtype, exact=True)


def _ms(gflops: float | None) -> float | None:
    """Milliseconds of a large product at this rate."""
    return None if gflops is None else 2 * 4096**3 / gflops / 1e6


def _large(
    table: str, variant: str, quick: bool, course: float | None = None, dtype: str = "float64", **own: int
) -> Case:
    return Case(table, variant, LARGE, dtype, parameters(**own), _ms(course), quick)


def _small(variant: str, size: int) -> Case:
    us = SMALL_US[variant].get(size)
    ms = None if us is None else us / 1000
    return Case("small matrices", variant, (size,) * 3, "float32", parameters(x=32, y=32), ms, quick=True)


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
    _large("broken on purpose", "past_the_end", True, x=32, y=32),
    _large("broken on purpose", "missing_barrier", True, x=32),
)  # fmt: skip


Group = tuple[str, str]  # a table and a variant in it
LINE: Group = ("1-D blocks", "blocks_1d")
SWEEP: Group = ("2-D blocks", "blocks_2d")
VIOLATED: Group = ("coalescing violated", "uncoalesced")
PLAIN: Group = ("shared tile", "blocks_2d")
TILED: Group = ("shared tile", "shared_tile")
SMALL_PLAIN: Group = ("small matrices", "blocks_2d")
SMALL_WHOLE: Group = ("small matrices", "whole_rows")
SMALL_UNROLLED: Group = ("small matrices", "unrolled")
Judge = Callable[[list[Row]], tuple[bool, str]]


def _rate(row: Row) -> float:
    """GFLOP/s of a timed row."""
    return work(row.case) / (row.ms or np.inf) / 1e6


def _block(row: Row) -> tuple[int, int]:
    """Threads along x and y; a tile is a square."""
    x: int = row.case.parameters["x"]
    return x, row.case.parameters.get("y", x)


def _timed(rows: list[Row], group: Group) -> list[Row]:
    """Timed rows of a group; KeyError where there are none."""
    timed = [row for row in rows if (row.case.table, row.case.variant) == group and row.ms]
    if not timed:
        raise KeyError(f"no timed row of {group[1]} in {group[0]}")
    return timed


def _fastest(rows: list[Row], group: Group) -> Row:
    return max(_timed(rows, group), key=_rate)


def _best_block(fits: Callable[[int, int], bool]) -> Judge:
    """Whether the fastest block of the sweep has the shape that the course says."""

    def judge(rows: list[Row]) -> tuple[bool, str]:
        ranked = sorted(_timed(rows, SWEEP), key=_rate, reverse=True)
        said = ", ".join("{} x {}: {:,.0f}".format(*_block(row), _rate(row)) for row in ranked[:5])
        return fits(*_block(ranked[0])), f"the fastest of {len(ranked)} blocks, in GFLOP/s: {said}"

    return judge


def _against_cpu(group: Group, faster: bool) -> Judge:
    def judge(rows: list[Row]) -> tuple[bool, str]:
        rate = _rate(_fastest(rows, group))
        return (rate > CPU_GFLOPS) == faster, f"best {rate:,.0f} GFLOP/s, the course's CPU {CPU_GFLOPS}"

    return judge


def _each_faster(fast: Group, slow: Group, least: float = 1.0) -> Judge:
    """Whether each case of one group is at least `least` times as fast as its like, in size and block, in the other."""

    def judge(rows: list[Row]) -> tuple[bool, str]:
        others = {(row.case.sizes, _block(row)): row for row in _timed(rows, slow)}
        held, said = True, []
        for row in _timed(rows, fast):
            key = (row.case.sizes, _block(row))
            if key in others:
                ratio = _rate(row) / _rate(others[key])
                held &= ratio > least
                said.append("{} at {} x {}: {:.2f} times".format(row.case.sizes[0], *_block(row), ratio))
        if not said:
            raise KeyError(f"no case of {fast[1]} has its like in {slow[1]}")
        return held, f"{fast[1]} against {slow[1]}, " + "; ".join(said)

    return judge


def _line_is_best_at_64(rows: list[Row]) -> tuple[bool, str]:
    ranked = sorted(_timed(rows, LINE), key=_rate, reverse=True)
    said = ", ".join(f"{row.case.parameters['x']}: {_rate(row):,.0f}" for row in ranked)
    return ranked[0].case.parameters["x"] == 64, f"GFLOP/s by width: {said}"


def _two_dimensions_beat_one(rows: list[Row]) -> tuple[bool, str]:
    two, one = _rate(_fastest(rows, SWEEP)), _rate(_fastest(rows, LINE))
    return two > one, f"best {two:,.0f} against {one:,.0f} GFLOP/s"


def _squares(group: Group, grows: Callable[[list[float]], bool]) -> Judge:
    """Whether the rates of square blocks of 8, 16 and 32 threads a side compare as the course says."""

    def judge(rows: list[Row]) -> tuple[bool, str]:
        by_side = {_block(row)[0]: _rate(row) for row in _timed(rows, group)}
        rates = [by_side[side] for side in WIDTHS]
        said = ", ".join(f"{side} x {side}: {by_side[side]:,.0f}" for side in WIDTHS)
        return grows(rates), f"GFLOP/s: {said}"

    return judge


def _512_does_not_fit(rows: list[Row]) -> tuple[bool, str]:
    rows_512 = [row for row in rows if (row.case.table, row.case.variant) == SMALL_WHOLE and row.case.sizes[0] == 512]
    if not rows_512:
        raise KeyError("no row of whole_rows at 512")
    return rows_512[0].ms is None, rows_512[0].note or f"it fits: {_rate(rows_512[0]):,.0f} GFLOP/s"


def _unrolling_changes_little(rows: list[Row]) -> tuple[bool, str]:
    plain = {row.case.sizes: row for row in _timed(rows, SMALL_PLAIN)}
    ratios = {row.case.sizes[0]: _rate(row) / _rate(plain[row.case.sizes]) for row in _timed(rows, SMALL_UNROLLED)}
    said = ", ".join(f"{size}: {ratio:.2f} times" for size, ratio in ratios.items())
    return all(0.9 <= ratio <= 1.1 for ratio in ratios.values()), f"as fast as blocks_2d, by size: {said}"


CONCLUSIONS = (
    Conclusion("In one dimension, blocks of 64 threads are best", _line_is_best_at_64),
    Conclusion("Blocks in one dimension are slower than the CPU", _against_cpu(LINE, faster=False)),
    Conclusion("Blocks in two dimensions are faster than the CPU", _against_cpu(SWEEP, faster=True)),
    Conclusion("Blocks in two dimensions beat blocks in one", _two_dimensions_beat_one),
    Conclusion("Violating coalescing costs an immense amount of time (here: at least twice it, for every block)",
               _each_faster(SWEEP, VIOLATED, least=2.0)),
    Conclusion("The best block has neither 1, 2 or 4 nor 256, 512 or 1024 threads along a side",
               _best_block(lambda x, y: {x, y} <= {8, 16, 32, 64, 128})),
    Conclusion("The best block has 256 to 1024 threads", _best_block(lambda x, y: 256 <= x * y <= 1024)),
    Conclusion("The best block is 16, 32 or 64 threads wide", _best_block(lambda x, y: x in (16, 32, 64))),
    Conclusion("The best block tends to a square (here: no side more than 4 times the other)",
               _best_block(lambda x, y: max(x, y) <= 4 * min(x, y))),
    Conclusion("Without shared memory, too large a square is slower: 32 x 32 than 16 x 16",
               _squares(PLAIN, lambda rates: rates[2] < rates[1])),
    Conclusion("A shared tile beats the same block without shared memory", _each_faster(TILED, PLAIN)),
    Conclusion("With shared memory, the larger the tile, the faster",
               _squares(TILED, lambda rates: rates == sorted(rates))),
    Conclusion("Whole rows and columns in shared memory are slower than global memory and its caches",
               _each_faster(SMALL_PLAIN, SMALL_WHOLE)),
    Conclusion("Whole rows and columns of 512 x 512 do not fit into shared memory", _512_does_not_fit),
    Conclusion("Unrolling changes little (here: less than a tenth, at every size)", _unrolling_changes_little),
)  # fmt: skip


STUDY = Study(
    job="matmul",
    course="T. Ehlinger, B. Herb: TP CUDA (GTX 680, 4096 x 4096); A. Cabana Suárez, Ó. Gómez Borzdynski: Programación "
    "GPGPU (small matrices)",
    unit="GFLOP/s",
    limit=lambda case: case.dtype,
    variants=VARIANTS,
    cases=CASES,
    inputs=inputs,
    reference=reference,
    disagreement=disagreement,
    work=work,
    figures=(
        Figure("1-D blocks", "Blocks in one dimension, 4096 x 4096, float64", x="x"),
        Figure("2-D blocks", "Blocks of x by y threads, 4096 x 4096, float64", x="x", y="y"),
        Figure("shared tile", "Squares of x by x threads with and without shared memory, 4096 x 4096, float64", x="x"),
        Figure("small matrices", "Small matrices, blocks of 32 x 32 threads, float32", x="size"),
    ),
    conclusions=CONCLUSIONS,
    transfers=True,
)
