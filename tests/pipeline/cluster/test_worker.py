"""What a worker does around a task: errors of CUDA by their kind, and less memory where there is little."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from distributed import Client

import pipeline
import pipeline.cluster.worker
import pipeline.process.last_words
from pipeline.cluster.cuda_errors import (
    STICKY_ERRORS,
    cuda_status,
    hide_failing_destructors,
    lost_context,
    other_failure,
    out_of_memory,
)
from pipeline.cluster.worker import FOLDER, run_task
from pipeline.cluster.workers import Workers
from pipeline.errors import PipelineError, failure
from pipeline.gpu import blocks, transfer
from pipeline.storage.chunks import plan
from pipeline.storage.sources import open_source
from pipeline.timeline import Timeline
from tests.emulator.cupy import OutOfMemoryError
from tests.emulator.kvikio import install


class CUDARuntimeError(RuntimeError):
    """As CuPy's."""

    def __init__(self, status: int) -> None:
        super().__init__(f"cudaError: {status}")
        self.status = status


class NVRTCError(CUDARuntimeError):
    """As CuPy's, with numbers of its own: 2 is no lack of memory."""


def test_kinds_of_errors() -> None:
    for status in STICKY_ERRORS:
        assert f"(CUDA error {status})" in (lost_context(CUDARuntimeError(status)) or "")
    assert {2, 1, 9, 701, 704, 720}.isdisjoint(STICKY_ERRORS)  # after these a process can go on
    assert out_of_memory(CUDARuntimeError(2)) and out_of_memory(OutOfMemoryError("8 bytes"))
    for error in (ValueError("700"), NVRTCError(2), NVRTCError(700), MemoryError(), OSError(2, "no such file")):
        assert (cuda_status(error), lost_context(error), out_of_memory(error), other_failure(error)) == (0, *[None] * 3)
    assert other_failure(CUDARuntimeError(46)) == "CUDA error 46: cudaError: 46"


def test_cause_of_an_error_counts() -> None:
    try:
        try:
            raise CUDARuntimeError(719)
        except CUDARuntimeError as error:
            raise failure("a chunk", error) from error
    except PipelineError as error:
        assert lost_context(error)
    try:
        try:
            raise CUDARuntimeError(719)
        except CUDARuntimeError:
            raise PipelineError("told in other words") from None
    except PipelineError as error:
        assert lost_context(error) is None


def fails(error: Exception) -> None:
    raise error


@pytest.mark.parametrize(
    ("error", "text"),
    [(CUDARuntimeError(716), r"^a chunk: the GPU reported a misaligned address \(CUDA error 716\), after which it"),
     (CUDARuntimeError(9), r"^a chunk: CUDA error 9: cudaError: 9$"),
     (PipelineError("a file is gone"), r"^a file is gone$")],
)  # fmt: skip
def test_error_in_the_only_process_is_one_line(workers: Workers, error: Exception, text: str) -> None:
    client: Client = workers.client
    with pytest.raises(PipelineError, match=text):
        client.submit(run_task, "a chunk", "cpu", fails, error, pure=False).result(30)
    assert pipeline.process.last_words._abandoned == (lost_context(error) is not None)


class Freed:
    """Cannot be freed, like CuPy's objects whose context is lost."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __del__(self) -> None:
        raise self.error


def test_destructors_that_fail_for_a_lost_context_are_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: shown.append(type(unraisable.exc_value)))
    hide_failing_destructors.__wrapped__()
    for error in (CUDARuntimeError(700), CUDARuntimeError(9), ValueError("of others")):
        Freed(error)
    assert shown == [CUDARuntimeError, ValueError]


@pytest.fixture
def little_memory(cp: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A GPU, or the host in its place, on which no buffer is larger than 1 MiB; sizes that were refused."""
    refused: list[int] = []
    empty = cp.empty

    def limited(shape: Any, *arguments: Any) -> Any:
        if isinstance(shape, int) and shape > 2**20:
            refused.append(shape)
            raise OutOfMemoryError(f"{shape} bytes")
        return empty(shape, *arguments)

    if not hasattr(cp.cuda, "Stream"):
        install(cp, monkeypatch)
    monkeypatch.setattr(cp, "empty", limited)
    monkeypatch.setattr(transfer, "_reader", lambda: None)
    monkeypatch.setattr(blocks, "_most", 2**23)
    monkeypatch.setattr(pipeline.cluster.worker, "PAUSES", (0.0,) * 4)
    blocks._ready.clear()
    return refused


@pytest.mark.gpu
def test_blocks_shrink_until_they_fit(tmp_path: Path, little_memory: list[int]) -> None:
    samples = np.arange(2**20, dtype=np.int32)
    samples.tofile(tmp_path / "a.bin")
    (chunk,) = plan(open_source((str(tmp_path / "a.bin"),)), 2**30, "off", 0)

    def largest_and_sum() -> tuple[int, int]:
        taken = [
            (block.nbytes, int(block.get().sum(dtype=np.int64))) for block in blocks.device_blocks(chunk, Timeline())
        ]
        return max(nbytes for nbytes, _ in taken), sum(part for _, part in taken)

    with dask.config.set({FOLDER: None}):  # of a cluster of other tests
        assert run_task("a chunk", "gpu", largest_and_sum) == (2**20, int(samples.sum(dtype=np.int64)))
        assert little_memory == [2**23, 2**22, 2**21]
        assert run_task("a chunk", "gpu", largest_and_sum)[0] == 2**20  # at once
    assert len(little_memory) == 3


@pytest.mark.gpu
def test_gpu_without_any_memory_is_one_line(little_memory: list[int], workers: Workers) -> None:
    with pytest.raises(PipelineError, match=r"^a chunk: expected free memory on the GPU, got too little even"):
        workers.client.submit(run_task, "a chunk", "gpu", fails, OutOfMemoryError("1 byte"), pure=False).result(30)
