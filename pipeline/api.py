"""Jobs from Python: `import pipeline; pipeline.run("histogram", "data.bin", bins=256)`, or an array in its place."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import Any, Literal, TypeVar, overload

from numpy.typing import DTypeLike, NDArray

from pipeline.arguments import check_client, declared, dtype_of, input_of, integer_of, jobs_of, path_of, preparation_of
from pipeline.by_kernel import by_kernel
from pipeline.cluster.placement import Placement
from pipeline.engine.aggregate import run_all
from pipeline.engine.aggregate_plan import Job
from pipeline.engine.array import ArrayResult, run_array
from pipeline.engine.verdict import verified
from pipeline.errors import UsageError
from pipeline.in_memory.call_cache import going_on
from pipeline.in_memory.kinds import all_in_memory
from pipeline.in_memory.run import Asked, run_in_memory
from pipeline.rows import Layout, RowsAsked, rows_of_source
from pipeline.settings import Settings
from pipeline.storage.sources import Byteorder, Part, open_source
from workflows import WORKFLOWS, Aggregation, ArrayJob
from workflows.digest import DigestResult
from workflows.histogram_result import HistogramResult
from workflows.quantile_result import QuantileResult
from workflows.reduce_result import ReduceResult

Declared = TypeVar("Declared", bound=Aggregation[Any] | ArrayJob[Any])
Path = str | os.PathLike[str]
Given = Path | NDArray[Any]
Jobs = Sequence[tuple[str, Mapping[str, Any]]]


def register(workflow: Declared) -> Declared:
    """Make a job available to `run` under its name, in the place of one that was registered under it before.

    Parameters
    ----------
    workflow
        A `workflows.aggregation.Aggregation` or a `workflows.array_job.ArrayJob`.

    Raises
    ------
    ValueError
        If one of baru's own jobs has the name, or `run` has an argument of the name of an option.
    TypeError
        If it is no job.

    Examples
    --------
    A job that exists under another name, for its own options and example:

    >>> import dataclasses, numpy, pipeline
    >>> from workflows import WORKFLOWS
    >>> adc = pipeline.register(dataclasses.replace(WORKFLOWS["histogram"], name="adc"))
    >>> int(pipeline.run("adc", numpy.arange(5)).counts.sum())
    5
    """
    declared(workflow, run)
    WORKFLOWS[workflow.name] = workflow  # a cell of a notebook runs again, a module is loaded again
    return workflow


@overload
def run(
    job: Literal["histogram"], *files: Given, channels: None = None, layout: None = None, segment: None = None,
    by: None = None, axis: None = None, where: None = None, mask: None = None, missing: None = None, **options: Any,
) -> HistogramResult: ...  # fmt: skip


@overload
def run(
    job: Literal["reduce"], *files: Given, channels: None = None, layout: None = None, segment: None = None,
    by: None = None, axis: None = None, where: None = None, mask: None = None, missing: None = None, **options: Any,
) -> ReduceResult: ...  # fmt: skip


@overload
def run(
    job: Literal["quantile"], *files: Given, channels: None = None, layout: None = None, segment: None = None,
    by: None = None, axis: None = None, where: None = None, mask: None = None, missing: None = None, **options: Any,
) -> QuantileResult: ...  # fmt: skip


@overload
def run(
    job: Literal["digest"], *files: Given, channels: None = None, layout: None = None, segment: None = None,
    by: None = None, axis: None = None, where: None = None, mask: None = None, missing: None = None, **options: Any,
) -> DigestResult: ...  # fmt: skip


@overload
def run(
    job: Literal["matmul", "transpose", "stencil", "map"], *files: Path, output: Path, **options: Any
) -> ArrayResult: ...


@overload
def run(job: str | Jobs, *files: Given, **options: Any) -> Any: ...


@partial(going_on, jobs_of=jobs_of)
def run(
    job: str | Jobs,
    *files: Given,
    output: Path | None = None,
    dtype: DTypeLike | None = None,
    byteorder: Byteorder | None = None,
    offset: int | None = None,
    part: Part | None = None,
    recursive: bool = False,
    where: str | None = None,
    mask: Path | NDArray[Any] | None = None,
    columns: Mapping[str, Path | NDArray[Any]] | None = None,
    missing: float | Sequence[float] | None = None,
    gain: float | None = None,
    bias: float | None = None,
    transform: str | None = None,
    verify: str = "auto",
    chunk_bytes: int | None = None,
    device: str = "auto",
    gpus: int | str | Sequence[int | str] | None = None,
    scheduler: str | None = None,
    scheduler_file: Path | None = None,
    client: Any = None,
    device_memory_limit: int | None = None,
    memory_limit: int | None = None,
    kernel: str | None = None,
    channels: int | None = None,
    layout: Layout | None = None,
    segment: int | None = None,
    by: Literal["file"] | None = None,
    axis: int | None = None,
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
        a suffix of no other format. Not needed for arrays.
    dtype, byteorder, offset
        Of raw files: what ``numpy.dtype`` takes, without a byte order (default int32), or ``"u12p"`` and the like for
        packed samples; little (default) or big; bytes to skip (default 0).
    part
        Of complex samples: ``"real"``, ``"imag"``, ``"abs"`` or ``"phase"``. Of arrays, pass the part itself.
    recursive
        Whether a folder stands for all files below it, sorted by their paths, without hidden ones.
    where
        For jobs that return results: count only samples for which this condition holds, ``"0 <= x < 4000 and x != 7"``
        for example. ``x`` is the sample, ``i`` its index, other names are columns.
    mask
        A `.npy` file or an array of bool or uint8, of the shape of the samples: those where it is not 0 count.
    columns
        Names for the condition, each with a `.npy` file or an array of a number for each sample.
    missing
        Samples equal to this number, or to one of several, do not count.
    gain, bias, transform
        For such jobs, replace each sample x that counts by ``transform(x * gain + bias)``, in float64; a transform is
        ``"abs"``, ``"square"``, ``"sqrt"``, ``"log"``, ``"log2"`` or ``"log10"``.
    verify
        What to check on the CPU: ``"auto"``, as much as can be checked in the time that the run takes, at least 1 % of
        every chunk; ``"full"``, everything; ``"sample"``, 1/256 of every chunk; or ``"off"``. Of arrays on a GPU
        ``"auto"`` is a random run of 1/2048 of every GiB, since copying more of them would take longer than the job.
    chunk_bytes
        Bytes per chunk; for a job that writes an array, per region, inputs and output together. The default follows
        from the size of the input and the number of workers.
    device
        ``"auto"``, ``"gpu"`` or ``"cpu"``; the result is the same. Arrays are computed where they lie.
    gpus
        GPUs that take part: a number of them, ``"all"``, ``"idle"``, or a list of indices, as `nvidia-smi` shows them,
        and UUIDs; by default as many as finish first. Not for arrays.
    scheduler, scheduler_file
        An existing Dask cluster, by its scheduler's address or the file that it wrote; it cannot read arrays in memory.
        A `distributed.Client` that happens to be active is not used for files: its workers may lack them.
    client
        A `distributed.Client` on whose cluster to run over files, which its workers can read. In a coroutine, `submit`
        does not block the event loop.
    device_memory_limit, memory_limit
        Bytes that tasks may hold in the memory of a GPU and, if the job writes an array, of a process; other jobs hold
        a few MiB per thread.
    kernel
        For one job over files: the kernel of the courses that computes in the place of its own, on GPUs.
    channels, layout, segment, by, axis
        Of jobs that return results, one for each row. Rows are so many channels, whose samples are ``"interleaved"``
        (default) or ``"planar"``; runs of `segment` samples, of which the last may be shorter; with ``by="file"`` the
        files or arrays; or what is left of one array without an axis.
    **options
        The job's own options, as on the command line, with underscores.

    Returns
    -------
    result object
        Its attributes are NumPy arrays and numbers: ``counts`` and ``edges`` of a histogram, ``array`` of a job that
        writes one: mapped from its file, or of the kind that was given (a dask array is lazy); ``results`` of rows,
        with ``arrays()`` that have them as first axis. ``verification`` says
        what was checked, if the job's result can have attributes. For several jobs, a list of results.

    Raises
    ------
    UsageError
        If there is no such job or option, or an argument or option is invalid or of a wrong type.
    VerificationError
        If a number is wrong.
    PipelineError
        If the run fails otherwise.

    Examples
    --------
    >>> import numpy, pipeline
    >>> found = pipeline.run("histogram", numpy.arange(100), bins=4, range=(0, 100))
    >>> found.counts.tolist()
    [25, 25, 25, 25]
    >>> counts, sums = pipeline.run([("histogram", {}), ("reduce", {"op": "sum,max"})], numpy.arange(100))
    >>> sums.values
    {'sum': 4950, 'max': 99}
    >>> str(sums.verification)
    '100 % of 100 samples checked: equal to the reference; every invariant holds on the chunk'
    """
    if isinstance(job, str) and axis is not None and _has_axis(job):
        options, axis = {**options, "axis": axis}, None
    jobs = jobs_of(job, options)
    inputs = tuple(input_of(file) for file in files)
    if not inputs:
        raise UsageError("expected one or more files or arrays, got none")
    output, dtype, offset = path_of("output", output), dtype_of(dtype), integer_of("offset", offset)
    chunk_bytes, memory_limit = integer_of("chunk_bytes", chunk_bytes), integer_of("memory_limit", memory_limit)
    device_memory_limit = integer_of("device_memory_limit", device_memory_limit)
    scheduler_file = path_of("scheduler_file", scheduler_file)
    check_client(client, scheduler, scheduler_file)
    if not (isinstance(job, str) or (jobs and all(isinstance(workflow, Aggregation) for workflow, _ in jobs))):
        names = ", ".join(workflow.name for workflow, _ in jobs)
        raise UsageError(f"expected jobs that return results, since several share a pass, got {names or 'none'}")
    rows = RowsAsked(channels, layout, segment, by, axis)
    preparation = preparation_of(where, mask, columns, missing, gain, bias, transform)
    if preparation.any and not all(isinstance(workflow, Aggregation) for workflow, _ in jobs):
        raise UsageError(f"{jobs[0][0].name}: expected none of where=, mask=, columns=, missing=, gain=, bias= and "
                         "transform=, since it writes an array")  # fmt: skip
    if all_in_memory(inputs, output):
        of_files = {"scheduler": scheduler, "scheduler_file": scheduler_file, "client": client, "output": output,
                    "gpus": gpus, "device_memory_limit": device_memory_limit, "memory_limit": memory_limit,
                    "kernel": kernel, "part": part, "recursive": recursive or None}  # fmt: skip
        asked = Asked(dtype, byteorder, offset, verify, device, chunk_bytes, of_files, rows, preparation)
        results = run_in_memory(jobs, inputs, asked)
        return results[0] if isinstance(job, str) else results
    opened = partial(open_source, dtype=dtype, byteorder=byteorder, offset=offset, part=part, recursive=recursive)
    jobs = [(by_kernel(workflow, chosen, kernel), chosen) for workflow, chosen in jobs]
    placement = Placement(device, scheduler, scheduler_file, client, gpus=gpus, kernel=jobs[0][0].kernel)
    settings = Settings(placement, verify, chunk_bytes=chunk_bytes, device_memory_limit=device_memory_limit,
                        memory_limit=memory_limit)  # fmt: skip
    if isinstance(job, str) and isinstance(workflow := jobs[0][0], ArrayJob):
        if rows.any:
            raise UsageError(f"{job}: expected a job that returns results for rows, got one that writes an array")
        if output is None:
            raise UsageError(f"{job}: expected output=, the file that the array goes to, got none")
        chosen = jobs[0][1]
        groups = [(item,) for item in inputs] if workflow.operands(chosen) is not None else [inputs]
        sources = [opened(group, samples=False) for group in groups]
        outcome = run_array(workflow, chosen, sources, output, settings)
        return verified(outcome.result, outcome.verdict).mapped()
    aggregations = [Job(workflow, chosen) for workflow, chosen in jobs if isinstance(workflow, Aggregation)]
    names = ", ".join(workflow.name for workflow, _ in jobs)
    if output is not None:
        raise UsageError(f"{names}: expected no output=, since it returns its result, got {output!r}; save its "
                         "plot() or to_json(), or run the command with -o")  # fmt: skip
    if memory_limit is not None:
        raise UsageError(
            f"{names}: expected no memory_limit=, since it holds a few MiB for each thread; got {memory_limit}"
        )
    source = opened(inputs, empty=all(job.workflow.empty for job in aggregations))
    prepared = preparation.of_source(source)
    aggregations = rows_of_source(list(map(prepared.job, aggregations)), rows, source)
    outcomes = run_all(aggregations, source, settings, beside=prepared.sources)
    results = [verified(outcome.result, outcome.verdict) for outcome in outcomes]
    return results[0] if isinstance(job, str) else results


def _has_axis(job: str) -> bool:
    """Whether a job has an option of its own of this name."""
    return job in WORKFLOWS and any(field.name == "axis" for field in fields(WORKFLOWS[job].options))
