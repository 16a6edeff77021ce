"""Changes bits of what a run has computed: one, several of an element, the same of 32 neighbours, a tile of elements.

Places: partials on their way from a worker to the client; the journal of an interrupted run, with the file by which
SQLite undoes a commit that was cut short; the unfinished output of an interrupted run; regions of an output, of jobs
whose results are integers and of transposes, after they were written and before `--verify full` checks them. Buffers
of a GPU are not among them: `python -m tests.benchmarks FOLDER --only planted_errors` changes those, there.

It must show:

- no change ends in another result than that of an undisturbed run, which is compared with NumPy;
- partials and regions: exit status 3 in one line, and nothing is left, not even under the name of the output;
- journal: the run is continued or begins anew, or is refused in one line and succeeds without `--resume`;
- unfinished output: what was changed is computed again;
- nothing is left of a run that succeeds.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from threading import Timer
from typing import Any

import numpy as np
import pytest

import pipeline.engine.aggregate
import pipeline.engine.array_regions
import pipeline.engine.run_loop
from pipeline.cluster.placement import Placement, open_workers
from pipeline.engine.aggregate_plan import Pass
from pipeline.engine.aggregate_task import ChunkResult, compute_chunks
from pipeline.engine.array_plan import ArrayPlan
from pipeline.engine.array_task import RegionsResult, compute_regions
from pipeline.engine.journal_file import ROLLBACK
from pipeline.errors import PipelineError, VerificationError
from pipeline.storage.chunks import Chunk
from tests.chaos.tools.damage import KINDS, TILE, damaged
from tests.chaos.tools.small_runs import AGGREGATIONS, ARRAYS, CHUNKS, SmallRuns, State
from workflows.regions import Bounds

SHORT = 24
SECONDS = 60  # limit of a trial, which takes a fifth of one; then the process ends
STATES = 4  # interrupted runs of each job that has a journal here
MOST_CHARACTERS = 700  # of a message
JOURNALED = ("histogram", "survey", "reduce", "transpose", "stencil")

Outcome = tuple[str, list[str]]  # what came of a trial, and what is wrong with that


@dataclass(frozen=True)
class ChangedChunks:
    """The task that computes chunks; the partials of one change after their digest was made."""

    kind: str
    seed: int
    chunk: int

    __name__ = compute_chunks.__name__

    def __call__(self, pass_: Pass, chunks: Sequence[Chunk]) -> tuple[ChunkResult, ...]:
        results = zip(chunks, compute_chunks(pass_, chunks), strict=True)
        return tuple(self._changed(result) if chunk.index == self.chunk else result for chunk, result in results)

    def _changed(self, result: ChunkResult) -> ChunkResult:
        random, parts = Random(self.seed), [list(part) for part in result.partials]
        part = random.choice(parts)
        job = random.randrange(len(part))
        part[job] = damaged(part[job], self.kind, random)
        return replace(result, partials=tuple(map(tuple, parts)))


@dataclass(frozen=True)
class ChangedRegions:
    """The task that computes regions; that of an element changes after it was written."""

    kind: str
    seed: int
    element: int

    __name__ = compute_regions.__name__

    def __call__(self, plan: ArrayPlan, regions: Sequence[Bounds], device: str) -> RegionsResult:
        result, output = compute_regions(plan, regions, device), plan.output
        place = np.unravel_index(self.element % output.spec.size, output.spec.shape)
        file = np.memmap(output.path, output.spec.dtype, "r+", output.offset, output.spec.shape)
        for region in regions:
            if all(start <= at < stop for at, (start, stop) in zip(place, region, strict=True)):
                inside = tuple(slice(*ends) for ends in region)
                file[inside] = damaged(file[inside], self.kind, Random(self.seed))
        return result


@contextmanager
def _limited(trial: str) -> Iterator[None]:
    """End the process, with all stacks, if the body takes too long."""

    def end() -> None:
        print(f"{trial}: expected an end within {SECONDS} s", file=sys.__stderr__, flush=True)
        faulthandler.dump_traceback(sys.__stderr__)
        os._exit(1)

    timer = Timer(SECONDS, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _partials(runs: SmallRuns, kind: str, random: Random, patch: pytest.MonkeyPatch) -> Outcome:
    name, verify = random.choice(list(AGGREGATIONS)), random.choice(("off", "sample", "auto", "full"))
    task = ChangedChunks(kind, random.randrange(2**32), random.randrange(CHUNKS))
    patch.setattr(pipeline.engine.aggregate, "compute_chunks", task)
    return _must_end(runs, name, verify)


def _regions(runs: SmallRuns, kind: str, random: Random, patch: pytest.MonkeyPatch) -> Outcome:
    task = ChangedRegions(kind, random.randrange(2**32), random.randrange(2**32))
    patch.setattr(pipeline.engine.array_regions, "compute_regions", task)
    return _must_end(runs, random.choice(list(ARRAYS)), "full")


def _must_end(runs: SmallRuns, name: str, verify: str) -> Outcome:
    """A run of which a number is changed."""
    try:
        result = runs.run(name, verify)
    except VerificationError as error:
        return "exit status 3", [f"{name}: {what}" for what in (*_not_one_line(error), *runs.left())]
    except Exception as error:
        return "another error", [f"{name}, {verify}: {type(error).__name__}: {error}"]
    text = "another result" if result != runs.expected[name] else "the same result"
    return "undetected", [f"{name}, {verify}: {text}, not detected"]


def _journal(states: Sequence[State], runs: SmallRuns, kind: str, random: Random, patch: pytest.MonkeyPatch) -> Outcome:
    state = random.choice(states)
    path = random.choice([path for path, content in state.files.items() if content])
    changed = np.frombuffer(state.files[path].ljust(-(-len(state.files[path]) // 8) * 8, b"\0"), "<u8").copy()
    first = random.choice(np.flatnonzero(changed).tolist())  # most of the rest is not used
    part = changed[first : first + TILE * TILE]
    part[:] = damaged(part, kind, random)
    outcome, wrong = _continued(runs, state._replace(files=state.files | {path: changed.tobytes()}))
    return f"{'rollback: ' * path.name.endswith(ROLLBACK)}{outcome}", wrong


def _output(states: Sequence[State], runs: SmallRuns, kind: str, random: Random, patch: pytest.MonkeyPatch) -> Outcome:
    state = random.choice([state for state in states if state.part])
    ((path, content),) = state.part.items()
    changed = damaged(np.frombuffer(content, "<u8"), kind, random).tobytes()
    outcome, wrong = _continued(runs, state._replace(part={path: changed}))
    if outcome != "continued":
        wrong.append(f"{state.job}: {outcome}, for its unfinished output")
    return outcome, wrong


def _continued(runs: SmallRuns, state: State) -> Outcome:
    """What `--resume` makes of what a run has left."""
    runs.restore(state)
    try:
        result = runs.journaled(state.job, resume=True)
    except PipelineError as error:
        outcome, wrong = "refused", _not_one_line(error)
        try:
            result = runs.journaled(state.job)
        except Exception as again:
            return outcome, [*wrong, f"{state.job}: without --resume {type(again).__name__}: {again}"]
    except Exception as error:
        return "another error", [f"{state.job}: {type(error).__name__}: {error}"]
    else:
        outcome = "continued" if runs.runner.said[:1] and "continues" in runs.runner.said[0] else "anew"
        wrong = []
    wrong += ["another result, not detected"] * (result != runs.expected[state.job])
    return outcome, [f"{state.job}: {what}" for what in (*wrong, *runs.left())]


def _not_one_line(error: PipelineError) -> list[str]:
    text = str(error)
    return [f"expected one line, got {text}"] if "\n" in text or len(text) > MOST_CHARACTERS else []


def run(seed: int, trials: int) -> dict[str, Any]:
    """So many trials, each of a random place, kind and job; the number of one and the seed give it again."""
    outcomes, failures = dict[str, Counter[str]](), list[str]()
    with (
        tempfile.TemporaryDirectory(prefix="flips-") as folder,
        pytest.MonkeyPatch.context() as patch,
        open_workers(Placement("cpu"), 0) as workers,
    ):
        patch.setattr(pipeline.engine.run_loop, "open_workers", lambda *_: nullcontext(workers))
        runs, chooser = SmallRuns(Path(folder), patch), Random(seed)
        states = [runs.interrupted(name, chooser) for name in JOURNALED for _ in range(STATES)]
        runs.clear()
        places: dict[str, Callable[[SmallRuns, str, Random, pytest.MonkeyPatch], Outcome]] = {
            "partials in transit": _partials, "journal": partial(_journal, states),
            "unfinished output": partial(_output, states), "regions before their check": _regions,
        }  # fmt: skip
        for number in range(trials):
            random = Random(f"{seed} {number}")
            place, kind = random.choice(list(places)), random.choice(list(KINDS))
            with patch.context() as planted, _limited(f"trial {number}, {place}, {kind}"):
                outcome, wrong = places[place](runs, kind, random, planted)
            outcomes.setdefault(f"{place}, {kind}", Counter())[outcome] += 1
            failures += [f"trial {number}, {place}, {kind}: {what}" for what in wrong]
            runs.clear()
    return {"outcomes": {what: dict(sorted(counts.items())) for what, counts in sorted(outcomes.items())},
            "failures": failures}  # fmt: skip
