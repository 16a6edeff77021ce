"""Calls of `pipeline.run` like an earlier one: what that call worked out from its arguments holds for the next."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from functools import wraps
from threading import local
from typing import Any

from pipeline.engine.aggregate_plan import Job
from pipeline.in_memory.kinds import plain_kind
from pipeline.in_memory.options_cache import MOST, plain_key
from pipeline.in_memory.run import run_prepared
from workflows import WORKFLOWS
from workflows.aggregation import Aggregation

Run = Callable[..., Any]


def going_on(run: Run, jobs_of: Callable[[str, Mapping[str, Any]], Any]) -> Run:
    """`run`, which goes on at once where an earlier call had the same job, options, dtype of one array, and `verify`.

    Reading the other arguments takes as long as counting 2^20 samples on a GPU three times over.

    Parameters
    ----------
    run
    jobs_of
        (name of a job, its options by name) -> one job with its options, once `run` has accepted them.
    """
    others = frozenset(run.__kwdefaults__ or ()) - {"verify"}  # a call that says one of them is read as a whole
    of_thread = local()  # as options are kept

    @wraps(run)
    def go_on_or_run(job: Any, *files: Any, **said: Any) -> Any:
        key = _key(job, files, said) if others.isdisjoint(said) else None
        if key is None:
            return run(job, *files, **said)
        known: OrderedDict[Hashable, tuple[Any, Job]] = vars(of_thread).setdefault("known", OrderedDict())
        verify = said.get("verify", "auto")
        workflow, prepared = known.get(key, (None, None))
        if prepared is not None and workflow is WORKFLOWS.get(job):
            return run_prepared((prepared,), key[0], files, verify)[0]
        result = run(job, *files, **said)
        ((workflow, options),) = jobs_of(job, {name: value for name, value in said.items() if name != "verify"})
        if isinstance(workflow, Aggregation):
            known[key] = workflow, Job(workflow, options).prepared(files[0].dtype)
            while len(known) > MOST:
                known.popitem(last=False)
        return result

    return go_on_or_run


def _key(job: Any, files: tuple[Any, ...], said: Mapping[str, Any]) -> tuple[str, Hashable, Hashable] | None:
    """What a call depends on besides its samples; None unless that is one array with samples, and plain values."""
    if len(files) != 1 or not isinstance(job, str):
        return None
    if (kind := plain_kind(files[0])) is None or not files[0].size or files[0].dtype.kind == "b":
        return None  # bool is viewed as uint8 first
    options = plain_key(job, said)
    return None if options is None else (kind, files[0].dtype, options)
