"""What a command shows while it runs: JSON lines, our page beside the dashboard, metrics, Dask's report."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, build_opener

import numpy as np
import pytest

from pipeline.cli.watching import Watched
from pipeline.cluster.placement import Placement
from pipeline.engine.aggregate import run_all
from pipeline.engine.aggregate_plan import Job
from pipeline.errors import PipelineError, VerificationError
from pipeline.settings import Settings
from pipeline.storage.sources import open_source
from workflows import WORKFLOWS

fetch = build_opener(ProxyHandler({})).open


@pytest.fixture
def path(tmp_path: Path) -> str:
    np.arange(2**18, dtype=np.int32).tofile(tmp_path / "data.bin")
    return str(tmp_path / "data.bin")


def command(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "pipeline", *words], cwd=folder, env=os.environ | environment,
                          capture_output=True, text=True, timeout=100)  # fmt: skip


@pytest.mark.parametrize("environment", [{}, {"DASK_PIPELINE__LOG_FORMAT": "json"}])
def test_every_line_is_json(path: str, tmp_path: Path, environment: dict[str, str]) -> None:
    words = [] if environment else ["--log-format", "json"]
    done = command(tmp_path, "histogram", path, *words, "--dashboard-address", ":0", "--verify", "full", **environment)
    assert done.returncode == 0, done.stderr
    *events, last = map(json.loads, done.stderr.splitlines())
    messages = [event for event in events if event["event"] == "message"]  # a slow machine has progress, too
    assert [message["level"] for message in messages] == ["info", "info"]
    assert messages[0]["text"].startswith("dashboard: http://127.0.0.1:")
    assert (last["event"], last["state"], last["job"]) == ("progress", "finished", "histogram")
    assert last["bytes"] == last["total_bytes"] == last["checked_bytes"] == 2**20
    assert done.stdout.startswith("histogram of data.bin")


def test_errors_are_json_too(tmp_path: Path) -> None:
    """Also those of words that cannot be parsed, and of the first process."""
    for words in (["histogram", "missing.bin"], ["histogram", "missing.bin", "--bins", "x"]):
        done = command(tmp_path, *words, "--log-format=json")
        (line,) = done.stderr.splitlines()[-1:]
        assert (json.loads(line)["event"], json.loads(line)["level"], done.returncode) == ("message", "error", 2)


def test_unknown_format(path: str, tmp_path: Path) -> None:
    done = command(tmp_path, "histogram", path, "--log-format", "xml")
    assert done.returncode == 2
    assert "--log-format: expected one of text, json, got 'xml'" in done.stderr


def test_report_of_dask(path: str, tmp_path: Path) -> None:
    done = command(tmp_path, "histogram", path, "--performance-report", "report.html")
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "report.html").read_text()
    assert "compute_chunks" in text  # the task stream has our tasks
    assert "<title>" in text and "<script src=" not in text.replace("'", '"')  # a browser shows it without a network


def test_report_is_no_input_or_result(path: str, tmp_path: Path) -> None:
    os.link(path, tmp_path / "data.html")
    (tmp_path / "a.json").write_text("")
    os.link(tmp_path / "a.json", tmp_path / "a.html")
    for other in (["--performance-report", "data.html"], ["--performance-report", "a.html", "-o", "a.json"]):
        done = command(tmp_path, "histogram", path, *other)
        assert done.returncode == 2
        assert "expected different files, got one and the same" in done.stderr


class Visitor(Watched):
    """Visits the pages as a chunk finishes."""

    def __init__(self) -> None:
        super().__init__("full", True, None)
        self.job = "histogram"
        self.answers: dict[str, str] = {}
        self._workers: Any = None

    def begin(self, total: int | None, lanes: dict[str, int]) -> None:
        super().begin(total, lanes)
        self.warn("GPU-1: its process ended; it is done again")

    def finished(self, nbytes: int, result: Any, checks: Any) -> None:
        super().finished(nbytes, result, checks)
        if not self.answers:
            self._publish(self._workers)
            for page in ("baru", "baru/state", "baru/metrics"):
                with fetch(f"{self._workers.page.removesuffix('baru')}{page}", timeout=20) as answer:
                    self.answers[page] = answer.read().decode()

    def running(self, workers: Any) -> Any:
        self._workers = workers
        return super().running(workers)


def visited(path: str) -> dict[str, str]:
    visitor = Visitor()
    settings = Settings(Placement("cpu", dashboard_address=":0"), "full", chunk_bytes=2**18, monitor=visitor)
    run_all([Job(WORKFLOWS["histogram"], WORKFLOWS["histogram"].options())], open_source((path,)), settings)
    return visitor.answers


def test_page_and_metrics(path: str) -> None:
    client = pytest.importorskip("prometheus_client.parser")
    answers = visited(path)
    assert 'fetch("baru/state"' in answers["baru"]
    state = json.loads(answers["baru/state"])
    (unit,) = state["units"]
    assert (state["state"], unit["chunks"], unit["bytes"]) == ("running", 1, 2**18)
    assert state["warnings"] == ["GPU-1: its process ended; it is done again"]
    samples = {
        (sample.name, sample.labels.get("unit"), sample.labels.get("stage") or sample.labels.get("state")): sample.value
        for family in client.text_string_to_metric_families(answers["baru/metrics"]) for sample in family.samples
    }  # fmt: skip
    assert samples["baru_run_bytes", None, None] == samples["baru_unit_bytes", unit["unit"], None] == 2**18
    assert samples["baru_run_total_bytes", None, None] == 2**20
    assert samples["baru_run_warnings", None, None] == 1
    assert samples["baru_run_state", None, "running"] == 1
    assert samples["baru_run_state", None, "failed"] == 0
    assert samples["baru_unit_stage_bytes_per_second", unit["unit"], "kernel"] == unit["stages"]["kernel"]


def test_metrics_without_their_package(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(PipelineError, match="HTTP Error 501"):
        visited(path)


def test_page_shows_nothing_before_a_run() -> None:
    from pipeline.cluster.page import latest

    class Scheduler:
        def get_events(self, topic: str) -> tuple[Any, ...]:
            return ()

    assert latest(Scheduler()) == {}


def test_report_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once results are written; a wrong number is told instead."""
    written: list[bytes] = []

    class Target:
        write = staticmethod(written.append)

    class Client:
        def get_task_stream(self, **_: Any) -> None:
            raise OSError("no plugin")

        def sync(self, *_: Any, **__: Any) -> Any:
            raise TimeoutError

        scheduler: Any = type("", (), {"performance_report": None})

    class Workers:
        client, dashboard, names = Client(), None, {}

    watched = Watched("auto", True, Target())  # type: ignore[arg-type]
    with watched.running(Workers()):
        pass
    with pytest.raises(Exception, match="the performance report failed: TimeoutError"):
        watched.write_report()
    assert not written
    with pytest.raises(VerificationError), watched.running(Workers()):
        raise VerificationError("wrong")
