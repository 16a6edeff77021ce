"""Every variant of every kernel under many thread schedules: correct ones pass, broken ones are caught."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernels.histogram.gpu import KERNELS as HISTOGRAMS
from tests.cases.all import CASES
from tests.cases.case import Case
from tests.emulator.build import flatten, sources, stem_of
from tests.emulator.device import HOST, schedule
from tests.emulator.kinds import SCHEDULES
from tests.emulator.recording import Due, Kind
from tests.emulator.records import Unit

ROOT = Path(__file__).parents[2]


@pytest.fixture
def seeds(request: pytest.FixtureRequest) -> list[int]:
    """Seeds of the schedules; seed 0 is the plain order."""
    seed = request.config.getoption("--schedule-seed")
    return [seed] if seed is not None else list(range(request.config.getoption("--schedules")))


def recorded(broken: bool) -> list[Any]:
    """Each case is a unit; its outcome is the names of the kernels that it launches."""
    return [
        pytest.param(case, id=str(case), marks=pytest.mark.recorded(SCHEDULES, [(case.stem, case.name)]))
        for case in CASES
        if case.broken is broken
    ]


def launched_by(case: Case) -> list[str]:
    """Kernels of the case's own source that ran since the launch counts were last cleared."""
    return sorted({instance.partition("<")[0] for stem, instance in HOST.launched if stem == case.stem})


@pytest.mark.parametrize("case", recorded(broken=False))
def test_right_in_every_schedule(case: Case, host: Any, seeds: list[int], due: Due) -> None:
    for seed in seeds:
        with schedule(seed):
            case.check(host)
    due.outcomes[case.stem, case.name] = launched_by(case)


@pytest.mark.parametrize("case", recorded(broken=True))
def test_broken_is_caught_in_every_schedule(case: Case, host: Any, seeds: list[int], due: Due) -> None:
    for seed in seeds:
        with schedule(seed), pytest.raises(AssertionError):
            case.check(host)
    due.outcomes[case.stem, case.name] = launched_by(case)


KERNEL = re.compile(r"__global__ void(?:\s+__launch_bounds__\((?:[^()]|\([^()]*\))*\))?\s+(\w+)\(")
KERNELS = {stem_of(source): KERNEL.findall(flatten(source)) for source in sources()}


def test_every_kernel_has_a_case(host: Any, matching: Callable[[Kind], dict[Unit, Any]]) -> None:
    """Every kernel is launched by a case: from the records, or by running the case once more."""
    recorded = matching(SCHEDULES)
    ran: set[tuple[str, str]] = set()
    for case in CASES:
        if (case.stem, case.name) in recorded:
            ran |= {(case.stem, kernel) for kernel in recorded[case.stem, case.name]}
            continue
        try:
            case.check(host)
        except AssertionError:
            assert case.broken
    ran |= {(stem, instance.partition("<")[0]) for stem, instance in HOST.launched}
    every = {(stem, kernel) for stem, kernels in KERNELS.items() for kernel in kernels}
    assert every - ran == set(), "expected a case in tests/cases/all.py for each of these"
    assert {case.variant for case in CASES} >= set(HISTOGRAMS)


def test_table_of_kernels_is_complete() -> None:
    """One row per source, which names its kernels."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Testing kernels without a GPU")[2]
    rows = {row[0].strip(" `").removesuffix(".cu"): row for row in (line.split("|")[1:] for line in text.splitlines()
            if line.startswith("| `"))}  # fmt: skip
    assert set(rows) == set(KERNELS)
    for stem, kernels in KERNELS.items():
        assert set(kernels) == set(re.findall(r"\w+", rows[stem][1])), stem


def test_long_run_is_recorded() -> None:
    """A thousand schedules of every variant; `python -m tests.benchmarks.schedules` makes the record."""
    record = json.loads((ROOT / "tests/benchmarks/results/schedules.json").read_text(encoding="utf-8"))
    assert record["schedules"] >= 1000 and record["as expected"]
    names = {tuple(row["case"].split("-")[:2]) for row in record["cases"]}
    assert names >= {(case.stem, case.variant) for case in CASES if case.variant != "production"}  # a job's own kernel
