"""Runs every mutant of every kernel and prints which are caught: ``python -m tests.emulator.mutants``.

A mutant that no case can catch does what the kernel does; `survivors.py` says why.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from tests.cases.all import CASES
from tests.cases.case import Case
from tests.emulator import device
from tests.emulator.build import compile_unit, flatten, source_of, sources, stem_of, unit
from tests.emulator.cpp_mutants import CHECKS, caught_mutants
from tests.emulator.cupy import on_host
from tests.emulator.device import HOST, open_library, reached, schedule
from tests.emulator.mutate import Mutant, mutate
from tests.emulator.operators import KINDS
from tests.emulator.sandbox import HELPERS, compiling, contained, few, limit_time
from tests.emulator.survivors import ELSEWHERE, EQUIVALENT, FASTER

SEEDS = range(4)
FLOOR = 0.95
# Of each of KINDS in a source: as many are compiled, and as many of those that a case executes are run.
DRAWN, MOST = 14, 5
BUDGET = 50_000_000  # accesses; no case has a sixth of it
STEMS = [*(stem_of(source) for source in sources()), *CHECKS]


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
    if stem in CHECKS:
        return [Outcome(mutant, caught) for mutant, caught in caught_mutants(stem)]
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
            executed |= {one.number for one in mutants if one.file == f"{stem}.cu" and one.kind not in KINDS}
            own = [mutant for mutant in mutants if (stem, mutant.file, mutant.function) not in ELSEWHERE
                   and mutant.number in executed]  # fmt: skip
            return [Outcome(mutant, contained(partial(_caught, mutant, places, cupy))) for mutant in few(own, MOST)]
        finally:
            del HOST.replaced[stem]


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
