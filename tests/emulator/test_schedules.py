"""Every variant of every kernel on the host, in many orders of its threads: right ones pass, broken ones are caught."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from kernels.histogram.gpu import KERNELS as HISTOGRAMS
from tests.cases.all import CASES
from tests.cases.case import Case
from tests.emulator.build import flatten, sources, stem_of
from tests.emulator.device import HOST, schedule

ROOT = Path(__file__).parents[2]


@pytest.fixture
def seeds(request: pytest.FixtureRequest) -> list[int]:
    """Of the schedules; the first is the plain order."""
    seed = request.config.getoption("--schedule-seed")
    return [seed] if seed is not None else list(range(request.config.getoption("--schedules")))


@pytest.mark.parametrize("case", [case for case in CASES if not case.broken], ids=str)
def test_right_in_every_schedule(case: Case, host: Any, seeds: list[int]) -> None:
    for seed in seeds:
        with schedule(seed):
            case.check(host)


@pytest.mark.parametrize("case", [case for case in CASES if case.broken], ids=str)
def test_broken_is_caught_in_every_schedule(case: Case, host: Any, seeds: list[int]) -> None:
    for seed in seeds:
        with schedule(seed), pytest.raises(AssertionError):
            case.check(host)


KERNEL = re.compile(r"__global__ void(?:\s+__launch_bounds__\((?:[^()]|\([^()]*\))*\))?\s+(\w+)\(")
KERNELS = {stem_of(source): KERNEL.findall(flatten(source)) for source in sources()}


def test_every_kernel_has_a_case(host: Any) -> None:
    """Of each source every kernel ran."""
    for case in CASES:
        try:
            case.check(host)
        except AssertionError:
            assert case.broken
    ran = {(stem, instance.partition("<")[0]) for stem, instance in HOST.launched}
    every = {(stem, kernel) for stem, kernels in KERNELS.items() for kernel in kernels}
    assert every - ran == set(), "expected a case in tests/cases/all.py for each of these"
    assert {case.variant for case in CASES} >= set(HISTOGRAMS)


def test_table_of_kernels_is_complete() -> None:
    """Of each source a row that names its kernels."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Testing kernels without a GPU")[2]
    rows = {row[0].strip(" `").removesuffix(".cu"): row for row in (line.split("|")[1:] for line in text.splitlines()
            if line.startswith("| `"))}  # fmt: skip
    assert set(rows) == set(KERNELS)
    for stem, kernels in KERNELS.items():
        assert set(kernels) == set(re.findall(r"\w+", rows[stem][1])), stem


def test_long_run_is_recorded() -> None:
    """A thousand schedules of every variant, as expected; `python -m tests.benchmarks.schedules` makes the record."""
    record = json.loads((ROOT / "tests/benchmarks/results/schedules.json").read_text(encoding="utf-8"))
    assert record["schedules"] >= 1000 and record["as expected"]
    names = {tuple(row["case"].split("-")[:2]) for row in record["cases"]}
    assert names >= {(case.stem, case.variant) for case in CASES}
