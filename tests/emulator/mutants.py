"""Runs every mutant of every kernel and prints which are caught: ``python -m tests.emulator.mutants``.

A mutant that no case can catch does what the kernel does; `survivors.py` says why.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
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
from tests.emulator.survivors import ELSEWHERE, EQUIVALENT, FASTER, MISSED

SEEDS = range(4)
FLOOR = 0.97  # of those that change a result
# Of each of KINDS in a source: as many are compiled, and as many of those that a case executes are run.
DRAWN, MOST = 14, 5
ON_GPU = [stem_of(source) for source in sources()]
STEMS = [*ON_GPU, *CHECKS]


@dataclass(frozen=True)
class Outcome:
    """A mutant, and the first case that caught it with its error, or None."""

    mutant: Mutant
    caught: str | None

    @property
    def reason(self) -> str | None:
        """Why no case catches it, if that is known."""
        return (EQUIVALENT | FASTER | MISSED).get(self.site)

    @property
    def status(self) -> str:
        """Of four."""
        if self.caught is not None:
            return "caught"
        return "equivalent" if self.site in EQUIVALENT else "faster" if self.site in FASTER else "missed"

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
        try:
            reports = _reports(monkeypatch)
            places = _places(cases, cupy)
            monkeypatch.setattr(device, "BUDGET", 3 * max(report.accesses for report in reports) + 100_000)
            executed = {mutant.number for mutant in mutants if any(seen[mutant.number] for _, _, seen in places)}
            # A header's code that no instance of this source executes is counted with another source.
            executed |= {one.number for one in mutants if one.file == f"{stem}.cu" and one.kind not in KINDS}
            own = [mutant for mutant in mutants if (stem, mutant.file, mutant.function) not in ELSEWHERE
                   and mutant.number in executed]  # fmt: skip
            return [Outcome(mutant, contained(partial(_caught, mutant, places, cupy))) for mutant in few(own, MOST)]
        finally:
            del HOST.replaced[stem]


def _reports(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Those of the launches that follow."""
    found: list[Any] = []

    class Kept(device._Report):
        def __init__(self) -> None:
            super().__init__()
            found.append(self)

    monkeypatch.setattr(device, "_Report", Kept)
    return found


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
    # What an expression says does not depend on the order of threads, and what a guard keeps apart seldom does.
    for seed in SEEDS[: 4 if mutant.kind in ("barrier", "atomic") else 1 if mutant.kind in KINDS else 2]:
        for seconds, case, seen in places:
            if seen[mutant.number]:
                limit_time(10 * seconds + 2)
                with schedule(seed):
                    try:
                        case.check(cupy)
                    except Exception as error:
                        return f"{case}: {' '.join(str(error).split())[:150] or type(error).__name__}"
    return None


@dataclass(frozen=True)
class Tally:
    """What is recorded of the mutants of a source, as plain values: explanations change none of it.

    Attributes
    ----------
    mutants, caught
        All of them.
    survivors
        Site of each that no case caught.
    """

    mutants: int
    caught: int
    survivors: list[list[str]]


def tally(outcomes: list[Outcome]) -> Tally:
    """Count them."""
    survivors = sorted(outcome.site for outcome in outcomes if outcome.caught is None)
    return Tally(len(outcomes), len(outcomes) - len(survivors), list(map(list, survivors)))


def score(tallies: Iterable[Tally]) -> float:
    """Share of the mutants that were caught, of those that change a result as far as is known."""
    tallies = list(tallies)
    caught = sum(one.caught for one in tallies)
    missed = sum(tuple(site) not in EQUIVALENT | FASTER for one in tallies for site in one.survivors)
    return caught / max(1, caught + missed)


def table(by_stem: dict[str, list[Outcome]]) -> str:
    """Counts by source and kind, and totals."""
    rows = ["source                 kind        mutants  caught  equivalent  faster  missed"]
    total = Counter[str]()
    for stem, outcomes in by_stem.items():
        for kind in sorted({outcome.mutant.kind for outcome in outcomes}):
            counts = Counter(one.status for one in outcomes if one.mutant.kind == kind)
            total += counts
            rows.append(_row(stem, kind, counts))
    for kind in sorted({one.mutant.kind for outcomes in by_stem.values() for one in outcomes}):
        counts = Counter(one.status for outcomes in by_stem.values() for one in outcomes if one.mutant.kind == kind)
        rows.append(_row("all", kind, counts))
    return "\n".join((*rows, _row("all", "all", total)))


def _row(stem: str, kind: str, counts: Counter[str]) -> str:
    found = [counts[status] for status in ("caught", "equivalent", "faster", "missed")]
    return "{:22} {:11} {:7} {:7} {:11} {:7} {:7}".format(stem, kind, sum(found), *found)


def main() -> None:
    """Print every mutant of the sources that are named, or of all, a table, and the score."""
    by_stem = {}
    for stem in sys.argv[1:] or STEMS:
        by_stem[stem] = run_mutants(stem)
        for outcome in by_stem[stem]:
            print(f"{outcome.mutant}: {outcome.caught or f'SURVIVES: {outcome.reason}'}", flush=True)
    total = [tally(outcomes) for outcomes in by_stem.values()]
    print(table(by_stem))
    print(f"{score(total):.1%} of those that change a result are caught")


if __name__ == "__main__":
    main()
