"""A wrong number planted in a partial is caught as often as the verdict promises, by the tasks of a real run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import pipeline.engine.aggregate_task
import pipeline.engine.run_loop
import pipeline.storage.blocks
from kernels.reduce import exact_sum
from kernels.reduce import partial as layout
from kernels.reduce.powers import CUBES_AT, FOURTHS_AT
from pipeline.cluster.placement import Placement, open_workers
from pipeline.cluster.workers import Workers
from pipeline.engine.aggregate import run
from pipeline.engine.aggregate_check import Mismatch, check_part, check_total
from pipeline.engine.aggregate_plan import Job, Pass
from pipeline.engine.aggregate_task import Reference, compute_chunk, recompute_part
from pipeline.errors import VerificationError
from pipeline.settings import Settings
from pipeline.storage.chunks import Chunk, plan
from pipeline.storage.sources import Source, open_source
from tests.cases.reduce import case
from workflows.histogram import FINITE_RANGE, HISTOGRAM, HistogramOptions
from workflows.reduce import OPERATIONS, REDUCE, ReduceOptions

TRIALS = 300
SAMPLED_TRIALS = 500  # per rate: fewer could not distinguish it from another
SAMPLES = 3000
ON_CPU = Placement(device="cpu")

Partial = NDArray[Any]
Fault = Callable[[Partial, np.random.Generator], None]  # changes a partial in place


@pytest.fixture(autouse=True)
def several_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chunk has several blocks, and the partial of one is wrong."""
    monkeypatch.setattr(pipeline.storage.blocks, "BLOCK_BYTES", 2000)
    monkeypatch.setattr(pipeline.engine.aggregate_task, "worker_address", lambda: "here")


@dataclass
class Planted:
    """A workflow whose compute is wrong once: in the block, or part of a block, with this sample of its chunk.

    Right results are computed once for the same samples.
    """

    right: Any
    at: int
    fault: Fault
    random: np.random.Generator
    known: dict[bytes, Partial] = field(default_factory=dict)

    def workflow(self) -> Any:
        start = 0

        def compute(block: NDArray[Any], options: Any) -> Partial:
            nonlocal start
            samples = block.tobytes()
            if samples not in self.known:
                self.known[samples] = self.right.compute(block, options)
            partial = self.known[samples].copy()
            if start <= self.at < start + len(block):
                self.fault(partial, self.random)
            start += len(block)
            return partial

        return replace(self.right, compute=compute)


def written(folder: Path, samples: NDArray[Any]) -> Source:
    np.save(folder / f"{samples.dtype}.npy", samples)
    return open_source((str(folder / f"{samples.dtype}.npy"),))


def trial(workflow: Any, options: Any, chunk: Chunk, reference: Reference | None = None) -> tuple[Mismatch | None, Any]:
    """The mismatch that the check of a chunk finds, and the partial."""
    pass_ = Pass((Job(workflow, options),), "cpu")
    result = compute_chunk(pass_, chunk)
    total = reduce(workflow.combine, [partials[0] for partials in result.partials])
    (checked,) = chunk.always
    part, where = chunk.part(checked), (result.worker, result.device)
    partials = result.partials[chunk.parts.index(checked)]
    mismatch = check_total(pass_, chunk, [total], *where)
    return mismatch or check_part(pass_, part, partials, *where, reference or recompute_part(pass_, part, True)), total


def all_are_found(workflow: Any, options: Any, source: Source, faults: Sequence[Fault], seed: int) -> None:
    """With `--verify full` only the right partial passes."""
    random = np.random.default_rng(seed)
    (chunk,) = plan(source, 2**30, "full", 0)
    mismatch, right = trial(workflow, options, chunk)
    assert mismatch is None
    reference = recompute_part(Pass((Job(workflow, options),), "cpu"), chunk, True)
    known: dict[bytes, Partial] = {}
    wrong = 0
    while wrong < TRIALS:
        fault = faults[random.integers(len(faults))]
        planted = Planted(workflow, int(random.integers(SAMPLES)), fault, random, known)
        mismatch, partial = trial(planted.workflow(), options, chunk, reference)
        differs = not np.array_equal(partial, right)  # the minimum of one block may be wrong, but not that of all
        assert (mismatch is not None) == differs
        wrong += differs


def found_in_samples(workflow: Any, options: Any, source: Source, fault: Fault) -> tuple[int, float]:
    """Number of errors caught with `--verify sample`, with new samples each time, and the number that is promised.

    The check catches an error in sampled data; an invariant may catch others.
    """
    random = np.random.default_rng(8)
    caught, promised, variance = 0, 0.0, 0.0
    known: dict[bytes, Partial] = {}
    for seed in range(SAMPLED_TRIALS):
        chunks = plan(source, 1001 * source.dtype.itemsize, "sample", seed)
        share = sum(region.samples for chunk in chunks for region in chunk.always) / source.samples
        at = int(random.integers(source.samples))
        chunk = next(chunk for chunk in chunks if chunk.start <= at < chunk.start + chunk.samples)
        (checked,) = chunk.always
        planted = Planted(workflow, at - chunk.start, fault, random, known)
        mismatch, _ = trial(planted.workflow(), options, chunk)
        if 0 <= at - chunk.start - checked.start < checked.samples:
            assert mismatch
        caught += mismatch is not None
        promised, variance = promised + share, variance + share * (1 - share)
    assert caught >= promised - 4 * math.sqrt(variance)
    return caught, promised + 4 * math.sqrt(variance)


# --- reduce -----------------------------------------------------------------------------------------------------------

WORDS = {"sum": [layout.SUM_AT], "mean": [layout.SUM_AT]}
WORDS |= {op: [layout.SUM_AT, layout.SQUARES_AT] for op in ("var", "std", "norm")}
WORDS |= {"skewness": [*WORDS["var"], CUBES_AT], "kurtosis": [*WORDS["var"], CUBES_AT, FOURTHS_AT]}
ENTRIES = {"min": [layout.MIN_KEY], "max": [layout.MAX_KEY], "argmin": [layout.MIN_AT], "argmax": [layout.MAX_AT]}
COUNTED = [layout.SAMPLES, layout.NAN, layout.POSITIVE, layout.NEGATIVE]


def off_by(positions: Sequence[int], *steps: int) -> Fault:
    """One of these entries is off by one of these steps."""

    def fault(partial: Partial, random: np.random.Generator) -> None:
        at = int(random.choice(positions))
        partial[at : at + 1] += random.choice([*steps, *(-step for step in steps)])  # which may wrap

    return fault


def off_by_an_ulp(at: slice) -> Fault:
    """A sum is off by the last bit of its rounded value."""

    def fault(partial: Partial, random: np.random.Generator) -> None:
        value = exact_sum.from_words(partial[at])
        ulp = 1 << max(0, abs(value).bit_length() - 53)
        partial[at] = exact_sum.to_words(value + int(random.choice([-1, 1])) * ulp, at.stop - at.start)

    return fault


def faults_of(op: str) -> list[Fault]:
    """The smallest errors in every entry that the result of this operation depends on."""
    faults = [off_by(COUNTED, 1)]
    for at in WORDS.get(op, ()):
        faults += [off_by(range(at.start, at.stop), 1), off_by_an_ulp(at)]
    if op.startswith("arg"):
        faults += [off_by(ENTRIES[op], 2), off_by([layout.FIRST_NAN], 2)]
    elif op in ENTRIES:
        # The next number; zero, of the other sign.
        faults += [off_by(ENTRIES[op], 1), off_by([layout.MIN_AT if op == "min" else layout.MAX_AT], 1)]
    return faults


def samples_of(dtype: str) -> NDArray[Any]:
    return case("ordinary" if dtype == "int16" else "specials", dtype, SAMPLES)


@pytest.mark.parametrize("dtype", ["int16", "float64"])
@pytest.mark.parametrize("op", OPERATIONS)
def test_every_wrong_partial_of_a_reduction_is_found(op: str, dtype: str, tmp_path: Path) -> None:
    all_are_found(REDUCE, ReduceOptions(op), written(tmp_path, samples_of(dtype)), faults_of(op), 1)


@pytest.mark.parametrize("op", OPERATIONS)
def test_a_sample_finds_wrong_reductions_as_often_as_it_says(op: str, tmp_path: Path) -> None:
    source = written(tmp_path, case("ordinary", "float32", SAMPLES))
    # For a sum, the last bit of its rounded value; otherwise the next number or position.
    fault = faults_of(op)[2 if op in WORDS else 1 if op in ENTRIES else 0]
    caught, most = found_in_samples(REDUCE, ReduceOptions(op), source, fault)
    assert caught <= most or op == "count"  # invariants catch most of these


# --- histogram --------------------------------------------------------------------------------------------------------


def moved(partial: Partial, random: np.random.Generator) -> None:
    """One sample moves between two bins, including underflow, overflow and NaN."""
    source = random.choice(np.flatnonzero(partial))
    target = (source + random.integers(1, len(partial))) % len(partial)
    partial[source] -= 1
    partial[target] += 1


def lost(partial: Partial, random: np.random.Generator) -> None:
    partial[random.choice(np.flatnonzero(partial))] -= 1


def counted_twice(partial: Partial, random: np.random.Generator) -> None:
    partial[random.integers(len(partial))] += 1


def swapped(partial: Partial, random: np.random.Generator) -> None:
    """Two neighbouring bins."""
    at = int(random.integers(1, len(partial)))
    partial[at - 1 : at + 1] = partial[[at, at - 1]]


def histogram_source(folder: Path) -> tuple[Source, HistogramOptions]:
    """Samples on both sides of the range, and NaN."""
    samples = np.random.default_rng(5).normal(50, 40, SAMPLES).astype(np.float32)
    samples[::100] = np.nan
    return written(folder, samples), HistogramOptions(bins=20, range=(0.0, 100.0))


@pytest.mark.parametrize("fault", [moved, lost, counted_twice, swapped])
def test_every_wrong_count_is_found(fault: Fault, tmp_path: Path) -> None:
    source, options = histogram_source(tmp_path)
    all_are_found(HISTOGRAM, options, source, [fault], 2)


def test_a_sample_finds_counts_that_moved_as_often_as_it_says(tmp_path: Path) -> None:
    source, options = histogram_source(tmp_path)
    caught, most = found_in_samples(HISTOGRAM, options, source, moved)
    assert caught <= most


@pytest.mark.parametrize("fault", [lost, counted_twice])
def test_counts_that_do_not_add_up_are_found_whatever_was_sampled(fault: Fault, tmp_path: Path) -> None:
    source, options = histogram_source(tmp_path)
    assert found_in_samples(HISTOGRAM, options, source, fault)[0] == SAMPLED_TRIALS


def test_every_wrong_finite_range_is_found(tmp_path: Path) -> None:
    """Of `--range auto`."""

    def next_number(partial: Partial, random: np.random.Generator) -> None:
        at = int(random.integers(2))
        partial[at] = np.nextafter(partial[at], random.choice([-np.inf, np.inf]))

    source, options = histogram_source(tmp_path)
    all_are_found(FINITE_RANGE, options, source, [next_number], 3)


# --- whole runs -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    """One cluster for all runs."""
    with open_workers(ON_CPU, 0) as workers:
        yield workers


@pytest.mark.parametrize("mode", ["full", "sample"])
@pytest.mark.parametrize("name", ["histogram", "reduce"])
def test_a_run_fails_where_its_tasks_find_something(
    name: str, mode: str, tmp_path: Path, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every other error lies in the sample, which follows from the seed of the run."""
    monkeypatch.setattr(pipeline.engine.run_loop, "open_workers", lambda *_: nullcontext(workers))
    random = np.random.default_rng(9)
    workflow, options, fault = (HISTOGRAM, HistogramOptions(bins=20, range=(0.0, 100.0)), moved)
    if name == "reduce":
        workflow, options, fault = REDUCE, ReduceOptions("var,argmin"), off_by_an_ulp(layout.SUM_AT)
    source = histogram_source(tmp_path)[0]
    for seed in range(20):
        monkeypatch.setattr(pipeline.engine.run_loop.secrets, "randbits", lambda bits, seed=seed: seed)
        (chunk,) = plan(source, 2**30, mode, seed)
        (checked,) = chunk.always
        at = int(random.integers(SAMPLES)) if seed % 2 else checked.start
        planted = Planted(workflow, at, fault, random)
        covered = 0 <= at - checked.start < checked.samples
        with pytest.raises(VerificationError, match="a number is wrong in chunk 0") if covered else nullcontext():
            run(planted.workflow(), options, source, Settings(placement=ON_CPU, verify=mode))
