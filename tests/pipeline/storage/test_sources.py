"""Sources: how a file is interpreted, and one clear line for every unusable file."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.errors import PipelineError, UsageError
from pipeline.storage.sources import BYTEORDERS, DTYPES, open_source
from workflows.npy_header import MAX_HEADER

HEADER = "{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n"


def values_of(source: Any) -> np.ndarray[Any, Any]:
    """The samples, read the plain way."""
    count = source.dtype.itemsize
    parts = [np.fromfile(file.path, source.dtype, file.nbytes // count, offset=file.offset) for file in source.files]
    return np.concatenate(parts)


def some(dtype: str, samples: int = 7) -> np.ndarray[Any, Any]:
    """Samples whose bytes all differ, so that any shift or swap shows."""
    return np.arange(1, samples * np.dtype(dtype).itemsize + 1, dtype=np.uint8).view(dtype)


def npy(header: str, data: bytes = b"", version: tuple[int, int] = (1, 0), length: int | None = None) -> bytes:
    """A .npy file as nobody would write it."""
    text = header.encode("latin1")
    form = "<H" if version == (1, 0) else "<I"
    return b"\x93NUMPY" + bytes(version) + struct.pack(form, len(text) if length is None else length) + text + data


def refused(error: type[PipelineError], *patterns: str | Path, **keywords: Any) -> str:
    """The one-line error of opening; exactly this class, because it decides the exit status."""
    with pytest.raises(error) as caught:
        open_source(tuple(map(str, patterns)), **keywords)
    message = str(caught.value)
    assert caught.type is error
    assert "\n" not in message
    assert "expected" in message
    return message


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


@pytest.mark.parametrize("order", ["little", "big"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_npy(tmp_path: Path, version: Any, dtype: str, order: Any) -> None:
    path = tmp_path / ("samples.npy" if version == (1, 0) else "samples.bin")  # known by its content, as np.load does
    array = some(dtype, 24).view(np.dtype(dtype).newbyteorder(order)).reshape(2, 3, 4)
    for view in (array, np.asfortranarray(array), array.ravel(), array[:1, :1, :1].reshape(())):
        with open(path, "wb") as file:
            np.lib.format.write_array(file, view, version=version)
        source = open_source((str(path),))
        assert source.dtype == array.dtype
        np.testing.assert_array_equal(values_of(source), view.ravel(order="K"))


def test_npy_of_python_2(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A long integer in the header is accepted without a warning."""
    path = tmp_path / "samples.npy"
    path.write_bytes(npy(HEADER.format(descr="'<i4'", shape="(2L,)"), struct.pack("<2i", 5, 6)))
    assert values_of(open_source((str(path),))).tolist() == [5, 6]
    assert capfd.readouterr() == ("", "")


def test_npy_agreeing_flags(tmp_path: Path) -> None:
    path = tmp_path / "samples.npy"
    np.save(path, some("i2").astype(">i2"))
    assert open_source((str(path),), "int16", "big").samples == 7
    np.save(path, some("i1"))
    for byteorder in BYTEORDERS:  # single bytes have none
        assert open_source((str(path),), "int8", byteorder).samples == 7


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

    monkeypatch.setattr(os, "open", denied)
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
            ({"dtype": name}, f"--dtype: expected one of {', '.join(DTYPES)}, got {name!r}")
            for name in ("int31", "complex64", "bool", "object", "<i4", "longdouble", "")
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
        (np.zeros(2, "c8"), "complex64"),
        (np.zeros(2, "?"), "bool"),
        (np.zeros(2, "U3"), "<U3"),
        (np.zeros(2, "M8[s]"), "datetime64[s]"),
        (np.zeros(2, [("x", "i4"), ("y", "f4")]), "[('x', '<i4'), ('y', '<f4')]"),
    ],
)
def test_npy_of_other_dtypes(tmp_path: Path, array: np.ndarray[Any, Any], got: str) -> None:
    path = tmp_path / "samples.npy"
    np.save(path, array, allow_pickle=True)
    assert f"{path}: expected samples of {', '.join(DTYPES)}, got {got}; convert" in refused(UsageError, path)


INT32 = HEADER.format(descr="'<i4'", shape="(2,)")


def shaped(shape: str) -> str:
    """Header of int32 samples in a shape."""
    return HEADER.format(descr="'<i4'", shape=shape)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (npy(INT32, bytes(7)), "expected 8 bytes of data for shape (2,) of int32, got 7"),
        (npy(INT32, bytes(12)), "expected 8 bytes of data for shape (2,) of int32, got 12"),
        (npy(shaped("(1099511627776,)"), bytes(8)), "expected 4398046511104 bytes of data"),
        (npy(shaped("(3, 0)")), "expected samples, got an empty array of shape (3, 0)"),
        (npy(shaped("(-2, -1)"), bytes(8)), "got one whose shape is not a tuple of lengths"),
        (npy(shaped("(2.0,)"), bytes(8)), r"got one with '.0,), }\n' in it"),
        (npy(shaped(f"({'9' * 4000}, {'9' * 4000})"), bytes(8)), "got one with '9999999999' in it"),
        (npy(shaped(f"({2**62}, {2**62})"), bytes(8)), "got one whose shape takes more bytes than any file has"),
        (npy(shaped(f"({f'{2**62}, ' * 64})"), bytes(8)), "got one whose shape takes more bytes than any file has"),
        (npy(shaped("(True,)"), bytes(4)), "got one whose shape is not a tuple of lengths"),
        (npy(shaped("2"), bytes(8)), "got one whose shape is not a tuple of lengths"),
        (npy(shaped("(2)"), bytes(8)), "got one whose shape is not a tuple of lengths"),
        (npy(shaped(f"({'1, ' * 65})"), bytes(4)), "got 65 dimensions"),
        (npy(shaped("-" * 50000 + "2"), bytes(8)), "got one with '----------' in it"),
        (npy(shaped("(" * 50000 + "2"), bytes(8)), "got one with '(' in it"),
        (npy(" " * 16000 + "$", bytes(8)), "got one with '$' in it"),
        (npy("{" + " " * 60000, bytes(8)), "got one that ends early"),
        (npy("{'shape': ((((2", bytes(8)), "got one that ends early"),
        (npy("{'shape' (2,)}", bytes(8)), "got one that is no dictionary"),
        (npy("[]", bytes(8)), "got one without exactly the keys"),
        (npy(INT32 + "{}", bytes(8)), "got one that goes on after its end"),
        (npy(INT32.replace("'shape'", "'descr'"), bytes(8)), "got one with a key twice"),
        (npy(INT32.replace("}", "'x': 1}"), bytes(8)), "got one without exactly the keys"),
        (npy(INT32.replace("False", "0"), bytes(8)), "got one whose fortran_order is neither True nor False"),
        (npy(INT32.replace("False", "print"), bytes(8)), "got one with 'print' in it"),
        (npy(INT32.replace("'<i4'", "'i4,i4'"), bytes(8)), "got an unknown dtype, 'i4,i4'"),
        (npy(INT32.replace("'<i4'", "'2i4'"), bytes(8)), "got an unknown dtype, '2i4'"),
        (npy(INT32.replace("'<i4'", "[('x',)]"), bytes(8)), "got an unknown dtype, "),
        (npy(INT32.replace("'<i4'", "[('x', 'i4'), ('x', 'i4')]"), bytes(16)), "got an unknown dtype, "),
        (npy(HEADER.format(descr="'<i5'", shape="(2,)"), bytes(10)), "got an unknown dtype, '<i5'"),
        (npy(INT32.replace("descr", r"\d"), bytes(8)), "got one with "),
        (npy(INT32, bytes(8), length=60000), "expected a .npy header, got the first 66 of 60000 bytes of one"),
        (npy(INT32, bytes(8), (2, 0), length=2**32 - 1), f"expected a .npy header, got a header of {2**32 - 1} bytes"),
        (npy(INT32 + " " * MAX_HEADER, bytes(8), (3, 0)), "expected a .npy header, got a header of "),
        (npy(INT32, bytes(8), (4, 0)), "got one of the unknown version 4.0"),
        (npy(INT32, bytes(8))[:40], "expected a .npy header, got the first 30 of 58 bytes of one"),
        (npy(INT32, bytes(8))[1:], "got something else"),
        (b"PK\x03\x04 what numpy.savez writes", "got something else"),
    ],
)
def test_npy_that_lies(tmp_path: Path, capfd: pytest.CaptureFixture[str], content: bytes, expected: str) -> None:
    path = tmp_path / "samples.npy"
    path.write_bytes(content)
    message = refused(UsageError, path)
    assert message.startswith(f"{path}: ")
    assert expected in message
    assert len(message) < 600
    assert capfd.readouterr() == ("", "")  # no warning of Python's about the header's syntax either


def test_long_header_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy would allocate as many bytes as the header claims: its reader must not be called."""
    path = tmp_path / "samples.npy"
    path.write_bytes(npy(INT32, bytes(8), (2, 0), length=MAX_HEADER + 1))
    monkeypatch.setattr(np.lib.format, "read_array_header_2_0", lambda *_, **__: pytest.fail("read"))
    assert f"got a header of {MAX_HEADER + 1} bytes" in refused(UsageError, path)


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


@settings(deadline=None, max_examples=160)
@given(data=st.data())
def test_mutated_npy_never_escapes(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Any header is either taken literally or refused in one line."""
    descr = data.draw(st.sampled_from(["'<i4'", "'>f8'", "'|O'", "[('x', '<i4')]"]))
    version = data.draw(st.sampled_from([(1, 0), (2, 0), (3, 0)]))
    good = npy(HEADER.format(descr=descr, shape="(3, 2)"), bytes(48 if descr == "'>f8'" else 24), version)
    content = bytearray(good)
    for _ in range(data.draw(st.integers(0, 4))):
        place = data.draw(st.integers(0, len(good) - 1))
        new = data.draw(
            st.binary(max_size=3) | st.sampled_from([b"9" * 30, b"(", b"[", b"-", b"'", b"\\", b"\n", b"L"])
        )
        content[place : place + data.draw(st.integers(0, 3))] = new
    path = tmp_path_factory.getbasetemp() / "mutated.npy"
    path.write_bytes(content)
    try:
        source = open_source((str(path),))
    except PipelineError as error:
        assert "\n" not in str(error)
    else:
        assert source.dtype.name in DTYPES
        assert source.files[0].offset + source.nbytes == len(content)
        assert source.samples * source.dtype.itemsize == source.nbytes > 0
