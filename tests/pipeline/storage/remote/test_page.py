"""The commands of docs/formats.md with a URL run, on objects of these names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pipeline.cli.main import cli
from pipeline.storage.remote import objects
from tests.cases.format_case import package_of
from tests.cases.format_files import CASES
from tests.cases.web_server import WebServer, object_store, web_server
from tests.pipeline.storage.formats.test_page import PAGE
from tests.project.test_documents import commands

SAMPLES = np.random.default_rng(0).integers(0, 1000, 5000).astype("<i2")


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WebServer]:
    """A web server, a bucket, and a folder to write to."""
    obstore = package_of("obstore")
    package_of("moto.server")
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name in ("zarr 3", "npz stored"):
        CASES[name].written(tmp_path)
    np.save(tmp_path / "a.npy", SAMPLES.reshape(50, 100))
    with web_server() as server, object_store("bucket") as settings:
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        store = objects._store("s3://bucket", *settings.items())
        for name in ("run/a.bin", "run/b.bin"):
            obstore.put(store, name, SAMPLES.tobytes())
        for file in (tmp_path / "a.zarr").rglob("*"):
            if file.is_file():
                obstore.put(store, str(file.relative_to(tmp_path)), file.read_bytes())
        for name in ("a.npy", "a.npz"):
            server.files[f"/data/{name}"] = (tmp_path / name).read_bytes()
        (tmp_path / "out").mkdir()
        monkeypatch.chdir(tmp_path / "out")
        yield server


@pytest.mark.usefixtures("shared")
def test_commands_of_the_page(server: WebServer, capfd: pytest.CaptureFixture[str]) -> None:
    every = [words[3:] for words in commands(PAGE.read_text(encoding="utf-8"))]
    ours = [words for words in every if "://" in " ".join(words)]
    assert len(ours) == 6
    for words in ours:
        cli.main([word.replace("https://host", server.url("")) for word in words], standalone_mode=False)
        shown = capfd.readouterr().out
        assert len(shown.splitlines()) >= 3 and "signature" not in shown, words
    np.testing.assert_array_equal(np.load("t.npy"), SAMPLES.reshape(50, 100).T)
