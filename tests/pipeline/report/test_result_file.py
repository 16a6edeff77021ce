"""Result files: the content for each suffix, early refusals, and never a half-written file."""

from __future__ import annotations

import csv
import errno
import os
import re
import stat
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest
from matplotlib.image import imread

from pipeline.errors import PipelineError, UsageError
from pipeline.report import result_file
from pipeline.report.result_file import WRITERS, check_output, keep, render, write_output
from pipeline.storage.atomic_file import reserved
from pipeline.storage.sources import Source, open_source
from workflows.histogram import HistogramResult

EDGES = np.array([-0.1, 0.2, 1 / 3, 1e300])
RESULT = HistogramResult(np.array([1, 2**40, 0]), EDGES, underflow=5, overflow=6, nan=7, regular=False)
REGULAR = HistogramResult(np.array([3, 4]), np.array([0.0, 0.5, 1.0]), underflow=0, overflow=0, nan=0, regular=True)


def write(path: Path, result: HistogramResult) -> None:
    with reserved(path) as target:
        write_output(target, result)


@pytest.fixture
def source(tmp_path: Path) -> Source:
    path = tmp_path / "samples.json"  # a name that an output could have
    path.write_bytes(bytes(8))
    return open_source((str(path),))


def test_npz_has_no_pickles(tmp_path: Path) -> None:
    path = tmp_path / "result.npz"
    write(path, RESULT)
    with np.load(path, allow_pickle=False) as arrays:
        assert sorted(arrays) == ["counts", "edges", "nan", "overflow", "underflow"]
        assert arrays["counts"].dtype == np.int64
        np.testing.assert_array_equal(arrays["counts"], RESULT.counts)
        np.testing.assert_array_equal(arrays["edges"], EDGES)
        assert [int(arrays[name]) for name in ("underflow", "overflow", "nan")] == [5, 6, 7]
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None


def test_csv_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "result.csv"
    write(path, RESULT)
    with open(path, newline="", encoding="ascii") as file:
        header, *rows = csv.reader(file)
    assert header == ["lower", "upper", "count"]
    assert [int(row[2]) for row in rows] == [5, 1, 2**40, 0, 6, 7]
    assert [float(row[0]) for row in rows[:-1]] == [-np.inf, *EDGES]
    assert [float(row[1]) for row in rows[:-1]] == [*EDGES, np.inf]
    assert rows[-1][:2] == ["nan", "nan"]


def test_png_is_a_picture(tmp_path: Path) -> None:
    path = tmp_path / "result.png"
    loaded = "matplotlib.pyplot" in sys.modules
    write(path, REGULAR)
    assert ("matplotlib.pyplot" in sys.modules) == loaded  # it would require a display
    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    pixels = imread(path)
    assert pixels.shape[:2] == (540, 1080)
    # Dark bars: counts 3 and 4, from zero, fill 7/8 of the axes except for a top margin; labels in black.
    dark = (np.abs(pixels[..., :3] - 0.25) < 0.01).all(axis=2).mean()
    assert 0.6 < dark < 0.85
    assert (pixels[..., :3] < 0.01).all(axis=2).any()


def refused(path: str | Path, source: Source) -> str:
    with pytest.raises(UsageError) as caught:
        check_output(str(path), source)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("name", "got"),
    [("result.txt", ".txt"), ("result", "no suffix"), (".json", "no suffix"), ("result.JSON", ".JSON"),
     ("result.json.gz", ".gz")],
)  # fmt: skip
def test_unknown_suffix(tmp_path: Path, source: Source, name: str, got: str) -> None:
    expected = f"expected an output ending in .json, .npz, .csv, .parquet, .zip, .h5, .png, .svg, .pdf, got {got}"
    assert expected in refused(tmp_path / name, source)


def test_no_place_for_a_file(tmp_path: Path, source: Source) -> None:
    missing = tmp_path / "missing"
    assert f"found none at {missing}; create it" in refused(missing / "result.json", source)
    missing.write_bytes(b"")
    assert f"found none at {missing}; create it" in refused(missing / "result.json", source)
    (tmp_path / "result.json").mkdir()
    assert "expected a file name for the output, got a directory" in refused(tmp_path / "result.json", source)


def test_folder_not_writable(tmp_path: Path, source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked of the system, because permissions do not stop root."""
    monkeypatch.setattr(os, "access", lambda folder, mode: not (folder == str(tmp_path) and mode & os.W_OK))
    assert f"got {tmp_path}; check its permissions" in refused(tmp_path / "result.json", source)


def test_output_is_an_input(tmp_path: Path, source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    """By absolute or relative name, symbolic link or hard link; any other existing file may be replaced."""
    samples = tmp_path / "samples.json"
    (tmp_path / "symbolic.json").symlink_to(samples)
    (tmp_path / "hard.json").hardlink_to(samples)
    monkeypatch.chdir(tmp_path)
    for path in (samples, "samples.json", "./samples.json", "symbolic.json", "hard.json"):
        assert "the output is one of the inputs; choose another name" in refused(path, source)
    (tmp_path / "old.json").write_bytes(b"old")
    for name in ("old.json", "new.json"):
        check_output(name, source)
    assert (tmp_path / "old.json").read_bytes() == b"old"
    assert not (tmp_path / "new.json").exists()


@pytest.mark.parametrize(
    ("suffix", "module", "advice"),
    [(".png", "matplotlib.figure", "a picture needs matplotlib; pip install 'baru[plot]'"),
     (".zip", "uhi.io.zip", "UHI in a zip file needs uhi; pip install 'baru[uhi]'"),
     (".h5", "uhi.io.hdf5", "UHI in HDF5 needs uhi and h5py; pip install 'baru[uhi]'"),
     (".parquet", "pyarrow.parquet", "Parquet needs pyarrow; pip install 'baru[parquet]'")],
)  # fmt: skip
def test_format_without_its_library(
    tmp_path: Path, source: Source, monkeypatch: pytest.MonkeyPatch, suffix: str, module: str, advice: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    assert advice in refused(tmp_path / f"result{suffix}", source)
    check_output(str(tmp_path / "result.csv"), source)


@pytest.mark.parametrize("suffix", WRITERS)
@pytest.mark.parametrize("failure", [KeyboardInterrupt(), SystemExit(143), MemoryError(), ValueError("broken")])
def test_failing_writer_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, failure: BaseException
) -> None:
    whole = WRITERS[suffix]

    def broken(result: Any, file: BinaryIO) -> None:
        whole(REGULAR, file)
        raise failure

    monkeypatch.setitem(result_file.WRITERS, suffix, broken)
    path = tmp_path / f"result{suffix}"
    with pytest.raises(type(failure)):
        write(path, RESULT)
    assert list(tmp_path.iterdir()) == []
    path.write_bytes(b"old")
    with pytest.raises(type(failure)):
        write(path, RESULT)
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_bytes() == b"old"


@pytest.mark.parametrize("suffix", WRITERS)
def test_disk_that_is_full_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    """The old file stays, and the result is kept in the state folder, which only this user can enter."""
    folder = tmp_path / "out"
    folder.mkdir()
    path = folder / f"result{suffix}"
    path.write_bytes(b"old")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    real = os.fsync

    def full(file: int) -> None:
        if os.readlink(f"/proc/self/fd/{file}").startswith(str(folder)):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(file)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(PipelineError) as caught:
        write(path, RESULT)
    (kept,) = (tmp_path / "state" / "baru" / "results").iterdir()
    assert str(caught.value) == (f"{path}: expected to write the file, got No space left on device; choose another "
                                 f"place; the verified result is kept as {kept}")  # fmt: skip
    assert (list(folder.iterdir()), path.read_bytes()) == ([path], b"old")
    assert kept.read_bytes() == render(str(path), RESULT)
    assert [stat.S_IMODE(one.stat().st_mode) for one in (kept, kept.parent, kept.parents[1])] == [0o600, 0o700, 0o700]


def test_result_is_kept_somewhere_in_any_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "state").write_bytes(b"")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (place,) = re.findall("^the verified result is kept as (.*)$", keep("a.json", b"content"))
    assert place.startswith(str(tmp_path)) and Path(place).read_bytes() == b"content"
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    assert keep("a.json", b"content") == "nor could it be kept elsewhere (No such file or directory)"
