"""Slices of remote objects ask for the bytes that they need, and are told from patterns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pipeline
from pipeline.errors import UsageError
from pipeline.storage.paths import Item, split_item
from pipeline.storage.remote import patterns
from tests.cases.files import refused
from tests.cases.format_files import CASES
from tests.cases.web_server import WebServer
from tests.pipeline.storage.remote.samples import npy

CUBE = np.random.default_rng(4).integers(-999, 999, (40, 300, 50)).astype("<i4")


def asked(server: WebServer) -> int:
    """Bytes that were asked for, but for the first look at each object."""
    ranges = [text[6:].split("-") for _, text, condition in server.requests if condition is not None and text]
    return sum(int(last) - int(first) + 1 for first, last in ranges)


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize(
    ("text", "most"), [("[3:5]", 0.051), ("[:, 3]", 1.01), ("[7, 100:200, 5]", 0.01), ("[::13, ::100, 1:9:2]", 0.11)]
)
def test_npy(server: WebServer, tmp_path: Path, text: str, most: float) -> None:
    server.files["/x.npy"] = npy(CUBE)
    view = eval(f"CUBE{text}")
    item = f"{server.url('/x.npy?signature=SECRET')}{text}"
    result = pipeline.run("reduce", item, op="sum,argmax,count", verify="off")
    assert result.values == {"sum": view.sum(), "argmax": view.argmax(), "count": view.size}
    assert asked(server) <= most * CUBE.nbytes
    turned = pipeline.run("transpose", item, output=tmp_path / "t.npy", verify="full")
    np.testing.assert_array_equal(turned.array, view.T)


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("name", ["hdf5 deflate", "hdf5 contiguous", "npz stored", "parquet", "tiff"])
def test_formats(server: WebServer, tmp_path: Path, name: str) -> None:
    written = CASES[name].written(tmp_path)
    path, _, member = written.item.partition("::")
    server.files["/x"] = Path(path).read_bytes()
    item = server.url("/x") + (f"::{member}" if member else "")
    view = written.array[2::3]
    result = pipeline.run("reduce", f"{item}[2::3]", op="max,argmax,count", verify="full")
    assert result.values == {"max": view.max(), "argmax": view.argmax(), "count": view.size}


def test_told_from_patterns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "is_there", lambda url: url.key in ("x.npy", "run-[0-9]*"))
    assert split_item("s3://b/x.npy[1:3]") == Item("s3://b/x.npy", None, "1:3")
    assert split_item("s3://b/x.npy::y[1:3]") == Item("s3://b/x.npy", "y", "1:3")
    assert split_item("s3://b/run-[12]") == Item("s3://b/run-[12]", None)
    assert split_item("s3://b/run-[0-9]") == Item("s3://b/run-[0-9]", None)
    assert split_item("s3://b/run-[0-9]*[5]") == Item("s3://b/run-[0-9]*", None, "5")
    assert split_item("http://[::1]") == Item("http://[::1]", None)
    assert split_item("https://h/x.npy?a=b[1:3]") == Item("https://h/x.npy?a=b", None, "1:3")


def test_refused(server: WebServer) -> None:
    server.files["/x.npy"] = npy(CUBE)
    assert "expected an index from -40 to 39 along axis 0, got 40" in refused(UsageError, f"{server.url('/x.npy')}[40]")
