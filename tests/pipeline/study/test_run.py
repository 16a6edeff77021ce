"""The run loop of studies on a NumPy device: results are checked, then timed; broken variants are caught."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import chain, repeat

import numpy as np
import pytest

from kernels.study.variant import Variant, by_name
from pipeline.errors import PipelineError, UsageError
from pipeline.study.host import HostDevice
from pipeline.study.run import ATTEMPTS, COPIES, RUNS, Finding, choose_cases, median_ms, run_study
from tests.cases.toy_study import WHOLE, FakeDevice, case, double, toy
from workflows.study.registry import NAMES, STUDIES
from workflows.study.study import THOUSAND, WARM, Case, Study, parameters


def only(study: Study, device: FakeDevice | None = None) -> Finding:
    (finding,) = run_study(study, study.cases, device or FakeDevice()).findings
    return finding


def test_checked_then_timed() -> None:
    device = FakeDevice()
    finding = only(toy(case("double", course_ms=6.0)), device)
    row = finding.row
    assert finding.status == "verified" and row.verified and row.note == ""
    assert (row.ms, row.rate, row.share) == (2.0, 0.001, 1.0)  # 2000 bytes in 2 ms, of 0.001 GB/s
    assert device.log[:4] == ["read", "release", "check", "time"]
    assert set(device.log[3:]) == {"time"}


def test_wrong_is_not_timed() -> None:
    device = FakeDevice()
    finding = only(toy(case("wrong")), device)
    assert finding.status == "WRONG" and not finding.row.verified and finding.row.ms is None
    assert "1 of 100 differ, first at (1,)" in finding.row.note
    assert "time" not in device.log


def test_race_is_caught() -> None:
    device = FakeDevice()
    finding = only(toy(case("racy")), device)
    row = finding.row
    assert finding.status == "caught" and row.verified and "100 of 100 differ" in row.note
    assert (row.ms, row.rate, row.share) == (2.0, None, None)  # of a wrong result: a time, but no rate
    assert device.log[:4] == ["release", "check", "check", "check"]  # no limit is measured for it, either
    assert set(device.log[4:]) == {"time"}


def test_broken_but_not_caught() -> None:
    device = FakeDevice()
    finding = only(toy(case("lucky")), device)
    assert finding.status == "NOT CAUGHT" and not finding.row.verified
    assert str(ATTEMPTS) in finding.row.note
    assert device.log.count("check") == ATTEMPTS


def test_refused() -> None:
    finding = only(toy(case("double", parameters=parameters(block=2048))))
    assert finding.status == "refused" and not finding.row.verified and finding.row.ms is None
    assert finding.row.note == "block 2048 x 1: expected at most 1024 threads | got 2048"


def test_a_call_that_cannot_be_made_is_no_refusal() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'block'"):
        only(toy(case("lost", parameters=parameters(block=32))))


def test_out_of_memory() -> None:
    run = run_study(study := toy(case("double")), study.cases, FakeDevice(free=399))
    (finding,) = run.findings
    assert finding.status == "no memory" and not run.failures
    assert finding.row.note == "needs 400 bytes of device memory for the inputs, 399 are free"


def test_lost_device_ends_the_study() -> None:
    study = toy(case("double"), case("lost"))
    with pytest.raises(PipelineError, match="lost 100 int32: the device stopped with illegal address"):
        run_study(study, study.cases, FakeDevice())


def test_failures() -> None:
    study = toy(case("wrong"), case("lucky"), case("racy"), case("double"))
    run = run_study(study, study.cases, FakeDevice())
    assert [finding.row.case.variant for finding in run.failures] == ["wrong", "lucky"]


@pytest.mark.parametrize("variant", ["double", "racy"])
def test_transfers(variant: str) -> None:
    row = only(toy(case(variant))).row
    assert (row.to_device_ms, row.to_host_ms) == (0.2, 0.4)
    assert row.kernel_share == 2 / 2.6


@pytest.mark.parametrize(("timing", "ms", "entry"), [(WARM, 2.0, "time again"), (THOUSAND, 0.002, "time")])
def test_warm_caches(timing: str, ms: float, entry: str) -> None:
    """The same inputs each time, right after another launch, or a thousand times in a row."""
    seen: list[int] = []

    def remember(x: np.ndarray) -> np.ndarray:
        seen.append(id(x))
        return 2 * x

    device = FakeDevice()
    study = toy(case("double", timing=timing), variants=by_name(Variant("double", "", remember)))
    row = only(study, device).row
    assert row.ms == ms and set(device.log[3:]) == {entry} and len(set(seen)) == 1
    assert len(seen) == 1 + device.log.count(entry) * (RUNS if timing == THOUSAND else 1)


def test_only_the_launch_is_timed() -> None:
    """What a variant prepares and checks is done once for each copy of the inputs."""
    prepared: list[int] = []

    def prepare(x: np.ndarray, factor: int) -> Callable[[], np.ndarray]:
        prepared.append(factor)
        return lambda: factor * x

    checked = Variant("double", "", lambda x, factor: 2 * x, parameters(factor=2), timed=prepare)
    device = FakeDevice()
    finding = only(toy(case("double", n=10**5), variants=by_name(checked)), device)
    assert finding.status == "verified" and prepared == [2] and device.log.count("time") == 52
    assert all((result == device.timed[0]).all() for result in device.timed)


def test_baselines_run_on_the_host() -> None:
    device = FakeDevice()
    finding = only(toy(case("cpu")), device)
    row = finding.row
    assert finding.status == "verified" and row.ms and row.rate == pytest.approx(0.002 / row.ms)
    assert (row.share, row.to_device_ms, row.kernel_share, device.log) == (None, None, None, ["release"])
    assert only(toy(case("cpu_wrong"))).status == "WRONG"
    without = toy(case("cpu"), variants=by_name(Variant("cpu", "", refuse, on_host=True)))
    assert (only(without).status, only(without).row.note) == ("refused", "expected a compiler")
    study = toy(case("cpu"))
    assert run_study(study, study.cases, HostDevice()).environment["device"].endswith("threads")


def refuse(_: np.ndarray) -> np.ndarray:
    raise ValueError("expected a compiler")


@pytest.mark.parametrize(("n", "sets"), [(1, COPIES), (100, 6), (499, 2), (501, 1), (10**5, 1)])
def test_timed_data_is_larger_than_the_cache(n: int, sets: int) -> None:
    seen: set[int] = set()

    def remember(x: np.ndarray) -> np.ndarray:
        seen.add(id(x))
        return 2 * x

    variants = by_name(Variant("double", "", remember))
    device = FakeDevice()
    only(toy(case("double", n=n), variants=variants), device)
    assert len(seen) == min(sets, device.log.count("time"))
    assert sets == COPIES or sets * 4 * n > 2 * device.cache_bytes


@pytest.mark.parametrize(
    ("times", "turns"),
    [
        (1000.0, 1 + 5),
        (61.0, 1 + 5),
        (59.0, 2 + 5),
        (10.0, 2 + 30),
        (1.0, 2 + 50),
        (0.0, 2 + 50),
    ],
)
def test_repeats(times: float, turns: int) -> None:
    asked = []
    assert median_ms(lambda turn: asked.append(turn) or times) == times
    assert len(asked) == turns


def test_median_leaves_out_the_warm_up() -> None:
    shown = chain([500.0], repeat(7.0))
    assert median_ms(lambda _: next(shown)) == 7.0


@pytest.mark.parametrize(("times", "turns"), [(1000.0, 1), (250.0, 1), (249.0, 1 + 5), (1.0, 2 + 50)])
def test_long_runs_that_are_warm_are_measured_once(times: float, turns: int) -> None:
    asked = []
    assert median_ms(lambda turn: asked.append(turn) or times, warm=True) == times
    assert len(asked) == turns


def test_a_launch_of_its_own_is_warmed_up() -> None:
    """`timed` may launch another instance than the run that was checked: its first launch compiles."""
    launch = Variant("double", "", double, parameters(block=32), timed=lambda x, block: lambda: 2 * x)
    for variants, ms in ((by_name(launch), 2.0), (None, 900.0)):
        own = {"variants": variants} if variants else {}
        row = only(toy(case("double", n=10**5), **own), FakeDevice(times=chain([900.0], repeat(2.0)))).row
        assert row.ms == ms


def test_parameters_complete_the_defaults() -> None:
    given = []
    variants = by_name(Variant("double", "", lambda x, **p: given.append(p) or 2 * x, parameters(block=32, slice=8)))
    only(toy(case("double", parameters=parameters(slice=16)), variants=variants))
    assert given[0] == {"block": 32, "slice": 16}


def test_conclusions() -> None:
    device = FakeDevice(times=chain(repeat(1.0, 52), repeat(2.0)))  # the first case takes 52 turns
    run = run_study(WHOLE, WHOLE.cases, device)
    assert [(judged.held, judged.numbers) for judged in run.judged] == [
        (True, "1 against 2 ms"), (True, "2 ms"), (None, "no timed row of absent")
    ]  # fmt: skip
    again = run_study(WHOLE, WHOLE.cases, FakeDevice())
    assert again.judged[0].held is False


def test_limits_are_measured_once_and_only_where_needed() -> None:
    study = toy(
        case("double"), case("double", n=7), case("racy"), limit=lambda c: "copy" if c.sizes == (7,) else "read"
    )
    device = FakeDevice()
    run = run_study(study, study.cases, device)
    assert run.limits == {"read": 0.001, "copy": 0.002}
    assert device.log[:2] == ["read", "copy"] and device.log.count("read") == 1
    assert [finding.row.share for finding in run.findings] == [1.0, 0.5, None]


def test_choose_cases() -> None:
    assert choose_cases(WHOLE, (), quick=False) == WHOLE.cases
    assert [c.variant for c in choose_cases(WHOLE, (), quick=True)] == ["double", "twice", "racy"]
    assert [c.variant for c in choose_cases(WHOLE, ("racy", "twice"), quick=False)] == ["twice", "racy"]
    with pytest.raises(
        UsageError, match="expected a variant, one of double, twice, wrong, racy, lucky, lost, cpu, cpu_wrong, got best"
    ):
        choose_cases(WHOLE, ("best",), quick=False)
    with pytest.raises(UsageError, match="no such case of lucky; choose from double, twice, racy"):
        choose_cases(WHOLE, ("lucky",), quick=False)
    with pytest.raises(UsageError, match="leave out --quick"):
        choose_cases(toy(case("twice")), ("twice",), quick=True)


def test_studies_are_found_by_name() -> None:
    assert set(STUDIES) <= set(NAMES)
    assert "os" not in STUDIES
    with pytest.raises(KeyError):
        STUDIES["os"]


@pytest.mark.parametrize("job", STUDIES)
def test_conclusions_of_nothing_are_not_judged(job: str) -> None:
    for conclusion in STUDIES[job].conclusions:
        with pytest.raises(KeyError):
            conclusion.judge([])


@pytest.mark.parametrize("job", STUDIES)
def test_a_study_is_whole(job: str) -> None:
    study = STUDIES[job]
    assert study.job == job
    assert any(c.quick for c in study.cases)
    tables = {c.table for c in study.cases}
    assert all(figure.table in tables for figure in study.figures)
    for c in study.cases:
        assert isinstance(c, Case) and c.variant in study.variants
        assert study.limit(c) in ("read", "copy", "float32", "float64")
        assert math.isfinite(study.work(c)) and study.work(c) > 0
