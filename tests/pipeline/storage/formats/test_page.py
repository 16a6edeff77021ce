"""The commands of docs/formats.md run, on files of these names; the command `info` says what files are."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pipeline.cli.flags import Failure
from pipeline.cli.main import cli
from pipeline.storage.sources import FORMATS
from tests.cases.format_case import package_of
from tests.cases.format_files import CASES
from tests.project.test_documents import ROOT, commands

PAGE = ROOT / "docs" / "formats.md"
NAMES = ("npz stored", "hdf5 lz4", "zarr 3", "parquet", "arrow", "tiff", "wav of 24 bits", "sigmf", "edf",
         "flac of 16 bits")  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in NAMES:
        CASES[name].written(tmp_path)
    (tmp_path / "b.sigmf-meta").write_text(json.dumps({"global": {"core:datatype": "ci16_le"}}))
    np.arange(20, dtype="<i2").tofile(tmp_path / "b.sigmf-data")
    np.arange(30, dtype="u1").tofile(tmp_path / "camera.raw")
    (tmp_path / "list.txt").write_text("a.wav\n# of 24 bits, as int32\na.wav\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("shared", "folder")
def test_commands_of_the_page(capfd: pytest.CaptureFixture[str]) -> None:
    every = commands(PAGE.read_text(encoding="utf-8"))
    ours = [
        words[3:] for words in every if words[:3] == ["python", "-m", "pipeline"] and "://" not in " ".join(words)
    ]  # those with a URL: tests/pipeline/storage/remote
    assert len(ours) == 22
    for format_ in FORMATS:
        suffixes = format_.suffixes or (".raw",)
        assert any(suffix in word for words in ours for word in words for suffix in suffixes), format_.name
    for words in ours:
        cli.main(words, standalone_mode=False)
        assert len(capfd.readouterr().out.splitlines()) > 2, words
    expected = np.load("a.npz")["second"].T
    np.testing.assert_array_equal(np.load("t.npy"), expected)
    np.testing.assert_array_equal(np.load("turned.npy"), package_of("h5py").File("a.h5")["group/data"][...].T)
    np.testing.assert_array_equal(np.load("slice.npy"), np.load("a.npz")["second"][2:30:4, :, 3].T)
    with package_of("h5py").File("t.h5") as file:
        np.testing.assert_array_equal(file["transposed"], expected)
    np.testing.assert_array_equal(package_of("zarr").open_array("t.zarr")[...], expected)


def test_page_has_every_format(folder: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert [format_.name for format_ in FORMATS if format_.name not in text.lower()] == []


@pytest.mark.usefixtures("folder")
def test_info(capfd: pytest.CaptureFixture[str]) -> None:
    np.arange(6, dtype="<i4").tofile("raw.bin")
    np.save("a.npy", np.zeros((2, 3), ">f4"))
    cli.main(["info", "a.h5", "a.npy", "raw.bin", "a.parquet"], standalone_mode=False)
    lines = capfd.readouterr().out.splitlines()
    assert lines[0].endswith("a.h5: hdf5, 2 arrays, " + f"{Path('a.h5').stat().st_size:,} bytes")
    assert lines[1].startswith(
        "  /group/data  int16 big endian, 37 × 41 × 23, 69,782 bytes, in chunks of 10 × 11 × 12, lz4"
    )
    assert lines[2].startswith("    python -m pipeline histogram ") and lines[2].endswith(
        "a.h5::/group/data --range auto"
    )
    assert "  float32 big endian, 2 × 3, 24 bytes" in lines
    assert any(line.endswith("raw.bin --dtype int32") for line in lines)
    assert any(line.startswith("    cannot be read: expected a column of numbers, got one of string") for line in lines)
    cli.main(["info", "a.zarr", "a.wav", "--json"], standalone_mode=False)
    zarr, wav = json.loads(capfd.readouterr().out)["files"]
    assert zarr["format"] == "zarr" and zarr["bytes"] is None
    assert zarr["arrays"][0]["chunks"] == [10, 11, 12] and zarr["arrays"][0]["compression"] == "zstd"
    assert wav["arrays"][0] == {
        "name": "", "dtype": "int32", "byteorder": "little", "shape": [1000, 2], "chunks": None, "compression": None,
        "bytes": 8000, "stored_bytes": 8000, "problem": None,
        "command": f"python -m pipeline histogram {wav['path']} --range auto",
    }  # fmt: skip


def test_raw_samples_of_which_not_even_the_number_is_known(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No error: only the dtype is missing."""
    (folder / "odd.bin").write_bytes(bytes(7))
    cli.main(["info", "odd.bin"], standalone_mode=False)
    first, why = capsys.readouterr().out.splitlines()
    assert first.endswith("odd.bin: raw, 7 bytes") and "say what its samples are, for example --dtype int16" in why


@pytest.mark.parametrize("name", ["loop.bin", "gone.bin", "empty.bin"])
def test_the_only_file_cannot_be_read(folder: Path, name: str) -> None:
    """The exit status is the one that it has among others, whatever keeps it from being read."""
    (folder / "loop.bin").symlink_to("loop.bin")
    (folder / "empty.bin").touch()
    with pytest.raises(Failure) as caught:
        cli.main(["info", name], standalone_mode=False)
    assert caught.value.exit_code == 2


def test_one_file_of_several_that_cannot_be_read(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The others are described, and the exit status tells; alone it is an error."""
    (folder / "b.tif").write_bytes(b"II*\0")
    (folder / "empty.bin").touch()
    package_of("zarr").create_array("scalar.zarr", shape=(), dtype="f4")
    assert cli.main(["info", "b.tif", "a.wav", "empty.bin", "none.h5", "scalar.zarr"], standalone_mode=False) == 2
    lines = capsys.readouterr().out.splitlines()
    assert [line.rpartition("/")[2] for line in lines if line.endswith(": unreadable")] == [
        "b.tif: unreadable", "empty.bin: unreadable", "none.h5: unreadable",
    ]  # fmt: skip
    assert any(line.startswith("    cannot be read: expected a TIFF file, got ") for line in lines)
    assert any(line.endswith("a.wav --range auto") for line in lines)
    assert any("float32 little endian, a scalar, 4 bytes, zstd" in line for line in lines)
    assert cli.main(["info", "a.wav", "empty.bin", "--json"], standalone_mode=False) == 2
    assert json.loads(capsys.readouterr().out)["files"][1]["arrays"][0]["problem"].startswith("expected samples, got ")
    with pytest.raises(Failure, match="expected samples, got an empty file"):
        cli.main(["info", "empty.bin"], standalone_mode=False)
