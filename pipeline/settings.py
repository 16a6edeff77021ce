"""Settings of every job: where it runs, how it is verified, its memory limits."""

from __future__ import annotations

from dataclasses import dataclass, field

from pipeline.cluster.placement import Placement
from pipeline.errors import UsageError
from pipeline.progress import Monitor

VERIFY = ("auto", "full", "sample", "off")


@dataclass(frozen=True)
class Settings:
    """How to run.

    Attributes
    ----------
    placement
        Where to run.
    verify
        ``"auto"``, ``"full"``, ``"sample"`` or ``"off"``.
    chunk_bytes
        Bytes per chunk; for a job that writes an array, per region, inputs and output together. The default follows
        from the size of the input and the number of workers.
    device_memory_limit
        Bytes of device memory for all tasks that share a GPU.
    memory_limit
        Bytes of host memory for all tasks of a process, if the job writes an array.
    traced
        Whether to keep every span of every block in the outcome's ``stages.traces``.
    replay
        Share of the chunks, or of an array's tasks, that is computed again, on another device where there is one, from
        0 to 1.
    monitor
        Is told when the workers are up, and as tasks finish.
    """

    placement: Placement = field(default_factory=Placement)
    verify: str = "auto"
    chunk_bytes: int | None = None
    device_memory_limit: int | None = None
    memory_limit: int | None = None
    traced: bool = False
    replay: float = 0.0
    monitor: Monitor = field(default_factory=Monitor)

    def __post_init__(self) -> None:
        if self.verify not in VERIFY:
            raise UsageError(f"--verify: expected one of {', '.join(VERIFY)}, got {self.verify!r}")
        if not 0 <= self.replay <= 1:
            raise UsageError(f"--replay: expected a share from 0 to 1, got {self.replay:g}")
        for name in ("chunk_bytes", "device_memory_limit", "memory_limit"):
            if (nbytes := getattr(self, name)) is not None and nbytes < 1:
                raise UsageError(f"{name}: expected 1 byte or more, got {nbytes}")
