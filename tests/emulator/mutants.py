"""Runs every mutant of every kernel and prints which are caught: ``python -m tests.emulator.mutants``.

A mutant that no case can catch does what the kernel does; `survivors.py` says why.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from tests.cases.all import CASES
from tests.cases.case import Case
from tests.emulator import device
from tests.emulator.build import compile_unit, flatten, source_of, sources, stem_of, syntax_errors, unit
from tests.emulator.cupy import on_host
from tests.emulator.device import HOST, open_library, reached, schedule
from tests.emulator.inputs import digest
from tests.emulator.mutate import Mutant, mutate
from tests.emulator.operators import KINDS
from tests.emulator.survivors import ELSEWHERE, EQUIVALENT, FASTER

SEEDS = range(4)
FLOOR = 0.95
# Of each of KINDS in a source: as many are compiled, and as many of those that a case executes are run.
DRAWN, MOST = 16, 7
BUDGET = 50_000_000  # accesses; no case has a sixth of it
HELPERS = """#line 1 "helpers"
template <typename T> T& host_width(int, T& cell) { return cell; }
#define HOST_WIDTH(T, Half)                                         \\
    inline T& host_width(int mutant, T& cell) {                     \\
        if (host_mutant(mutant)) cell = (T)(Half)cell;               \\
        return cell;                                                \\
    }
HOST_WIDTH(int, short)
HOST_WIDTH(unsigned, unsigned short)
HOST_WIDTH(long, int)
HOST_WIDTH(unsigned long, unsigned)
HOST_WIDTH(long long, int)
HOST_WIDTH(unsigned long long, unsigned)
HOST_WIDTH(double, float)
inline int host_other___float2int_rn(float x) { return int(x); }
inline long long host_other___double2ll_rn(double x) { return (long long)(x); }
inline float host_other___fadd_rd(float a, float b) { return a + b; }
inline double host_other___dadd_rd(double a, double b) { return a + b; }
template <typename T> T host_other_fma(T a, T b, T c) { return a * b + c; }
"""
STEMS = [stem_of(source) for source in sources()]


@dataclass(frozen=True)
class Outcome:
    """A mutant, and the first case that caught it with its error, or None."""

    mutant: Mutant
    caught: str | None

    @property
    def reason(self) -> str | None:
        """Why it changes no result, if that is known."""
        return (EQUIVALENT | FASTER).get(self.site)

    @property
    def site(self) -> tuple[str, str, str]:
        """File, function and text, as in `survivors.py`."""
        return self.mutant.file, self.mutant.function, self.mutant.text


def run_mutants(stem: str) -> list[Outcome]:
    """Run every mutant of a source until a case catches it."""
    broken = {case.variant for case in CASES if case.stem == stem and case.broken}
    cases = [case for case in CASES if case.stem == stem and not case.broken]
    if not cases:
        return []
    with pytest.MonkeyPatch.context() as monkeypatch, on_host(monkeypatch) as cupy:
        for case in cases:
            case.check(cupy)
        instances = sorted(instance for of_stem, instance in HOST.launched if of_stem == stem)
        text, mutants = compiling(
            lambda refused: mutate(flatten(source_of(stem)), broken, DRAWN, refused),
            lambda text: unit(HELPERS + text, instances),
        )
        HOST.replaced[stem] = open_library(compile_unit(text, HOST.flavour))
        monkeypatch.setattr(device, "BUDGET", BUDGET)
        try:
            places = _places(cases, cupy)
            executed = {mutant.number for mutant in mutants if any(seen[mutant.number] for _, _, seen in places)}
            # A header's code that no instance of this source executes is counted with another source.
            own = [mutant for mutant in mutants if (stem, mutant.file, mutant.function) not in ELSEWHERE
                   and (mutant.number in executed or (mutant.file == f"{stem}.cu" and mutant.kind not in KINDS))]  # fmt: skip
            return [Outcome(mutant, contained(partial(_caught, mutant, places, cupy))) for mutant in few(own, MOST)]
        finally:
            del HOST.replaced[stem]


def compiling(
    generate: Callable[[set[tuple[str, int]]], tuple[str, list[Mutant]]], whole: Callable[[str], str]
) -> tuple[str, list[Mutant]]:
    """Text and mutants, without those in lines that do not compile.

    Raises
    ------
    RuntimeError
        If there are errors in other lines.
    """
    refused: set[tuple[str, int]] = set()
    while True:
        text, mutants = generate(refused)
        errors = syntax_errors(whole(text))
        lines = {(mutant.file, mutant.line) for mutant in mutants if mutant.kind in KINDS}
        if not errors:
            return whole(text), mutants
        if not errors & lines:
            raise RuntimeError(f"mutants do not compile: {sorted(errors)}")
        refused |= errors & lines


def few(mutants: list[Mutant], most: int) -> list[Mutant]:
    """At most so many of each of `operators.KINDS`, and all others."""
    ranked = sorted(mutants, key=lambda mutant: digest(str(mutant)))
    kept = {mutant for kind in KINDS for mutant in [one for one in ranked if one.kind == kind][:most]}
    return [mutant for mutant in mutants if mutant.kind not in KINDS or mutant in kept]


def _places(cases: list[Case], cupy: Any) -> list[tuple[float, Case, bytes]]:
    """Cases, the fastest first, each with its seconds and the mutants whose sites it executes; every one passes."""
    found = []
    for case in cases:
        seen = reached(HOST.flavour)
        seen[:] = bytes(len(seen))
        began = time.process_time()
        case.check(cupy)
        found.append((time.process_time() - began, case, bytes(seen)))
    return sorted(found, key=lambda one: one[0])


def _caught(mutant: Mutant, places: list[tuple[float, Case, bytes]], cupy: Any) -> str | None:
    HOST.mutant = mutant.number
    # What an expression says does not depend on the order of threads.
    for seed in SEEDS if mutant.kind not in KINDS else SEEDS[:1]:
        for seconds, case, seen in places:
            if seen[mutant.number]:
                limit_time(10 * seconds + 5)
                with schedule(seed):
                    try:
                        case.check(cupy)
                    except Exception as error:
                        return f"{case}: {' '.join(str(error).split())[:150] or type(error).__name__}"
    return None


def limit_time(seconds: float) -> None:
    """End this process after so many seconds of its own, instead of the last limit."""
    signal.setitimer(signal.ITIMER_PROF, seconds)


def contained(check: Callable[[], str | None]) -> str | None:
    """What `check` returns in a process of its own, or how that ended: a mutant may crash, or not end."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # the C library says what it found wrong with the heap
            os.write(writing, json.dumps(check()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        return f"ended by {signal.Signals(os.WTERMSIG(status)).name}"
    found: str | None = json.loads(answer)
    return found


@dataclass(frozen=True)
class Tally:
    """What is recorded of the mutants of a source, as plain values.

    Attributes
    ----------
    mutants, caught
        All of them.
    counted, counted_caught
        Those whose site is not in `FASTER`.
    survivors
        Sites of those that no case caught.
    """

    mutants: int
    caught: int
    counted: int
    counted_caught: int
    survivors: list[list[str]]


def tally(outcomes: list[Outcome]) -> Tally:
    """Count them."""
    counted = [outcome for outcome in outcomes if outcome.site not in FASTER]
    survivors = sorted({outcome.site for outcome in outcomes if outcome.caught is None})
    return Tally(len(outcomes), sum(outcome.caught is not None for outcome in outcomes), len(counted),
                 sum(outcome.caught is not None for outcome in counted), list(map(list, survivors)))  # fmt: skip


def score(tallies: Iterable[Tally]) -> float:
    """Share of the mutants that were caught, of those whose site is not in `FASTER`."""
    tallies = list(tallies)
    return sum(one.counted_caught for one in tallies) / max(1, sum(one.counted for one in tallies))


def main() -> None:
    """Print every mutant, and the score."""
    every = [outcome for stem in STEMS for outcome in run_mutants(stem)]
    for outcome in every:
        print(f"{outcome.mutant}: {outcome.caught or f'SURVIVES: {outcome.reason}'}")
    total = tally(every)
    print(f"{total.caught} of {total.mutants} mutants caught: {score([total]):.1%}")


if __name__ == "__main__":
    main()
