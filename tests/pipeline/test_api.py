"""Jobs from Python, and user-defined jobs."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client, LocalCluster

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
    own = dict(WORKFLOWS)
    for module in ("api", "arguments"):
        monkeypatch.setattr(f"pipeline.{module}.WORKFLOWS", own)
    runpy.run_path(str(EXAMPLE))


def test_histogram(data: Path) -> None:
    samples = np.fromfile(data, "<i4")
    result = pipeline.run("histogram", data, bins=256, range=(0, 1024), chunk_bytes=2**16)
    counts, edges = np.histogram(samples, 256, (0, 1024))
    assert result.counts.tolist() == counts.tolist() and result.edges.tolist() == edges.tolist()
    assert str(result.verification).startswith("100 % of 100,000 samples checked: equal to the reference")
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
        ([], {}, "expected jobs that return results, since several share a pass, got none"),
        ([("histogram", {}), ("transpose", {})], {}, "since several share a pass, got histogram, transpose"),
        (
            [("histogram", {})],
            {"bins": 5},
            "expected the options of each job beside its name, like ",
        ),
        ([("histogram", {"bin": 5})], {}, "histogram: expected an option, one of bins, range, edges, scale, got 'bin'"),
        ([("histogramm", {})], {}, "expected a job, one of histogram, .*, got 'histogramm'"),
        ([("histogram", {}), ("reduce", {})], {"output": "x.npy"}, "histogram, reduce: expected no output="),
    ):
        with pytest.raises(UsageError, match=message):
            pipeline.run(jobs, data, **options)


def test_array_job(data: Path, tmp_path: Path) -> None:
    samples = np.fromfile(data, "<i4")
    result = pipeline.run("map", data, data, operation="add", output=tmp_path / "sum.npy")
    assert result.array.dtype == np.int32
    np.testing.assert_array_equal(result.array, samples + samples)
    assert str(result.verification).startswith("100 % of 100,000 elements checked: agree with the inputs")
    with pytest.raises(UsageError, match="map: expected output=, the file that the array goes to, got none"):
        pipeline.run("map", data, data, operation="add")


def test_wrong_calls(data: Path) -> None:
    for arguments, options, message in (
        (("histogramm", data), {}, "expected a job, one of histogram, .*, got 'histogramm'"),
        (("histogram", data), {"bin": 5}, "histogram: expected an option, one of bins, range, edges, scale, got 'bin'"),
        (("histogram", data), {"bins": 0}, "histogram: --bins: expected 1 to 1048576, got 0"),
        (("histogram", data), {"output": "x.json"}, "histogram: expected no output="),
        (("histogram", data), {"device": "gpu", "scheduler": None}, "expected a GPU"),
        (("histogram", f"{data}.gone"), {}, "expected a file of samples, found none there"),
        (("histogram", f"{data}.gone".encode()), {}, "expected a file of samples, found none there"),
        (("histogram",), {}, "expected one or more files or arrays, got none"),
        (("histogram", data), {"device": "tpu"}, "--device: expected one of auto, gpu, cpu, got 'tpu'"),
        (("histogram", data), {"byteorder": "x"}, "--byteorder: expected one of little, big, got 'x'"),
        (("reduce", data), {"op": ["sum"]}, r"reduce: op: expected text, got \['sum'\]; write the names with commas"),
        (("reduce", data), {"ddof": 1.5}, r"^reduce: ddof: expected an integer, got 1\.5$"),
        (("reduce", data), {"ddof": True}, r"^reduce: ddof: expected an integer, got True$"),
        (
            ("histogram", data),
            {"bins": True},
            r"^histogram: --bins: expected 1 to 1048576 or one .*, got True$",
        ),
        (("histogram", data), {"bins": "best"}, r"^histogram: --bins: expected 1 to 1048576 or one .*, got 'best'$"),
        (
            ("histogram", data),
            {"bins": 2.0},
            r"^histogram: --bins: expected 1 to 1048576 or one .*, got 2\.0$",
        ),
        (
            ("histogram", data),
            {"bins": np.arange(3)},
            r"bins: expected 1 to 1048576 or one of auto, .*, got array\(\[0, 1, 2\]\)$",
        ),
        (("histogram", data), {"range": 3}, r"^histogram: --range: expected LO HI or auto, got 3$"),
        (("histogram", data), {"range": (1, 2, 3)}, r"^histogram: --range: expected LO HI or auto, got \(1, 2, 3\)$"),
        (
            ("histogram", data),
            {"edges": ["a", "b"]},
            r"^histogram: --edges: expected an array of ascending numbers, got",
        ),
        (("stencil", data), {"radius": 1.5, "output": "x"}, r"^stencil: radius: expected an integer, got 1\.5$"),
        (("stencil", data), {"boundary": [], "output": "x"}, r"^stencil: boundary: expected text, got \[\]$"),
        (("map", data, data), {"output": "x"}, r"^map: expected operation=, got none$"),
        (("histogram", data), {"chunk_bytes": "64MiB"}, r"^chunk_bytes: expected a number of bytes, .*, got '64MiB'$"),
        (("histogram", data), {"chunk_bytes": 1e6}, r"^chunk_bytes: expected a number of bytes, .*, got 1000000\.0$"),
        (("histogram", data), {"device_memory_limit": True}, r"^device_memory_limit: expected .*, got True$"),
        (("stencil", data), {"memory_limit": "1GB", "output": "x"}, r"^memory_limit: expected .*, got '1GB'$"),
        (("histogram", data), {"offset": 1.5}, r"^offset: expected .*, got 1\.5$"),
        (("stencil", data), {"output": 3}, r"^output: expected a path, got 3$"),
        (("histogram", data), {"scheduler_file": 3}, r"^scheduler_file: expected a path, got 3$"),
        (("histogram", data), {"scheduler": 3}, r"^scheduler: expected an address like 'tcp://host:8786', got 3$"),
        (("histogram", data), {"dtype": "junk"}, r"^dtype: expected one of int8, .*, got 'junk'$"),
        (("histogram", data), {"dtype": bool}, r"^dtype: expected one of int8, .*, got <class 'bool'>$"),
        (
            ("histogram", data),
            {"dtype": ">i4"},
            r"^dtype: expected one without a byte order, got '>i4'; give byteorder=",
        ),
        ((np.arange(3),), {}, r"^expected the name of a job before its files, like .*, got ndarray$"),
        ((None, data), {}, r"^expected the name of a job before its files, like .*, got None$"),
        ((["histogram"], data), {}, r"^expected jobs as names with options, like .*, got 'histogram'$"),
        (([("histogram", 3)], data), {}, r"^expected jobs as names with options, like .*, got \('histogram', 3\)$"),
        (
            ("histogram", [1, 2]),
            {},
            "^expected paths or arrays, got list; convert numbers with numpy.asarray, and",
        ),
    ):
        if "GPU" in message and not pytest.importorskip("pipeline.gpu.devices").find_devices().missing:
            continue
        with pytest.raises(UsageError, match=message):
            pipeline.run(*arguments, **options)


def test_close_names_are_suggested(data: Path) -> None:
    for name, options, text in (
        ("histogramm", {}, "got 'histogramm'; did you mean 'histogram'?"),
        ("historgam", {}, "got 'historgam'; did you mean 'histogram'?"),
        ("sort", {}, "got 'sort'"),
        ("histogram", {"edge": 1}, "got 'edge'; did you mean 'edges'?"),
        ("reduce", {"op": "mena"}, "got 'mena'; did you mean 'mean'?"),
        ("histogram", {"width": 1}, "got 'width'"),
    ):
        with pytest.raises(UsageError) as caught:
            pipeline.run(name, data, **options)
        assert str(caught.value).endswith(text)


def test_numbers_and_dtypes_of_numpy_are_taken(data: Path) -> None:
    samples = np.fromfile(data, "<i2")
    expected = np.histogram(samples, 5, (0, 1000))[0].tolist()
    for dtype in (np.int16, np.dtype("int16"), "int16", "i2", "short"):
        found = pipeline.run(
            "histogram", data, dtype=dtype, bins=np.int64(5), range=(np.float32(0), 1000), offset=np.uint8(0)
        )
        assert found.counts.tolist() == expected
    assert pipeline.run("histogram", data, dtype=float, bins=3).samples == len(samples) // 4


def test_clusters_are_named_by_their_address(data: Path) -> None:
    """An active client is not used, and one as an argument is told what to give instead, which then works."""
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=3, processes=False, protocol="tcp", dashboard_address="127.0.0.1:0"
        ) as cluster,
        Client(cluster) as client,
    ):
        address = cluster.scheduler_address
        text = f"; name the cluster by scheduler='{address}'"
        for wrong, got in ((client, "got Client"), (cluster, "got LocalCluster")):
            for arguments, options in (
                (("histogram", data), {"scheduler": wrong}), (("histogram", wrong), {}), ((wrong, data), {}),
            ):  # fmt: skip
                with pytest.raises(UsageError) as caught:
                    pipeline.run(*arguments, **options)
                assert str(caught.value).endswith(got + text)
        before = client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.transition_counter)
        here = pipeline.run("histogram", data, device="cpu")
        assert client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.transition_counter) == before
        there = pipeline.run("histogram", data, device="cpu", scheduler=address)
        assert client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.transition_counter) > before
        assert there.counts.tolist() == here.counts.tolist()


def test_public_names() -> None:
    assert dir(pipeline) == ["Submitted", "__version__", "register", "run", "submit"]
    assert all(hasattr(pipeline, name) for name in dir(pipeline))


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
    with pytest.raises(UsageError, match="clipping: expected an option, one of lowest, highest, got 'low'"):
        pipeline.run("clipping", ECG, low=5)


def test_names_are_taken_once(clipping: None) -> None:
    with pytest.raises(ValueError, match="register: expected a name of your own, got 'histogram', which"):
        pipeline.register(HISTOGRAM.__class__(**vars(HISTOGRAM)))
    with pytest.raises(TypeError, match=r"register: expected a workflows.Aggregation or ArrayJob, got 3"):
        pipeline.register(3)  # type: ignore[type-var]
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
