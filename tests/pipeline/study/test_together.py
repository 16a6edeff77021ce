"""Studies on several GPUs at once: rates are summed, whatever fails on one of them shows, and no wait is for ever."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from time import monotonic, sleep
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from distributed import LocalCluster

from pipeline.cli import study as commands
from pipeline.cluster.client import LimitedClient
from pipeline.cluster.workers import Workers
from pipeline.errors import PipelineError, UsageError
from pipeline.study import together
from pipeline.study.run import Finding
from pipeline.study.together import InStep, run_together, study_here
from tests.cases.toy_study import FakeDevice, case, toy
from workflows.study.study import Row, Study, parameters

STUDY = toy(case("double"), case("double", parameters=parameters(block=2048)), case("racy"))


@pytest.fixture(scope="module")
def two() -> Iterator[Workers]:
    """Two workers of one thread each."""
    options: dict[str, Any] = {
        "n_workers": 2,
        "threads_per_worker": 1,
        "processes": False,
        "dashboard_address": "127.0.0.1:0",
    }
    with LocalCluster(**options) as cluster, LimitedClient(cluster) as client:
        yield Workers(client, "cpu", 2, 2, None, {}, "two workers", None)


@pytest.fixture(autouse=True)
def gpus(two: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two GPUs, as the study sees them."""
    monkeypatch.setattr(together, "find_devices", lambda: SimpleNamespace(usable=2))
    monkeypatch.setattr(together, "open_workers", lambda *_: nullcontext(two))
    monkeypatch.setattr(together, "open_device", lambda study, cases: FakeDevice())


def studied(monkeypatch: pytest.MonkeyPatch, study: Study) -> list[Finding]:
    for module in (together, commands):
        monkeypatch.setattr(module, "STUDIES", {study.job: study})
    return list(run_together(study, study.cases, "all").findings)


def test_the_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    """2000 bytes in 2 ms on each of two, of 0.001 GB/s each."""
    right, refused, racy = studied(monkeypatch, STUDY)
    row = right.row
    assert (row.ms, row.rate, row.share, right.status) == (2.0, 0.002, 1.0, "verified")
    assert row.note == "sum of 2: 0.001 to 0.001 GB/s each"
    assert refused.status == "refused" and "expected at most 1024 threads" in refused.row.note
    assert racy.status == "caught" and racy.row.verified


def test_wrong_on_one_is_wrong() -> None:
    """Not the mean of both, and not hidden by the first."""
    right, wrong = (Finding(Row(STUDY.cases[0], status == "verified", ms=1.0), status, "read")
                    for status in ("verified", "WRONG"))  # fmt: skip
    assert together._sum(STUDY, (right, wrong), {"read": 1.0}) is wrong


def test_a_failing_gpu_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PipelineError, match="lost 100 int32: the device stopped with illegal address"):
        studied(monkeypatch, toy(case("lost")))


def hang(device: FakeDevice) -> None:
    """In place of `FakeDevice.release`."""
    sleep(0.5)


def test_a_gpu_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(together, "CASE_SECONDS", 0.01)
    monkeypatch.setattr(together, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(FakeDevice, "release", hang)
    with pytest.raises(PipelineError, match=r"expected all GPUs to come to case 1 within 0\.01 s, one did not; leave"):
        studied(monkeypatch, toy(case("double")))


def test_a_lost_process_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(together, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(FakeDevice, "release", hang)
    known, calls = together.known_workers, iter([True])
    monkeypatch.setattr(together, "known_workers", lambda *given: known(*given) if next(calls, False) else {})
    with pytest.raises(PipelineError, match="expected 2 GPUs to the end, lost 2; leave"):
        studied(monkeypatch, toy(case("double")))


def test_no_gpu_times_a_case_before_all_have_come_to_it(tmp_path: Path) -> None:
    """One that refuses a case, and goes on, does not hold up the others."""
    events: list[str] = []
    devices = [InStep(FakeDevice(), tmp_path, own, 2) for own in (0, 1)]

    def first() -> None:
        for number in (1, 2):
            devices[0].release()
            devices[0].elapsed(lambda: None)
            events.append(f"timed {number}")

    with ThreadPoolExecutor(1) as thread:
        timing = thread.submit(first)
        devices[1].release()
        sleep(0.1)
        events.append("released")
        devices[1].release()  # without having timed anything
        until = monotonic() + 30
        while events == ["released"] and monotonic() < until:
            sleep(0.001)
        sleep(0.1)
        events.append("second")
        devices[1].elapsed(lambda: None)
        timing.result(30)
    assert events == ["released", "timed 1", "second", "timed 2"]


def test_those_that_wait_are_told_to_stop(tmp_path: Path) -> None:
    device = InStep(FakeDevice(), tmp_path, 0, 2)
    device.release()
    (tmp_path / together.STOP).touch()
    with pytest.raises(PipelineError, match="expected all GPUs to come to case 1"):
        device.elapsed(lambda: None)


def test_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    studied(monkeypatch, STUDY)
    done = CliRunner().invoke(commands.study, ["toy", "--gpus", "all", "--json"])
    document = json.loads(done.stdout)
    assert done.exit_code == 0 and document["rows"][0]["rate"] == 0.002
    assert document["environment"]["device"] == "2 × NumPy at once" and document["environment"]["gpus"] == 2
    assert "2 × NumPy at once" in (tmp_path / "study-toy" / "toy.md").read_text()


def test_one_gpu_says_so() -> None:
    assert together._name("H200", 1, "all") == "H200, one GPU (--gpus all): no sum"


def test_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = SimpleNamespace(usable=0, missing="no NVIDIA driver is loaded")
    monkeypatch.setattr(together, "find_devices", lambda: missing)
    with pytest.raises(UsageError, match="--gpus 2: expected a GPU, which a study needs, but no NVIDIA driver"):
        run_together(STUDY, STUDY.cases, "2")


def test_what_processes_send_can_travel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Cases cannot: their parameters are read-only views."""
    monkeypatch.setattr(together, "STUDIES", {"toy": STUDY})
    answer = study_here("toy", [0, 1, 2], str(tmp_path), 0, 1)
    assert pickle.loads(pickle.dumps(answer)) == answer
