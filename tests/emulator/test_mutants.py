"""Mutants of every kernel: each is caught by a case, or listed with the reason why it changes no result."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest

from kernels.common import nvrtc
from tests.cases.all import CASES
from tests.emulator.build import flatten, source_of
from tests.emulator.kinds import MUTANTS
from tests.emulator.mutants import FLOOR, ON_GPU, Tally, run_mutants, score, tally, units
from tests.emulator.mutate import mutate, without_comments
from tests.emulator.operators import KINDS
from tests.emulator.recording import Due, Kind
from tests.emulator.records import Unit
from tests.emulator.sandbox import contained, few, limit_time, part_of
from tests.emulator.survivors import EQUIVALENT, FASTER, MISSED

SOURCE = """#line 1 "tiny.cu"
template <int N> __global__ void kernel(const int* x, int* out, i64 n, int count) {
    const int i = threadIdx.x;  // if (i < n) __syncthreads();
    if (i >= n || i < 0) return;
    constexpr bool FEW = N < 4;
    if (N > 2) out[i] = i < n && x[i] > 3 ? x[min(i + 1, count)] : atomicAdd(out, x[i]);
    __syncthreads();
    for (int k = 0; k < N; ++k) atomicMax(out + k, 1);
    for (i64 k = i; k <= n - 1; k += 2) __syncwarp();
    if (__syncthreads_and(out[0])) out[1] = 0;
}
__global__ void broken(int* x) { if (threadIdx.x < 9) x[9] = 0; }
"""


def test_what_is_mutated() -> None:
    text, mutants = mutate(SOURCE, {"broken"})
    got = [(mutant.line, mutant.kind, mutant.text) for mutant in mutants]
    assert got == [
        (3, "guard", "i >= n"), (3, "guard", "i < 0"), (5, "guard", "i < n"), (5, "clamp", "min(i + 1, count)"),
        (5, "atomic", "atomicAdd("), (6, "barrier", "__syncthreads()"), (7, "atomic", "atomicMax("),
        (8, "bound", "n - 1"), (8, "barrier", "__syncwarp()"), (9, "barrier", "__syncthreads_and(out[0])"),
    ]  # fmt: skip
    assert {(mutant.file, mutant.function) for mutant in mutants} == {("tiny.cu", "kernel")}
    assert "if ((!host_mutant(1) && (i >= n)) || (!host_mutant(2) && (i < 0))) return;" in text
    assert "(host_mutant(3) || (i < n)) && x[i] > 3 ? x[(host_mutant(4) ? (i + 1) : min(i + 1, count))]" in text
    assert "host_either_atomicAdd(5, out, x[i])" in text and "(host_mutant(6) ? void() : __syncthreads());" in text
    assert "if ((host_mutant(10) ? int(out[0]) : __syncthreads_and(out[0]))) out[1]" in text
    assert "k <= (n - 1) + host_mutant(8);" in text and text.count("\n") == SOURCE.count("\n")


OPERATORS = """#line 1 "tiny.cu"
__device__ int kernel(const float* x, float* out, u64 n, u64 carry) {
    u64 sum = 0, low = n - 1 + carry;
    for (int k = 2; k < 9; k += 4) sum += u64(x[k] != x[k]);
    low |= n != 0;
    if (low == n) out[3 * n] = one_nan(x[2]);
    flush(out);
    return __float2int_rn(x[0]) & SIGN;
}
"""


def test_operators_that_are_mutated() -> None:
    """Each changes once, in the smallest expression around it, and all that are inside another are still there."""
    text, mutants = mutate(OPERATORS, set(), 9)
    got = {(mutant.line, mutant.kind, mutant.text) for mutant in mutants if mutant.kind in KINDS}
    assert got == {
        (2, "sign", "n + 1 + carry"), (2, "sign", "n - 1 - carry"), (2, "off-by-one", "n + carry"),
        (2, "sticky", "n - 1"), (3, "off-by-one", "begins at 2 + 1"), (3, "off-by-one", "ends at 9 - 1"),
        (3, "stride", "steps of 2 * (4)"), (3, "sign", "sum -= u64(x[k] != x[k])"),
        (3, "width", "half the width: sum += u64(x[k] != x[k])"), (3, "comparator", "x[k] == x[k]"),
        (4, "sticky", "without low |= n != 0"), (4, "comparator", "n == 0"), (5, "comparator", "low != n"),
        (5, "stride", "3 * (n + 1)"), (5, "zero", "(x[2])"), (5, "flush", "without out[3 * n] = one_nan(x[2])"),
        (6, "flush", "without flush(out)"), (7, "rounding", "host_other___float2int_rn(x[0]) & SIGN"),
        (7, "sticky", "__float2int_rn(x[0]) | SIGN"), (7, "zero", "__float2int_rn(x[0]) & 0 & SIGN"),
    }  # fmt: skip
    number = next(mutant.number for mutant in mutants if mutant.text == "n == 0")
    assert f"low |= (host_mutant({number}) ? (n == 0) : (n != 0))" in text
    assert text.count("\n") == OPERATORS.count("\n")


TWICE = """#line 1 "tiny.cu"
__global__ void kernel(int* x) { x[0] = 1; __syncthreads(); x[0] += 2; __syncthreads(); x[0] -= 3; }
"""


def test_a_mutant_has_a_name_of_its_own_that_stays_when_lines_move() -> None:
    mutants = mutate(TWICE, set(), 9)[1]
    barriers = [mutant.text for mutant in mutants if mutant.kind == "barrier"]
    assert barriers == ["__syncthreads()", "__syncthreads() (2)"]
    assert len({mutant.site for mutant in mutants}) == len(mutants) > 5
    moved = mutate(TWICE.replace("__global__", "// more\n__global__"), set(), 9)[1]
    assert moved[0].line == 2 and [one.site for one in moved] == [one.site for one in mutants]
    assert [one.site for one in few(moved, 1)] == [one.site for one in few(mutants, 1)]


def test_parts_have_every_mutant_once() -> None:
    mutants = mutate(SOURCE, {"broken"})[1]
    parts = [part_of(mutants, f"{part} of 3") for part in (1, 2, 3)]
    assert sorted(mutant.number for part in parts for mutant in part) == [mutant.number for mutant in mutants]
    assert [len(part) for part in parts] == [4, 3, 3] and part_of(mutants, "1 of 1") == mutants


def test_what_crashes_or_does_not_end_is_caught() -> None:
    def endless() -> None:
        limit_time(0.1)
        while True:
            pass

    assert contained(lambda: None) is None and contained(lambda: "wrong") == "wrong"
    assert contained(endless) == "ended by SIGPROF"
    assert contained(lambda: os.kill(os.getpid(), signal.SIGSEGV)) == "ended by SIGSEGV"
    assert contained(lambda: os._exit(1)) == "ended by a sanitizer"


def test_every_barrier_and_every_atomic_has_a_mutant() -> None:
    for stem in ON_GPU:
        broken = {case.variant for case in CASES if case.stem == stem and case.broken}
        _, mutants = mutate(flatten(source_of(stem)), set())
        text = without_comments(flatten(source_of(stem)))
        for kind, pattern in (("barrier", r"__sync\w+\("), ("atomic", r"\batomic[A-Z]\w*\(")):
            assert sum(mutant.kind == kind for mutant in mutants) == len(re.findall(pattern, text))
        assert {mutant.function for mutant in mutate(flatten(source_of(stem)), broken)[1]} & broken == set()


@pytest.fixture(scope="module")
def tallies() -> dict[Unit, Tally]:
    """Outcomes of the units that this run repeated."""
    return {}


@pytest.mark.timeout(600)  # a source is compiled first, on a machine that may be busy
@pytest.mark.parametrize(
    ("stem", "part"), [pytest.param(*unit, marks=pytest.mark.recorded(MUTANTS, [unit])) for unit in units()]
)
def test_every_mutant_is_caught_or_explained(
    stem: str, part: str, host: Any, tallies: dict[Unit, Tally], due: Due
) -> None:
    outcomes = run_mutants(stem, part)
    assert outcomes, "a part without mutants: see PARTS in mutants.py"
    tallies[stem, part] = tally(outcomes)
    assert [str(outcome.mutant) for outcome in outcomes if outcome.caught is None and not outcome.reason] == []
    due.outcomes[stem, part] = asdict(tallies[stem, part])


def test_score(
    host: Any,
    tallies: dict[Unit, Tally],
    matching: Callable[[Kind], dict[Unit, Any]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Share of caught mutants, of those that change a result; and every explanation belongs to a survivor."""
    every = {unit: Tally(**outcome) for unit, outcome in matching(MUTANTS).items()} | tallies
    if set(every) != set(units()):
        pytest.skip("needs the mutants of all sources")
    mutants, caught = (sum(getattr(one, name) for one in every.values()) for name in ("mutants", "caught"))
    with capsys.disabled():
        print(f"\n{caught} of {mutants} mutants caught; of those that change a result {score(every.values()):.1%}")
    assert score(every.values()) >= FLOOR
    assert {tuple(site) for one in every.values() for site in one.survivors} == set(EQUIVALENT | FASTER | MISSED)


def test_mutants_leave_the_kernels_as_they_are(host: Any) -> None:
    outcomes = run_mutants("transpose/strided_copy")
    assert outcomes and all(outcome.caught for outcome in outcomes)
    case = next(case for case in CASES if case.stem == "transpose/strided_copy")
    case.check(host)
    assert (nvrtc.KERNELS / "transpose/strided_copy.cu").read_text().count("host_mutant") == 0
