"""How to run a job: what all jobs take, whatever they do and wherever they are called from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pipeline.cluster.placement import Placement, Workers
from pipeline.errors import UsageError

VERIFY = ("full", "sample", "off")

# `full` costs about as much as NumPy's histogram of the file: by default where that stays within a second or two.
FULL_UP_TO_BYTES = 2**28

Progress = Callable[[int, int], None]  # (bytes done, bytes in all)
OnStart = Callable[[Workers], None]


@dataclass(frozen=True)
class Settings:
    """How to run.

    Attributes
    ----------
    placement
        Where.
    verify
        ``"full"``, ``"sample"`` or ``"off"``; by default full up to 256 MiB, sample above.
    chunk_bytes
        Bytes per task, of a job that writes an array inputs and output together; by default from the size of the input
        and the number of workers.
    device_memory_limit, memory_limit
        Bytes that the tasks of a GPU may hold in its memory, and, of a job that writes an array, those of a process in
        the memory of its machine.
    traced
        Keep every span of every block in the outcome's ``stages.traces``.
    progress, on_start
        Called as tasks finish, and once the workers are there.
    """

    placement: Placement = field(default_factory=Placement)
    verify: str | None = None
    chunk_bytes: int | None = None
    device_memory_limit: int | None = None
    memory_limit: int | None = None
    traced: bool = False
    progress: Progress = lambda done, total: None
    on_start: OnStart = lambda workers: None

    def mode(self, nbytes: int) -> str:
        """How a run over so many bytes is verified.

        Raises
        ------
        UsageError
            If there is no such way.
        """
        mode = self.verify or ("full" if nbytes <= FULL_UP_TO_BYTES else "sample")
        if mode not in VERIFY:
            raise UsageError(f"--verify: expected one of {', '.join(VERIFY)}, got {self.verify!r}")
        return mode
