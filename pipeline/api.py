"""Jobs from Python: `import pipeline; pipeline.run("histogram", "data.bin", bins=256)`, or an array in its place."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from difflib import get_close_matches
from functools import partial
from typing import Any, TypeVar, get_type_hints

import numpy as np
from numpy.typing import DTypeLike, NDArray

from pipeline.by_kernel import by_kernel
from pipeline.cluster.placement import Placement
from pipeline.engine.aggregate import run_all
from pipeline.engine.aggregate_plan import Job
from pipeline.engine.array import run_array
from pipeline.engine.verdict import verified
from pipeline.errors import UsageError
from pipeline.in_memory.kept_options import kept
from pipeline.in_memory.kinds import all_in_memory, view_of
from pipeline.in_memory.run import Asked, run_in_memory
from pipeline.settings import Settings
from pipeline.storage.sources import NAMES, Byteorder, Part, open_source
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
    dtype: DTypeLike | None = None,
    byteorder: Byteorder | None = None,
    offset: int | None = None,
    part: Part | None = None,
    recursive: bool = False,
    verify: str = "auto",
    chunk_bytes: int | None = None,
    device: str = "auto",
    gpus: int | str | Sequence[int | str] | None = None,
    scheduler: str | None = None,
    scheduler_file: Path | None = None,
    device_memory_limit: int | None = None,
    memory_limit: int | None = None,
    kernel: str | None = None,
    **options: Any,
) -> Any:
    """Run a job over files or arrays in memory and return its result, once it is verified.

    Parameters
    ----------
    job
        Its name, as on the command line. Or several jobs that return results, each with its options:
        ``[("histogram", {"bins": 256}), ("reduce", {"op": "sum,std"})]``; the files are read once for all of them.
    files
        Raw samples, `.npy`, or another format of docs/formats.md, with the name of one of several arrays after ``::``,
        like ``"a.h5::/group/data"``; patterns like ``"run-*.bin"`` are expanded. Or arrays of any layout, whose samples
        count in C order, computed where they lie without a copy: NumPy arrays of any byte order, CuPy arrays, objects
        with ``__dlpack__`` or ``__cuda_array_interface__``, or dask arrays, block by block on the active client or
        dask's current scheduler. Arrays that are not contiguous are copied in pieces.
    output
        File for a job that writes an array; `.npy`, ``"a.h5::/result"``, `.zarr` (chunks are whole rows), or raw under
        any other suffix. Not needed for arrays.
    dtype, byteorder, offset
        Of raw files: what ``numpy.dtype`` takes, without a byte order (default int32), or ``"u12p"`` and the like for
        packed samples; little (default) or big; bytes to skip (default 0).
    part
        Of complex samples: ``"real"``, ``"imag"``, ``"abs"`` or ``"phase"``. Of arrays, pass the part itself.
    recursive
        Whether a folder stands for all files below it, sorted by their paths, without hidden ones.
    verify
        What to check on the CPU: ``"auto"``, as much as can be checked in the time that the run takes, at least 1 % of
        every chunk; ``"full"``, everything; ``"sample"``, 1/256 of every chunk; or ``"off"``. Of arrays on a GPU
        ``"auto"`` is a random run of 1/2048 of every GiB, since copying more of them would take longer than the job.
    chunk_bytes
        Bytes per task; by default from the size of the input and the number of workers.
    device
        ``"auto"``, ``"gpu"`` or ``"cpu"``; the result is the same. Arrays are computed where they lie.
    gpus
        GPUs that take part: a number of them, ``"all"``, ``"idle"``, or a list of indices, as `nvidia-smi` shows them,
        and UUIDs; by default as many as finish first. Not for arrays.
    scheduler, scheduler_file
        An existing Dask cluster, by its scheduler's address or the file that it wrote; it cannot read arrays in memory.
        A `distributed.Client` that happens to be active is not used for files: its workers may lack them.
    device_memory_limit, memory_limit
        Bytes that tasks may hold in the memory of a GPU and, if the job writes an array, of a process; other jobs hold
        a few MiB per thread.
    kernel
        For one job over files: the kernel of the courses that computes in the place of its own, on GPUs.
    **options
        The job's own options, as on the command line, with underscores.

    Returns
    -------
    result object
        Its attributes are NumPy arrays and numbers: ``counts`` and ``edges`` of a histogram, ``array`` of a job that
        writes one: mapped from its file, or of the kind that was given (a dask array is lazy). ``verification`` says
        what was checked, if the job's result can have attributes. For several jobs, a list of results.

    Raises
    ------
    UsageError
        If there is no such job or option, or an argument or option is invalid or of a wrong type.
    VerificationError
        If a number is wrong.
    PipelineError
        If the run fails otherwise.
    """
    jobs = _jobs(job, options)
    inputs = tuple(_input(file) for file in files)
    if not inputs:
        raise UsageError("expected one or more files or arrays, got none")
    output, dtype, offset = _path("output", output), _dtype(dtype), _integer("offset", offset)
    chunk_bytes, memory_limit = _integer("chunk_bytes", chunk_bytes), _integer("memory_limit", memory_limit)
    device_memory_limit = _integer("device_memory_limit", device_memory_limit)
    scheduler_file = _path("scheduler_file", scheduler_file)
    if scheduler is not None and not isinstance(scheduler, str):
        raise UsageError(f"scheduler: expected an address like 'tcp://host:8786', {_got(scheduler)}")
    if not (isinstance(job, str) or (jobs and all(isinstance(workflow, Aggregation) for workflow, _ in jobs))):
        names = ", ".join(workflow.name for workflow, _ in jobs)
        raise UsageError(f"expected several jobs that return what they found, got {names or 'none'}")
    if all_in_memory(inputs, output):
        of_files = {"scheduler": scheduler, "scheduler_file": scheduler_file, "output": output,
                    "gpus": gpus, "device_memory_limit": device_memory_limit, "memory_limit": memory_limit,
                    "kernel": kernel, "part": part, "recursive": recursive or None}  # fmt: skip
        asked = Asked(dtype, byteorder, offset, verify, device, chunk_bytes, of_files)
        results = run_in_memory(jobs, inputs, asked)
        return results[0] if isinstance(job, str) else results
    opened = partial(open_source, dtype=dtype, byteorder=byteorder, offset=offset, part=part, recursive=recursive)
    jobs = [(by_kernel(workflow, chosen, kernel), chosen) for workflow, chosen in jobs]
    placement = Placement(device, scheduler, scheduler_file, gpus=gpus, kernel=jobs[0][0].kernel)
    settings = Settings(placement, verify, chunk_bytes=chunk_bytes, device_memory_limit=device_memory_limit,
                        memory_limit=memory_limit)  # fmt: skip
    if isinstance(job, str) and isinstance(workflow := jobs[0][0], ArrayJob):
        if output is None:
            raise UsageError(f"{job}: expected output=, the file that the array goes to, got none")
        chosen = jobs[0][1]
        groups = [(item,) for item in inputs] if workflow.operands(chosen) is not None else [inputs]
        sources = [opened(group, samples=False) for group in groups]
        outcome = run_array(workflow, chosen, sources, output, settings)
        return verified(outcome.result, outcome.verdict)
    aggregations = [Job(workflow, chosen) for workflow, chosen in jobs if isinstance(workflow, Aggregation)]
    names = ", ".join(workflow.name for workflow, _ in jobs)
    if output is not None:
        raise UsageError(f"{names}: expected no output=, since it returns what it found; got {output!r}")
    if memory_limit is not None:
        raise UsageError(
            f"{names}: expected no memory_limit=, since it holds a few MiB for each thread; got {memory_limit}"
        )
    source = opened(inputs, empty=all(job.workflow.empty for job in aggregations))
    results = [verified(outcome.result, outcome.verdict) for outcome in run_all(aggregations, source, settings)]
    return results[0] if isinstance(job, str) else results


def _jobs(job: Any, options: Mapping[str, Any]) -> list[tuple[Aggregation[Any] | ArrayJob[Any], Any]]:
    """The job, or the several jobs, each with its options."""
    if isinstance(job, str):
        return [_job(job, options)]
    if not isinstance(job, list | tuple):
        raise UsageError(f"expected the name of a job before its files, like run('histogram', 'data.bin'), {_got(job)}")
    if options:
        raise UsageError(f"expected the options of each of several jobs beside its name, got {', '.join(options)}")
    for pair in job:
        if not (isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], str)
                and isinstance(pair[1], Mapping)):  # fmt: skip
            raise UsageError(f"expected jobs as names with options, like [('histogram', {{}})], {_got(pair)}")
    return [_job(*pair) for pair in job]


@kept
def _job(name: str, values: Mapping[str, Any]) -> tuple[Aggregation[Any] | ArrayJob[Any], Any]:
    """A job by its name, and its options."""
    if name not in WORKFLOWS:
        raise UsageError(f"expected a job out of {', '.join(WORKFLOWS)}, got {name!r}{_meant(name, WORKFLOWS)}")
    workflow = WORKFLOWS[name]
    known = {field.name: field for field in fields(workflow.options)}
    for option, value in values.items():
        if option not in known:
            expected = ", ".join(known) or "none"
            meant = _meant(option, known) or _instead(value)
            raise UsageError(f"{name}: expected options out of {expected}, got {option!r}{meant}")
    for field in known.values():
        if field.name not in values and field.default is MISSING and field.default_factory is MISSING:
            raise UsageError(f"{name}: expected {field.name}=, got none")
    hints = get_type_hints(workflow.options)
    try:
        return workflow, workflow.options(**{
            option: _typed(known[option], hints[option], value) for option, value in values.items()
        })  # fmt: skip
    except (TypeError, ValueError) as error:
        raise UsageError(f"{name}: {error}") from None


def _typed(field: Field[Any], hint: Any, value: Any) -> Any:
    """The value of an option, of the type that its field declares if that is int, float or str."""
    advice = f"; {field.metadata['advice']}" if "advice" in field.metadata else ""
    number = not isinstance(value, bool | np.bool_)
    if hint is int:
        if not (number and hasattr(value, "__index__") and np.ndim(value) == 0):
            raise TypeError(f"{field.name}: expected an integer, {_got(value)}{advice}")
        return operator.index(value)
    if hint is float:
        if not (number and isinstance(value, int | float | np.number) and not isinstance(value, np.complexfloating)):
            raise TypeError(f"{field.name}: expected a number, {_got(value)}{advice}")
        return float(value)
    if hint is str and not isinstance(value, str):
        raise TypeError(f"{field.name}: expected text, {_got(value)}{advice}")
    return value


def _input(file: Any) -> Any:
    """The path of a file, or the array that views an object's memory."""
    if isinstance(file, np.ndarray):
        return view_of(file)
    try:
        return os.fsdecode(os.fspath(file))
    except TypeError:
        if (array := view_of(file)) is not None:
            return array
        advice = _instead(file) or "; convert numbers with numpy.asarray, and give each path as an argument of its own"
        raise UsageError(f"expected paths or arrays, got {type(file).__name__}{advice}") from None


def _path(name: str, value: Any) -> str | None:
    try:
        return None if value is None else os.fsdecode(os.fspath(value))
    except TypeError:
        raise UsageError(f"{name}: expected a path, {_got(value)}") from None


def _integer(name: str, value: Any) -> int | None:
    if value is None:
        return None
    try:
        if isinstance(value, bool):
            raise TypeError
        return int(operator.index(value))
    except TypeError:
        raise UsageError(f"{name}: expected a number of bytes, as an integer like 2**26, {_got(value)}") from None


def _dtype(dtype: Any) -> str | None:
    """The name of a dtype, however it is given."""
    if dtype is None or (isinstance(dtype, str) and dtype in NAMES):
        return dtype
    try:
        known = np.dtype(dtype)
    except TypeError:
        known = np.dtype(object)
    if known.name not in NAMES:
        raise UsageError(f"dtype: expected one of {', '.join(NAMES)}, got {dtype!r}")
    if not known.isnative:
        raise UsageError(f"dtype: expected one without a byte order, got {dtype!r}; give byteorder='big' beside it")
    return str(known.name)


def _got(value: Any) -> str:
    """What was given instead of what was expected, in a few words, and what to do."""
    short = isinstance(value, str | int | float | list | tuple | type | type(None)) and len(repr(value)) < 50
    return f"got {repr(value) if short else type(value).__name__}{_instead(value)}"


def _instead(value: Any) -> str:
    """What to write instead of a value that would make sense in another place."""
    module = type(value).__module__.partition(".")[0]
    if module == "distributed":
        address = getattr(getattr(value, "scheduler", None), "address", "its scheduler's address")
        return f"; name the cluster by scheduler={address!r}"
    return ""


def _meant(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, known, 1)
    return f"; did you mean {close[0]!r}?" if close else ""
