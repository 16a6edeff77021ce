"""Settings of every job: where it runs, how it is verified, its memory limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pipeline.cluster.placement import Placement
from pipeline.cluster.workers import Workers
from pipeline.errors import UsageError

VERIFY = ("auto", "full", "sample", "off")

Progress = Callable[[int, int | None], None]  # (bytes done, bytes in all, None if that is unknown)
OnStart = Callable[[Workers], None]


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
        Bytes per task (for a job that writes an array, inputs and output together); by default from the size of the
        input and the number of workers.
    device_memory_limit
        Bytes of device memory for all tasks that share a GPU.
    memory_limit
        Bytes of host memory for all tasks of a process, if the job writes an array.
    traced
        Whether to keep every span of every block in the outcome's ``stages.traces``.
    replay
        Share of the chunks, or of an array's tasks, that is computed again, on another device where there is one, from
        0 to 1.
    progress, on_start
        Called as tasks finish, and once when the workers are up.
    """

    placement: Placement = field(default_factory=Placement)
    verify: str = "auto"
    chunk_bytes: int | None = None
    device_memory_limit: int | None = None
    memory_limit: int | None = None
    traced: bool = False
    replay: float = 0.0
    progress: Progress = lambda done, total: None
    on_start: OnStart = lambda workers: None

    def __post_init__(self) -> None:
        if self.verify not in VERIFY:
            raise UsageError(f"--verify: expected one of {', '.join(VERIFY)}, got {self.verify!r}")
        if not 0 <= self.replay <= 1:
            raise UsageError(f"--replay: expected a share from 0 to 1, got {self.replay:g}")
        for name in ("chunk_bytes", "device_memory_limit", "memory_limit"):
            if (nbytes := getattr(self, name)) is not None and nbytes < 1:
                raise UsageError(f"{name}: expected 1 byte or more, got {nbytes}")
