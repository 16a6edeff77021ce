"""Jobs from Python: `import pipeline; pipeline.run("histogram", "data.bin", bins=256)`."""

from __future__ import annotations

import os
from dataclasses import fields
from typing import Any, TypeVar

from pipeline.array_run import run_array
from pipeline.cluster import Placement
from pipeline.engine import run as run_workflow
from pipeline.errors import UsageError
from pipeline.sources import Byteorder, open_source
from workflows import WORKFLOWS
from workflows.array_workflow import ArrayWorkflow
from workflows.workflow import Workflow

Job = TypeVar("Job", bound=Workflow[Any] | ArrayWorkflow[Any])
Path = str | os.PathLike[str]


def register(workflow: Job) -> Job:
    """Make a job known under its name, to `run` and to the command line.

    Parameters
    ----------
    workflow
        A `workflows.workflow.Workflow` or a `workflows.array_workflow.ArrayWorkflow`.

    Raises
    ------
    ValueError
        If another job has the name.
    """
    if WORKFLOWS.setdefault(workflow.name, workflow) is not workflow:
        raise ValueError(f"register: expected a new name, got {workflow.name!r}, which another job has")
    return workflow


def run(
    job: str,
    *files: Path,
    output: Path | None = None,
    dtype: str | None = None,
    byteorder: Byteorder | None = None,
    offset: int | None = None,
    verify: str | None = None,
    chunk_bytes: int | None = None,
    device: str = "auto",
    scheduler: str | None = None,
    scheduler_file: Path | None = None,
    device_memory_limit: int | None = None,
    memory_limit: int | None = None,
    **options: Any,
) -> Any:
    """Run a job over files and return its result, once it is verified.

    Parameters
    ----------
    job
        Its name: that of the subcommand.
    files
        Raw samples or `.npy`; patterns like ``"run-*.bin"`` are expanded.
    output
        Where a job that writes an array puts it; `.npy`, or raw under any other suffix.
    dtype, byteorder, offset
        Of raw files: a NumPy dtype name (default int32), little (default) or big, bytes to skip (default 0).
    verify
        ``"full"``, ``"sample"`` or ``"off"``; by default full up to 256 MiB, sample above.
    chunk_bytes
        Bytes per task; by default from the size of the input and the number of workers.
    device
        ``"auto"``, ``"gpu"`` or ``"cpu"``; the result is the same.
    scheduler, scheduler_file
        An existing Dask cluster.
    device_memory_limit, memory_limit
        Bytes that tasks may hold in the memory of a GPU, and, of a job that writes an array, of a process; others hold
        a few MiB for each thread.
    **options
        The job's own: those of the subcommand, with underscores.

    Returns
    -------
    result object
        Its attributes are NumPy arrays and numbers: ``counts`` and ``edges`` of a histogram, ``array`` of a job that
        writes one.

    Raises
    ------
    UsageError
        If there is no such job or option, or one of them is impossible.
    VerificationError
        If a number is wrong.
    PipelineError
        If the run fails otherwise.
    """
    if job not in WORKFLOWS:
        raise UsageError(f"expected a job out of {', '.join(WORKFLOWS)}, got {job!r}")
    workflow = WORKFLOWS[job]
    chosen = _options(workflow, options)
    paths = tuple(os.fspath(path) for path in files)
    placement = Placement(device, scheduler, None if scheduler_file is None else os.fspath(scheduler_file))
    how: dict[str, Any] = {"placement": placement, "verify": verify, "chunk_bytes": chunk_bytes,
                           "device_memory_limit": device_memory_limit}  # fmt: skip
    if isinstance(workflow, ArrayWorkflow):
        if output is None:
            raise UsageError(f"{job}: expected output=, the file that the array goes to, got none")
        groups = [(path,) for path in paths] if workflow.operands(chosen) is not None else [paths]
        sources = [open_source(group, dtype, byteorder, offset, samples=False) for group in groups]
        return run_array(workflow, chosen, sources, os.fspath(output), memory_limit=memory_limit, **how).result
    if output is not None:
        raise UsageError(f"{job}: expected no output=, since it returns what it found; got {os.fspath(output)!r}")
    if memory_limit is not None:
        raise UsageError(
            f"{job}: expected no memory_limit=, since it holds a few MiB for each thread; got {memory_limit}"
        )
    return run_workflow(workflow, chosen, open_source(paths, dtype, byteorder, offset), **how).result


def _options(workflow: Workflow[Any] | ArrayWorkflow[Any], values: dict[str, Any]) -> Any:
    known = [field.name for field in fields(workflow.options)]
    for name in values:
        if name not in known:
            raise UsageError(f"{workflow.name}: expected options out of {', '.join(known) or 'none'}, got {name!r}")
    try:
        return workflow.options(**values)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{workflow.name}: {error}") from None
