"""Output for people: the sketch, a verdict that claims no more than was checked, and the panel."""

from __future__ import annotations

import dataclasses
import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.common import cxx
from kernels.histogram import cpu as histogram_cpu
from kernels.reduce import cpu as reduce_cpu
from pipeline.engine.aggregate import run
from pipeline.engine.aggregate_plan import Job
from pipeline.engine.outcome import Outcome, Stages
from pipeline.engine.verdict import Verdict, verdict_lines
from pipeline.report.panel import BARS, SKETCH_COLUMNS, SKETCH_ROWS, panel, sketch, to_json
from pipeline.storage.sources import Files, SourceFile, open_source
from tests.cases.files import imagined
from workflows.histogram import HISTOGRAM, HistogramOptions, HistogramResult
from workflows.reduce import REDUCE

COUNTS = np.arange(1000, 1064)


def outcome_of(verdict: Verdict, files: int = 1, passes: int = 1, nbytes: int = 4000, **stages: float) -> Outcome:
    """A run over 1000 int32 samples in each file, or as if they had more bytes, with these seconds in its stages."""
    source = Files(
        tuple(SourceFile(f"/{n}.bin", 0, nbytes, imagined(nbytes), (nbytes // 4,)) for n in range(files)),
        np.dtype("int32"),
    )
    options = HistogramOptions(bins=64, range=(-1.5, 64.0))
    result = HistogramResult(COUNTS, options.all_edges, underflow=1234567, overflow=8, nan=9, regular=True)
    spent = Stages(
        seconds=dict(stages),
        moved={
            stage: passes * source.nbytes * (verdict.checked if stage == "verify" else 1000) // 1000 for stage in stages
        },
        devices={"cpu"},
        lanes={"kernel": 2},
        nbytes=passes * source.nbytes,
        wall=0.5,
        start_up=0.25,
    )
    return Outcome(HISTOGRAM, options, source, result, verdict, spent, "this process, 2 threads")


FULL = Verdict("full", samples=1000, checked=1000, chunks=3, seed=42)
SAMPLE = Verdict("sample", samples=1000, checked=4, chunks=3, seed=42)
OFF = Verdict("off", samples=1000, checked=0, chunks=3, seed=42)


@given(st.lists(st.integers(0, 2**62), min_size=1, max_size=300))
def test_sketch_has_its_shape(counts: list[int]) -> None:
    rows = sketch(np.array(counts, np.int64))
    assert len(rows) == SKETCH_ROWS
    assert {len(row) for row in rows} == {min(len(counts), SKETCH_COLUMNS)}
    assert set("".join(rows)) <= set(BARS)


def heights(rows: list[str]) -> list[int]:
    """Height of every column in eighths; columns are solid below their top."""
    columns = []
    for column in zip(*rows, strict=True):
        columns.append(sum(BARS.index(cell) for cell in column))
        eighths = sorted(BARS.index(cell) for cell in column)
        assert [BARS.index(cell) for cell in column] == eighths
        assert sum(0 < eighth < 8 for eighth in eighths) <= 1
    return columns


def test_sketch_is_in_proportion() -> None:
    full = SKETCH_ROWS * 8
    assert heights(sketch(np.array([0, 10, 20, 40]))) == [0, full // 4, full // 2, full]
    assert heights(sketch(np.zeros(5, np.int64))) == [0] * 5
    assert heights(sketch(np.array([7]))) == [full]
    # A single sample among very many remains visible.
    assert heights(sketch(np.array([1, 10**12]))) == [1, full]


def test_sketch_of_many_bins() -> None:
    """Neighbours share a column, whose height is their mean, so that uneven columns compare."""
    assert heights(sketch(np.full(SKETCH_COLUMNS * 3 + 1, 5))) == [SKETCH_ROWS * 8] * SKETCH_COLUMNS
    ramp = heights(sketch(np.arange(2**20)))
    assert ramp == sorted(ramp)
    assert len(set(ramp)) == SKETCH_ROWS * 8
    last = np.zeros(1024, np.int64)
    last[-16:] = 9
    assert heights(sketch(last)) == [0] * (SKETCH_COLUMNS - 1) + [SKETCH_ROWS * 8]


def test_verdict_claims_what_was_done() -> None:
    invariants = "every invariant holds on all 3 chunks"
    whole = ("100 % of 1,000 samples checked: equal to the reference", invariants)
    assert verdict_lines(FULL) == verdict_lines(dataclasses.replace(FULL, mode="auto")) == whole
    assert verdict_lines(SAMPLE) == (
        "0.4 % of 1,000 samples checked (--verify sample); --verify full checks all",
        f"4 equal to the reference, seed 42; {invariants}",
    )
    assert verdict_lines(dataclasses.replace(SAMPLE, mode="auto", checked=370)) == (
        "37 % of 1,000 samples checked, as much as the run's time allowed; --verify full checks all",
        f"370 equal to the reference; {invariants}",
    )
    assert verdict_lines(OFF) == (
        "0 % of 1,000 samples checked (--verify off); --verify full checks all", invariants
    )  # fmt: skip
    assert str(OFF) == "; ".join(verdict_lines(OFF))


def test_verdict_on_an_array() -> None:
    whole = dataclasses.replace(FULL, escape=2.0**-20)
    assert verdict_lines(whole) == (
        "100 % of 1,000 elements checked: agree with the inputs",
        "a wrong one among them goes unnoticed with a chance of at most 1e-06",
    )
    assert verdict_lines(dataclasses.replace(whole, mode="auto", checked=10, escape=0.0)) == (
        "1 % of 1,000 elements checked, as much as the run's time allowed; --verify full checks all",
        "10 agree with the inputs; no wrong one among them goes unnoticed",
    )
    size = "the root mean square of its row goes unnoticed"
    assert verdict_lines(dataclasses.replace(whole, undetected=4.51e-4))[1] == (
        f"an error above 0.00046 of {size} with a chance of at most 1e-06"
    )
    exact = dataclasses.replace(whole, undetected=3e-11, escape=0.0)
    assert verdict_lines(exact)[1] == f"no error above 3e-11 of {size}"
    off = dataclasses.replace(OFF, escape=0.0)
    assert str(off) == "0 % of 1,000 elements checked (--verify off); --verify full checks all"


def test_verdict_never_rounds_up_to_all() -> None:
    nearly = str(dataclasses.replace(SAMPLE, samples=10**9, checked=10**9 - 1))
    assert nearly.startswith("99.9 % of 1,000,000,000 samples")
    assert "; 999,999,999 equal" in nearly


def test_verdict_on_nothing() -> None:
    nothing = dataclasses.replace(FULL, mode="auto", samples=0, checked=0, chunks=0)
    assert verdict_lines(nothing)[0] == "100 % of 0 samples checked: equal to the reference"


def test_panel() -> None:
    lines = panel(outcome_of(FULL, nbytes=10**8, read=0.1, kernel=0.4, verify=0.01))
    assert lines[:2] == ["histogram of /0.bin (int32)", "─" * len("histogram of /0.bin (int32)")]
    centres = np.repeat(np.linspace(-1.5, 64, 129)[1::2], COUNTS)  # every sample in the middle of its bin
    assert lines[2:11] == [
        "range             [-1.5, 64], bins: 64",
        "outside           1,234,575 samples (94.9 %); --range auto includes all that are finite",
        f"mean              {statistics.fmean(centres):.6g}, from counts and bin centres, of the samples in bins alone",
        "mode              [62.9766, 64], 1,063 samples",
        f"spread            {statistics.pstdev(centres):.6g}, standard deviation from counts and bin centres",
        f"samples           {COUNTS.sum() + 1234567 + 17:,}",
        "underflow         1,234,567",
        "overflow          8",
        "NaN               9",
    ]
    assert lines[11] == "first ten counts  [1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007, 1008, 1009]"
    assert lines[12:18] == ["", *sketch(COUNTS)]
    assert lines[18] == "-1.5" + "64".rjust(SKETCH_COLUMNS - 4)
    assert lines[19:] == [
        "",
        "read              1 GB/s",
        "kernel            0.5 GB/s  ← bound the run",
        "verify            10 GB/s",
        "whole run         0.2 GB/s, 0.50 s after 0.25 s of start-up, on this process, 2 threads",
        "",
        "verdict           100 % of 1,000 samples checked: equal to the reference",
        "                  every invariant holds on all 3 chunks",
    ]


def test_no_rates_of_little_input() -> None:
    """One byte less, however many are read again: the stages and the rate of the whole run are missing."""
    much, little = (
        panel(outcome_of(FULL, nbytes=nbytes, passes=2, read=0.1, kernel=0.4)) for nbytes in (10**8, 10**8 - 4)
    )
    assert [line.split()[0] for line in much if line not in little] == ["read", "kernel", "whole"]
    assert [line for line in little if line not in much] == [
        "whole run         0.50 s after 0.25 s of start-up, on this process, 2 threads"
    ]
    assert to_json(outcome_of(FULL, read=0.1))["performance"]["bytes_per_second"] == 8000


def test_axis_of_few_bins() -> None:
    """Both ends are distinct, however narrow the sketch."""
    outcome = outcome_of(FULL, read=1.0)
    for edges, line in (([0.0, 1.0], "0 1"), ([0.0, *range(1, 9)], "0      8"), ([-2.5, 0.0, 1e9], "-2.5 1e+09")):
        counts = np.ones(len(edges) - 1, np.int64)
        result = HistogramResult(counts, np.array(edges), underflow=0, overflow=0, nan=0, regular=False)
        assert line in panel(dataclasses.replace(outcome, result=result))


def test_panel_of_several_files() -> None:
    assert panel(outcome_of(FULL, files=3, read=1.0))[0] == "histogram of 3 files (int32)"


def stages_of(outcome: Outcome) -> tuple[dict[str, Any], str]:
    with pytest.MonkeyPatch.context() as patch:  # as of a larger input
        patch.setattr("pipeline.report.panel.RATED_BYTES", 0)
        performance = to_json(outcome)["performance"]
    return performance["stages"], performance["bound_by"]


def test_rates() -> None:
    """Bytes over the seconds that the stage alone would have taken; kernels run on two lanes here."""
    stages, bound_by = stages_of(outcome_of(FULL, read=2.0, kernel=3.0, verify=1.0))
    assert list(stages) == ["read", "kernel", "verify"]
    assert stages["read"] == {"busy_seconds": 2.0, "bytes_per_second": 2000.0}
    assert stages["kernel"] == {"busy_seconds": 1.5, "bytes_per_second": 4000 / 1.5}
    assert stages["verify"] == {"busy_seconds": 1.0, "bytes_per_second": 4000.0}
    assert bound_by == "read"
    performance = to_json(outcome_of(FULL, read=2.0))["performance"]
    assert [performance[name] for name in ("start_up_seconds", "seconds", "bytes_per_second")] == [0.25, 0.5, 8000]


def test_how_bytes_went_to_the_device_is_told() -> None:
    outcome = outcome_of(OFF, nbytes=10**8, **{"read+copy": 0.5, "kernel": 0.1})
    outcome.stages.transfer_paths.add("through pinned memory")
    (line,) = [line for line in panel(outcome) if line.startswith("read+copy")]
    assert line.endswith(" 0.2 GB/s through pinned memory  ← bound the run")
    assert to_json(outcome)["environment"]["transfers"] == ["through pinned memory"]


def test_rate_of_verification_is_of_what_was_checked() -> None:
    stages, bound_by = stages_of(outcome_of(SAMPLE, read=1.0, verify=4.0))
    assert stages["verify"]["bytes_per_second"] == 4
    assert bound_by == "verify"
    # With --range auto both passes are verified.
    stages, _ = stages_of(outcome_of(FULL, passes=2, read=1.0, verify=2.0))
    assert (stages["read"]["bytes_per_second"], stages["verify"]["bytes_per_second"]) == (8000, 4000)


def test_no_rate_of_what_was_not_verified() -> None:
    outcome = outcome_of(OFF, read=1.0, verify=2.0)
    assert stages_of(outcome) == ({"read": {"busy_seconds": 1.0, "bytes_per_second": 4000.0}}, "read")
    large = outcome_of(OFF, nbytes=10**8, read=1.0, verify=2.0)
    assert [line.split()[0] for line in panel(large) if "GB/s" in line] == ["read", "whole"]


def test_gpus_that_took_part_are_told() -> None:
    outcome = outcome_of(FULL)
    line = "GPUs 0, 2 of 4: --gpus 0,2"
    told = dataclasses.replace(outcome, gpus=line)
    before, after = panel(outcome), panel(told)
    where = next(number for number, text in enumerate(after) if text.endswith(line))
    assert after[where].strip() == line and "whole run" in after[where - 1]
    assert after[:where] + after[where + 1 :] == before
    assert to_json(outcome)["environment"]["gpus"] is None
    assert to_json(told)["environment"]["gpus"] == line


def test_json_is_plain() -> None:
    outcome = dataclasses.replace(
        outcome_of(FULL, read=1.0), options=HistogramOptions(edges=np.array([0.0, 1.5])),
        source=Files((SourceFile("/big.bin", 0, 16, imagined(16), (2,)),), np.dtype(">f8")),
    )  # fmt: skip
    document = json.loads(json.dumps(to_json(outcome), allow_nan=False))
    assert list(document) == ["job", "input", "result", "verification", "performance", "environment"]
    assert document["job"]["name"] == "histogram"
    assert document["job"]["options"]["edges"] == [0.0, 1.5]
    assert document["input"] == {
        "files": ["/big.bin"], "dtype": "float64", "byteorder": "big", "shape": [2], "samples": 2, "bytes": 16,
    }  # fmt: skip
    assert list(document["result"]) == ["histogram", "samples", "underflow", "overflow", "nan"]
    assert document["verification"]["verdict"] == str(FULL)
    assert {"python", "baru", "numpy", "dask", "distributed"} <= set(document["environment"]["versions"])


@pytest.mark.usefixtures("shared")
def test_json_says_what_computed_on_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The claims about samples are the same, also if only part of the computation is compiled."""
    np.random.default_rng(0).standard_normal(50_000).astype(np.float32).tofile(tmp_path / "samples.bin")
    source = open_source((str(tmp_path / "samples.bin"),), "float32")
    compiled = ["compiled"] if cxx.library(reduce_cpu.SOURCE) else ["NumPy"]

    def found(workflow: Any, **options: Any) -> tuple[Any, list[str]]:
        document = to_json(run(workflow, workflow.options(**options), source))
        return document["result"], document["environment"]["cpu kernels"]

    here = found(REDUCE), found(HISTOGRAM), found(HISTOGRAM, range="auto")
    assert [kernels for _, kernels in here] == [compiled, compiled, sorted({"NumPy", *compiled})]
    assert Job(REDUCE, REDUCE.options()).compiled is (compiled == ["compiled"])
    assert not Job(HISTOGRAM, HistogramOptions(range="auto")).compiled  # except the survey pass
    monkeypatch.setattr(cxx, "library", lambda stem: None)
    histogram_cpu._compiled_function.cache_clear()
    there = found(REDUCE), found(HISTOGRAM), found(HISTOGRAM, range="auto")
    histogram_cpu._compiled_function.cache_clear()
    assert there == tuple((result, ["NumPy"]) for result, _ in here)
