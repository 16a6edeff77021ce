"""What a run checks about its sources: where they can be read, how often, and whether they have changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from pipeline.cluster.placement import Placement
from pipeline.engine.aggregate_plan import Job
from pipeline.engine.journal import Journal
from pipeline.errors import PipelineError, UsageError, VerificationError
from pipeline.storage.protocol import Source


def cluster_bytes(sources: Sequence[Source], placement: Placement) -> int:
    """Bytes of the sources, to choose a cluster by; 0, which means this process, if no other process can read them.

    Raises
    ------
    UsageError
        If workers of another scheduler, or processes of several GPUs, would have to read them and cannot.
    """
    local = next((source for source in sources if source.local), None)
    if local is None:
        return sum(source.nbytes or 0 for source in sources)
    if placement.existing:
        raise UsageError(f"--scheduler: expected sources that its workers can read, got {local.names[0]}, which only "
                         "this process can; leave the scheduler out, or write the samples to a file that the workers "
                         "can read")  # fmt: skip
    if placement.gpus not in (None, "1"):
        raise UsageError(f"--gpus: expected none, or 1, for {local.names[0]}, which this process computes on one GPU, "
                         f"got {placement.gpus}; leave it out, or write the samples to a file")  # fmt: skip
    return 0


def check_order(name: str, source: Source) -> None:
    """Refuse a source whose samples do not come in C order."""
    if source.fortran:
        raise UsageError(f"{name}: expected arrays in C order, got {_in_fortran_order(source)} in Fortran order, whose "
                         "samples come in another one; save it as numpy.ascontiguousarray returns it")  # fmt: skip


def _in_fortran_order(source: Source) -> str:
    """The name of the first part of a source that is."""
    part = next(part for part in getattr(source, "sources", (source,)) if part.fortran)
    files = (file.label or file.path for file in getattr(part, "files", ()) if file.fortran)
    return next(files, part.names[0])


def check_passes(source: Source, jobs: Sequence[Job]) -> None:
    """Refuse jobs that need a survey pass if the source can be read only once."""
    job = next((job for job in jobs if job.surveyed), None)
    if job is not None and source.read_once:
        assert job.workflow.survey is not None
        advice = job.workflow.survey.instead(job.options)
        instead = f"{advice}, or " if advice else "give "
        raise UsageError(f"{job.workflow.name}: expected a source that can be read twice, since a first pass surveys "
                         f"it, got {source.names[0]}, which can be read only once; {instead}"
                         "--spool, which writes it to a temporary file first")  # fmt: skip


@contextmanager
def unchanged(sources: Sequence[Source], journal: Journal) -> Iterator[None]:
    """Look at the sources once more at the end of a run, and before a wrong number is blamed on the computation.

    If one has changed the journal is removed: a run over what it was cannot be continued.

    Raises
    ------
    PipelineError
        If one has changed since it was planned, as far as that can be detected.
    """
    try:
        yield
    except VerificationError as error:
        _check(sources, journal)
        raise VerificationError(f"{error}; run again if a program writes to the input through mmap, which looks the "
                                "same") from error  # fmt: skip
    except PipelineError:
        with suppress(PipelineError):
            _check(sources, journal)
        raise
    _check(sources, journal)


def _check(sources: Sequence[Source], journal: Journal) -> None:
    try:
        for source in sources:
            source.check_unchanged()
    except PipelineError:
        journal.remove()
        raise
