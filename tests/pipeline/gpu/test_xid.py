"""Xid errors, from a stand-in for NVML."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from pipeline.gpu.xid import FATAL, Xids


class Nvml:
    """Events of two GPUs, which are their UUIDs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **broken: type[Exception]) -> None:
        self.waiting: list[tuple[str, int]] = []
        self.calls: list[str] = []
        for name in ("nvmlInit", "nvmlShutdown", "nvmlEventSetCreate", "nvmlEventSetFree", "nvmlDeviceRegisterEvents",
                     "nvmlDeviceGetHandleByUUID", "nvmlDeviceGetUUID", "nvmlEventSetWait_v2"):  # fmt: skip
            monkeypatch.setattr(pynvml, name, self.call(name, broken.get(name)))

    def call(self, name: str, error: type[Exception] | None) -> Any:
        def function(*arguments: Any) -> Any:
            self.calls.append(name)
            if error is not None:
                raise error
            if name == "nvmlEventSetWait_v2":
                if not self.waiting:
                    raise pynvml.NVMLError_Timeout
                device, number = self.waiting.pop(0)
                return SimpleNamespace(device=device, eventData=number)
            return arguments[0] if "ByUUID" in name or "GetUUID" in name else "events"

        return function


def test_errors_that_need_a_reset_are_taken_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of programs, 13 and 31, are not."""
    nvml = Nvml(monkeypatch)
    xids = Xids(["GPU-0", "GPU-1"])
    assert nvml.calls.count("nvmlDeviceRegisterEvents") == 2 and xids.take() == {}
    nvml.waiting += [("GPU-0", 13), ("GPU-1", 79), ("GPU-0", 31)]
    assert xids.take() == {"GPU-1": f"the driver reported {FATAL[79]} (Xid 79)"}
    assert xids.take() == {}
    xids.close()
    xids.close()
    assert nvml.calls.count("nvmlInit") == nvml.calls.count("nvmlShutdown") == nvml.calls.count("nvmlEventSetFree") == 1
    nvml.waiting += [("GPU-0", 79)]
    assert xids.take() == {}


@pytest.mark.parametrize(
    ("broken", "error"),
    [("nvmlInit", pynvml.NVMLError_LibraryNotFound), ("nvmlEventSetCreate", pynvml.NVMLError_NotSupported),
     ("nvmlDeviceRegisterEvents", pynvml.NVMLError_NoPermission),
     ("nvmlDeviceGetHandleByUUID", pynvml.NVMLError_NotFound)],
)  # fmt: skip
def test_without_events_there_are_none(broken: str, error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    """What was begun is undone."""
    nvml = Nvml(monkeypatch, **{broken: error})
    nvml.waiting += [("GPU-0", 79)]
    xids = Xids(["GPU-0"])
    assert xids.take() == {}
    xids.close()
    begun = nvml.calls.count("nvmlInit") - (broken == "nvmlInit")
    assert nvml.calls.count("nvmlShutdown") == begun
    assert nvml.calls.count("nvmlEventSetFree") == (broken in ("nvmlDeviceRegisterEvents", "nvmlDeviceGetHandleByUUID"))
