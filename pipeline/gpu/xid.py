"""Errors of GPUs that the driver reports (Xid), including those that only hang CUDA."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import Any

# Those that, by NVIDIA's catalogue of Xid errors, leave a GPU in need of a reset. Others are the program's, which CUDA
# reports to it, or another user's on the same GPU.
FATAL = {
    48: "an uncorrectable memory error",
    62: "a halted microcontroller",
    64: "memory that could not be repaired",
    74: "an error of NVLink",
    79: "that it has fallen off the bus",
    95: "an uncontained memory error",
    119: "a GSP that does not answer",
    120: "an error of the GSP",
    140: "an unrecovered memory error",
    143: "a failed initialization",
}


class Xids:
    """The Xid errors of some GPUs from now on. None, where NVML does not report them.

    Parameters
    ----------
    uuids
        Of whole GPUs; instances of one (MIG) have no events of their own.
    """

    def __init__(self, uuids: Sequence[str]) -> None:
        self._events: Any = None
        if not uuids:
            return
        import pynvml

        self._nvml: Any = pynvml
        with suppress(pynvml.NVMLError), ExitStack() as undo:
            pynvml.nvmlInit()
            undo.callback(pynvml.nvmlShutdown)
            events = pynvml.nvmlEventSetCreate()
            undo.callback(pynvml.nvmlEventSetFree, events)
            for uuid in uuids:
                handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
                pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, events)
            undo.pop_all()
            self._events = events

    def take(self) -> dict[str, str]:
        """What the driver has reported since the last call, of GPUs that need a reset, by UUID. Does not wait."""
        reported: dict[str, str] = {}
        if self._events is None:
            return reported
        with suppress(self._nvml.NVMLError):  # NVMLError_Timeout, where there is nothing more
            while True:
                event = self._nvml.nvmlEventSetWait_v2(self._events, 0)
                if event.eventData in FATAL:
                    uuid = self._nvml.nvmlDeviceGetUUID(event.device)
                    reported[uuid] = f"the driver reported {FATAL[event.eventData]} (Xid {event.eventData})"
        return reported

    def close(self) -> None:
        """Report no more."""
        if self._events is not None:
            events, self._events = self._events, None
            with suppress(self._nvml.NVMLError):
                self._nvml.nvmlEventSetFree(events)
                self._nvml.nvmlShutdown()
