"""The model of a job: what is fitted to measured runs, what is kept, and when it is measured anew."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pipeline.engine.outcome import Outcome, Stages
from pipeline.estimate import measured_speed
from pipeline.estimate.measured_speed import Model, Point, Run, _fit, calibrated, time_of_checks
from pipeline.settings import Settings


@pytest.mark.parametrize(
    "figures", [(0.5, 2e-9, 0.0), (0.0, 1e-9, 0.0), (0.1, 0.0, 3e-12), (0.02, 1e-9, 1e-12), (0.3, 0.0, 0.0)]
)
def test_fit_finds_what_made_the_times(figures: tuple[float, float, float]) -> None:
    """Work grows as of matrices: bytes by the square, multiplications by the cube."""
    fixed, per_byte, per_operation = figures
    points = [Point(12 * n * n, 2.0 * n**3, 0.0, 0.0) for n in (500, 1000, 2000)]
    seconds = [fixed + per_byte * point.nbytes + per_operation * point.operations for point in points]
    assert _fit(points, seconds) == pytest.approx(figures, rel=1e-6, abs=1e-13)


def test_no_time_is_negative() -> None:
    """A small run that took longer than it should, because the machine was busy."""
    points = [Point(10**7, 0.0, 0.0, 0.0), Point(10**8, 0.0, 0.0, 0.0)]
    for seconds in ([0.2, 0.1], [0.01, 0.9], [0.0, 0.0]):
        assert min(_fit(points, seconds)) >= 0
    fixed, per_byte, _ = _fit(points[1:], [0.5])  # a single run: all of it by its bytes
    assert (fixed, per_byte) == (0.0, pytest.approx(5e-9))


@pytest.mark.parametrize(
    ("mode", "computing", "checks", "device", "whole", "expected"),
    [
        ("off", 1.0, 3.0, "cpu", True, 0.0), ("full", 1.0, 3.0, "cpu", False, 3.0),
        ("auto", 1.0, 3.0, "cpu", False, 1.0),
        ("auto", 1.0, 0.4, "cpu", False, 0.4), ("auto", 0.1, 3.0, "cpu", False, 0.4),
        ("auto", 0.1, 3.0, "gpu", False, 0.5), ("auto", 1.0, 3.0, "cpu", True, 3.0),
        ("sample", 1.0, 2.56, "cpu", False, 0.01),
    ],
)  # fmt: skip
def test_time_of_checks(
    mode: str, computing: float, checks: float, device: str, whole: bool, expected: float
) -> None:  # fmt: skip
    assert time_of_checks(mode, computing, checks, device, whole) == pytest.approx(expected)


class Machine:
    """Runs that take 1 ns a byte and, checked, 3; notes how often it was measured."""

    def __init__(self) -> None:
        self.measured: list[str] = []

    def run(self, nbytes: int) -> Run:
        def measure(settings: Settings) -> Outcome:
            self.measured.append(settings.verify)
            wall = nbytes * (3e-9 if settings.verify == "full" else 1e-9)
            stages = Stages({"kernel": 0.6 * wall, "read": 0.1 * wall}, nbytes=2 * nbytes, wall=wall, start_up=0.25)
            return cast(Outcome, SimpleNamespace(stages=stages))

        return Run(measure, nbytes, 0.0, f"{nbytes} bytes")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(measured_speed, "identity", lambda: ("a machine",))
    return Machine()


def model(machine: Machine, key: object = "key") -> Model:
    return calibrated(key, lambda: [machine.run(10**6), machine.run(10**8)], Settings())


def test_model_is_measured_once(machine: Machine, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = model(machine)
    assert first.seconds(10**9, 0.0) == pytest.approx(1.0) and first.checks(10**9, 0.0) == pytest.approx(2.0)
    assert (first.stage, first.stage_share, first.passes) == ("kernel", pytest.approx(0.6), 2)
    assert (first.start_up, first.measured) == (0.25, "100000000 bytes")
    assert "measuring this machine" in capsys.readouterr().err
    number = len(machine.measured)
    assert model(machine) == first and len(machine.measured) == number
    assert capsys.readouterr().err == ""
    assert len(list((tmp_path / "baru").glob("plan-*.json"))) == 1


@pytest.mark.parametrize(("compiled", "start_up"), [(0.0, 3.25), (3.0, 0.25), (3.1, 0.2)])
def test_what_the_first_run_compiles_is_kept_and_no_part_of_the_start_up(
    machine: Machine, compiled: float, start_up: float
) -> None:
    """Later runs find it compiled; they start in 0.2 s, in this process, which has imported everything by then."""
    started = iter([3.25])

    def first_compiles(nbytes: int) -> Run:
        run = machine.run(nbytes)

        def measure(settings: Settings) -> Outcome:
            outcome = run.run(settings)
            outcome.stages.start_up = next(started, 0.2)
            outcome.stages.compiling = compiled if outcome.stages.start_up == 3.25 else 0.0
            return outcome

        return replace(run, run=measure)

    one = calibrated("key", lambda: [first_compiles(10**6)], Settings())
    assert one.start_up == pytest.approx(start_up)


def test_another_machine_or_job_is_measured_anew(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    model(machine)
    number = len(machine.measured)
    model(machine, "another job")
    assert len(machine.measured) == 2 * number
    monkeypatch.setattr(measured_speed, "identity", lambda: ("a machine", "with another processor"))
    model(machine)
    assert len(machine.measured) == 3 * number


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"no JSON", b'{"start_up": 1}'])
def test_what_is_kept_may_be_damaged(machine: Machine, tmp_path: Path, content: bytes) -> None:
    first = model(machine)
    number = len(machine.measured)
    (path,) = (tmp_path / "baru").glob("plan-*.json")
    path.write_bytes(content)
    assert model(machine) == first and len(machine.measured) == 2 * number


def test_what_is_kept_may_be_of_another_version(machine: Machine, tmp_path: Path) -> None:
    """Whole and sealed, but with other fields."""
    first = model(machine)
    (path,) = (tmp_path / "baru").glob("plan-*.json")
    with measured_speed.open_cache() as folder:
        measured_speed.write_cached(folder, path.name, b'{"rate": 7}')
    assert model(machine) == first


def test_a_slow_job_is_measured_small(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """No second, larger run follows one that takes long."""
    monkeypatch.setattr(measured_speed, "LONG_SECONDS", 1e-4)
    found: Any = model(machine)
    assert found.measured == "1000000 bytes" and found.seconds(10**9, 0.0) == pytest.approx(1.0)
