"""Runs every mutant of every kernel and prints which are caught: ``python -m tests.emulator.mutants``.

A mutant that no case can catch does what the kernel does; `survivors.py` says why.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any

import pytest

from tests.cases.all import CASES
from tests.cases.case import Case
from tests.emulator import device
from tests.emulator.build import compile_unit, flatten, source_of, sources, stem_of, unit
from tests.emulator.cpp_mutants import CHECKS, caught_mutants
from tests.emulator.cupy import on_host
from tests.emulator.device import HOST, Loaded, open_library, reached, schedule
from tests.emulator.mutate import Mutant, mutate
from tests.emulator.operators import KINDS
from tests.emulator.sandbox import HELPERS, compiling, contained, few, limit_time, part_of
from tests.emulator.survivors import ELSEWHERE, EQUIVALENT, FASTER, MISSED

SEEDS = range(4)
FLOOR = 0.97  # of those that change a result
# Of each of KINDS in a source: as many are compiled, and as many of those that a case executes are run.
DRAWN, MOST = 14, 5
ON_GPU = [stem_of(source) for source in sources()]
STEMS = [*ON_GPU, *CHECKS]
# How many parts the mutants of a source run in; one, unless they take longer than half a minute.
PARTS = MappingProxyType({"common/zstd": 3, "matmul/gpu": 10, "matmul/small_k": 12, "reduce/gpu": 4, "stencil/gpu": 3,
                          "histogram/cpu": 4, "reduce/cpu": 6, "stencil/cpu": 2})  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """A mutant, and the first case that caught it with its error, or None."""

    mutant: Mutant
    caught: str | None

    @property
    def reason(self) -> str | None:
        """Why no case catches it, if that is known."""
        return (EQUIVALENT | FASTER | MISSED).get(self.mutant.site)

    @property
    def status(self) -> str:
        """Of four."""
        if self.caught is not None:
            return "caught"
        site = self.mutant.site
        return "equivalent" if site in EQUIVALENT else "faster" if site in FASTER else "missed"


def units() -> list[tuple[str, str]]:
    """What is run and recorded at a time: parts of sources."""
    counts = {stem: PARTS.get(stem, 1) for stem in STEMS}
    return [(stem, f"{part} of {count}") for stem, count in counts.items() for part in range(1, count + 1)]


def run_mutants(stem: str, part: str = "1 of 1") -> list[Outcome]:
    """Run every mutant of a source, or of a part of it, until a case catches it."""
    if stem in CHECKS:
        return [Outcome(mutant, caught) for mutant, caught in caught_mutants(stem, part)]
    compiled = _compiled(stem)
    with pytest.MonkeyPatch.context() as monkeypatch, on_host(monkeypatch) as cupy:
        monkeypatch.setitem(HOST.replaced, stem, compiled.library)
        monkeypatch.setattr(device, "BUDGET", compiled.budget)
        return [Outcome(mutant, contained(partial(_caught, mutant, compiled.cases, cupy)))
                for mutant in part_of(compiled.mutants, part)]  # fmt: skip


@dataclass(frozen=True)
class Compiled:
    """A source with its mutants.

    Attributes
    ----------
    library
        Of the kernels.
    mutants
        Those that run.
    cases
        The fastest first, each with its seconds and, by number, whether it executes a mutant's site.
    budget
        Accesses of a launch, beyond which it is assumed to hang.
    """

    library: Loaded
    mutants: list[Mutant]
    cases: list[tuple[float, Case, bytes]]
    budget: int


@lru_cache(maxsize=1)  # parts of a source run one after the other
def _compiled(stem: str) -> Compiled:
    broken = {case.variant for case in CASES if case.stem == stem and case.broken}
    cases = [case for case in CASES if case.stem == stem and not case.broken]
    if not cases:
        raise ValueError(f"kernels/{stem}: expected cases in tests/cases/all.py, got none")
    with pytest.MonkeyPatch.context() as monkeypatch, on_host(monkeypatch) as cupy:
        for case in cases:
            case.check(cupy)
        instances = sorted(instance for of_stem, instance in HOST.launched if of_stem == stem)
        text, mutants = compiling(
            lambda refused: mutate(flatten(source_of(stem)), broken, DRAWN, refused),
            lambda text: unit(HELPERS + text, instances),
        )
        library = open_library(compile_unit(text, HOST.flavour))
        monkeypatch.setitem(HOST.replaced, stem, library)
        reports = _reports(monkeypatch)
        places = _places(cases, cupy)
    executed = {mutant.number for mutant in mutants if any(seen[mutant.number] for _, _, seen in places)}
    # A header's code that no instance of this source executes is counted with another source.
    executed |= {one.number for one in mutants if one.file == f"{stem}.cu" and one.kind not in KINDS}
    own = [one for one in mutants if (stem, one.file, one.function) not in ELSEWHERE and one.number in executed]
    return Compiled(library, few(own, MOST), places, 3 * max(report.accesses for report in reports) + 100_000)


def _reports(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Those of the launches that follow."""
    reports: list[Any] = []

    class Kept(device._Report):
        def __init__(self) -> None:
            super().__init__()
            reports.append(self)

    monkeypatch.setattr(device, "_Report", Kept)
    return reports


def _places(cases: list[Case], cupy: Any) -> list[tuple[float, Case, bytes]]:
    """What `Compiled` says of cases; every one passes."""
    places = []
    for case in cases:
        seen = reached(HOST.flavour)
        seen[:] = bytes(len(seen))
        began = time.process_time()
        case.check(cupy)
        places.append((time.process_time() - began, case, bytes(seen)))
    return sorted(places, key=lambda place: place[0])


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
    """What is recorded of the mutants of a unit, as plain values: explanations change none of it.

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
    survivors = sorted(outcome.mutant.site for outcome in outcomes if outcome.caught is None)
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
    by_status = [counts[status] for status in ("caught", "equivalent", "faster", "missed")]
    return "{:22} {:11} {:7} {:7} {:11} {:7} {:7}".format(stem, kind, sum(by_status), *by_status)


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
