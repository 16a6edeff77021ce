"""The source protocol, by formats that only tests know: the same results, verified, or one clear line."""

from __future__ import annotations

import gzip
import os
import pickle
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import pipeline
from pipeline.cluster.placement import Placement, Workers
from pipeline.engine.aggregate import run, run_all
from pipeline.engine.aggregate_plan import Job
from pipeline.errors import PipelineError, UsageError, VerificationError
from pipeline.report.panel import panel, to_json, verdict_line
from pipeline.settings import Settings
from pipeline.storage import memory, sources
from pipeline.storage.blocks import read_blocks
from pipeline.storage.chunks import Region, UnknownPlan, plan
from pipeline.storage.memory import ArraySource
from pipeline.storage.protocol import Opening, Source
from pipeline.storage.sources import Joined, open_source
from pipeline.timeline import Timeline
from tests.cases import formats
from tests.cases.formats import GZIP, PACKED, PIPE, PipeSource, open_gzip, open_packed, pack
from workflows.histogram import HISTOGRAM, HistogramOptions
from workflows.reduce import REDUCE, ReduceOptions

ROOT = Path(__file__).parents[3]
ON_CPU = Placement(device="cpu")


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "FORMATS", [PIPE, GZIP, PACKED, *sources.FORMATS])


@pytest.fixture
def samples() -> NDArray[np.uint16]:
    return np.random.default_rng(0).integers(0, 4096, 30_002).astype(np.uint16)


class Writer(threading.Thread):
    """Writes to a FIFO as a process would: until the reader is gone."""

    def __init__(self, path: Path, data: bytes, then: threading.Event | None = None) -> None:
        super().__init__()
        self.path, self.data, self.then = path, data, then
        os.mkfifo(path)
        self.start()

    def run(self) -> None:
        with open(self.path, "wb", buffering=0) as file:
            view = memoryview(self.data)
            try:
                while view:
                    view = view[file.write(view) :]
                if self.then:
                    self.then.wait(60)
            except BrokenPipeError:
                pass


def written(kind: str, samples: NDArray[np.uint16], folder: Path) -> Any:
    """Samples in some format, as what `pipeline.run` takes."""
    path = folder / "samples"
    if kind == "array":
        return samples
    if kind == "pipe":
        Writer(path, samples.tobytes())
    elif kind == "gzip":  # two members, recognized by their content
        path.write_bytes(gzip.compress(samples[:20_001].tobytes()) + gzip.compress(samples[20_001:].tobytes()))
    else:
        path = folder / "samples.p12"
        path.write_bytes(pack(samples))
    return path


KINDS = ["array", "pipe", "gzip", "packed"]


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("verify", ["full", "sample"])
@pytest.mark.parametrize("kind", KINDS)
def test_results_are_numpys(tmp_path: Path, kind: str, verify: str, samples: NDArray[np.uint16]) -> None:
    """In chunks of several blocks and in blocks of several chunks."""
    given = {"dtype": "uint16"} if kind in ("pipe", "gzip") else {}
    jobs = [("histogram", {"bins": 100, "range": (0, 4096)}), ("reduce", {"op": "sum,min,max,argmax"})]
    for number, chunk_bytes in enumerate((None, 9000)):
        (folder := tmp_path / str(number)).mkdir()
        data = written(kind, samples, folder)
        counted, reduced = pipeline.run(jobs, data, verify=verify, chunk_bytes=chunk_bytes, **given)
        np.testing.assert_array_equal(counted.counts, np.histogram(samples, 100, (0, 4096))[0])
        assert reduced.values == {
            "sum": samples.sum(), "min": samples.min(), "max": samples.max(), "argmax": samples.argmax(),
        }  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_own_cluster(tmp_path: Path, kind: str, samples: NDArray[np.uint16]) -> None:
    given = {"dtype": "uint16"} if kind in ("pipe", "gzip") else {}
    found = pipeline.run("reduce", written(kind, samples, tmp_path), op="sum", **given)
    assert found.values == {"sum": samples.sum()}


@pytest.mark.parametrize("kind", ["array", "packed"])
@pytest.mark.usefixtures("shared")
def test_verdict_counts_what_was_checked(tmp_path: Path, kind: str, samples: NDArray[np.uint16]) -> None:
    data = written(kind, samples, tmp_path)
    source = open_source((data if kind == "array" else str(data),))
    outcome = run(REDUCE, ReduceOptions("sum"), source, Settings(ON_CPU, "sample", 10_000))
    assert outcome.verdict.samples == len(samples) > outcome.verdict.checked > 0
    assert "once" not in verdict_line(outcome.verdict)


class Wrong:
    """A compute that is wrong in one place."""

    def __call__(self, block: NDArray[Any], options: Any) -> Any:
        counts = HISTOGRAM.compute(block, options)
        if block[0] == 777:
            counts[5] += 1
            counts[6] -= 1
        return counts


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("kind", KINDS)
def test_wrong_number_is_found(tmp_path: Path, kind: str, samples: NDArray[np.uint16]) -> None:
    samples[:] = np.resize(np.array([777, 1, 2, 3], np.uint16), len(samples))
    data = written(kind, samples, tmp_path)
    source = open_source((data if kind == "array" else str(data),), "uint16" if kind in ("pipe", "gzip") else None)
    with pytest.raises(
        VerificationError, match=r"^histogram: a number is wrong in chunk \d+ \(\S+.* (samples|bytes) \d"
    ):
        run(replace(HISTOGRAM, compute=Wrong()), HistogramOptions(), source, Settings(ON_CPU, "full", 20_000))


# --- unknown lengths --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("shared")
def test_verdict_does_not_promise_what_a_pipe_cannot(tmp_path: Path, samples: NDArray[np.uint16]) -> None:
    Writer(tmp_path / "pipe", samples.tobytes())
    source = open_source((str(tmp_path / "pipe"),), "uint16")
    outcome = run(HISTOGRAM, HistogramOptions(), source, Settings(ON_CPU, "full"))
    assert (outcome.verdict.samples, outcome.verdict.checked, outcome.verdict.read_once) == (30_002, 30_002, True)
    line = verdict_line(outcome.verdict)
    assert line.startswith(
        "30,002 of 30,002 samples (100 %) equal to the reference, which got the same blocks from memory"
    )
    assert "can be read only once" in line
    document = to_json(outcome)
    assert document["input"]["samples"] == 30_002 and document["input"]["bytes"] == 60_004
    assert document["verification"]["read_once"] is True
    assert any(line.startswith("histogram of") and "pipe" in line for line in panel(outcome))


@pytest.mark.usefixtures("shared")
def test_range_that_a_first_pass_finds(tmp_path: Path, samples: NDArray[np.uint16]) -> None:
    """A gzip file can be read twice, a pipe cannot: that is said before anything is read of it."""
    path = written("gzip", samples, tmp_path)
    found = pipeline.run("histogram", path, bins=10, range="auto", dtype="uint16")
    np.testing.assert_array_equal(found.counts, np.histogram(samples, 10)[0])
    os.mkfifo(tmp_path / "pipe")  # which nobody writes to
    text = r"^histogram: expected a source that can be read twice, .* got \S+pipe, .* once; give --range LOW,HIGH, or"
    with pytest.raises(UsageError, match=text):
        pipeline.run("histogram", tmp_path / "pipe", range="auto")


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("kind", ["pipe", "gzip", "packed"])
def test_jobs_that_need_regions(tmp_path: Path, kind: str, samples: NDArray[np.uint16]) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path) if kind == "pipe" else (path := written(kind, samples, tmp_path))
    with pytest.raises(
        UsageError, match=r"expected raw or \.npy files or one array in memory.* write the array to one"
    ):
        pipeline.run("transpose", path, output=tmp_path / "out.npy")


@pytest.mark.usefixtures("shared")
def test_memory_for_a_pipe_is_bounded(tmp_path: Path, workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    """8 MiB in blocks of 64 KiB; nothing is kept that has been checked."""
    most: list[int] = []
    real = formats.keep

    def counting(*arguments: Any) -> Any:
        most.append(len(memory._kept))
        return real(*arguments)

    monkeypatch.setattr(formats, "keep", counting)
    data = np.arange(2**21, dtype=np.int32)
    Writer(tmp_path / "pipe", data.tobytes())
    found = pipeline.run("reduce", tmp_path / "pipe", op="sum", chunk_bytes=2**16, verify="full")
    assert found.values == {"sum": data.sum()}
    assert len(most) == 128
    assert max(most) <= 4 * workers.threads


def run_pipe(tmp_path: Path, data: bytes, seconds: float = 30, then: threading.Event | None = None) -> Any:
    Writer(tmp_path / "pipe", data, then)
    source = PipeSource(str(tmp_path / "pipe"), np.dtype(np.int32), 64, seconds)
    return run_all([Job(REDUCE, ReduceOptions("sum"))], source, Settings(ON_CPU))[0]


@pytest.mark.usefixtures("shared")
def test_empty_pipe(tmp_path: Path) -> None:
    """As an empty array: what a job says of no samples."""
    outcome = run_pipe(tmp_path, b"")
    assert outcome.result.values == {"sum": 0} and outcome.verdict.samples == 0
    source = PipeSource(str(tmp_path / "other"), np.dtype(np.int32))
    Writer(tmp_path / "other", b"")
    with pytest.raises(UsageError, match="expected at least one chunk of samples, got none"):
        run(HISTOGRAM, HistogramOptions(), source, Settings(ON_CPU))


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("whole", [0, 3, 64])
def test_pipe_that_ends_inside_a_sample(tmp_path: Path, whole: int) -> None:
    with pytest.raises(
        PipelineError, match=rf"pipe: expected whole samples of 4 bytes, got 3 left over at byte {4 * whole + 3}"
    ):
        run_pipe(tmp_path, bytes(4 * whole + 3))


@pytest.mark.usefixtures("shared")
def test_writer_that_stalls(tmp_path: Path) -> None:
    go_on = threading.Event()
    try:
        with pytest.raises(
            PipelineError, match=r"within 0\.2 s, got nothing after byte 1002; is the writer still running"
        ):
            run_pipe(tmp_path, bytes(1002), 0.2, go_on)
    finally:
        go_on.set()


def test_nobody_writes(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(PipelineError, match=r"within 0\.2 s, got nothing after byte 0"):
        list(PipeSource(str(tmp_path / "pipe"), np.dtype(np.int32), 64, 0.2).pieces())


def test_unknown_length_is_planned_while_it_is_read(tmp_path: Path, samples: NDArray[np.uint16]) -> None:
    source = open_gzip(str(written("gzip", samples, tmp_path)), Opening("uint16"))
    chunks = plan(source, 1000, "sample", 5)
    assert isinstance(chunks, UnknownPlan)
    assert list(chunks) == list(chunks)
    assert [(chunk.index, chunk.start, chunk.samples) for chunk in chunks] == [(0, 0, 20_001), (1, 20_001, 10_001)]
    assert (source.samples, source.nbytes, source.shape) == (None, None, None)
    together = Joined((open_packed_of(samples, tmp_path), source))
    assert together.samples is None and not together.local


# --- encoded blocks ---------------------------------------------------------------------------------------------------


def open_packed_of(samples: NDArray[np.uint16], folder: Path) -> Source:
    return open_packed(str(written("packed", samples, folder)), Opening())


@pytest.mark.parametrize("chunk_bytes", [2, 1000, 5000, 2**20])
def test_encoded_blocks_are_not_cut(tmp_path: Path, chunk_bytes: int, samples: NDArray[np.uint16]) -> None:
    chunks = plan(open_packed_of(samples, tmp_path), chunk_bytes, "off", 0)
    assert isinstance(chunks, tuple)
    block = formats.PACKED_BLOCK // 3 * 4
    assert {chunk.nbytes for chunk in chunks[:-1]} <= {max(block, chunk_bytes // block * block)}
    assert sum(chunk.samples for chunk in chunks) == len(samples)
    for start, length in ((0, 1), (1023, chunks[0].samples - 1023), (chunks[0].samples - 1, 1)):
        part = chunks[0].part(Region(start, length))
        found = np.concatenate([block.copy() for block in read_blocks(part, Timeline())])
        np.testing.assert_array_equal(found, samples[start : start + length])


@pytest.mark.parametrize("kind", ["packed", "gzip"])
def test_chunks_travel_to_other_processes(tmp_path: Path, kind: str, samples: NDArray[np.uint16]) -> None:
    given = {"dtype": "uint16"} if kind == "gzip" else {}
    chunks = tuple(plan(open_source((str(written(kind, samples, tmp_path)),), **given), 10_000, "off", 0))
    (tmp_path / "chunks").write_bytes(pickle.dumps(chunks))
    code = """
import pickle, sys
from pipeline.storage.blocks import read_blocks
from pipeline.timeline import Timeline
chunks = pickle.load(open(sys.argv[1], "rb"))
print(sum(int(block.sum()) for chunk in chunks for block in read_blocks(chunk, Timeline())))
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "chunks")], cwd=ROOT, text=True, check=True,
                          capture_output=True, env=os.environ | {"PYTHONPATH": str(ROOT)})  # fmt: skip
    assert int(done.stdout) == samples.sum()


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("kind", ["packed", "gzip"])
def test_file_that_is_replaced_after_it_was_planned(tmp_path: Path, kind: str, samples: NDArray[np.uint16]) -> None:
    path = written(kind, samples, tmp_path)
    source = open_source((str(path),), "uint16" if kind == "gzip" else None)
    os.utime(path, ns=(0, 0))
    with pytest.raises(PipelineError, match=f"^{path}: was written to while it was read; run again"):
        run(HISTOGRAM, HistogramOptions(), source, Settings(ON_CPU))
    assert open_source((str(path),), "uint16" if kind == "gzip" else None).identity != source.identity


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("cut", [1, 9, 5000])
def test_gzip_that_is_truncated(tmp_path: Path, cut: int, samples: NDArray[np.uint16]) -> None:
    path = written("gzip", samples, tmp_path)
    os.truncate(path, os.path.getsize(path) - cut)
    with pytest.raises(PipelineError, match=f"^{path}: expected a complete gzip file, got one that ends early"):
        pipeline.run("reduce", path, dtype="uint16")


@pytest.mark.usefixtures("shared")
def test_gzip_that_ends_inside_a_sample(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(bytes(43)))
    with pytest.raises(
        PipelineError, match=r"a\.gz bytes 0-\d+: expected whole samples of 4 bytes, got 3 bytes left over"
    ):
        pipeline.run("reduce", tmp_path / "a.gz")


def bad(stored: memoryview) -> NDArray[Any]:
    raise ValueError("a broken\nblock")


def short(stored: memoryview) -> NDArray[Any]:
    return formats.unpack(stored)[1:]


@pytest.mark.parametrize(
    ("decode", "got"),
    [
        (bad, "a block that can be decoded, got a broken;"),
        (short, r"2048 samples of uint16 in the block, got shape \(2047,"),
    ],
)
def test_block_that_cannot_be_decoded(tmp_path: Path, decode: Any, got: str, samples: NDArray[np.uint16]) -> None:
    (chunk, *_) = plan(open_packed_of(samples, tmp_path), 1000, "off", 0)
    (piece,) = chunk.pieces
    broken = replace(chunk, pieces=(replace(piece, decode=decode),))
    with pytest.raises(PipelineError, match=rf"samples\.p12 bytes 0-3071: expected {got}"):
        list(read_blocks(broken, Timeline()))


# --- how a format is found --------------------------------------------------------------------------------------------


def test_content_goes_before_the_name(tmp_path: Path, samples: NDArray[np.uint16]) -> None:
    path = tmp_path / "a.p12"
    np.save(tmp_path / "a.npy", samples)
    os.rename(tmp_path / "a.npy", path)
    assert open_source((str(path),)).samples == len(samples)
    assert open_source((str(path),)).dtype == np.uint16
    path.write_bytes(pack(samples))
    assert isinstance(open_source((str(path),)), formats.PackedSource)
    path = path.rename(tmp_path / "a.bin")
    assert open_source((str(path),), "uint8").samples == len(samples) * 3 // 2
    (tmp_path / "b.bin").write_bytes(gzip.compress(bytes(40)))
    assert isinstance(open_source((str(tmp_path / "b.bin"),)), formats.GzipSource)
    assert not isinstance(open_source((str(tmp_path / "b.bin"),), "uint8", offset=0), formats.GzipSource)  # raw


@pytest.mark.usefixtures("shared")
def test_sources_of_different_kinds_follow_one_another(tmp_path: Path, samples: NDArray[np.uint16]) -> None:
    path = written("packed", samples, tmp_path)
    np.save(tmp_path / "b.npy", samples[:7])
    outcome = run(REDUCE, ReduceOptions("sum,argmax"), open_source((samples[:9], str(path), str(tmp_path / "b.npy"))),
                  Settings(ON_CPU, chunk_bytes=5000))  # fmt: skip
    together = np.concatenate([samples[:9], samples, samples[:7]])
    assert outcome.result.values == {"sum": together.sum(), "argmax": together.argmax()}
    assert any("3 sources" in line for line in panel(outcome))


def test_source_that_says_a_wrong_length(tmp_path: Path, samples: NDArray[np.uint16]) -> None:
    class Lying(ArraySource):
        @property
        def shape(self) -> tuple[int, ...]:
            return (5,)

    with pytest.raises(PipelineError, match="expected pieces of 5 samples, got 30002; report this"):
        plan(Lying(memory.Kept(samples)), 1000, "off", 0)
