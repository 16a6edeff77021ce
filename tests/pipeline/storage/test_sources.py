"""Sources: how a file is interpreted, and one clear line for every unusable file."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.errors import PipelineError, UsageError
from pipeline.storage.describe import describe
from pipeline.storage.sources import BYTEORDERS, DTYPES, NAMES, open_source
from tests.cases.files import refused, some, values_of


@pytest.mark.parametrize("byteorder", BYTEORDERS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_raw(tmp_path: Path, dtype: str, byteorder: Any) -> None:
    path = tmp_path / "samples.bin"
    samples = some(dtype)
    for offset in (0, 3, 4096):
        path.write_bytes(b"x" * offset + samples.tobytes())
        source = open_source((str(path),), dtype, byteorder, offset)
        assert (source.samples, source.nbytes) == (7, samples.nbytes)
        expected = samples.view(np.dtype(dtype).newbyteorder(byteorder))
        np.testing.assert_array_equal(values_of(source), expected)
        assert source.dtype == expected.dtype


def test_raw_defaults_to_int32_little(tmp_path: Path) -> None:
    path = tmp_path / "samples"
    path.write_bytes(struct.pack("<3i", 1, -2, 2**31 - 1))
    assert values_of(open_source((str(path),))).tolist() == [1, -2, 2**31 - 1]


@pytest.mark.parametrize("text", [b"a,b\n1,2\n", b"1 2 3 4\n5 6 7\n", b"12\r\n34\r\n"])
def test_text_is_no_samples(tmp_path: Path, text: bytes) -> None:
    """Unless its bytes are said to be: a table is not counted as int32 because its length happens to fit."""
    path = tmp_path / "table.bin"
    path.write_bytes(text * 300 + b"9" * (-len(text) * 300 % 4))
    with pytest.raises(UsageError, match=r"expected samples, got text; convert it .* say --dtype"):
        open_source((str(path),))
    assert open_source((str(path),), dtype="uint8").nbytes == os.path.getsize(path)


def test_info_tells_what_is_no_samples(tmp_path: Path) -> None:
    """Also among others: a folder of recordings may have a list of them."""
    (tmp_path / "list.txt").write_text("a 1\nb 2\n")
    np.save(tmp_path / "x.npy", np.arange(5))
    text, array = describe(str(tmp_path), recursive=True)
    assert (text.format, text.nbytes, array.format) == ("text", 8, "npy")
    assert text.members[0].problem.startswith("no samples; convert it")


@pytest.mark.parametrize("content", [b"    " * 200, b"12345678", np.arange(200, dtype="<i4").tobytes()])
def test_samples_that_could_be_text_are_read(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "samples.bin").write_bytes(content)
    assert open_source((str(tmp_path / "samples.bin"),)).nbytes == len(content)


def test_files_and_patterns_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arguments in the given order, matches of a pattern sorted, and paths that other processes can use."""
    for number, name in enumerate(("b-2.bin", "b-10.bin", "a.bin", "deep/er/b.bin")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        np.array([number] * (number + 1), "<i4").tofile(tmp_path / name)
    np.save(tmp_path / "c.npy", np.array([9], "<i4"))
    monkeypatch.chdir(tmp_path)
    source = open_source(("c.npy", "b-*.bin", "a.bin", "**/b.bin"))
    names = ["c.npy", "b-10.bin", "b-2.bin", "a.bin", "deep/er/b.bin"]
    assert [file.path for file in source.files] == [str(tmp_path / name) for name in names]
    assert values_of(source).tolist() == [9, 1, 1, 0, 2, 2, 2, 3, 3, 3, 3]
    assert (source.samples, source.nbytes) == (11, 44)


def test_parent_of_a_link_is_the_system_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`link/..` is the folder above the link's target, also where files of both names exist."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "link").symlink_to("a/b")
    for folder, value in ((tmp_path / "a", 1), (tmp_path, 2)):
        np.array([value], "<i4").tofile(folder / "file.bin")
    monkeypatch.chdir(tmp_path)
    for path in ("link/../file.bin", "link/../f*.bin", f"{tmp_path}/link/../file.bin"):
        source = open_source((path,))
        assert values_of(source).tolist() == [1] and os.path.isabs(source.names[0])


def test_null_byte(tmp_path: Path) -> None:
    for path in ("a\0b", "*\0", f"{tmp_path}/\0"):
        assert "expected a path, got " in refused(UsageError, path)


def test_pattern_that_is_a_name(tmp_path: Path) -> None:
    for name in ("run[1].bin", "run1.bin"):
        (tmp_path / name).write_bytes(bytes(4 * len(name)))
    assert open_source((str(tmp_path / "run[1].bin"),)).samples == len("run[1].bin")


def test_what_was_planned_is_remembered(tmp_path: Path) -> None:
    path = tmp_path / "samples.bin"
    path.write_bytes(bytes(12))
    os.utime(path, ns=(1, 12345))
    file = open_source((str(path),), offset=4).files[0]
    assert (file.offset, file.nbytes, file.identity.size, file.identity.mtime_ns) == (4, 8, 12, 12345)


@pytest.mark.parametrize("name", ["samples.bin", "samples.npy"])
def test_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    path = tmp_path / name
    assert f"{path}: expected a file of samples, found none" in refused(UsageError, path)
    path.write_bytes(b"")
    assert f"{path}: expected samples, got an empty file" in refused(UsageError, path)
    path.unlink()
    path.mkdir()
    assert f"{path}: expected a file of samples, got a directory" in refused(UsageError, path)
    path.rmdir()
    os.mkfifo(path)  # opening it would wait for ever
    assert f"{path}: expected a file of samples, got no regular file" in refused(UsageError, path)
    path.unlink()
    path.symlink_to("nowhere")
    assert "found none" in refused(UsageError, path)
    path.unlink()
    path.write_bytes(b"1234")

    def denied(*_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:  # what removes `tmp_path` opens it
        patch.setattr(os, "open", denied)
        assert f"{path}: expected a readable file, got 'Permission denied'" in refused(PipelineError, path)


def test_pattern_without_match(tmp_path: Path) -> None:
    pattern = str(tmp_path / "run-*.bin")
    assert f"{pattern}: expected at least one file to match, got none" in refused(UsageError, pattern)


@pytest.mark.parametrize(
    ("keywords", "expected"),
    [
        ({}, "expected a multiple of 4 bytes for int32, got 10, 2 too many"),
        ({"dtype": "float64"}, "expected a multiple of 8 bytes for float64, got 10, 2 too many"),
        ({"offset": 3}, "expected a multiple of 4 bytes for int32, got 7, 3 too many"),
        ({"offset": 10}, "expected samples after --offset 10, but the file has 10 bytes"),
        ({"offset": 2**70}, f"expected samples after --offset {2**70}, but the file has 10 bytes"),
        ({"offset": -2}, "--offset: expected bytes to skip, 0 or more, got -2"),
        *(
            ({"dtype": name}, f"--dtype: expected one of {', '.join(NAMES)}, got {name!r}")
            for name in ("int31", "complex256", "bool", "object", "<i4", "longdouble", "")
        ),
    ],
)
def test_raw_that_does_not_fit(tmp_path: Path, keywords: dict[str, Any], expected: str) -> None:
    path = tmp_path / "samples.bin"
    path.write_bytes(bytes(10))
    assert expected in refused(UsageError, path, **keywords)


@pytest.mark.parametrize(
    ("array", "got"),
    [
        (np.array([1, None], object), "Python objects, which are never unpickled"),
        (np.zeros(2, "G"), "complex256"),
        (np.zeros(2, "U3"), "<U3"),
        (np.zeros(2, "M8[s]"), "datetime64[s]"),
        (np.zeros(2, [("x", "i4"), ("y", "f4")]), "[('x', '<i4'), ('y', '<f4')]"),
    ],
)
def test_npy_of_other_dtypes(tmp_path: Path, array: np.ndarray[Any, Any], got: str) -> None:
    path = tmp_path / "samples.npy"
    np.save(path, array, allow_pickle=True)
    assert f"{path}: expected samples of {', '.join(DTYPES)}, got {got}; convert" in refused(UsageError, path)


@pytest.mark.parametrize(
    ("keywords", "expected"),
    [
        ({"dtype": "int32"}, "expected int32 as --dtype says, got >i2; leave --dtype out"),
        ({"byteorder": "little"}, "expected little endian as --byteorder says, got >i2; leave --byteorder"),
        ({"offset": 0}, "--offset is for raw files"),
    ],
)
def test_npy_contradicted(tmp_path: Path, keywords: dict[str, Any], expected: str) -> None:
    path = tmp_path / "samples.npy"
    np.save(path, some("i2").astype(">i2"))
    with pytest.raises(UsageError, match=f"^{path}: {expected}"):
        open_source((str(path),), **keywords)


def test_mixed_dtypes(tmp_path: Path) -> None:
    for name, dtype in (("a.npy", "<i4"), ("b.npy", ">i4"), ("c.npy", "<u4")):
        np.save(tmp_path / name, np.ones(2, dtype))
    (tmp_path / "raw.bin").write_bytes(bytes(8))
    a, b, c, raw = sorted(tmp_path.iterdir())
    assert f"{b}: expected int32 as in {a}, got >i4; run them separately" in refused(UsageError, a, b)
    assert f"{c}: expected int32 as in {a}, got uint32; run them separately" in refused(UsageError, a, c)
    assert f"{raw}: expected uint32 as in {c}, got int32; run them separately" in refused(UsageError, c, raw)
    assert open_source((str(a), str(raw))).samples == 4
