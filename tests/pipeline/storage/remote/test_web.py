"""Objects on a web server: the same samples as NumPy's, by conditional range requests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline
from pipeline.errors import PipelineError, UsageError, VerificationError
from pipeline.storage.files import Files
from pipeline.storage.remote import objects
from pipeline.storage.sources import open_source
from tests.cases.format_case import package_of
from tests.cases.format_files import CASES
from tests.cases.web_server import Answer, WebServer
from tests.pipeline.storage.remote.samples import COUNTS, JOB, SAMPLES, npy

ROOT = Path(__file__).parents[4]


@pytest.mark.usefixtures("shared")
def test_jobs_agree_with_numpy(server: WebServer, tmp_path: Path) -> None:
    """Chunks within a request and of several; all bytes are asked for twice, as the check reads them by itself."""
    for chunk_bytes in (None, 100_001):
        server.requests.clear()
        assert pipeline.run("histogram", server.url("/a.bin"), **JOB, chunk_bytes=chunk_bytes).counts.tolist() == (
            COUNTS.tolist()
        )
        asked = [range_ for _, range_, condition in server.requests if condition is not None]
        times = Counter(tuple(map(int, text[6:].split("-"))) for text in asked if text)
        # A request that the server drops, on a busy machine, is made again.
        assert min(times.values()) >= 2 and sum(last - first + 1 for first, last in times) == SAMPLES.nbytes
        assert len(server.requests) == len(asked) + 1  # the first look
    both = pipeline.run("reduce", server.url("/a.bin"), server.url("/a.bin"), dtype="int16", op="sum,argmax")
    assert both.values == {"sum": 2 * SAMPLES.sum(dtype="i8"), "argmax": SAMPLES.argmax()}
    SAMPLES.tofile(tmp_path / "a")
    mixed = pipeline.run("reduce", tmp_path / "a", server.url("/a.bin"), dtype="int16", op="sum")
    assert mixed.values == {"sum": 2 * SAMPLES.sum(dtype="i8")}


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("given", [{"byteorder": "big"}, {"offset": 77}, {"dtype": "u12p"}, {"dtype": "uint8"}])
def test_raw_samples_as_in_a_file(server: WebServer, tmp_path: Path, given: dict[str, Any]) -> None:
    content = server.files["/a.bin"] = SAMPLES.tobytes()[: 1_500_000 + (77 if "offset" in given else 0)]
    (tmp_path / "a").write_bytes(content)
    options = {"dtype": "int16", "op": "sum,argmax,argmin", "verify": "full"} | given
    read = pipeline.run("reduce", server.url("/a.bin"), **options, chunk_bytes=300_000)
    assert read.values == pipeline.run("reduce", tmp_path / "a", **options).values


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("name", [
    "npz stored", "npz deflated", "npz stored, Fortran", "hdf5 contiguous", "hdf5 deflate", "hdf5 lz4", "zarr 3",
    "zarr 3, sharded", "zarr 2, lz4", "wav of 16 bits", "wav of 24 bits", "parquet", "arrow", "arrow, lz4", "tiff",
    "tiff, tiles, deflate", "edf, long records", "bdf", "flac of 16 bits",
])  # fmt: skip
def test_formats(server: WebServer, tmp_path: Path, name: str) -> None:
    """As their own libraries read them from a file; of Zarr stores, what consolidated metadata or the user names."""
    written = CASES[name].written(tmp_path)
    path, _, member = written.item.partition("::")
    if Path(path).is_dir():
        for file in Path(path).rglob("*"):
            if file.is_file():
                server.files[f"/x/{Path(path).name}/{file.relative_to(path)}"] = file.read_bytes()
    else:
        server.files[f"/x/{Path(path).name}"] = Path(path).read_bytes()
    item = server.url(f"/x/{Path(path).name}?signature=SECRET") + (f"::{member}" if member else "")
    source = open_source((item,))
    assert source.names[0].count("SECRET") == 0 and source.paths == ()
    numbers = written.array.reshape(-1)
    for chunk_bytes in (3000, None):
        result = pipeline.run("reduce", item, op="min,max,argmin,argmax", verify="full", chunk_bytes=chunk_bytes)
        assert result.values == {"min": numbers.min(), "max": numbers.max(), "argmin": numbers.argmin(),
                                 "argmax": numbers.argmax()}  # fmt: skip


@pytest.mark.usefixtures("shared")
def test_parts_of_complex_samples(server: WebServer, tmp_path: Path) -> None:
    """As of a file; of an array, too."""
    numbers = np.random.default_rng(0).normal(size=(3000, 200)).astype("<f4").view("<c8")
    np.save(tmp_path / "a.npy", numbers)
    server.files["/a.npy"] = (tmp_path / "a.npy").read_bytes()
    for part in ("imag", "abs"):
        options: dict[str, Any] = {"part": part, "op": "sum,argmax", "verify": "full", "chunk_bytes": 100_000}
        read = pipeline.run("reduce", server.url("/a.npy"), **options)
        assert read.values == pipeline.run("reduce", tmp_path / "a.npy", **options).values
    pipeline.run("transpose", server.url("/a.npy"), part="imag", output=tmp_path / "t.npy", verify="full")
    np.testing.assert_array_equal(np.load(tmp_path / "t.npy"), numbers.imag.T)


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f4", ">f4"])
def test_jobs_that_write_an_array(server: WebServer, tmp_path: Path, order: Any, dtype: str) -> None:
    array = np.asarray(np.random.default_rng(1).normal(size=(700, 331)).astype(dtype), order=order)
    server.files["/a.npy"], server.files["/b.npy"] = npy(array), npy(np.ascontiguousarray(array))
    pipeline.run("transpose", server.url("/a.npy"), output=tmp_path / "t.npy", verify="full", chunk_bytes=50_000)
    np.testing.assert_array_equal(np.load(tmp_path / "t.npy"), array.T)
    both = server.url("/a.npy"), server.url("/b.npy")
    pipeline.run("map", *both, output=tmp_path / "s.npy", operation="add", verify="full")
    np.testing.assert_array_equal(np.load(tmp_path / "s.npy"), array + array)
    if order == "C":
        pipeline.run("stencil", *both, radius=0, output=tmp_path / "r.npy", verify="full")
        np.testing.assert_array_equal(np.load(tmp_path / "r.npy"), np.concatenate([array, array]))


@pytest.mark.usefixtures("shared")
def test_without_etag_and_times(server: WebServer) -> None:
    """Only its size is compared."""

    def bare(answer: Answer, _: int) -> None:
        answer.headers = {name: answer.headers[name] for name in answer.headers if name == "Content-Range"}

    server.faults["/a.bin"] = bare
    assert pipeline.run("histogram", server.url("/a.bin"), **JOB).counts.tolist() == COUNTS.tolist()
    files = open_source((server.url("/a.bin"),), "int16")
    assert isinstance(files, Files) and files.files[0].identity[2:] == (None, None)


@pytest.mark.usefixtures("shared")
def test_sizes_and_names(server: WebServer) -> None:
    """Empty, one byte, one sample; spaces, escapes and queries in addresses; redirects."""
    server.files |= {"/empty": b"", "/one": b"\7", "/a%20b%2Fc%25+é.bin".replace("é", "%C3%A9"): b"\1\2"}
    with pytest.raises(UsageError, match=r"/empty: expected samples, got an empty object, as a failed upload"):
        open_source((server.url("/empty"),))
    assert pipeline.run("reduce", server.url("/one"), dtype="uint8", op="sum").values == {"sum": 7}
    with pytest.raises(UsageError, match=r"/one: expected a multiple of 4 bytes for int32, got 1, 1 too many"):
        open_source((server.url("/one"),))
    for name in ("/a%20b%2Fc%25+é.bin", "/a b%2Fc%25+é.bin?x=%2F&y=a+b"):
        assert pipeline.run("reduce", server.url(name), dtype="int8", op="sum").values == {"sum": 3}
    assert server.requests[-1][0].endswith("?x=%2F&y=a+b")
    server.files["/moved"] = b"x"

    def moved(answer: Answer, _: int) -> None:
        answer.status, answer.headers, answer.body = 302, {"Location": "/one"}, b""

    server.faults["/moved"] = moved
    assert pipeline.run("reduce", server.url("/moved"), dtype="uint8", op="sum").values == {"sum": 7}


@pytest.mark.usefixtures("shared")
def test_a_wrong_block_is_seen(server: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check reads again, so bytes that were changed on the way to the computation differ."""
    read, wrong = objects.read, []

    def changed(identity: Any, start: int, nbytes: int) -> memoryview:
        data = read(identity, start, nbytes)
        if not wrong:
            wrong.append(start)
            data = memoryview(bytes(data[:100]) + b"\xff\x01" + bytes(data[102:]))
        return data

    monkeypatch.setattr(objects, "read", changed)
    with pytest.raises(VerificationError):
        pipeline.run("histogram", server.url("/a.bin"), **JOB)


def test_names_that_lead_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    package_of("obstore")
    monkeypatch.setattr(objects, "RETRIES", 1)
    objects._store.cache_clear()
    for item, text in {
        "https://name.invalid/a?SECRET": "name.invalid/a?…: expected to read it, got no address for the server's name",
        "http://127.0.0.1:1/a": "1/a: expected to read it, got no connection; check the server's name and port",
        "http://name.invalid/a": "name.invalid/a: expected https, got http, or a redirect to it, .* BARU_ALLOW_HTTP=",
    }.items():
        with pytest.raises(PipelineError, match=text.replace("?", r"\?")):
            open_source((item,))
    monkeypatch.setenv("BARU_ALLOW_HTTP", "true")
    with pytest.raises(PipelineError, match="got no address for the server's name"):
        open_source(("http://name.invalid/a",))


def test_without_its_package(tmp_path: Path) -> None:
    """One line with the command that installs it; files are read without."""
    np.arange(9, dtype="i4").tofile(tmp_path / "a.bin")
    code = "import sys; sys.modules['obstore'] = None; from pipeline.__main__ import main; main()"
    outcomes = []
    for item in ("https://host.invalid/a.bin", "s3://bucket/a.bin", str(tmp_path / "a.bin")):
        command = [sys.executable, "-c", code, "reduce", item, "--op", "sum", "--device", "cpu"]
        done = subprocess.run(command, text=True, capture_output=True, cwd=ROOT, env=os.environ)
        outcomes.append((done.returncode, done.stderr))
    for status_, errors in outcomes[:2]:
        assert status_ == 2 and len(errors.splitlines()) == 1, errors
        assert "expected the package obstore" in errors and "pip install 'baru[remote]'" in errors
    assert outcomes[2][0] == 0
