"""An aggregation with its options, and the argument that all tasks of one pass share."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common import cxx
from pipeline.engine.pickle_once import PickledOnce
from pipeline.errors import PipelineError, UsageError, VerificationError, failure
from pipeline.gpu.blocks import BLOCK_BYTES
from pipeline.storage.chunks import Chunk
from pipeline.storage.protocol import Source
from workflows.aggregation import Aggregation, Disproved


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

    def prepared(self, dtype: np.dtype[Any]) -> Job:
        """The job for samples of a dtype."""
        prepare = self.workflow.prepare
        return self if prepare is None else Job(*prepare(self.workflow, self.options, dtype.newbyteorder("=")))

    @property
    def proven(self) -> bool:
        """Whether a later pass proves what its next survey gives."""
        survey = self.workflow.survey
        return survey is not None and survey.proven(self.options)

    @property
    def compiled(self) -> bool:
        """Whether compiled kernels do all of its work on a CPU; compiles them."""
        sources = [job.workflow.cpu_source for job in (self, *((self.survey(),) if self.surveyed else ()))]
        return all(source is not None and cxx.library(source) is not None for source in sources)

    def differences(self, got: NDArray[Any], expected: NDArray[Any]) -> list[str]:
        """The first entries in which a partial differs from its reference; NaN differs from everything."""
        alike = got.shape == expected.shape and got.dtype == expected.dtype
        if alike and got.dtype.kind in "iu" and got.tobytes() == expected.tobytes():  # nearly always
            return []
        if self.workflow.differences is not None:
            return list(islice(self.workflow.differences(got, expected, self.options), 3))
        if not alike:
            return [f"expected {expected.shape} of {expected.dtype}, got {got.shape} of {got.dtype}"]
        places = np.flatnonzero(~(got == expected))
        label = self.workflow.label
        lines = [f"{label(int(i), self.options)}: expected {expected[i]}, got {got[i]}" for i in places[:3]]
        return [*lines, f"{len(places) - 3} more"] if len(places) > 3 else lines

    def compute(self, block: Any, start: int) -> Any:
        """The partial of a block that begins at index `start`; positions count as those of the job do."""
        partial = self.workflow.compute(_lent(block), self.options, *self._located(block, start))
        if not isinstance(partial, np.ndarray) and not hasattr(partial, "get"):  # of CuPy
            raise PipelineError(f"{self.workflow.name}: expected an array from compute, got {type(partial).__name__}; "
                                "make it numpy.array([...]), or cupy.array([...]) of a block on a GPU")  # fmt: skip
        return partial

    def reference(self, samples: NDArray[Any], start: int) -> NDArray[Any]:
        """As `compute`, by the reference."""
        partial = self.workflow.reference(_lent(samples), self.options, *self._located(samples, start))
        if not isinstance(partial, np.ndarray):
            raise PipelineError(f"{self.workflow.name}: expected an array from reference, got "
                                f"{type(partial).__name__}; make it numpy.array([...])")  # fmt: skip
        return partial

    def broken(self, partial: NDArray[Any], samples: int) -> list[str]:
        """What the job's invariants say of a partial of so many samples."""
        said = [holds(partial, samples) for holds in self.workflow.invariants]
        for broken in said:
            if broken is not None and not isinstance(broken, str):
                raise PipelineError(f"{self.workflow.name}: expected None or a text from an invariant, got {broken!r}; "
                                    "make it return None where it holds, else what is broken")  # fmt: skip
        return [broken for broken in said if broken]

    def _located(self, block: Any, start: int) -> tuple[range, ...]:
        return (range(start, start + len(block)),) if self.workflow.located else ()

    def placed(self, partial: Any, start: int) -> Any:
        """The partial of samples that begin at index `start`, with positions that count from the first of all."""
        return self.workflow.place(partial, start) if self.workflow.place else partial

    def partial_bytes(self, dtype: np.dtype[Any]) -> int:
        """Bytes of a partial of samples of a native dtype; PipelineError if the reference fails on one of them."""
        frame = self.workflow.frame(self.options)
        samples = min(frame, self.workflow.compared(self.options))
        try:
            partial = self.reference(np.zeros(samples, dtype), 0)
        except PipelineError:
            raise
        except Exception as error:
            raise failure(f"{self.workflow.name}: the reference of one sample", error) from error
        return partial.nbytes * frame // samples

    def empty(self, source: Source) -> NDArray[Any]:
        """Partial of no samples, of a source without any; UsageError if the job needs some."""
        if self.workflow.empty is None:
            raise UsageError(f"{source.names[0]}: expected samples for {self.workflow.name}, got none")
        return self.workflow.empty(source.dtype.newbyteorder("="), self.options)

    def survey(self) -> Job:
        """The job that completes the options."""
        assert self.workflow.survey is not None
        return Job(self.workflow.survey.next(self.options), self.options)

    def looked(self, samples: Any) -> Job:
        """The job, with its options completed as far as its `look` at all samples goes, a flat array on a device."""
        look = self.workflow.look
        return self if look is None else Job(self.workflow, look(self.options, samples))

    def resolved(self, partial: NDArray[Any]) -> Job:
        """The job with its options completed by the survey.

        Raises
        ------
        UsageError
            If no options can be made of what the survey gave.
        VerificationError
            If it contradicts an earlier survey.
        """
        assert self.workflow.survey is not None
        survey = self.workflow.survey
        try:
            surveyed = survey.next(self.options).finalize(partial, self.options)
            return Job(self.workflow, survey.resolve(self.options, surveyed))
        except ValueError as error:
            raise UsageError(str(error)) from None
        except Disproved as error:
            raise self._disproved(error) from None

    def finalized(self, partial: NDArray[Any]) -> Any:
        """The result.

        Raises
        ------
        UsageError
            If the samples, together, are not what the job needs.
        VerificationError
            If the partial contradicts what surveys gave.
        """
        try:
            return self.workflow.finalize(partial, self.options)
        except ValueError as error:
            raise UsageError(str(error)) from None
        except Disproved as error:
            raise self._disproved(error) from None

    def _disproved(self, error: Disproved) -> VerificationError:
        return VerificationError(f"{self.workflow.name}: passes over the samples disagree: {error}; there is no "
                                 "result; run again, and test this machine's memory")  # fmt: skip


def _lent(block: Any) -> Any:
    """The block, as a job may have it: on the host it cannot be written to, for checks, other jobs and the caller of
    `pipeline.run` have the same memory."""
    if isinstance(block, np.ndarray) and block.flags.writeable:
        block = block.view()
        block.flags.writeable = False
    return block


def surveys_due(jobs: Sequence[Job]) -> list[bool]:
    """For which jobs a survey runs next: those that are verified have passes of their own, before the others."""
    verified = [job.surveyed and not job.proven for job in jobs]
    return verified if any(verified) else [job.surveyed for job in jobs]


def resolved(jobs: Sequence[Job], due: Sequence[bool], partials: Sequence[NDArray[Any]]) -> tuple[Job, ...]:
    """The jobs, those that a survey ran for with what it completed."""
    of_surveys = iter(partials)
    return tuple(job.resolved(next(of_surveys)) if was else job for job, was in zip(jobs, due, strict=True))


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
        How samples are verified beside their read.
    run
        Of which run it is: a resumed one has the seed of an earlier one.
    proven
        Whether it needs no verification, because a later pass proves what it gives.
    again
        Whether a later pass, or a check, reads the same samples.
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
    proven: bool = False
    again: bool = False

    @property
    def resident(self) -> bool:
        """Whether its blocks may stay on a GPU for the next pass: the last one reads all again, which proves it right.

        Not within a limit of the device's memory.
        """
        return self.proven and self.spare_bytes == sys.maxsize

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
