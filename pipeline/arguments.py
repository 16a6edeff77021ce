"""Reads the arguments of `pipeline.run`: what each has to be, and what to write instead of a wrong one."""

from __future__ import annotations

import asyncio
import operator
import os
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields
from inspect import signature
from typing import Any, get_type_hints

import numpy as np
from numpy.typing import NDArray

from pipeline.engine.selection import Preparation
from pipeline.errors import UsageError, meant, with_nearest
from pipeline.in_memory.kinds import DASK, kind_of, view_of
from pipeline.in_memory.options_cache import kept
from pipeline.storage.sources import NAMES
from workflows import BUILT_IN, WORKFLOWS
from workflows.aggregation import Aggregation
from workflows.array_job import ArrayJob

MOST_BITS = 1000  # of an integer that is taken as a number


def declared(workflow: Any, run: Callable[..., Any]) -> None:
    """Check a job of somebody's own, whose options are arguments of `run`, as `pipeline.register` says."""
    if not isinstance(workflow, Aggregation | ArrayJob):
        raise TypeError(f"register: expected a workflows.Aggregation or ArrayJob, {got(workflow)}")
    if workflow.name in BUILT_IN and WORKFLOWS[workflow.name] is not workflow:
        raise ValueError(f"register: expected a name of your own, got {workflow.name!r}, which a job of baru has")
    taken = {option.name for option in fields(workflow.options)} & signature(run).parameters.keys() - {"axis"}
    if taken:
        raise ValueError(f"register: expected options that pipeline.run has no argument for, got {min(taken)!r}; "
                         "rename it")  # fmt: skip


def check_client(client: Any, scheduler: Any, scheduler_file: Any) -> None:
    """Refuse what is not a client of Dask's, or would block the event loop that has to answer it; UsageError.

    So is a scheduler that is no address.
    """
    if scheduler is not None and not isinstance(scheduler, str):
        raise UsageError(f"scheduler: expected an address like 'tcp://host:8786', {got(scheduler)}")
    if client is None:
        return
    if not hasattr(client, "scheduler") or not hasattr(client, "security"):
        raise UsageError(f"client: expected a distributed.Client, {got(client)}")
    if scheduler or scheduler_file:
        raise UsageError(f"expected client= or scheduler=, got both: {client} and {(scheduler or scheduler_file)!r}")
    if client.status != "running":
        raise UsageError(f"client: expected a connected client, got one that is {client.status}; create another")
    if client.asynchronous and client.loop.asyncio_loop is _running_loop():
        raise UsageError("client: expected a call outside the thread of its event loop, which would deadlock; call "
                         "`await pipeline.submit(...)` instead")  # fmt: skip


def _running_loop() -> Any:
    """The event loop of this thread, if one runs."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def jobs_of(job: Any, options: Mapping[str, Any]) -> list[tuple[Aggregation[Any] | ArrayJob[Any], Any]]:
    """The job, or the several jobs, each with its options; UsageError if there is no such job or option."""
    if isinstance(job, str):
        return [_job(job, options)]
    if not isinstance(job, list | tuple):
        raise UsageError(f"expected the name of a job before its files, like run('histogram', 'data.bin'), {got(job)}")
    if options:
        raise UsageError(
            f"expected the options of each job beside its name, like [('histogram', {{'bins': 256}})], "
            f"got {', '.join(options)}"
        )
    for pair in job:
        if not (isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], str)
                and isinstance(pair[1], Mapping)):  # fmt: skip
            raise UsageError(f"expected jobs as names with options, like [('histogram', {{}})], {got(pair)}")
    return [_job(*pair) for pair in job]


@kept
def _job(name: str, values: Mapping[str, Any]) -> tuple[Aggregation[Any] | ArrayJob[Any], Any]:
    """A job by its name, and its options."""
    if name not in WORKFLOWS:
        raise UsageError(f"expected a job, one of {', '.join(WORKFLOWS)}, got {name!r}{meant(name, WORKFLOWS)}")
    workflow = WORKFLOWS[name]
    known = {field.name: field for field in fields(workflow.options)}
    for option, value in values.items():
        if option not in known:
            expected = f"an option, one of {', '.join(known)}" if known else "no options"
            advice = meant(option, known) or _instead(value)
            raise UsageError(f"{name}: expected {expected}, got {option!r}{advice}")
    for field in known.values():
        if field.name not in values and field.default is MISSING and field.default_factory is MISSING:
            raise UsageError(f"{name}: expected {field.name}=, got none")
    hints = get_type_hints(workflow.options)
    try:
        return workflow, workflow.options(**{
            option: _typed(known[option], hints[option], value) for option, value in values.items()
        })  # fmt: skip
    except (TypeError, ValueError) as error:
        raise UsageError(with_nearest(f"{name}: {error}")) from None


def _typed(field: Field[Any], hint: Any, value: Any) -> Any:
    """The value of an option, of the type that its field declares if that is int, float or str."""
    advice = f"; {field.metadata['advice']}" if "advice" in field.metadata else ""
    number = not isinstance(value, bool | np.bool_)
    if hint is int:
        if not (number and hasattr(value, "__index__") and np.ndim(value) == 0):
            raise TypeError(f"{field.name}: expected an integer, {got(value)}{advice}")
        return operator.index(value)
    if hint is float:
        if not (number and isinstance(value, int | float | np.number) and not isinstance(value, np.complexfloating)):
            raise TypeError(f"{field.name}: expected a number, {got(value)}{advice}")
        return float(value)
    if hint is str and not isinstance(value, str):
        raise TypeError(f"{field.name}: expected text, {got(value)}{advice}")
    return value


def input_of(file: Any) -> Any:
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


def path_of(name: str, value: Any) -> str | None:
    """The text of a path; UsageError if it is not a path."""
    try:
        return None if value is None else os.fsdecode(os.fspath(value))
    except TypeError:
        raise UsageError(f"{name}: expected a path, {got(value)}") from None


def integer_of(name: str, value: Any) -> int | None:
    """A number of bytes; UsageError if it is not one."""
    if value is None:
        return None
    try:
        if isinstance(value, bool):
            raise TypeError
        return int(operator.index(value))
    except TypeError:
        raise UsageError(f"{name}: expected a number of bytes, as an integer like 2**26, {got(value)}") from None


def dtype_of(dtype: Any) -> str | None:
    """The name of a dtype, however it is given."""
    if dtype is None or (isinstance(dtype, str) and dtype in NAMES):
        return dtype
    try:
        known = np.dtype(dtype)
    except TypeError:
        known = np.dtype(object)
    if known.name not in NAMES:
        given = dtype if isinstance(dtype, str) else ""
        raise UsageError(f"dtype: expected one of {', '.join(NAMES)}, got {dtype!r}{meant(given, NAMES)}")
    if not known.isnative:
        raise UsageError(f"dtype: expected one without a byte order, got {dtype!r}; give byteorder='big' beside it")
    return str(known.name)


def preparation_of(
    where: Any, mask: Any, columns: Any, missing: Any, gain: Any, bias: Any, transform: Any
) -> Preparation:
    """What happens to samples before a job gets them; UsageError if an argument is of a wrong type."""
    if where is not None and not isinstance(where, str):
        raise UsageError(f"where: expected a condition as text, like 'x < 4000', {got(where)}")
    if columns is not None and not (isinstance(columns, Mapping) and all(isinstance(name, str) for name in columns)):
        raise UsageError(f"columns: expected files or arrays by name, like {{'t': 't.npy'}}, {got(columns)}")
    several = missing if isinstance(missing, list | tuple) else () if missing is None else (missing,)
    return Preparation(
        where,
        None if mask is None else _given("mask", mask),
        {name: _given(f"columns: {name}", value) for name, value in (columns or {}).items()},
        tuple(_number("missing", value) for value in several),
        None if gain is None else float(_number("gain", gain)),
        None if bias is None else float(_number("bias", bias)),
        transform,
    )


def _given(name: str, value: Any) -> str | NDArray[Any]:
    """A path, or an array on the host."""
    if isinstance(value, str | os.PathLike):
        return os.fsdecode(os.fspath(value))
    array = view_of(value)
    if array is None or kind_of(array) == DASK:
        raise UsageError(f"{name}: expected a .npy file or an array, {got(value)}")
    return array if isinstance(array, np.ndarray) else array.get()


def _number(name: str, value: Any) -> int | float:
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.integer | np.floating):
        raise UsageError(f"{name}: expected a number, {got(value)}")
    number = value.item() if isinstance(value, np.generic) else value
    if isinstance(number, int) and number.bit_length() > MOST_BITS:
        raise UsageError(
            f"{name}: expected a number that float64 can hold, got an integer of {number.bit_length()} bits"
        )
    return number


def got(value: Any) -> str:
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
