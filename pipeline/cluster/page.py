"""Our page beside Dask's dashboard, and metrics for Prometheus: the last state that the client sent.

The scheduler of a cluster of our own has these routes. One that was started by others gets them by its configuration:
`pipeline.cluster.page` in the list ``distributed.scheduler.http.routes``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from distributed.http.utils import RequestHandler

from pipeline.progress import TOPIC

STATES = ("starting", "running", "finished", "failed")


class PageHandler(RequestHandler):  # type: ignore[misc]
    """The page, which asks for the state every second."""

    def get(self) -> None:
        """Answer a request."""
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.set_header("Content-Security-Policy", "default-src 'self' 'unsafe-inline'")
        self.write(Path(__file__).with_suffix(".html").read_text(encoding="utf-8"))


class StateHandler(RequestHandler):  # type: ignore[misc]
    """The state of the latest run, as JSON; an empty object before the first."""

    def get(self) -> None:
        """Answer a request."""
        self.write(latest(self.server))


class MetricsHandler(RequestHandler):  # type: ignore[misc]
    """The state of the latest run for Prometheus."""

    def get(self) -> None:
        """Answer a request; without prometheus_client there is nothing."""
        try:
            import prometheus_client
        except ImportError:
            self.set_status(501)
            self.write("expected the package prometheus_client, found none; pip install 'baru[monitor]'")
            return
        registry = prometheus_client.CollectorRegistry()
        registry.register(_Collector(latest(self.server)))
        self.set_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.write(prometheus_client.generate_latest(registry))


class _Collector:
    """Gauges of a run and of each GPU; they go back to 0 when a pass begins."""

    def __init__(self, state: dict[str, Any]) -> None:
        self._state = state

    def collect(self) -> Iterator[Any]:
        """The metrics."""
        from prometheus_client.core import GaugeMetricFamily

        state = self._state
        if not state:
            return
        of_run = {
            "run_bytes": ("Bytes finished in this pass.", state["bytes"]),
            "run_checked_bytes": ("Bytes that were checked in this run.", state["checked_bytes"]),
            "run_bytes_per_second": ("Bytes finished per second in this pass.", state["bytes_per_second"]),
            "run_seconds": ("Seconds since the command began.", state["seconds"]),
            "run_warnings": ("Warnings: tasks done again, GPUs not used any more.", len(state["warnings"])),
        }
        if state["total_bytes"] is not None:
            of_run["run_total_bytes"] = ("Bytes of this pass.", state["total_bytes"])
        for name, (text, value) in of_run.items():
            yield GaugeMetricFamily(f"baru_{name}", text, value=value)
        states = GaugeMetricFamily("baru_run_state", "1 for the state that the run is in.", labels=["state"])
        for name in STATES:
            states.add_metric([name], state["state"] == name)
        yield states
        labels = ["unit", "device"]
        of_units = {
            "chunks": "Chunks finished in this pass.", "bytes": "Bytes finished in this pass.",
            "bytes_per_second": "Bytes finished per second in this pass.",
        }  # fmt: skip
        for name, text in of_units.items():
            family = GaugeMetricFamily(f"baru_unit_{name}", f"{text[:-1]} by a GPU, or a process.", labels=labels)
            for unit in state["units"]:
                family.add_metric([unit["unit"], unit["device"]], unit[name])
            yield family
        stages = GaugeMetricFamily("baru_unit_stage_bytes_per_second", "What a stage alone would reach.",
                                   labels=[*labels, "stage"])  # fmt: skip
        for unit in state["units"]:
            for stage, rate in unit["stages"].items():
                stages.add_metric([unit["unit"], unit["device"], stage], rate)
        yield stages


def latest(scheduler: Any) -> dict[str, Any]:
    """The state of a run that a client last sent."""
    events = scheduler.get_events(TOPIC)
    return dict(events[-1][1]) if events else {}


routes: list[tuple[str, type, dict[str, Any]]] = [
    ("baru", PageHandler, {}),
    ("baru/state", StateHandler, {}),
    ("baru/metrics", MetricsHandler, {}),
]
