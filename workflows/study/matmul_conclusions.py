"""What the courses conclude on matrix products, and how rows of a study are judged by it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from kernels.study.matmul import VARIANTS, WIDTHS
from workflows.study.matmul_cases import CACHES, CPU_GFLOPS, LARGE, SUMS, work
from workflows.study.study import BROKEN, COLD, ON_CPU, OURS, THOUSAND, WARM, Conclusion, Row, all_caught, cost

Group = tuple[str, str]  # a table and a variant in it
LINE: Group = ("1-D blocks", "blocks_1d")
SWEEP: Group = ("2-D blocks", "blocks_2d")
VIOLATED: Group = ("coalescing violated", "uncoalesced")
PLAIN: Group = ("shared tile", "blocks_2d")
TILED: Group = ("shared tile", "shared_tile")
SMALL_PLAIN: Group = ("small matrices", "blocks_2d")
SMALL_WHOLE: Group = ("small matrices", "whole_rows")
SMALL_UNROLLED: Group = ("small matrices", "unrolled")
SMALL_ROLLED: Group = ("small matrices", "rolled")
ROWS_UNROLLED: Group = ("small matrices", "unrolled_rows")
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
    """Against BLAS on the CPU of the same machine, as in the course."""

    def judge(rows: list[Row]) -> tuple[bool, str]:
        rate = _rate(_fastest(rows, group))
        cpu = _rate(_fastest([row for row in rows if row.case.dtype == "float64"], (ON_CPU, "cpu_blas")))
        return (rate > cpu) == faster, f"best {rate:,.0f} GFLOP/s, this CPU {cpu:,.0f}, the course's {CPU_GFLOPS}"

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


def _changes_little(changed: Group, plain: Group) -> Judge:
    """Whether the rates of two groups are within a tenth of each other at every size."""

    def judge(rows: list[Row]) -> tuple[bool, str]:
        before = {row.case.sizes: row for row in _timed(rows, plain)}
        ratios = {row.case.sizes[0]: _rate(row) / _rate(before[row.case.sizes]) for row in _timed(rows, changed)}
        said = ", ".join(f"{size}: {ratio:.2f} times" for size, ratio in ratios.items())
        return all(0.9 <= ratio <= 1.1 for ratio in ratios.values()), f"as fast as {plain[1]}, by size: {said}"

    return judge


def _one_gap(rows: list[Row]) -> tuple[bool, str]:
    """Holds if from each width to its double the rate changes by a twentieth at most, but for 32 to 64."""
    rates = {row.case.parameters["x"]: _rate(row) for row in _timed(rows, LINE)}
    steps = {(x, 2 * x): rates[2 * x] / rates[x] for x in sorted(rates) if 2 * x in rates}
    if (32, 64) not in steps:
        raise KeyError("blocks of 32 and 64 threads were not both timed")
    notable = {step for step, ratio in steps.items() if not 0.95 <= ratio <= 1.05}
    return notable == {(32, 64)}, ", ".join(f"{x} to {wider}: {ratio:.2f} times" for (x, wider), ratio in steps.items())


def _five_best(rows: list[Row]) -> tuple[bool, str]:
    timed = _timed(rows, SWEEP)
    if len(timed) <= 5:
        raise KeyError("five blocks or fewer were timed")
    ranked = sorted(timed, key=_rate, reverse=True)[:5]
    said = ", ".join("{} x {}: {} threads".format(*_block(row), np.prod(_block(row))) for row in ranked)
    return all(256 <= np.prod(_block(row)) <= 1024 for row in ranked), said


def _thousand_runs_hit_the_cache(rows: list[Row]) -> tuple[bool, str]:
    """Holds if a product right after the same is a tenth faster, for kernels that read global memory."""
    times = {(row.case.sizes[0], row.case.timing): row.ms or np.nan for row in _timed(rows, (CACHES, "blocks_2d"))}
    sizes = sorted({size for size, _ in times})
    said = "; ".join(f"{size}: " + ", ".join(f"{timing} {1000 * times[size, timing]:.4g} us" for timing in
                     (COLD, WARM, THOUSAND) if (size, timing) in times) for size in sizes)  # fmt: skip
    return all(times[size, WARM] < 0.9 * times[size, COLD] for size in sizes), said


def _barrier_is_cheap(rows: list[Row]) -> tuple[bool, str]:
    ratio, said = cost([row for row in rows if row.case.sizes == LARGE], "shared_tile", "missing_barrier", BROKEN)
    return ratio <= 1.1, said


TP, COURSE = "TP CUDA", "GPGPU, Multiplicación"
CONCLUSIONS = (
    Conclusion("In one dimension, blocks of 64 threads are best", f"{TP}, 2.1", _line_is_best_at_64),
    Conclusion("In one dimension, the only notable gap is between 32 and 64 threads (here: others up to a twentieth)",
               f"{TP}, 2.1", _one_gap),
    Conclusion("Blocks in one dimension are slower than the CPU", f"{TP}, 2.2", _against_cpu(LINE, faster=False)),
    Conclusion("Blocks in two dimensions are faster than the CPU", f"{TP}, 5", _against_cpu(SWEEP, faster=True)),
    Conclusion("Blocks in two dimensions beat blocks in one", f"{TP}, 5", _two_dimensions_beat_one),
    Conclusion("Violating coalescing costs an immense amount of time (here: at least twice it, for every block)",
               f"{TP}, 3.1", _each_faster(SWEEP, VIOLATED, least=2.0)),
    Conclusion("The best block has neither 1, 2 or 4 nor 256, 512 or 1024 threads along a side", f"{TP}, 3.2",
               _best_block(lambda x, y: {x, y} <= {8, 16, 32, 64, 128})),
    Conclusion("The best block has 256 to 1024 threads", f"{TP}, 3.2", _best_block(lambda x, y: 256 <= x * y <= 1024)),
    Conclusion("So have the five best", f"{TP}, 3.2", _five_best),
    Conclusion("The best block is 16, 32 or 64 threads wide", f"{TP}, 5", _best_block(lambda x, y: x in (16, 32, 64))),
    Conclusion("The best block tends to a square (here: no side more than 4 times the other)", f"{TP}, 3.2",
               _best_block(lambda x, y: max(x, y) <= 4 * min(x, y))),
    Conclusion("Without shared memory, too large a square is slower: 32 x 32 than 16 x 16", f"{TP}, 4.2",
               _squares(PLAIN, lambda rates: rates[2] < rates[1])),
    Conclusion("A shared tile beats the same block without shared memory", f"{TP}, 4.2", _each_faster(TILED, PLAIN)),
    Conclusion("With shared memory, the larger the tile, the faster", f"{TP}, 4.2",
               _squares(TILED, lambda rates: rates == sorted(rates))),
    Conclusion("A register per thread is the fastest place for the sums, faster than shared memory", f"{TP}, 4.1",
               _each_faster((SUMS, "shared_tile"), (SUMS, "shared_sums"))),
    Conclusion("Whole rows and columns in shared memory are slower than global memory and its caches", COURSE,
               _each_faster(SMALL_PLAIN, SMALL_WHOLE)),
    Conclusion("Whole rows and columns of 512 x 512 do not fit into shared memory", COURSE, _512_does_not_fit),
    Conclusion("A thousand runs measure the caches, not memory (here: at least a tenth faster than cold)", COURSE,
               _thousand_runs_hit_the_cache),
    Conclusion("Unrolling changes little (here: less than a tenth, at every size)", COURSE,
               _changes_little(SMALL_UNROLLED, SMALL_PLAIN)),
    Conclusion("Nor does the compiler's own unrolling, which its optimisation includes", COURSE,
               _changes_little(SMALL_PLAIN, SMALL_ROLLED)),
    Conclusion("Unrolling changes little with shared memory, too", COURSE, _changes_little(ROWS_UNROLLED, SMALL_WHOLE)),
    Conclusion("the barrier costs a tenth at most", OURS, _barrier_is_cheap),
    Conclusion("every broken variant is caught, also the stale tile at a ragged edge of the course's kernel 4", OURS,
               partial(all_caught, VARIANTS)),
)  # fmt: skip
