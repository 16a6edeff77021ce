"""Aggregations over a dask array: a task per block, on the caller's client or dask's scheduler, merged exactly."""

from __future__ import annotations

import math
from concurrent.futures import wait
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import PipelineError, UsageError, VerificationError
from pipeline.in_memory.aggregate import Covered, Work, cover_on_cpu, empty_partials, merged
from pipeline.in_memory.device import cover_on_gpu
from pipeline.in_memory.kinds import NAME, view_of
from pipeline.storage.array_source import accepted
from pipeline.storage.protocol import Opening
from workflows.regions import sizes

# Version of baru, as text, which a worker without baru can evaluate, too.
IMPORTED = "__import__('pipeline.in_memory.blocks').__version__"
MERGED = 16  # partials that a task merges
IDLE_SECONDS = 60  # without any worker
LOOK_SECONDS = 1.0  # between two looks for workers


class Sent:
    """What a task sends to the next one, with its digest."""

    def __init__(self, covered: Covered) -> None:
        self._covered, self._digest = covered, covered.digest

    def received(self) -> Covered:
        """It; raises VerificationError if it arrived changed."""
        if self._covered.digest != self._digest:
            raise VerificationError(f"{NAME}: the partial of a block arrived changed; nothing was returned; run again, "
                                    "and test the memory")  # fmt: skip
        return self._covered


def cover_blocks(work: Work, array: Any) -> Covered:
    """Compute and check each block where it lies; only one partial of all comes back.

    Parameters
    ----------
    work
    array : dask array of NumPy or CuPy blocks
        Chunk sizes may be unknown, unless a job is located. Where partials hold positions, blocks have to be whole
        rows: others are rechunked.

    Raises
    ------
    PipelineError
        If the client has no workers for a minute, they do not answer, or lack baru.
    """
    import dask

    check_workers()
    if work.ordered:
        array = _whole_rows(array, work.located)
    name = f"{work.jobs[0].workflow.name}-{uuid4().hex}"
    cover = partial(_cover_located if work.located else _cover_block, replace(work, threads=1), array.dtype)
    meta, chunks = np.empty((0,) * array.ndim, object), tuple((1,) * number for number in array.numblocks)
    blocks = array.map_blocks(cover, name=name, dtype=object, meta=meta, chunks=chunks)
    parts = list(blocks.to_delayed().reshape(-1))
    merge = dask.delayed(partial(_merge, work), pure=False)
    while len(parts) > 1:
        parts = [merge(parts[first : first + MERGED]) for first in range(0, len(parts), MERGED)]
    covered = _merge(work, [_computed(parts[0])]).received()
    if not math.isnan(array.size) and covered.samples != array.size:
        raise _other_shape(f"{array.size} samples", str(covered.samples))
    return covered


def _computed(task: Any) -> Any:
    """The result of a task; PipelineError if the client has had no workers for `IDLE_SECONDS`."""
    if (client := _client()) is None:
        return task.compute()
    from pipeline.cluster.workers import aside, asked, known_workers

    future, seen = client.compute(task), monotonic()
    answer = asked(future)
    try:
        with aside():
            while not wait([answer], LOOK_SECONDS).done:
                if known_workers(client, "dask"):
                    seen = monotonic()
                elif monotonic() - seen > IDLE_SECONDS:
                    raise PipelineError(f"dask: expected workers within {IDLE_SECONDS} s, got none; start some, or "
                                        "close the client to compute in this process")  # fmt: skip
        return answer.result()
    finally:
        if not future.done():  # nobody needs it any more
            future.cancel()


def _client() -> Any:
    """Dask's current client; None if this process computes. UsageError if it would wait for this thread."""
    import dask

    try:
        scheduler = dask.base.get_scheduler()
    except RuntimeError as error:  # an asynchronous client, in a coroutine
        raise UsageError(f"dask: expected a call that does not block the event loop of the client, got {error}; call "
                         "`await pipeline.submit(...)` instead") from None  # fmt: skip
    client: Any = getattr(scheduler, "__self__", None)
    return client if hasattr(client, "run_on_scheduler") else None


def _whole_rows(array: Any, located: bool) -> Any:
    """The array in blocks that follow each other in C order; `located`: whether their sizes have to be known."""
    rest = range(1, array.ndim)
    if not (located and any(map(math.isnan, array.shape))) and all(array.numblocks[axis] == 1 for axis in rest):
        return array
    if any(map(math.isnan, array.shape)):
        why = "known chunk sizes, since a condition or rows depend on where samples are" if located else (
            "blocks of whole rows")  # fmt: skip
        raise UsageError(
            f"{NAME}: expected {why}, got a dask array of unknown shape; call its compute_chunk_sizes() first"
        )
    return as_said(array).rechunk({0: "auto"} | dict.fromkeys(rest, -1))


def as_said(array: Any) -> Any:
    """A dask array of known shape, each of whose blocks is known to be what dask says before parts are cut out of it.

    A block that is longer would be cut to the length that dask says, and one of another dtype converted where it is
    joined with others; neither would be seen later.
    """
    return array.map_blocks(_as_said, array.dtype, dtype=array.dtype, meta=array._meta)


def _as_said(block: Any, dtype: np.dtype[Any], block_info: Any = None) -> Any:
    """Task: the block."""
    return adopted(block, dtype, sizes(block_info[0]["array-location"]))


def _cover_block(work: Work, dtype: np.dtype[Any], block: Any, shape: tuple[int, ...] | None = None) -> NDArray[Any]:
    """Task: a block's `Covered`, as an array of one object."""
    block, got = adopted(block, dtype, shape), np.empty((1,) * np.ndim(block), object)
    if block.size:
        got[...] = Sent(cover_on_cpu(work, block) if isinstance(block, np.ndarray) else cover_on_gpu(work, block))
    else:
        got[...] = Sent(empty_partials(work, dtype) or _nothing())
    return got


def _cover_located(work: Work, dtype: np.dtype[Any], block: Any, block_info: Any = None) -> NDArray[Any]:
    """Task: as `_cover_block`, for jobs that are located."""
    info = block_info[0]
    rows = sum(first for first, _ in info["array-location"][:1])  # without axes there are none
    start = rows * math.prod(info["shape"][1:])
    return _cover_block(replace(work, start=work.start + start), dtype, block, sizes(info["array-location"]))


def _nothing() -> Covered:
    return Covered((), 0, 0, 0)


def adopted(block: Any, dtype: np.dtype[Any], shape: tuple[int, ...] | None = None) -> Any:
    """A block as a NumPy or CuPy array of the dtype, and of the shape if it is known, that dask says.

    Raises
    ------
    UsageError
        If it is no array, or another one.
    """
    block = np.asarray(block) if isinstance(block, np.generic) else block  # of an array without axes
    if (array := view_of(block)) is None:
        raise UsageError(f"{NAME}: expected blocks that are NumPy or CuPy arrays, got {type(block).__name__}")
    if array.dtype != dtype:
        raise UsageError(f"{NAME}: expected blocks of {dtype}, as dask says, got {array.dtype}; give the right dtype "
                         "or meta where the dask array is made")  # fmt: skip
    if shape is not None and array.shape != shape:
        raise _other_shape(f"blocks of shape {shape}", str(array.shape))
    return accepted(array, Opening(samples=False))


def _other_shape(expected: str, got: str) -> UsageError:
    return UsageError(f"{NAME}: expected {expected}, as dask says, got {got}; give the right chunks where the dask "
                      "array is made")  # fmt: skip


def _merge(work: Work, pieces: list[Any]) -> Sent:
    """Task: what successive blocks give together."""
    covered = [(piece.item() if isinstance(piece, np.ndarray) else piece).received() for piece in pieces]
    some = [piece for piece in covered if piece.samples]
    return Sent(merged(work, some) if some else covered[0])


def check_workers() -> None:
    """Raise PipelineError if the scheduler or a worker of dask's current client lacks baru.

    Asked first, because a worker that cannot unpickle a task drops its connection, and the task is sent again for ever.
    """
    if (client := _client()) is None:
        return
    from pipeline.cluster.client import CALL_SECONDS

    def ask(call: Any, **options: Any) -> Any:
        try:  # Dask's own calls would wait for a frozen process for ever
            return client.sync(call, eval, IMPORTED, callback_timeout=CALL_SECONDS, **options)
        except TimeoutError:
            raise PipelineError(f"dask: expected the scheduler and every worker of the client to answer within "
                                f"{CALL_SECONDS} s; is one of them stopped?") from None  # fmt: skip

    ours = eval(IMPORTED)
    answers = ask(client._run, on_error="return")
    try:
        answers["the scheduler"] = ask(client._run_on_scheduler)
    except PipelineError:
        raise
    except Exception as error:
        answers["the scheduler"] = error
    for where, answer in answers.items():
        if answer != ours:
            raise PipelineError(f"dask: expected baru {ours} on the scheduler and every worker of the client, "
                                f"got {answer} on {where}; install it there, or compute the array first")  # fmt: skip
