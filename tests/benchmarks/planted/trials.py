"""Runs jobs with one error planted and says what became of it."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, fields, replace
from pathlib import Path
from time import perf_counter, sleep
from types import SimpleNamespace
from typing import Any

import numpy as np

import kernels.quantile.cells
import kernels.quantile.deviation
import pipeline
import pipeline.engine.aggregate
import pipeline.engine.run_loop
import pipeline.storage.blocks
import pipeline.storage.output_file
from pipeline.cluster.workers import Workers
from pipeline.errors import PipelineError, VerificationError
from tests.benchmarks.planted import places
from tests.benchmarks.planted.injector import INJECTOR, Call
from tests.benchmarks.planted.jobs import scenario
from tests.benchmarks.planted.limits import time_limit
from tests.benchmarks.planted.patches import AFTER, DELIVERED, NO_ROLE, OUTSIDE, STRAY
from tests.benchmarks.planted.scenario import BLOCK_BYTES, GATHERED, Written
from workflows.rows_result import RowsResult
from workflows.selection_result import SelectedResult

CAUGHT, HARMLESS, ADMITTED, MISSED, UNCLEAR = "caught", "harmless", "admitted", "missed", "unclear"
NOT_REACHED = "not reached"  # the run ended, or went another way, before the error could happen
OUTSIDE_SHARE = 0.3  # trials of errors outside of what is promised, in addition, for each scenario
SECONDS = 60  # for a run
GIVE_UP = 60.0  # seconds until tasks of an earlier run should have ended


@dataclass(frozen=True)
class Failed:
    """How a run failed: with which exception, and whether it is one that users are told in a line."""

    kind: str
    text: str
    clear: bool


@dataclass(frozen=True)
class Outcome:
    """What became of an error.

    Attributes
    ----------
    job, dtype, place, kind
    in_pass
        The pass over the samples in which it happened, where that is known.
    outcome
        One of those above.
    detail
        The error message, or what is wrong.
    """

    scenario: int
    trial: int
    job: str
    dtype: str
    place: str
    kind: str
    outcome: str
    detail: str
    in_pass: str = ""


class Trials:
    """Runs on shared workers, in a folder of its own.

    Parameters
    ----------
    workers
        A cluster in this process.
    folder
        For inputs and outputs.
    """

    def __init__(self, workers: Workers, folder: Path) -> None:
        self.workers, self.folder = workers, folder

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Have runs come through the places of errors, on these workers, in small blocks."""
        patches = places.install()
        if self.workers.device == "gpu":
            from tests.benchmarks.planted.gpu_places import install_on_gpu

            install_on_gpu(patches)
        patches.set(pipeline.engine.run_loop, "open_workers", lambda *_: nullcontext(self.workers))
        patches.set(pipeline.engine.run_loop, "secrets", SimpleNamespace(randbits=lambda bits: self.seed))
        patches.set(pipeline.storage.blocks, "BLOCK_BYTES", BLOCK_BYTES)
        patches.set(pipeline.engine.aggregate, "BLOCK_BYTES", BLOCK_BYTES)
        for module in (kernels.quantile.cells, kernels.quantile.deviation):
            patches.set(module, "MOST_GATHERED", GATHERED)
        patches.set(pipeline.storage.output_file, "_allocated", self._allocated)
        self._really_allocated = patches.before(pipeline.storage.output_file, "_allocated")
        try:
            yield
        finally:
            patches.undo()

    def _allocated(self, *arguments: Any) -> bool:
        return bool(self._really_allocated(*arguments)) and self.mappable

    def of_scenario(self, number: int, trials: int, only: int | None = None) -> Any:
        """Outcomes of so many errors in one scenario, one after another; of a single one, if `only` is given."""
        self.seed, self.given = number, scenario(number)
        self.mappable = self.given.mappable
        INJECTOR.itemsize, INJECTOR.items = self.given.inputs[0].itemsize, []
        self.inputs = self.folder / "in"
        self.inputs.mkdir()
        try:
            written = self.given.write(self.inputs)
            with INJECTOR.recording():
                right = self._run(written)
            if isinstance(right, Failed) and right.kind != VerificationError.__name__:
                raise RuntimeError(f"a run without an error failed: {right}")  # its cluster may be broken
            if isinstance(right, Failed) or not self.given.is_right(self._value(right)):
                detail = repr(right) if isinstance(right, Failed) else "wrong without an error"
                yield self._outcome(number, -1, "none", "none", MISSED, detail)
                return
            calls = INJECTOR.calls
            for trial in range(trials):
                if only in (None, trial):
                    yield self._trial(number, trial, written, right, calls)
            random = np.random.default_rng([number, 9])
            if only is None and random.random() < OUTSIDE_SHARE:
                yield self._outside(number, written, right, calls, random)
        finally:
            shutil.rmtree(self.inputs)

    def _trial(self, number: int, trial: int, written: Written, right: Any, calls: list[Any]) -> Outcome:
        """Plant an error; once more elsewhere if the run does not come through its call."""
        for attempt in range(5):
            random = np.random.default_rng([number, 2, trial, attempt])
            call, kind = self._chosen(calls, random)
            with INJECTOR.planting(call, kind, random):
                got = self._run(written)
            if INJECTOR.fault is not None or isinstance(got, Failed):
                break
        place = label(call)
        outcome, detail = (NOT_REACHED, "") if INJECTOR.fault is None else self._judged(got, right)
        if outcome in (MISSED, UNCLEAR):
            detail += f"; call {call}"
        return replace(self._outcome(number, trial, place, kind, outcome, detail), in_pass=pass_of(call))

    def _chosen(self, calls: list[tuple[Call, tuple[str, ...]]], random: np.random.Generator) -> tuple[Call, str]:
        """A call, each place being equally likely, and a kind of error."""
        labels = sorted({label(call) for call, _ in calls} - set(OUTSIDE))
        place = labels[random.integers(len(labels))]
        inside = sorted((call for call in calls if label(call[0]) == place), key=repr)
        call, kinds = inside[random.integers(len(inside))]
        return call, kinds[random.integers(len(kinds))]

    def _outside(
        self, number: int, written: Written, right: Any, calls: list[Any], random: np.random.Generator
    ) -> Outcome:
        """What no check of this kind can see: a file that is always read wrongly, or changes after its check."""
        after = [(call, kinds[0]) for call, kinds in calls if call[0] in (AFTER, STRAY)]
        kind = "single bit"
        if after and random.integers(3):
            call, kind = after[random.integers(len(after))]
            with INJECTOR.planting(call, kind, random):
                got = self._run(written)
            place = call[0]
        else:
            path = written.files[random.integers(len(written.files))]
            byte = int(random.integers(128, os.path.getsize(path)))
            INJECTOR.delivered = os.path.basename(path), byte, 1 << int(random.integers(8))
            try:
                with INJECTOR.planting(("", "", None, None, 0), "single bit", random):
                    got = self._run(written)
            finally:
                INJECTOR.delivered = None
            place = DELIVERED
        return self._outcome(number, -2, place, kind, *self._judged(got, right))

    def _outcome(self, number: int, trial: int, place: str, kind: str, outcome: str, detail: str) -> Outcome:
        return Outcome(number, trial, self.given.job, self.given.dtype, place, kind, outcome, detail[:300])

    def _run(self, written: Written) -> Any:
        """The result in a form that can be compared, or the exception."""
        given, target = self.given, self.folder / "out.npy"
        target.unlink(missing_ok=True)
        keywords: dict[str, Any] = {"chunk_bytes": given.chunk_bytes, "verify": "full", **written.options}
        if given.writes:
            keywords["output"] = target
        INJECTOR.admitted.clear()
        try:
            with time_limit(SECONDS):
                result = pipeline.run(given.runs, *written.inputs, device=self.workers.device, **keywords)
            return target.read_bytes() if given.writes else result
        except Exception as error:
            _let_go(error)
            return Failed(type(error).__name__, str(error), isinstance(error, PipelineError))
        finally:
            self._wait()

    def _wait(self) -> None:
        """Wait for the tasks of a run that has failed: the next run must not meet them."""
        cluster, began, collected = self.workers.client.cluster, perf_counter(), 0
        while cluster.scheduler.tasks or any(worker.state.tasks for worker in cluster.workers.values()):
            waited = perf_counter() - began
            if waited > GIVE_UP:
                raise RuntimeError("tasks of an earlier run do not end")
            if waited > 0.1 + collected:
                gc.collect()  # an exception may hold on to futures; rarely, since the tasks need the GIL
                collected += 1
            sleep(0.001)

    def _value(self, result: Any) -> Any:
        """The result, or the array in the bytes of its file."""
        if not isinstance(result, bytes):
            return result
        length = 10 + int.from_bytes(result[8:10], "little")
        with open(self.folder / "out.npy", "rb") as file:
            version = np.lib.format.read_magic(file)
            shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        assert version == (1, 0)
        return np.frombuffer(result, dtype, offset=length).reshape(shape)

    def _judged(self, got: Any, right: Any) -> tuple[str, str]:
        """What became of the error."""
        left = sorted(set(os.listdir(self.folder)) - {"in"})
        if isinstance(got, Failed):
            told = f"{got.kind}: {got.text}"
            if left:
                return (MISSED if "out.npy" in left else UNCLEAR), f"left {left} after {told}"
            return (CAUGHT if got.clear else UNCLEAR), told
        if left not in ([], ["out.npy"]):
            return UNCLEAR, f"left {left}"
        if isinstance(got, bytes):
            if got == right:
                return HARMLESS, ""
            if self.given.runs == "matmul" and got[:128] == right[:128]:
                return self._product(got, right)
            return MISSED, "the file is another one"
        if repr_of(got) == repr_of(right):
            return HARMLESS, ""
        return MISSED, "the result is another one"

    def _product(self, got: bytes, right: bytes) -> tuple[str, str]:
        """Whether the verdict on a product of floats admits the difference."""
        wrong, expected = self._value(got), self._value(right)
        if wrong.dtype.kind != "f":
            return MISSED, "the product is another one"
        wide, covered = np.longdouble, np.zeros(wrong.shape, np.bool_)
        for region, admitted in INJECTOR.admitted.items():
            inside = tuple(slice(*ends) for ends in region)
            with np.errstate(all="ignore"):
                part, other = wrong[inside].astype(wide), expected[inside].astype(wide)
                size = np.sqrt(np.square(np.where(np.isfinite(part), part, 0)).mean(-1, keepdims=True))
                covered[inside] = (part == other) | (np.isnan(part) & np.isnan(other))
                covered[inside] |= np.abs(part - other) <= admitted * size
        worst = f"{int((~covered).sum())} elements are off by more than the verdict admits"
        return (ADMITTED, "") if covered.all() else (MISSED, worst)


def _let_go(error: BaseException | None) -> None:
    """Drop the frames of an exception: they hold futures, whose tasks hold the exception."""
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__


def repr_of(result: Any) -> str:
    """All bits of a result that is not an array; not its verdict, and not what it has computed for others."""
    if isinstance(result, SelectedResult):
        return f"{result.excluded} {repr_of(result.result)}"
    if isinstance(result, RowsResult):
        return f"{result.rows} {[repr_of(of_row) for of_row in result.results]}"
    values = ((own.name, getattr(result, own.name)) for own in fields(result) if own.compare)
    parts = {name: value.tobytes() if isinstance(value, np.ndarray) else value for name, value in values}
    return repr(parts)


def label(call: Call) -> str:
    """The place of a call, and who came through it where several do."""
    place, role, *_ = call
    return place if place in NO_ROLE else f"{place}, {role}"


def pass_of(call: Call) -> str:
    """The pass over the samples in which a call was; empty where none has a name."""
    items, what = call[2:4]
    names = [what, *(items[:1] if isinstance(items, tuple) else ())]
    return next((name for name in names if isinstance(name, str)), "")
