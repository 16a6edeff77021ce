"""The CPU that baselines are timed on, and a device for studies of baselines alone, which need no GPU."""

from __future__ import annotations

import datetime
import platform
from typing import Any

from pipeline.report.panel import versions
from pipeline.threads import cores


def cpu_name() -> str:
    """Model of the CPU, and how many of its threads this process may use."""
    try:
        with open("/proc/cpuinfo") as lines:
            model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    except OSError:
        model = ""
    return f"{model or platform.machine()}, {cores()} threads"


class HostDevice:
    """No device: baselines are timed by the host's clock."""

    cache_bytes = 0
    errors: tuple[type[Exception], ...] = ()

    def release(self) -> None:
        """There is nothing to release."""

    def environment(self) -> dict[str, Any]:
        """CPU, versions, date."""
        date = datetime.date.today().isoformat()
        return {"date": date, "device": cpu_name(), "cpu": cpu_name(), "versions": versions()}

    def _unused(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("baselines on the CPU use no device")

    to_device = to_host = elapsed = transfer = limit = tracer = _unused
