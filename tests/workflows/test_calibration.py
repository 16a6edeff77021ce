"""Jobs on calibrated samples give what they give on NumPy's float64 numbers."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import workflows.calibration
from kernels.calibrate.calibration import LOGS, TRANSFORMS, Calibration
from kernels.calibrate.reference import calibrate_reference
from kernels.histogram.reference import histogram_reference
from pipeline.engine.aggregate import run
from pipeline.engine.aggregate_plan import Job
from pipeline.errors import VerificationError
from pipeline.settings import Settings
from pipeline.storage.sources import open_source
from tests.cases.conditions import DTYPES, hostile
from workflows.calibration import binning, calibrated
from workflows.expression import parse
from workflows.histogram import HISTOGRAM, HistogramOptions
from workflows.reduce import REDUCE, ReduceOptions
from workflows.selection import Selection, selected

NUMPY = {"none": lambda y: y, "abs": np.abs, "square": np.square, "sqrt": np.sqrt, "log": np.log, "log2": np.log2,
         "log10": np.log10}  # fmt: skip
GAINS = (1.0, -1.0, 0.1, -2.5, 1e-300, 1e300, 2.0**-9, 3.3)
BIASES = (0.0, -0.0, 1.0, -7.25, 1e-310, 1e300, 0.1, 511.5)
RANGES = ((0.0, 1024.0), (-3.0, 5.0), (0.0, 3.0), (-1e-300, 1e-300), (-1e308, 1e307), (0.0, 1e-3))
EVERYTHING = ReduceOptions("count,sum,mean,var,min,max,argmin,argmax", nan="omit")


def options_for(numbers: NDArray[np.float64], random: Random) -> HistogramOptions | None:
    """Bins of all kinds, some with calibrated samples as their edges."""
    values = np.unique(numbers[np.abs(numbers) < 1e307])
    kind = random.random()
    if kind < 0.3 or len(values) < 2:
        return HistogramOptions(bins=random.choice([1, 2, 16, 64, 1000]), range=random.choice(RANGES))
    if kind < 0.7:
        chosen = np.random.default_rng(random.getrandbits(32)).choice(values, min(len(values), 30), replace=False)
        return HistogramOptions(edges=np.sort(chosen))
    try:
        return HistogramOptions(bins=random.choice([1, 7, 256]), range=(float(values[0]), float(values[-1])))
    except ValueError:  # too narrow or too wide
        return None


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_counts_are_those_of_the_calibrated_samples(transform: str, dtype: str, host: Any) -> None:
    """On a CPU, on a device, by the compiled check and by `numpy.histogram`."""
    random = Random(f"{transform} {dtype}")
    samples = hostile(dtype, 500, np.random.default_rng(random.getrandbits(32)))
    for _ in range(6):
        calibration = Calibration(random.choice(GAINS), random.choice(BIASES), transform)
        numbers = calibrate_reference(samples, calibration)
        if (options := options_for(numbers, random)) is None:
            continue
        expected, job = histogram_reference(numbers, options.all_edges), calibrated(HISTOGRAM, calibration)
        check = job.check(options, samples.dtype)
        assert check is not None
        check.add(samples[:123], 0)
        check.add(samples[123:], 123)
        assert np.array_equal(check.partial(), expected)
        assert np.array_equal(job.reference(samples, options), expected)
        assert np.array_equal(job.compute(samples, options), expected)
        with np.errstate(all="ignore"):
            assert np.array_equal(job.compute(host.asarray(samples), options).get(), expected)


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_numpys_own_functions_agree(transform: str) -> None:
    """Except that its logarithms may be off by an ulp; these samples are not near an edge."""
    samples = np.random.default_rng(1).integers(0, 4096, 20_000).astype(np.int16)
    numbers = NUMPY[transform](samples.astype(np.float64) * 0.31 + 5.5)
    options = HistogramOptions(bins=50, range=(1.7, 9.3))
    got = calibrated(HISTOGRAM, Calibration(0.31, 5.5, transform)).compute(samples, options)
    assert got[1:-2].tolist() == np.histogram(numbers, 50, (1.7, 9.3))[0].tolist()


def test_powers_of_ten_lie_on_their_edges() -> None:
    """The decadic logarithm of 1000 is 3, where some libraries give 2.9999999999999996."""
    samples = 10.0 ** np.arange(23)
    options = HistogramOptions(bins=23, range=(0.0, 23.0))
    assert calibrated(HISTOGRAM, Calibration(transform="log10")).compute(samples, options)[1:-2].tolist() == [1] * 23


def test_an_integer_is_a_threshold_of_its_own() -> None:
    """64-bit integers near 2**63 round on their way to float64: the first that reaches an edge is found."""
    top = 2**63 - 1
    samples = np.array([top, top - 511, top - 512, top - 1024, 0])
    job = calibrated(HISTOGRAM, Calibration(0.5, 1.0))
    options = HistogramOptions(edges=np.array([0.0, 2.0**62 - 512, 2.0**62, 2.0**63]))
    numbers = samples.astype(np.float64) * 0.5 + 1.0
    assert job.compute(samples, options)[1:-2].tolist() == np.histogram(numbers, options.edges)[0].tolist()  # type: ignore[arg-type]


def test_bins_of_a_monotone_function_cost_no_conversion(monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples are counted as they are; only edges are looked up, once."""
    job, options = calibrated(HISTOGRAM, Calibration(0.1, 0.0, "sqrt")), HistogramOptions()
    samples = np.arange(1000, dtype=np.int32)
    first = job.compute(samples, options)
    monkeypatch.setattr(workflows.calibration, "calibrate", None)
    assert np.array_equal(job.compute(samples, options), first)
    assert binning(Calibration(0.1, 0.0, "sqrt"), options, samples.dtype).binning.dtype == np.int32


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("dtype", ["int8", "uint64", "float16", "float32", "float64"])
def test_other_jobs_get_float64_numbers(transform: str, dtype: str, host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workflows.calibration, "PIECE", 300)
    samples = hostile(dtype, 700 if transform in LOGS else 1000, np.random.default_rng(7))
    calibration = Calibration(-2.5, 3.0, transform)
    expected = REDUCE.compute(calibrate_reference(samples, calibration), EVERYTHING)
    job = Job(calibrated(REDUCE, calibration), EVERYTHING)
    check = job.workflow.check(EVERYTHING, samples.dtype)
    assert check is not None
    check.add(samples[500:], 500)
    check.add(samples[:500], 0)
    assert job.differences(job.compute(samples, 0), expected) == []
    assert job.differences(job.reference(samples, 0), expected) == []
    assert job.differences(check.partial(), expected) == []
    with np.errstate(all="ignore"):
        assert job.differences(job.compute(host.asarray(samples), 0).get(), expected) == []


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("chunk_bytes", [None, 5000, 2500, 1000])
def test_runs_select_first_and_survey_calibrated_samples(tmp_path: Path, chunk_bytes: int | None) -> None:
    samples = np.random.default_rng(4).integers(-100, 1000, 4321).astype(np.int16)
    np.save(tmp_path / "a.npy", samples)
    keep = Selection(parse("x > 3 and i < 4000", ["x", "i"]), {}, {"where": "…"})
    numbers = samples * -0.25 + 300.5
    mask = (samples > 3) & (np.arange(4321) < 4000)
    source, settings = open_source((str(tmp_path / "a.npy"),)), Settings(verify="full", chunk_bytes=chunk_bytes)
    prepared = [selected(calibrated(job, Calibration(-0.25, 300.5)), keep) for job in (HISTOGRAM, REDUCE)]
    got = run(prepared[0], HistogramOptions(bins=20, range="auto"), source, settings).result
    counts, edges = np.histogram(numbers[mask], 20)
    assert got.counts.tolist() == counts.tolist() and got.edges.tolist() == edges.tolist()
    got = run(prepared[1], EVERYTHING, source, settings).result
    places = np.flatnonzero(mask)
    assert got.values["argmin"] == places[numbers[mask].argmin()] and got.values["max"] == numbers[mask].max()
    assert got.values["sum"] == math.fsum(numbers[mask])


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("wrong", [Calibration(0.5, 1e-9), Calibration(0.5000001, 0.0), Calibration(0.5, 0.0, "abs")])
@pytest.mark.parametrize("job", [HISTOGRAM, REDUCE])
def test_a_wrong_calibration_is_caught(tmp_path: Path, wrong: Calibration, job: Any) -> None:
    """By the check, and where that errs as well, by the reference."""
    np.save(tmp_path / "a.npy", np.arange(-500, 5000, dtype=np.int32))
    options: Any = HistogramOptions(bins=4, range=(0.0, 400.0)) if job is HISTOGRAM else ReduceOptions("sum")
    if job is HISTOGRAM and wrong.bias:
        options = HistogramOptions(edges=np.array([0.0, 5e-10, 400.0]))
    right, other = calibrated(job, Calibration(0.5, 0.0)), calibrated(job, wrong)
    source, full = open_source((str(tmp_path / "a.npy"),)), Settings(verify="full")
    with pytest.raises(VerificationError, match="is wrong in chunk"):
        run(replace(right, compute=other.compute), options, source, full)
    with pytest.raises(VerificationError, match="the check and the reference disagree"):
        run(replace(right, compute=other.compute, check=other.check), options, source, full)


def test_one_wrong_threshold_is_caught() -> None:
    samples, options = np.arange(1000, dtype=np.int32), HistogramOptions(bins=10, range=(0.0, 100.0))
    job = calibrated(HISTOGRAM, Calibration(0.1))
    bins = binning(Calibration(0.1), options, samples.dtype)
    bins.binning.thresholds[3] += 1
    check = job.check(options, samples.dtype)
    assert check is not None
    check.add(samples, 0)
    assert Job(job, options).differences(job.compute(samples, options), check.partial())
