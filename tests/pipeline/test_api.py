"""Jobs from Python, and user-defined jobs."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline
from kernels.common import nvrtc
from pipeline.errors import PipelineError, UsageError, VerificationError
from pipeline.storage.generate import generate
from workflows import WORKFLOWS
from workflows.histogram import HISTOGRAM

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs" / "examples" / "clipping.py"
ECG = ROOT / "data" / "ecg.npy"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    generate(tmp_path / "data.bin", 100_000)
    return tmp_path / "data.bin"


@pytest.fixture
def clipping(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workflows.WORKFLOWS", dict(WORKFLOWS))
    monkeypatch.setattr("pipeline.api.WORKFLOWS", dict(WORKFLOWS))
    runpy.run_path(str(EXAMPLE))


def test_histogram(data: Path) -> None:
    samples = np.fromfile(data, "<i4")
    result = pipeline.run("histogram", data, bins=256, range=(0, 1024), chunk_bytes=2**16)
    counts, edges = np.histogram(samples, 256, (0, 1024))
    assert result.counts.tolist() == counts.tolist() and result.edges.tolist() == edges.tolist()
    swapped = data.with_name("big.bin")
    samples.astype(">i4").tofile(swapped)
    again = pipeline.run("histogram", swapped, byteorder="big", bins=256, range=(0, 1024), verify="full", device="cpu")
    assert again.counts.tobytes() == result.counts.tobytes()


def test_several_jobs(data: Path) -> None:
    samples = np.fromfile(data, "<i4")
    counted, reduced = pipeline.run([("histogram", {"bins": 4}), ("reduce", {"op": "sum,max"})], data, device="cpu")
    assert counted.counts.tolist() == np.histogram(samples, 4, (0, 1024))[0].tolist()
    assert reduced.values == {"sum": samples.sum(), "max": samples.max()}
    (alone,) = pipeline.run([("reduce", {})], data, device="cpu")
    assert alone.values == pipeline.run("reduce", data, device="cpu").values
    for jobs, options, message in (
        ([], {}, "expected several jobs that return what they found, got none"),
        ([("histogram", {}), ("transpose", {})], {}, "that return what they found, got histogram, transpose"),
        ([("histogram", {})], {"bins": 5}, "expected the options of each of several jobs beside its name, got bins"),
        ([("histogram", {"bin": 5})], {}, "histogram: expected options out of bins, range, edges, got 'bin'"),
        ([("histogramm", {})], {}, "expected a job out of histogram, .*, got 'histogramm'"),
        ([("histogram", {}), ("reduce", {})], {"output": "x.npy"}, "histogram, reduce: expected no output="),
    ):
        with pytest.raises(UsageError, match=message):
            pipeline.run(jobs, data, **options)


def test_array_job(data: Path, tmp_path: Path) -> None:
    samples = np.fromfile(data, "<i4")
    result = pipeline.run("map", data, data, operation="add", output=tmp_path / "sum.npy")
    assert result.array.dtype == np.int32
    np.testing.assert_array_equal(result.array, samples + samples)
    with pytest.raises(UsageError, match="map: expected output=, the file that the array goes to, got none"):
        pipeline.run("map", data, data, operation="add")


def test_wrong_calls(data: Path) -> None:
    for arguments, options, message in (
        (("histogramm", data), {}, "expected a job out of histogram, .*, got 'histogramm'"),
        (("histogram", data), {"bin": 5}, "histogram: expected options out of bins, range, edges, got 'bin'"),
        (("histogram", data), {"bins": 0}, "histogram: --bins: expected 1 to 1048576, got 0"),
        (("histogram", data), {"output": "x.json"}, "histogram: expected no output="),
        (("histogram", data), {"device": "gpu", "scheduler": None}, "expected a GPU"),
        (("histogram", f"{data}.gone"), {}, "expected a file of samples, found none there"),
        (("histogram", f"{data}.gone".encode()), {}, "expected a file of samples, found none there"),
        (("histogram",), {}, "expected one or more files or arrays, got none"),
        (("histogram", data), {"device": "tpu"}, "--device: expected one of auto, gpu, cpu, got 'tpu'"),
        (("histogram", data), {"byteorder": "x"}, "--byteorder: expected one of little, big, got 'x'"),
        (("reduce", data), {"op": ["sum"]}, r"reduce: --op: expected names separated by commas, got \['sum'\]"),
    ):
        if "GPU" in message and not pytest.importorskip("pipeline.gpu.devices").find_devices().missing:
            continue
        with pytest.raises(UsageError, match=message):
            pipeline.run(*arguments, **options)


def test_a_wrong_number_is_never_returned(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(block: Any, options: Any) -> Any:
        counts = HISTOGRAM.compute(block, options)
        counts[1], counts[2] = counts[2] + 1, counts[1] - 1
        return counts

    planted = HISTOGRAM.__class__(**{**vars(HISTOGRAM), "compute": wrong})
    monkeypatch.setitem(WORKFLOWS, "histogram", planted)
    with pytest.raises(VerificationError, match="a number is wrong in chunk 0"):
        pipeline.run("histogram", data)


def test_import_is_light() -> None:
    code = "import sys, pipeline; print(*{'numpy', 'dask', 'distributed', 'cupy'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, text=True, capture_output=True, check=True)
    assert done.stdout.split() == []
    with pytest.raises(AttributeError, match="no attribute 'walk'"):
        _ = pipeline.walk


# --- a user-defined job -----------------------------------------------------------------------------------------------


def test_example_is_short() -> None:
    assert sum(bool(line.strip()) for line in EXAMPLE.read_text().splitlines()) < 40


def test_example_as_a_program() -> None:
    command = [sys.executable, str(EXAMPLE), str(ECG)]
    done = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, check=True)
    samples = np.load(ECG)
    assert done.stdout == f"{{'low': {(samples <= 0).sum()}, 'high': {(samples >= 2047).sum()}}}\n"


def test_example_with_options(clipping: None) -> None:
    samples = np.load(ECG)
    result = pipeline.run("clipping", ECG, lowest=900, highest=1000, chunk_bytes=5000)
    assert result == {"low": int((samples <= 900).sum()), "high": int((samples >= 1000).sum())}
    with pytest.raises(UsageError, match="clipping: expected options out of lowest, highest, got 'low'"):
        pipeline.run("clipping", ECG, low=5)


def test_names_are_taken_once(clipping: None) -> None:
    with pytest.raises(ValueError, match="register: expected a new name, got 'histogram', which another job has"):
        pipeline.register(HISTOGRAM.__class__(**vars(HISTOGRAM)))
    with pytest.raises(PipelineError):
        pipeline.run("clipping", ECG, verify="often")


@pytest.mark.parametrize("architecture", ["sm_75", "sm_90", "sm_120"])
def test_example_compiles(architecture: str) -> None:
    names, _, log = nvrtc.compile_source(EXAMPLE.with_suffix(".cu"), ("clipping<unsigned short>",), architecture)
    assert (len(names), log) == (1, "")


@pytest.mark.gpu
@pytest.mark.hardware
def test_example_on_a_gpu(clipping: None) -> None:
    samples = np.load(ECG)
    result = pipeline.run("clipping", ECG, lowest=900, highest=1000, device="gpu")
    assert result == {"low": int((samples <= 900).sum()), "high": int((samples >= 1000).sum())}
