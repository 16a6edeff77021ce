"""Objects of an object store that answers as S3 does: names, patterns, stores of Zarr, credentials."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline
from pipeline.errors import PipelineError, UsageError
from pipeline.storage.describe import describe
from pipeline.storage.remote import objects
from pipeline.storage.remote.address import address
from pipeline.storage.remote.ahead import PART_BYTES
from pipeline.storage.sources import open_source
from tests.cases.format_case import package_of
from tests.cases.format_files import CASES
from tests.cases.web_server import object_store, web_server

ROOT = Path(__file__).parents[4]
SAMPLES = np.random.default_rng(0).integers(-9, 2000, PART_BYTES // 2 * 3 + 12_345).astype("<i2")


@pytest.fixture(scope="module")
def settings() -> Iterator[dict[str, str]]:
    package_of("obstore")
    package_of("moto.server")
    with object_store("samples", "empty-bucket") as settings:
        yield settings


@pytest.fixture
def bucket(settings: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """With credentials."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(objects, "RETRIES", 1)
    monkeypatch.setattr(objects, "SILENT_SECONDS", 5.0)
    objects._store.cache_clear()


def put(key: str, content: bytes) -> None:
    import obstore

    obstore.put(objects._open(address(f"s3://samples/{key}")), key, content)


@pytest.mark.usefixtures("shared", "bucket")
@pytest.mark.parametrize("key", ["a.bin", "folder/a b%20c+é#?x.bin", "x=1/$&,;:@.bin"])
def test_jobs_agree_with_numpy(key: str) -> None:
    """Keys are what they are: nothing in them is an escape."""
    put(key, SAMPLES.tobytes())
    jobs = [("histogram", {"bins": 50, "range": (0, 2000)}), ("reduce", {"op": "sum,argmin"})]
    for chunk_bytes in (None, 500_001):
        counted, reduced = pipeline.run(
            jobs, f"s3://samples/{key}", dtype="int16", verify="full", chunk_bytes=chunk_bytes
        )
        assert counted.counts.tolist() == np.histogram(SAMPLES, 50, (0, 2000))[0].tolist()
        assert reduced.values == {"sum": SAMPLES.sum(dtype="i8"), "argmin": SAMPLES.argmin()}


@pytest.mark.usefixtures("shared", "bucket")
def test_patterns() -> None:
    """As those of files: sorted, `*` within a folder, `**` in all of them, hidden ones only by name."""
    keys = ["p/b1.i1", "p/b0.i1", "p/.b2.i1", "p/x/b3.i1", "p/x/y/b4.i1", "p/b5.i2", "p/[a]*.i1", "q/x/b6.i1"]
    for number, key in enumerate(keys):
        put(key, bytes([number]))
    for pattern, expected in {
        "p/*.i1": ["p/[a]*.i1", "p/b0.i1", "p/b1.i1"], "p/b?.i[1]": ["p/b0.i1", "p/b1.i1"], "p/.*.i1": ["p/.b2.i1"],
        "p/*/b*.i1": ["p/x/b3.i1"], "?/x/b[36].i1": ["p/x/b3.i1", "q/x/b6.i1"], "p/[a]*.i1": ["p/[a]*.i1"],
        "p/**/b*.i1": ["p/b0.i1", "p/b1.i1", "p/x/b3.i1", "p/x/y/b4.i1"], "*/x/b3.i1": ["p/x/b3.i1"],
        "p/**": ["p/[a]*.i1", "p/b0.i1", "p/b1.i1", "p/b5.i2", "p/x/b3.i1", "p/x/y/b4.i1"],
    }.items():  # fmt: skip
        source = open_source((f"s3://samples/{pattern}",), "int8")
        assert list(source.names) == [f"s3://samples/{key}" for key in expected], pattern
    values = pipeline.run("reduce", "s3://samples/p/*.i1", "s3://samples/p/b5.i2", dtype="int8", op="sum").values
    assert values == {"sum": 0 + 1 + 5 + 6}
    with pytest.raises(UsageError, match=r"^s3://samples/p/\*\.none: expected at least one object to match, got none"):
        open_source(("s3://samples/p/*.none",))


@pytest.mark.usefixtures("shared", "bucket")
@pytest.mark.parametrize("name", ["zarr 3", "zarr 3, sharded", "zarr 2, lz4", "hdf5 deflate", "npz stored"])
def test_formats(tmp_path: Path, name: str) -> None:
    written = CASES[name].written(tmp_path)
    path, _, member = written.item.partition("::")
    prefix = name.replace(", ", "-").replace(" ", "-")
    for file in Path(path).rglob("*") if Path(path).is_dir() else (Path(path),):
        if file.is_file():
            put(f"{prefix}/{file.relative_to(tmp_path)}", file.read_bytes())
    item = f"s3://samples/{prefix}/{Path(path).name}" + (f"::{member}" if member else "")
    numbers = written.array.reshape(-1)
    result = pipeline.run("reduce", item, op="min,max,argmin,argmax", verify="full", chunk_bytes=3000)
    assert result.values == {"min": numbers.min(), "max": numbers.max(), "argmin": numbers.argmin(),
                             "argmax": numbers.argmax()}  # fmt: skip
    (described,) = describe(item)
    (known,) = describe(written.item)
    assert described.members == known.members and described.nbytes == known.nbytes


@pytest.mark.usefixtures("shared", "bucket")
def test_zarr_uncompressed_with_missing_chunks() -> None:
    """In a group: rows of chunks are byte runs of objects, and what is missing has the fill value."""
    array = np.random.default_rng(0).integers(-99, 99, (1000, 70)).astype("<i4")
    metadata = {"zarr_format": 2, "shape": [1000, 70], "chunks": [10, 70], "dtype": "<i4", "compressor": None,
                "filters": None, "fill_value": 7, "order": "C"}  # fmt: skip
    put("s.zarr/.zgroup", b'{"zarr_format": 2}')
    put("s.zarr/one/.zarray", json.dumps(metadata).encode())
    for row in range(100):
        if row % 10:
            put(f"s.zarr/one/{row}.0", array[10 * row : 10 * row + 10].tobytes())
        else:
            array[10 * row : 10 * row + 10] = 7
    for item in ("s3://samples/s.zarr", "s3://samples/s.zarr::one", "s3://samples/s.zarr/one", "s3://samples/*.zarr/"):
        result = pipeline.run("reduce", item.removesuffix("/"), op="sum,argmax,argmin", verify="full")
        assert result.values == {"sum": array.sum(), "argmax": array.argmax(), "argmin": array.argmin()}
    put("s.zarr/two/.zarray", json.dumps(metadata).encode())
    with pytest.raises(UsageError, match=r"s\.zarr: expected one array, got one, two; name one of them like"):
        open_source(("s3://samples/s.zarr",))


@pytest.mark.usefixtures("bucket")
def test_what_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    put("a.bin", b"\0")
    put("nothing", b"")
    for item, text in {
        "s3://samples/none": r"^s3://samples/none: expected an object, got none there \(404 NoSuchKey\)",
        "s3://no-such-bucket/a": r"^s3://no-such-bucket/a: expected an object, got none there \(404 NoSuchBucket\)",
        "s3://samples/nothing": r"^s3://samples/nothing: expected samples, got an empty object",
        "s3://empty-bucket/*": r"expected at least one object to match, got none",
        "s3://samples": r"^s3://samples: expected s3://BUCKET/KEY, got no key",
        "s3:///a": r"^s3:///a: expected s3://BUCKET/KEY, got no bucket",
        "s3://samples/a//b": r"^s3://samples/a//b: expected to read it, got '.*empty path segment.*'; check its",
        "ftp://host/a": r"^ftp://host/a: expected a path, or a URL of s3, gs, az, https, http, got one of ftp; copy",
    }.items():
        with pytest.raises(PipelineError, match=text) as caught:
            open_source((item,), "int8")
        assert "\n" not in str(caught.value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://s3.name.invalid")
    with pytest.raises(UsageError, match=r"expected https, got http, or a redirect to it, .* BARU_ALLOW_HTTP=true"):
        open_source(("s3://samples/a.bin",), "int8")


@pytest.mark.usefixtures("bucket")
def test_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused ones, expired ones, and none at all, where a machine in a cloud would ask for its own."""
    with web_server() as nobody:
        monkeypatch.setenv("AWS_ENDPOINT_URL", nobody.url(""))
        for code, text in {
            b"AccessDenied": "got 403 AccessDenied; check the permissions .*, or set AWS_ACCESS_KEY_ID, AWS_SECRET_",
            b"ExpiredToken": "got 403 ExpiredToken; check the permissions and the time of this machine, or set AWS_",
        }.items():

            def refuse(answer: Any, _: int, code: bytes = code) -> None:
                answer.status, answer.headers, answer.body = 403, {}, b"<Error><Code>" + code + b"</Code></Error>"

            nobody.faults["/samples/a.bin"] = refuse
            with pytest.raises(PipelineError, match=rf"^s3://samples/a\.bin: expected to be allowed .*, {text}"):
                open_source(("s3://samples/a.bin",), "int8")
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        with pytest.raises(PipelineError, match=r"a\.bin: expected credentials, got none, or a part; set AWS_ACCESS_"):
            open_source(("s3://samples/a.bin",), "int8")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        monkeypatch.setenv("AWS_METADATA_ENDPOINT", nobody.url(""))
        monkeypatch.setattr(objects, "OF_MACHINES", (nobody.url("/latest"),))
        with pytest.raises(PipelineError, match=r"a\.bin: expected credentials, got none, or a part; set AWS_ACCESS_"):
            open_source(("s3://samples/a.bin",), "int8")
        nobody.files["/samples/a.bin"] = b"\5"
        nobody.faults.clear()
        monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
        assert open_source(("s3://samples/a.bin",), "int8").samples == 1


@pytest.mark.usefixtures("shared")
def test_other_clouds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The addresses that are asked for, without signatures; their services are not here."""
    package_of("obstore")
    with pytest.raises(PipelineError, match=r"^az://box/a: expected credentials, got none, or a part; set AZ"):
        open_source(("az://box/a",))
    with web_server() as server:
        server.files |= {"/box/x/a.bin": SAMPLES.tobytes()}
        for name in ("AZURE_STORAGE_ENDPOINT", "GOOGLE_BASE_URL"):
            monkeypatch.setenv(name, server.url(""))
        for name in ("AZURE_SKIP_SIGNATURE", "GOOGLE_SKIP_SIGNATURE"):
            monkeypatch.setenv(name, "true")
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
        for scheme in ("az", "gs"):
            result = pipeline.run("reduce", f"{scheme}://box/x/a.bin", dtype="int16", op="sum", verify="full")
            assert result.values == {"sum": SAMPLES.sum(dtype="i8")}


@pytest.mark.usefixtures("bucket")
def test_commands(tmp_path: Path) -> None:
    """On workers in processes of their own, with credentials of the environment."""
    put("c.bin", SAMPLES.tobytes())
    command = [sys.executable, "-m", "pipeline"]
    run = [*command, "histogram", "s3://samples/c.bin", "--dtype", "int16", "--json", "--device", "cpu"]
    done = subprocess.run(run, text=True, capture_output=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["input"]["files"] == ["s3://samples/c.bin"]
    done = subprocess.run([*command, "info", "s3://samples/c.bin"], text=True, capture_output=True, cwd=ROOT)
    assert done.returncode == 0 and done.stdout.startswith(f"s3://samples/c.bin: raw, {SAMPLES.nbytes:,} bytes")
    for item, status in (("s3://samples/none", 2), ("s3://no-such-bucket/*", 2)):
        output = tmp_path / "r.json"
        run = [*command, "histogram", item, "--device", "cpu", "-o", str(output)]
        done = subprocess.run(run, text=True, capture_output=True, cwd=ROOT)
        assert done.returncode == status and len(done.stderr.splitlines()) == 1, done.stderr
        assert not output.exists()
