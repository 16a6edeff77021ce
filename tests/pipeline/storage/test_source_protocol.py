"""The source protocol, with formats of the tests: the same results, verified, or one clear line."""

from __future__ import annotations

import gzip
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import pipeline
from pipeline.cluster.placement import Placement
from pipeline.engine.aggregate import run
from pipeline.errors import PipelineError, VerificationError
from pipeline.report.panel import panel
from pipeline.settings import Settings
from pipeline.storage import array_source, sources
from pipeline.storage.array_source import ArraySource
from pipeline.storage.blocks import read_blocks
from pipeline.storage.chunks import Region, plan
from pipeline.storage.protocol import Opening, Source
from pipeline.storage.sources import open_source
from pipeline.timeline import Timeline
from tests.cases import formats
from tests.cases.formats import GZIP, KINDS, PACKED, PIPE, open_packed, pack, written
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


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("verify", ["full", "sample"])
@pytest.mark.parametrize("kind", KINDS)
def test_results_are_numpys(tmp_path: Path, kind: str, verify: str, samples: NDArray[np.uint16]) -> None:
    """Chunks of several blocks, and blocks of several chunks."""
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
    result = pipeline.run("reduce", written(kind, samples, tmp_path), op="sum", **given)
    assert result.values == {"sum": samples.sum()}


@pytest.mark.parametrize("kind", ["array", "packed"])
@pytest.mark.usefixtures("shared")
def test_verdict_counts_what_was_checked(tmp_path: Path, kind: str, samples: NDArray[np.uint16]) -> None:
    data = written(kind, samples, tmp_path)
    source = open_source((data if kind == "array" else str(data),))
    outcome = run(REDUCE, ReduceOptions("sum"), source, Settings(ON_CPU, "sample", 10_000))
    assert outcome.verdict.samples == len(samples) > outcome.verdict.checked > 0
    assert "once" not in str(outcome.verdict)


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
        got = np.concatenate([block.copy() for block in read_blocks(part, Timeline())])
        np.testing.assert_array_equal(got, samples[start : start + length])


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


# --- how a format is recognized --------------------------------------------------------------------------------------


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
        plan(Lying(array_source.Kept(samples)), 1000, "off", 0)
