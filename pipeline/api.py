"""Jobs from Python: `import pipeline; pipeline.run("histogram", "data.bin", bins=256)`, or an array in its place."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pipeline.cluster.placement import Placement
from pipeline.engine.aggregate import run_all
from pipeline.engine.aggregate_plan import Job
from pipeline.engine.array import run_array
from pipeline.errors import UsageError
from pipeline.settings import Settings
from pipeline.storage.sources import Byteorder, open_source
from workflows import WORKFLOWS
from workflows.aggregation import Aggregation
from workflows.array_job import ArrayJob

Declared = TypeVar("Declared", bound=Aggregation[Any] | ArrayJob[Any])
Path = str | os.PathLike[str]


def register(workflow: Declared) -> Declared:
    """Make a job available under its name to `run` and to the command line.

    Parameters
    ----------
    workflow
        A `workflows.aggregation.Aggregation` or a `workflows.array_job.ArrayJob`.

    Raises
    ------
    ValueError
        If another job has the name.
    """
    if WORKFLOWS.setdefault(workflow.name, workflow) is not workflow:
        raise ValueError(f"register: expected a new name, got {workflow.name!r}, which another job has")
    return workflow


def run(
    job: str | Sequence[tuple[str, Mapping[str, Any]]],
    *files: Path | NDArray[Any],
    output: Path | None = None,
    dtype: str | None = None,
    byteorder: Byteorder | None = None,
    offset: int | None = None,
    verify: str = "auto",
    chunk_bytes: int | None = None,
    device: str = "auto",
    scheduler: str | None = None,
    scheduler_file: Path | None = None,
    device_memory_limit: int | None = None,
    memory_limit: int | None = None,
    **options: Any,
) -> Any:
    """Run a job over files or arrays in memory and return its result, once it is verified.

    Parameters
    ----------
    job
        Its name, as on the command line. Or several jobs that return results, each with its options:
        ``[("histogram", {"bins": 256}), ("reduce", {"op": "sum,std"})]``; the files are read once for all of them.
    files
        Raw samples or `.npy`; patterns like ``"run-*.bin"`` are expanded. Or NumPy arrays, of any memory layout and
        byte order, whose samples count in C order; they are computed in this process.
    output
        File for a job that writes an array; `.npy`, or raw under any other suffix.
    dtype, byteorder, offset
        Of raw files: a NumPy dtype name (default int32), little (default) or big, bytes to skip (default 0).
    verify
        What to check on the CPU: ``"auto"``, as much as can be checked in the time that the run takes, at least 1 % of
        every chunk; ``"full"``, everything; ``"sample"``, 1/256 of every chunk; or ``"off"``.
    chunk_bytes
        Bytes per task; by default from the size of the input and the number of workers.
    device
        ``"auto"``, ``"gpu"`` or ``"cpu"``; the result is the same.
    scheduler, scheduler_file
        An existing Dask cluster; it cannot read arrays in memory.
    device_memory_limit, memory_limit
        Bytes that tasks may hold in the memory of a GPU and, if the job writes an array, of a process; other jobs hold
        a few MiB per thread.
    **options
        The job's own options, as on the command line, with underscores.

    Returns
    -------
    result object
        Its attributes are NumPy arrays and numbers: ``counts`` and ``edges`` of a histogram, ``array`` of a job that
        writes one. For several jobs, a list of results.

    Raises
    ------
    UsageError
        If there is no such job or option, or an option is invalid.
    VerificationError
        If a number is wrong.
    PipelineError
        If the run fails otherwise.
    """
    if not isinstance(job, str) and options:
        raise UsageError(f"expected the options of each of several jobs beside its name, got {', '.join(options)}")
    jobs = [_job(job, options)] if isinstance(job, str) else [_job(*pair) for pair in job]
    inputs = tuple(_input(file) for file in files)
    if not inputs:
        raise UsageError("expected one or more files or arrays, got none")
    placement = Placement(device, scheduler, None if scheduler_file is None else os.fspath(scheduler_file))
    settings = Settings(placement, verify, chunk_bytes, device_memory_limit, memory_limit)
    if isinstance(job, str) and isinstance(workflow := jobs[0][0], ArrayJob):
        if output is None:
            raise UsageError(f"{job}: expected output=, the file that the array goes to, got none")
        chosen = jobs[0][1]
        groups = [(item,) for item in inputs] if workflow.operands(chosen) is not None else [inputs]
        sources = [open_source(group, dtype, byteorder, offset, samples=False) for group in groups]
        return run_array(workflow, chosen, sources, os.fspath(output), settings).result
    aggregations = [Job(workflow, chosen) for workflow, chosen in jobs if isinstance(workflow, Aggregation)]
    names = ", ".join(workflow.name for workflow, _ in jobs)
    if not aggregations or len(aggregations) < len(jobs):
        raise UsageError(f"expected several jobs that return what they found, got {names or 'none'}")
    if output is not None:
        raise UsageError(f"{names}: expected no output=, since it returns what it found; got {os.fspath(output)!r}")
    if memory_limit is not None:
        raise UsageError(
            f"{names}: expected no memory_limit=, since it holds a few MiB for each thread; got {memory_limit}"
        )
    source = open_source(inputs, dtype, byteorder, offset, empty=all(job.workflow.empty for job in aggregations))
    results = [outcome.result for outcome in run_all(aggregations, source, settings)]
    return results[0] if isinstance(job, str) else results


def _input(file: Path | NDArray[Any]) -> str | NDArray[Any]:
    if isinstance(file, np.ndarray):
        return file
    try:
        return os.fsdecode(os.fspath(file))
    except TypeError:
        got = type(file).__name__
        raise UsageError(f"expected paths or NumPy arrays, got {got}; convert it with numpy.asarray") from None


def _job(name: str, values: Mapping[str, Any]) -> tuple[Aggregation[Any] | ArrayJob[Any], Any]:
    """A job by its name, and its options."""
    if name not in WORKFLOWS:
        raise UsageError(f"expected a job out of {', '.join(WORKFLOWS)}, got {name!r}")
    workflow = WORKFLOWS[name]
    known = [field.name for field in fields(workflow.options)]
    for option in values:
        if option not in known:
            raise UsageError(f"{name}: expected options out of {', '.join(known) or 'none'}, got {option!r}")
    try:
        return workflow, workflow.options(**values)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{name}: {error}") from None
