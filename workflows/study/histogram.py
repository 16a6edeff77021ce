"""The study of histograms of 10-bit samples: where the counters are, how much a thread does, and what is best today.

Times are the course's, for 2**25 samples: "Cuda grilles, blocs & mémoire partagée", a lecture on an RTX 3060. Blocks,
threads and slices are as there, and so are 10-bit samples in int32; counters in global memory have 64 bits here and
had 32 there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from kernels.study.baselines import BASELINES
from kernels.study.histogram import VALUES, VARIANTS, ten_bit_reference
from workflows.study.study import (
    BROKEN,
    ON_CPU,
    OURS,
    Arrays,
    Case,
    Conclusion,
    Figure,
    Row,
    Study,
    all_caught,
    best,
    cost,
    first_difference,
    parameters,
)

COURSE_SAMPLES = 2**25
GLOBAL, SINGLE, SHARED, INVERSE, BANKS, TODAY, CONSTANT = (
    "counters in global memory", "one sample per thread", "counters in shared memory", "one thread per value",
    "one thread per value, banks", "today", "all samples equal",
)  # fmt: skip
ORIGINAL = "the course's own loops"
SLICES = {  # milliseconds of the course by blocks, threads, slice
    "global_atomics": {(64, 1024, 512): 7.0, (64, 512, 1024): 6.8, (64, 256, 2048): 6.7},
    "unrolled": {(64, 1024, 512): 7.2, (64, 512, 1024): 6.9, (64, 256, 2048): 6.7},
    "ilp": {(128, 512, 512): 6.9},
}
ORIGINALS = {"course_slices": "global_atomics", "course_unrolled": "unrolled", "course_ilp": "ilp"}
SHARED_SLICES = {(2048, 32, 512): 1.3, (2048, 64, 256): 1.3, (2048, 128, 128): 1.1,
                 (4096, 32, 256): 0.9, (4096, 64, 128): 1.0, (8192, 64, 64): 0.9}  # fmt: skip
INVERSE_MS = {(4096, 8192): 121.4, (8192, 4096): 121.4, (16384, 2048): 121.2, (32768, 1024): 121.4}
BANKS_MS = {"banks": 21.6, "banks2": 20.7, "banks4": 20.5}
TOO_LARGE = 2**16  # samples per block that would take 256 KiB of shared memory


def _cases() -> Iterator[Case]:
    size = (COURSE_SAMPLES,)
    for variant, times in SLICES.items():
        for (blocks, threads, length), ms in times.items():
            own = parameters(blocks=blocks, threads=threads, slice=length)
            yield Case(GLOBAL, variant, size, "int32", own, ms, quick=True)
    for variant, guarded in ORIGINALS.items():
        for (blocks, threads, length), ms in SLICES[guarded].items():
            own = parameters(blocks=blocks, threads=threads, slice=length)
            yield Case(ORIGINAL, variant, size, "int32", own, ms, quick=True)
    for exponent in range(15, 21):
        own = parameters(blocks=2**exponent, threads=2 ** (25 - exponent))
        yield Case(SINGLE, "one_per_thread", size, "int32", own, 6.6, quick=exponent == 15)
    for (blocks, threads, length), ms in SHARED_SLICES.items():
        own = parameters(blocks=blocks, threads=threads, slice=length)
        yield Case(SHARED, "shared", size, "int32", own, ms, quick=blocks != 4096)
    for (blocks, length), ms in INVERSE_MS.items():
        yield Case(INVERSE, "inverse", size, "int32", parameters(blocks=blocks, slice=length), ms, blocks == 4096)
    too_large = parameters(blocks=COURSE_SAMPLES // TOO_LARGE, slice=TOO_LARGE)
    yield Case(INVERSE, "inverse", size, "int32", too_large, quick=True)
    for variant, ms in BANKS_MS.items():
        yield Case(BANKS, variant, size, "int32", course_ms=ms, quick=True)
    for exponent in (25, 28):
        yield Case(TODAY, "production", (2**exponent,), "int32", quick=exponent == 25)
    for variant in ("global_atomics", "shared", "production"):
        yield Case(CONSTANT, variant, size, "int32", VARIANTS[variant].parameters, quick=variant != "global_atomics")
    for variant in ("banks_if", "banks_xor"):
        yield Case(BANKS, variant, size, "int32", quick=True)
    for variant in BASELINES["histogram"]:
        n = 2**22 if variant == "cpu_python" else COURSE_SAMPLES
        yield Case(ON_CPU, variant, (n,), "int32", quick=True)
    for variant in ("no_barrier", "shared", "plain_add", "past_the_end", "global_atomics"):
        own = VARIANTS["no_barrier" if variant == "shared" else variant].parameters
        yield Case(BROKEN, variant, size, "int32", own, quick=True)


def inputs(case: Case, generator: np.random.Generator) -> Arrays:
    """10-bit samples, uniform or all equal."""
    if case.table == CONSTANT:
        return (np.full(case.sizes, VALUES // 2, np.int32),)
    return (generator.integers(0, VALUES, case.sizes, np.int32),)


def reference(arrays: Arrays, _: Case) -> NDArray[np.generic]:
    """The counts by NumPy."""
    return ten_bit_reference(arrays[0])


def disagreement(got: NDArray[np.generic], expected: NDArray[np.generic], _: Arrays, __: Case) -> str | None:
    """Exact: counts are integers."""
    return first_difference(got, expected)


def work(case: Case) -> float:
    """Bytes read."""
    return 4.0 * math.prod(case.sizes)


def _ms(rows: list[Row], variant: str, table: str | None = None) -> float:
    """Best time of a variant at the course's size; KeyError where none was measured."""
    same = [row for row in rows if row.case.sizes == (COURSE_SAMPLES,)]
    if table is None:
        same = [row for row in same if row.case.table != CONSTANT]
    return best(same, variant, table).ms or math.nan


def slices_alike(rows: list[Row]) -> tuple[bool, str]:
    """Holds if the slowest slice takes at most a tenth longer than the fastest."""
    timed = [row for row in rows if (row.case.table, row.case.variant) == (GLOBAL, "global_atomics") and row.ms]
    times = {row.case.parameters["slice"]: row.ms or math.nan for row in timed}
    if len(times) < 2:
        raise KeyError("fewer than two slices were timed")
    numbers = ", ".join(f"slice {length}: {ms:.4g} ms" for length, ms in times.items())
    return max(times.values()) <= 1.1 * min(times.values()), numbers


def _against(new: str, old: str, holds: Callable[[float], bool]) -> Callable[[list[Row]], tuple[bool, str]]:
    """Judge how many times faster than `old` the variant `new` is, each at its best."""

    def judge(rows: list[Row]) -> tuple[bool, str]:
        before, after = _ms(rows, old), _ms(rows, new)
        return holds(before / after), f"{old} {before:.4g} ms, {new} {after:.4g} ms: {before / after:.2f} times faster"

    return judge


def increments_alike(rows: list[Row]) -> tuple[bool, str]:
    """Holds if neither way to write the increment takes a tenth longer than another."""
    times = {name: _ms(rows, name) for name in ("banks_if", "banks", "banks_xor")}
    said = ", ".join(f"{name} {ms:.4g} ms" for name, ms in times.items())
    return max(times.values()) <= 1.1 * min(times.values()), said


def barriers_are_cheap(rows: list[Row]) -> tuple[bool, str]:
    """Holds if both barriers together cost at most a tenth."""
    ratio, said = cost(rows, "shared", "no_barrier", BROKEN)
    return ratio <= 1.1, said


def guard_is_cheap(rows: list[Row]) -> tuple[bool, str]:
    """Holds if the guard costs at most a tenth."""
    ratio, said = cost(rows, "global_atomics", "past_the_end", BROKEN)
    return ratio <= 1.1, said


def atomics_cost(rows: list[Row]) -> tuple[bool, str]:
    """Holds if plain increments, which are wrong, are faster."""
    ratio, said = cost(rows, "global_atomics", "plain_add", BROKEN)
    return ratio > 1, said


def inverse_is_worst(rows: list[Row]) -> tuple[bool, str]:
    """Holds if the inverse kernel at its best is slower than every other correct kernel at its best."""
    times = {name: _ms(rows, name) for name, variant in VARIANTS.items() if variant.broken is None}
    worst = max(times, key=lambda name: times[name])
    second = max((name for name in times if name != "inverse"), key=lambda name: times[name])
    return worst == "inverse", f"inverse {times['inverse']:.4g} ms, slowest other: {second} {times[second]:.4g} ms"


def unrolled_banks_alike(rows: list[Row]) -> tuple[bool, str]:
    """Holds if two and four values per thread change the time by a fifth at most."""
    one, two, four = (_ms(rows, variant) for variant in ("banks", "banks2", "banks4"))
    numbers = f"banks {one:.4g} ms, banks2 {two:.4g} ms, banks4 {four:.4g} ms"
    return max(one, two, four) <= 1.2 * min(one, two, four), numbers


def production_is_best(rows: list[Row]) -> tuple[bool, str]:
    """Holds if production is faster than every kernel of the course."""
    times = {name: _ms(rows, name) for name, variant in VARIANTS.items() if variant.broken is None}
    ours = times.pop("production")
    said = ", ".join(f"{name} {ms / ours:.3g}" for name, ms in times.items())
    return ours < min(times.values()), f"production {ours:.4g} ms; how many times as long the others take: {said}"


def constant_is_no_worse(rows: list[Row]) -> tuple[bool, str]:
    """Holds if equal samples, which all hit one counter, cost production at most a tenth more."""
    ratios = {name: _ms(rows, name, CONSTANT) / _ms(rows, name, table)
              for name, table in (("shared", SHARED), ("production", TODAY))}  # fmt: skip
    numbers = ", ".join(f"{name}: {ratio:.2f} times as long as uniform samples" for name, ratio in ratios.items())
    return ratios["production"] <= 1.1, numbers


E = "Histogramme"
CONCLUSIONS = (
    Conclusion("How many samples a thread counts makes no difference (here: a tenth at most)", f"{E}, 2b",
               slices_alike),
    Conclusion("Unrolling the loop does not help (here, the course's own loops: a tenth at most)", f"{E}, 2c",
               _against("course_unrolled", "course_slices", lambda gain: gain <= 1.1)),
    Conclusion("Nor does unrolling by hand, four samples per iteration", f"{E}, 2c",
               _against("course_ilp", "course_slices", lambda gain: gain <= 1.1)),
    Conclusion("One sample per thread, without a loop, takes about as long (here: within a fifth)", f"{E}, 3",
               _against("one_per_thread", "global_atomics", lambda gain: 1 / 1.2 <= gain <= 1.2)),
    Conclusion("Counters in shared memory are several times faster than in global memory (here: at least 3; there 7.4)",
               f"{E}, 3", _against("shared", "global_atomics", lambda gain: gain >= 3)),
    Conclusion("One thread per value is very slow: the worst of all", f"{E}, 4a", inverse_is_worst),
    Conclusion("Reading along the banks makes it 6 times faster (here: 4 to 9 times)", f"{E}, 4d",
               _against("banks", "inverse", lambda gain: 4 <= gain <= 9)),
    Conclusion("Two or four values per thread change little (here: a fifth at most)", f"{E}, 4d",
               unrolled_banks_alike),
    Conclusion("A ternary operator and an exclusive or in place of a condition improve it little (here: by a tenth at "
               "most)", f"{E}, 4d", increments_alike),
    Conclusion("Without a barrier, an atomic or a guard counts are wrong, and a check against the CPU shows it",
               f"{E}, 2a", partial(all_caught, VARIANTS)),
    Conclusion("the barriers cost a tenth at most", OURS, barriers_are_cheap),
    Conclusion("a guard costs a tenth at most", OURS, guard_is_cheap),
    Conclusion("atomic increments take longer than plain ones, which are wrong", OURS, atomics_cost),
    Conclusion("the production kernel is faster than every kernel of the course", OURS, production_is_best),
    Conclusion("equal samples cost it no more than uniform ones (here: a tenth at most)", OURS, constant_is_no_worse),
)  # fmt: skip


STUDY = Study(
    job="histogram",
    course="Cuda grilles, blocs & mémoire partagée: Histogramme (RTX 3060; author not named)",
    unit="GB/s",
    limit=lambda case: "read",
    variants=MappingProxyType({**VARIANTS, **BASELINES["histogram"]}),
    cases=tuple(_cases()),
    inputs=inputs,
    reference=reference,
    disagreement=disagreement,
    work=work,
    figures=(
        Figure(GLOBAL, "2^25 10-bit samples, counters in global memory, by the slice of a thread", "slice"),
        Figure(ORIGINAL, "2^25 10-bit samples, the course's own loops, by the slice of a thread", "slice"),
        Figure(SHARED, "2^25 10-bit samples, counters in shared memory, by the slice of a thread", "slice"),
        Figure(SINGLE, "2^25 10-bit samples, one per thread, by the threads of a block", "threads"),
    ),
    conclusions=CONCLUSIONS,
)
