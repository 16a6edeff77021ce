"""An aggregation with its options, and the argument that all tasks of one pass share."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common import cxx
from pipeline.engine.pickle_once import PickledOnce
from pipeline.errors import UsageError, failure
from pipeline.gpu.blocks import BLOCK_BYTES
from pipeline.storage.chunks import Chunk
from pipeline.storage.protocol import Source
from workflows.aggregation import Aggregation


@dataclass(frozen=True)
class Job:
    """A workflow with its options."""

    workflow: Aggregation[Any]
    options: Any

    @property
    def surveyed(self) -> bool:
        """Whether a survey has to complete the options first."""
        survey = self.workflow.survey
        return survey is not None and survey.needed(self.options)

    @property
    def compiled(self) -> bool:
        """Whether compiled kernels do all of its work on a CPU; compiles them."""
        source = self.workflow.cpu_source
        return not self.surveyed and source is not None and cxx.library(source) is not None

    def differences(self, got: NDArray[Any], expected: NDArray[Any]) -> list[str]:
        """The first entries in which a partial differs from its reference; NaN differs from everything."""
        if got.shape != expected.shape or got.dtype != expected.dtype:
            return [f"expected {expected.shape} of {expected.dtype}, got {got.shape} of {got.dtype}"]
        if got.dtype.kind in "iu" and got.tobytes() == expected.tobytes():  # nearly always, in a third of the time
            return []
        places = np.flatnonzero(~(got == expected))
        label = self.workflow.label
        lines = [f"{label(int(i), self.options)}: expected {expected[i]}, got {got[i]}" for i in places[:3]]
        return [*lines, f"{len(places) - 3} more"] if len(places) > 3 else lines

    def partial_bytes(self, dtype: np.dtype[Any]) -> int:
        """Bytes of a partial of samples of a native dtype; PipelineError if the reference fails on one of them."""
        try:
            return self.workflow.reference(np.zeros(1, dtype), self.options).nbytes
        except Exception as error:
            raise failure(f"{self.workflow.name}: the reference of one sample", error) from error

    def empty(self, source: Source) -> NDArray[Any]:
        """Partial of no samples, of a source without any; UsageError if the job needs some."""
        if self.workflow.empty is None:
            raise UsageError(f"{source.names[0]}: expected samples for {self.workflow.name}, got none")
        return self.workflow.empty(source.dtype.newbyteorder("="), self.options)

    def survey(self) -> Job:
        """The job that completes the options."""
        assert self.workflow.survey is not None
        return Job(self.workflow.survey.workflow, self.options)

    def resolved(self, partial: NDArray[Any]) -> Job:
        """The job with its options completed by the survey; ValueError if the survey found nothing to use."""
        assert self.workflow.survey is not None
        survey = self.workflow.survey
        return Job(self.workflow, survey.resolve(self.options, survey.workflow.finalize(partial, self.options)))


@dataclass(frozen=True)
class Pass(PickledOnce):
    """What all tasks of one pass over the data share.

    It travels with the tasks: a worker that replaces another one has no other state.

    Attributes
    ----------
    jobs
        Each gets every block.
    device
        ``"gpu"`` or ``"cpu"``.
    block_bytes
        Bytes per block on a GPU.
    traced
        Whether to keep spans.
    seed
        Of the random choice of the samples on which checks are compared with their references.
    verify
        How samples are verified beside their read for a GPU.
    run
        Of which run it is: a resumed one has the seed of an earlier one.
    spare_bytes
        That decompressing blocks may take on a GPU.
    """

    jobs: tuple[Job, ...]
    device: str
    block_bytes: int = BLOCK_BYTES
    traced: bool = False
    seed: int = 0
    verify: str = "off"
    run: str = ""
    spare_bytes: int = sys.maxsize

    @property
    def name(self) -> str:
        """The jobs, for a message."""
        return ", ".join(job.workflow.name for job in self.jobs)

    def label(self, chunks: Sequence[Chunk]) -> str:
        """What to call a task of these chunks in a message."""
        first, last = chunks[0], chunks[-1]
        if first is last:
            return f"{self.name}: chunk {first.index} ({first.where()})"
        return f"{self.name}: chunks {first.index} to {last.index} ({first.where()} … {last.where()})"
