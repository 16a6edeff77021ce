"""`.npy` files: the header is taken literally, or refused in one line, whatever it contains."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.errors import PipelineError, UsageError
from pipeline.storage.other_content import OtherContent
from pipeline.storage.sources import BYTEORDERS, DTYPES, open_source
from tests.cases.files import refused, some, values_of
from workflows.npy_header import MAX_HEADER

HEADER = "{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n"


def npy(header: str, data: bytes = b"", version: tuple[int, int] = (1, 0), length: int | None = None) -> bytes:
    """A .npy file as nobody would write it."""
    text = header.encode("latin1")
    form = "<H" if version == (1, 0) else "<I"
    return b"\x93NUMPY" + bytes(version) + struct.pack(form, len(text) if length is None else length) + text + data


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


def test_what_savez_writes_under_the_name_of_an_npy(tmp_path: Path) -> None:
    (tmp_path / "samples.npy").write_bytes(b"PK\x03\x04 what numpy.savez writes")
    assert "samples.npy: expected samples, got zip; " in refused(OtherContent, tmp_path / "samples.npy")


def test_long_header_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy would allocate as many bytes as the header claims: its reader must not be called."""
    path = tmp_path / "samples.npy"
    path.write_bytes(npy(INT32, bytes(8), (2, 0), length=MAX_HEADER + 1))
    monkeypatch.setattr(np.lib.format, "read_array_header_2_0", lambda *_, **__: pytest.fail("read"))
    assert f"got a header of {MAX_HEADER + 1} bytes" in refused(UsageError, path)


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
