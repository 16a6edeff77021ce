"""Arrays that jobs write as HDF5 and Zarr: the library's own reader has every bit; complete or absent."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import pipeline
import pipeline.storage.output_file
from pipeline.cli.main import cli
from pipeline.errors import PipelineError, UsageError
from pipeline.storage.files import Files
from pipeline.storage.formats import zarr_write
from pipeline.storage.output_file import output_file
from pipeline.storage.output_format import map_output, split_output
from pipeline.storage.sources import open_source
from tests.cases.format_case import package_of
from workflows.regions import Spec

DTYPES = ("i1", "<u2", ">i4", "<i8", "<f2", "<f4", ">f8", "<c8", "?")
SHAPES = ((), (17,), (1, 5), (31, 67), (5, 7, 9), (0, 4), (3, 0))


def some(shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    return (100 * np.random.default_rng(4).normal(size=shape)).astype(dtype)


def library_s(output: Path | str) -> NDArray[Any]:
    """The array as h5py or zarr reads it."""
    path, member = split_output(str(output))
    if member:
        with package_of("h5py").File(path) as file:
            return np.asarray(file[member][()])
    return np.asarray(package_of("zarr").open_array(path, mode="r")[...])


def same(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Equal shapes, dtypes, and bits, whatever the byte order."""
    native = (array.astype(array.dtype.newbyteorder("=")) for array in (one, other))
    first, second = native
    return (first.shape, first.dtype, first.tobytes()) == (second.shape, second.dtype, second.tobytes())


def written(output: Path | str, array: NDArray[Any], chunks: tuple[int, ...] | None = None, step: int = 3) -> None:
    """Write an array in regions that do not fit its chunks."""
    with output_file(str(output), Spec(array.shape, array.dtype), None, chunks) as ready:
        file = ready()
        native = array.view(array.dtype.newbyteorder("="))
        for start in range(0, array.shape[0] if array.ndim else 1, step):
            region = tuple((0, length) for length in array.shape)
            inside: Any = ...
            if array.ndim:
                region = (start, min(start + step, array.shape[0])), *region[1:]
                inside = slice(*region[0])
            file.write(region, native[inside])
            assert file.read(region).tobytes() == native[inside].tobytes()
        whole = tuple((0, length) for length in array.shape)
        assert file.read(whole).tobytes() == native.tobytes()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["a.h5", "a.hdf5::/group/data", "a.zarr"])
def test_the_library_reads_every_bit(tmp_path: Path, name: str, dtype: str, shape: tuple[int, ...]) -> None:
    package_of("h5py" if ".h" in name else "zarr")
    array, output = some(shape, dtype), tmp_path / name
    written(output, array)
    assert same(library_s(output), array)
    assert same(np.asarray(map_output(str(output), Spec(array.shape, array.dtype))), array)
    assert os.listdir(tmp_path) == [name.partition("::")[0]]


@pytest.mark.parametrize(
    ("shape", "chunks"),
    [((31, 67), (8, 16)), ((31, 67), (31, 67)), ((31, 67), (100, 100)), ((31, 67), (1, 67)), ((31, 67), (31, 1)),
     ((5, 7, 9), (2, 7, 4)), ((17,), (5,)), ((17,), (1,)), ((0, 4), (2, 2))],
)  # fmt: skip
@pytest.mark.parametrize("mappable", [True, False])
def test_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], chunks: tuple[int, ...], mappable: bool
) -> None:
    """Of a Zarr store; they may reach beyond the array, whose edges zarr then finds in them."""
    zarr = package_of("zarr")
    if not mappable:
        real = pipeline.storage.output_file._allocated
        monkeypatch.setattr("pipeline.storage.output_file._allocated", lambda *words: real(*words) and False)
    array, output = some(shape, "<f4"), tmp_path / "a.zarr"
    written(output, array, chunks)
    assert same(library_s(output), array)
    expected = tuple(max(min(pair), 1) for pair in zip(shape, chunks, strict=True))
    assert zarr.open_array(str(output), mode="r").chunks == expected
    assert same(np.asarray(map_output(str(output), Spec(array.shape, array.dtype))), array)
    zarr.open_array(str(output), mode="r+")[:1] = 3  # the edges are stored, too, so that it can be changed
    assert (library_s(output)[:1] == 3).all()


def test_rows_are_a_byte_run(tmp_path: Path) -> None:
    """What is written without --chunks is read at full speed; rows that are too long are cut."""
    array = some((100, 70), "<i4")
    for name in ("a.h5", "a.zarr"):
        written(tmp_path / name, array)
        source = open_source((str(tmp_path / name),), samples=False)
        assert isinstance(source, Files) and source.shape == array.shape
    zarr = package_of("zarr")
    assert zarr.open_array(str(tmp_path / "a.zarr"), mode="r").chunks == (100, 70)


@pytest.mark.parametrize(("nbytes", "chunks"), [(280 * 9, (9, 70)), (100, (1, 25)), (3, (1, 1))])
def test_default_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nbytes: int, chunks: tuple[int, ...]) -> None:
    zarr, array = package_of("zarr"), some((100, 70), "<i4")
    monkeypatch.setattr(zarr_write, "CHUNK_BYTES", nbytes)
    written(tmp_path / "a.zarr", array)
    assert zarr.open_array(str(tmp_path / "a.zarr"), mode="r").chunks == chunks
    assert same(library_s(tmp_path / "a.zarr"), array)


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("output", ["o.h5", "o.h5::/x/y", "o.zarr"])
def test_jobs(tmp_path: Path, output: str) -> None:
    array = some((301, 200), ">i4")
    np.save(tmp_path / "a.npy", array)
    result = pipeline.run("transpose", tmp_path / "a.npy", output=tmp_path / output, verify="full", chunk_bytes=30_000)
    assert same(library_s(tmp_path / output), array.T) and same(np.asarray(result.array), array.T)
    product = pipeline.run("matmul", tmp_path / output, tmp_path / "a.npy", output=tmp_path / "p.npy")
    np.testing.assert_array_equal(product.array, array.T.astype("i8") @ array.astype("i8"))


@pytest.mark.usefixtures("shared")
def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    array = some((301, 200), "<f4")
    np.save(tmp_path / "a.npy", array)
    words = ["transpose", str(tmp_path / "a.npy"), "-o", str(tmp_path / "o.zarr"), "--chunks", "64,100", "--json",
             "--verify", "full", "-q"]  # fmt: skip
    cli.main(words, standalone_mode=False)
    assert json.loads(capsys.readouterr().out)["verification"]["checked"] == array.size
    assert same(library_s(tmp_path / "o.zarr"), array.T)


@pytest.mark.parametrize("name", ["a.h5", "a.zarr"])
def test_failure_leaves_nothing(tmp_path: Path, name: str) -> None:
    with (
        pytest.raises(PipelineError, match="no"),
        output_file(str(tmp_path / name), Spec((30, 30), np.dtype("f8")), None, None) as ready,
    ):
        ready().write(((0, 3), (0, 30)), np.ones((3, 30)))
        raise PipelineError("no")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("output", "path", "member"),
    [
        ("t.h5", "t.h5", "result"),
        ("t.hdf5::/a//b", "t.hdf5", "a/b"),
        ("a::b.h5", "a::b.h5", "result"),
        ("a::b.npy.h5::/c", "a::b.npy.h5", "c"),
        ("t.h5::a.h5::b", "t.h5", "a.h5::b"),
        ("a::b.npy", "a::b.npy", ""),
    ],
)
def test_a_name_may_have_colons(tmp_path: Path, output: str, path: str, member: str) -> None:
    """They separate the name of a data set only behind a suffix of HDF5."""
    assert split_output(output) == (path, member)
    array = some((3, 4), "<i4")
    np.save(tmp_path / "a.npy", array)
    got = pipeline.run("transpose", tmp_path / "a.npy", output=f"{tmp_path}/{output}").array
    np.testing.assert_array_equal(got, array.T)
    assert sorted(one.name for one in tmp_path.iterdir()) == sorted(["a.npy", path])


def test_a_limit_of_file_sizes_is_told(tmp_path: Path) -> None:
    """Also for HDF5, whose header is made in a temporary file."""
    package_of("h5py")
    np.save(tmp_path / "a.npy", np.ones((500, 500)))
    for name in ("t.npy", "t.h5"):
        command = f"ulimit -f 1000; exec {sys.executable} -P -m pipeline transpose a.npy -o {name} -q"
        done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
        assert re.match(rf"error: {name}: expected .*, got '?File too large", done.stderr)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npy"]


def test_something_else_has_the_name_at_the_end(tmp_path: Path) -> None:
    """What was written is kept, and nothing is replaced."""
    output, array = tmp_path / "a.zarr", np.ones((9, 9))
    with (
        pytest.raises(PipelineError, match=r"got something else in its place; what was written is kept as .*\.kept"),
        output_file(str(output), Spec(array.shape, array.dtype), None, (4, 4)) as ready,
    ):
        ready().write(((0, 9), (0, 9)), array)
        (output / "other").mkdir(parents=True)
    (kept,) = (path for path in tmp_path.iterdir() if path != output)
    assert np.fromfile(kept, "f8", 16).tolist() == [1] * 16 and os.listdir(output) == ["other"]


@pytest.mark.parametrize("call", ["mkdir", "rename", "fsync"])
def test_store_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """At any step: the complete file is kept under a name, and no half of a store."""
    real, failed = getattr(os, call), []

    def fail(*words: Any, **keywords: Any) -> Any:
        if words and isinstance(words[0], int if call == "fsync" else str) and len(failed) < 1 and armed:
            failed.append(words)
            raise OSError(28, "No space left on device")
        return real(*words, **keywords)

    armed: list[bool] = []
    with (
        pytest.raises(PipelineError, match=r"got No space left on device; what was written is kept as"),
        output_file(str(tmp_path / "a.zarr"), Spec((9, 9), np.dtype("f8")), None, (4, 4)) as ready,
    ):
        ready().write(((0, 9), (0, 9)), np.ones((9, 9)))
        monkeypatch.setattr(f"pipeline.storage.formats.zarr_write.os.{call}", fail)
        armed.append(True)
    monkeypatch.undo()
    (kept,) = tmp_path.iterdir()
    assert failed and kept.is_file() and np.fromfile(kept, "f8", 16).tolist() == [1] * 16


def test_what_is_not_replaced(tmp_path: Path) -> None:
    h5py = package_of("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["other"] = np.arange(3)
    array = np.ones((3, 3))
    with pytest.raises(UsageError, match=r"expected no file, or one with /result alone, .* that also has /other"):
        written(tmp_path / "a.h5", array)
    written(f"{tmp_path}/b.h5::/x", array)
    written(f"{tmp_path}/b.h5::/x", 2 * array)
    assert (library_s(f"{tmp_path}/b.h5::/x") == 2).all()
    (tmp_path / "c.h5").write_bytes(b"no HDF5")
    with pytest.raises(UsageError, match=r"c\.h5: expected an HDF5 file, got"):
        written(tmp_path / "c.h5", array)
    written(tmp_path / "a.zarr", array)
    with pytest.raises(
        UsageError, match=r"a\.zarr: expected a file name for the output, got a directory; .*remove the store$"
    ):
        written(tmp_path / "a.zarr", array)


@pytest.mark.parametrize(
    ("name", "array", "chunks", "expected"),
    [
        ("a.npy", np.ones(3), (2,), r"--chunks: expected an output that is a Zarr store, like out\.zarr, got .*a\.npy"),
        ("a.zarr", np.ones(3), (2, 2), r"--chunks: expected 1 lengths .* of shape \(3,\), got 2,2"),
        ("a.zarr", np.ones(3), (0,), r"--chunks: expected 1 lengths of 1 or more"),
        ("a.zarr", np.zeros(3, "M8[s]"), None, r"expected an array of numbers, which Zarr can store, got datetime64"),
        ("a.h5", np.zeros(3, "M8[s]"), None, r"expected an array that HDF5 can store, got datetime64"),
        ("a.h5::/", np.ones(3), None, r"expected a name for the data set"),
        ("a.zarr", np.empty((2**11, 2**10), "i1"), (1, 1), r"expected at most 1048576 chunks, got 2097152"),
        (
            "a.npz",
            np.ones(3),
            None,
            r"a\.npz: expected \.npy, \.h5, \.zarr, or a raw one with a suffix of no other format",
        ),
        ("a.tif", np.ones(3), None, r"got another name; choose one of these"),
        ("a.zarr::x", np.ones(3), None, r"got another name; choose one of these"),
    ],
)
def test_refused(tmp_path: Path, name: str, array: NDArray[Any], chunks: tuple[int, ...] | None, expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        written(f"{tmp_path}/{name}", array, chunks)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(("package", "name"), [("h5py", "a.h5"), ("google_crc32c", "a.zarr")])
def test_without_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, name: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UsageError, match=rf"expected the package {package}, .*pip install 'baru\["):
        written(tmp_path / name, np.ones((30, 30)), (4, 4) if name == "a.zarr" else None)
