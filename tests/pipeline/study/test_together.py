"""Studies on several GPUs at once: rates are summed, whatever fails on one of them shows, and no wait is for ever."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from time import sleep
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
from pipeline.study.together import check_case, run_together
from tests.cases.toy_study import FakeDevice, case, toy
from workflows.study.study import Study, parameters

STUDY = toy(case("double"), case("double", parameters=parameters(block=2048)), case("racy"))


@pytest.fixture(scope="module")
def two() -> Iterator[Workers]:
    """Two workers of one thread each."""
    options: dict[str, Any] = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
    with LocalCluster(**options) as cluster, LimitedClient(cluster) as client:
        yield Workers(client, "cpu", 2, 2, None, {}, "two workers", None)


@pytest.fixture(autouse=True)
def gpus(two: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two GPUs, as the study sees them."""
    together._here.cache_clear()
    monkeypatch.setattr(together, "find_devices", lambda: SimpleNamespace(usable=2))
    monkeypatch.setattr(together, "open_workers", lambda *_: nullcontext(two))
    monkeypatch.setattr(together, "open_device", FakeDevice)


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


ANSWERS = [("WRONG", "read", {"verified": False, "note": "n"}), ("verified", "read", {"verified": True})]


def second_is_wrong(*_: Any) -> Any:
    """In place of `check_case`."""
    return ANSWERS.pop()


def test_wrong_on_one_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(together, "check_case", second_is_wrong)
    (finding,) = studied(monkeypatch, toy(case("double")))
    assert finding.status == "WRONG" and finding.row.note == "n" and finding.row.rate is None


def test_a_failing_gpu_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PipelineError, match="toy: lost 100 int32 failed: DeviceLost: illegal address"):
        studied(monkeypatch, toy(case("lost")))


def test_a_gpu_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(together, "CASE_SECONDS", 0.01)
    monkeypatch.setattr(together, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(FakeDevice, "release", lambda _: sleep(0.5))
    with pytest.raises(PipelineError, match="expected a result of each of 2 GPUs, waited 0 s; leave"):
        studied(monkeypatch, toy(case("double")))


def test_a_lost_process_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(together, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(FakeDevice, "release", lambda _: sleep(0.5))
    known, calls = together.known_workers, iter([True])
    monkeypatch.setattr(together, "known_workers", lambda *given: known(*given) if next(calls, False) else {})
    with pytest.raises(PipelineError, match="expected a result of each of 2 GPUs, lost 2; leave"):
        studied(monkeypatch, toy(case("double")))


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


def test_what_processes_send_can_travel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cases cannot: their parameters are read-only views."""
    monkeypatch.setattr(together, "STUDIES", {"toy": STUDY})
    answer = check_case("toy", ("read",), 0)
    assert pickle.loads(pickle.dumps(answer)) == answer
