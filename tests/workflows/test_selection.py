"""Jobs on selected samples give what they give on NumPy's boolean indexing, and count what they left out."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import pipeline.storage.blocks
from kernels.reduce.partial import NOWHERE, POSITIONS
from pipeline.engine.aggregate import run
from pipeline.engine.aggregate_plan import Job
from pipeline.errors import VerificationError
from pipeline.settings import Settings
from pipeline.storage.sources import open_source
from tests.cases.conditions import DTYPES, hostile
from workflows.aggregation import Aggregation
from workflows.expression import parse
from workflows.histogram import HISTOGRAM, HistogramOptions
from workflows.reduce import REDUCE, ReduceOptions
from workflows.selection import Selection, of_mask, present, selected

SAMPLES = 4321
ALL_OPERATIONS = ReduceOptions("count,sum,mean,var,std,norm,min,max,argmin,argmax", nan="omit")


@dataclass(frozen=True)
class Held:
    """A column in memory."""

    array: NDArray[Any]

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.array.dtype

    def read(self, indices: range, checks: bool = False) -> NDArray[Any]:
        return self.array[indices.start : indices.stop : indices.step]


def selection(text: str, **columns: NDArray[Any]) -> Selection:
    truths = [name for name, column in columns.items() if column.dtype == bool]
    node = parse(text, ["x", "i", *(name for name in columns if name not in truths)], truths)
    return Selection(node, {name: Held(column) for name, column in columns.items()}, {"where": text})


def parts(workflow: Aggregation[Any], options: Any, samples: NDArray[Any], chunks: int) -> Any:
    """The result of computing, checking and combining so many parts, each cut into blocks of its own length."""
    job, totals = Job(workflow, options), []
    for part in np.array_split(np.arange(len(samples)), chunks):
        first, last = int(part[0]), int(part[-1]) + 1
        block = samples[first:last]
        check = workflow.check(options, samples.dtype.newbyteorder("="))
        assert check is not None
        half = len(block) // 2
        for start, some in ((half, block[half:]), (0, block[:half])):  # in any order
            if len(some):
                check.add(some, first + start)
        native = block.astype(block.dtype.newbyteorder("="), copy=False)
        partial, expected = job.compute(native, first), job.reference(block, first)
        assert job.differences(partial, expected) == [] == job.differences(check.partial(), expected)
        assert [holds(partial, len(block)) for holds in workflow.invariants] == [None] * len(workflow.invariants)
        totals.append(partial)
    total = totals[0]
    for other in totals[1:]:
        total = workflow.combine(other, total)
    return workflow.finalize(total, options)


def agree(samples: NDArray[Any], mask: NDArray[np.bool_], selected_: Selection, chunks: int) -> None:
    """With what the jobs give for `samples[mask]`, positions moved to where the samples come from."""
    kept, numbers = samples[mask], np.flatnonzero(mask)
    options = HistogramOptions(bins=37, range=(-5.0, 300.0))
    got = parts(selected(HISTOGRAM, selected_), options, samples, chunks)
    assert got.counts.tolist() == np.histogram(kept.astype(np.float64), options.all_edges)[0].tolist()
    assert got.excluded == len(samples) - len(kept) and got.samples == len(kept)
    got = parts(selected(REDUCE, selected_), ALL_OPERATIONS, samples, chunks)
    native = kept.astype(kept.dtype.newbyteorder("="))
    alone = REDUCE.compute(native, ALL_OPERATIONS) if len(kept) else REDUCE.empty(native.dtype, ALL_OPERATIONS)  # type: ignore[misc]
    expected = dict(REDUCE.finalize(alone, ALL_OPERATIONS).values)
    for place in ("argmin", "argmax"):
        if expected[place] is not None:
            expected[place] = int(numbers[expected[place]])
    assert str(got.values) == str(expected) and got.excluded == len(samples) - len(kept)


@pytest.mark.parametrize("chunks", [1, 2, 3, 7])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # signalling NaN
def test_every_dtype_and_chunking(dtype: str, chunks: int) -> None:
    random = np.random.default_rng(DTYPES.index(dtype))
    samples = hostile(dtype, SAMPLES, random)
    column = hostile("int16", SAMPLES, random).astype(">i2")
    good, index = random.random(SAMPLES) < 0.7, np.arange(SAMPLES)
    for samples_ in (samples, samples.astype(samples.dtype.newbyteorder(">"))):
        for text, mask in (
            ("2 <= x < 100 and x != 7", (samples >= 2) & (samples < 100) & (samples != 7)),
            ("not x == x or x == 3", ~(samples == samples) | (samples == 3)),
            ("t > 50 or i >= 4000", (column > 50) | (index >= 4000)),
            ("good and i / 2 < 1500.5", good & (index / 2 < 1500.5)),
            ("True", index >= 0), ("x < 2 and x > 2", index < 0), ("i == 4320", index == 4320),
        ):  # fmt: skip
            agree(samples_, mask, selection(text, t=column, good=good), chunks)


def test_a_range_of_indices_may_have_gaps() -> None:
    """Rows are strided: sample k of the block is sample 5 + 3 k of the source."""
    random = np.random.default_rng(2)
    whole, good = random.integers(-100, 100, 3000).astype(np.int16), random.random(3000) < 0.3
    which = selection("good and x < 50 and i > 700", good=good)
    workflow = selected(REDUCE, which)
    indices = range(5, 3000, 3)
    block = whole[5::3]
    partial = workflow.compute(block, ALL_OPERATIONS, indices)
    assert np.array_equal(partial, workflow.reference(block, ALL_OPERATIONS, indices))
    check: Any = workflow.check(ALL_OPERATIONS, whole.dtype)
    check.add(block[400:], 5 + 3 * 400, 3)
    check.add(block[:400], 5, 3)
    assert np.array_equal(partial, check.partial())
    mask = np.zeros(3000, bool)
    mask[5::3] = True
    mask &= good & (whole < 50) & (np.arange(3000) > 700)
    places = np.flatnonzero(mask)
    result = workflow.finalize(partial, ALL_OPERATIONS)
    assert result.values["argmax"] == places[whole[places].argmax()] and result.samples == len(places)


@pytest.mark.parametrize("dtype", ["int16", "uint64", "float32"])
def test_blocks_on_a_device(dtype: str, host: Any) -> None:
    """Columns and indices go there; positions are looked up on the host."""
    random = np.random.default_rng(6)
    samples, good = hostile(dtype, 2000, random), random.random(2000) < 0.5
    for text in ("good and x < 50 and i > 700", "x < 0 and x > 0", "True"):
        which = selection(text, good=good)
        for job, options in ((HISTOGRAM, HistogramOptions()), (REDUCE, ALL_OPERATIONS)):
            workflow: Aggregation[Any] = selected(job, which)  # type: ignore[arg-type]
            indices = range(0, 2000)
            with np.errstate(all="ignore"):
                got = workflow.compute(host.asarray(samples), options, indices)
                twice = workflow.combine(got, got)
            expected = workflow.reference(samples, options, indices)
            got, twice = (array if isinstance(array, np.ndarray) else array.get() for array in (got, twice))
            assert np.array_equal(got, expected)
            assert np.array_equal(twice, workflow.combine(expected, expected))


@pytest.mark.parametrize("value", [7, 7.0, -0.0, float("nan"), float("inf"), 2**63 - 1, 2**53 + 1, 0.1, -1e300])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning", "ignore:overflow:RuntimeWarning")
def test_missing_values(dtype: str, value: float) -> None:
    samples = hostile(dtype, SAMPLES, np.random.default_rng(5))
    if samples.dtype.kind == "f":
        number = samples.dtype.type(value)
        mask = ~np.isnan(samples) if value != value else samples != number
        if np.isinf(number) and abs(value) != math.inf:
            mask[:] = True  # an infinity is not the number that was asked for
    else:
        mask = np.array([sample != value for sample in samples.tolist()])  # Python compares exactly
    agree(samples, mask, Selection(present(value, samples.dtype), {}, {"missing": [value]}), 2)


def test_a_mask_of_numbers_keeps_what_is_not_0() -> None:
    mask = np.arange(SAMPLES).astype(np.uint8) % 3
    samples = np.arange(SAMPLES)
    agree(samples, mask != 0, Selection(of_mask("m", mask.dtype), {"m": Held(mask)}, {"mask": "m.npy"}), 3)


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("chunk_bytes", [None, 9000, 4500, 1500])
def test_runs_over_several_files(tmp_path: Path, chunk_bytes: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline.storage.blocks, "BLOCK_BYTES", 1024)
    random = np.random.default_rng(4)
    samples = random.integers(-100, 1000, SAMPLES).astype(">i2")
    for number, part in enumerate(np.array_split(samples, 3)):
        np.save(tmp_path / f"{number}.npy", part)
    source = open_source((str(tmp_path / "*.npy"),))
    mask = (samples > 3) & (np.arange(SAMPLES) < 4000)
    which = selection("x > 3 and i < 4000")
    settings = Settings(verify="full", chunk_bytes=chunk_bytes)
    got = run(selected(HISTOGRAM, which), HistogramOptions(bins=20, range="auto"), source, settings).result
    counts, edges = np.histogram(samples[mask].astype(np.float64), 20)
    assert got.counts.tolist() == counts.tolist() and got.edges.tolist() == edges.tolist()
    got = run(selected(REDUCE, which), ALL_OPERATIONS, source, settings).result
    places = np.flatnonzero(mask)
    assert got.values["argmin"] == places[samples[mask].argmin()]
    assert (got.samples, got.excluded) == (mask.sum(), SAMPLES - mask.sum())


# --- planted errors ---------------------------------------------------------------------------------------------------


def keeping(wrong: str, right: Any) -> Any:
    """The compute of a selected job that errs once in the run, as said."""
    done: list[str] = []

    def compute(block: Any, options: Any, indices: range) -> Any:
        partial = right(block, options, indices).copy()
        if 2000 in indices and not done:
            done.append(wrong)
            if wrong == "one sample more is excluded":
                partial[0] += 1
            elif wrong == "a sample is kept instead of another":
                at = [int(place) for place in np.flatnonzero(partial[2:-2])[:2] + 2]
                partial[at] += (1, -1)
            elif wrong == "one is excluded instead of kept":
                at = [0, int(np.flatnonzero(partial[2:-2])[0]) + 2]
                partial[at] += (1, -1)
            else:
                partial[0] = -1
        return partial

    return compute


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("wrong", [
    "one sample more is excluded", "a sample is kept instead of another", "one is excluded instead of kept", "negative",
])  # fmt: skip
def test_planted_errors_are_caught(tmp_path: Path, wrong: str) -> None:
    np.save(tmp_path / "a.npy", np.random.default_rng(0).integers(0, 100, SAMPLES).astype(np.int32))
    workflow = selected(HISTOGRAM, selection("x > 10 and i != 5"))
    planted = replace(workflow, compute=keeping(wrong, workflow.compute))
    with pytest.raises(VerificationError, match="is wrong in chunk"):
        run(planted, HistogramOptions(bins=10, range=(0.0, 100.0)), open_source((str(tmp_path / "a.npy"),)),
            Settings(verify="full", chunk_bytes=4096))  # fmt: skip


@pytest.mark.usefixtures("shared")
def test_a_wrong_position_is_caught(tmp_path: Path) -> None:
    """The position among those that are kept, in the place of the index in the source."""
    np.save(tmp_path / "a.npy", np.random.default_rng(0).permutation(SAMPLES).astype(np.int32))
    workflow = selected(replace(REDUCE, relocate=lambda partial, index: partial), selection("x > 10"))
    right = selected(REDUCE, selection("x > 10"))
    planted = replace(right, compute=workflow.compute)
    with pytest.raises(VerificationError, match="place of the"):
        run(planted, ReduceOptions("argmax"), open_source((str(tmp_path / "a.npy"),)), Settings(verify="full"))


@pytest.mark.usefixtures("shared")
def test_a_check_that_keeps_others_is_caught(tmp_path: Path) -> None:
    """By the reference, which recomputes a part of what is checked."""
    np.save(tmp_path / "a.npy", np.arange(SAMPLES, dtype=np.int32))
    right, other = (selected(HISTOGRAM, selection(text)) for text in ("x > 10", "x >= 10"))
    planted = replace(right, compute=other.compute, check=other.check)
    with pytest.raises(VerificationError, match="the check and the reference disagree"):
        run(planted, HistogramOptions(), open_source((str(tmp_path / "a.npy"),)), Settings(verify="full"))


def test_positions_that_are_nowhere_stay_there() -> None:
    empty = REDUCE.empty(np.dtype(np.int8), ALL_OPERATIONS)  # type: ignore[misc]
    assert REDUCE.relocate is not None
    assert (REDUCE.relocate(empty, lambda place: 1 // 0)[POSITIONS] == NOWHERE).all()


def test_jobs_that_need_all_samples_refuse() -> None:
    for job in (replace(HISTOGRAM, located=True), replace(HISTOGRAM, empty=None), replace(REDUCE, relocate=None)):
        with pytest.raises(ValueError, match="expected no selection, since it needs all samples, got --where"):
            selected(job, selection("x > 3"))
