"""EDF, BDF and FLAC: files of other programs, headers that lie, damage, and parts of long records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pipeline.errors import UsageError
from pipeline.storage.blocks import read_blocks
from pipeline.storage.chunks import plan
from pipeline.storage.describe import describe
from pipeline.storage.files import Files
from pipeline.storage.formats import edf, flac
from pipeline.storage.sources import open_source
from pipeline.timeline import Timeline
from tests.cases.files import refused
from tests.cases.format_case import package_of
from tests.cases.format_errors import message_of
from tests.cases.format_files import CASES

DATA = Path(__file__).parents[3] / "cases" / "data"
OTHERS = ("test_generator.edf", "test_generator.bdf", "test_generator_datarec_generator_0_5.bdf", "test_utf8.edf",
          "test_subsecond.edf")  # fmt: skip


def read(item: str, chunk_bytes: int) -> NDArray[Any]:
    chunks = plan(open_source((item,)), chunk_bytes, "off", 0)
    return np.concatenate([block.copy() for chunk in chunks for block in read_blocks(chunk, Timeline())])


def plain_edf(signals: list[tuple[str, int]], count: int, width: int = 2, **fields: str) -> bytes:
    """An EDF or BDF file, its samples counted through."""
    header = {"records": str(count), "bytes": str(256 * (len(signals) + 1)), "number": str(len(signals))} | fields
    fixed = (b"0       " if width == 2 else b"\xffBIOSEMI") + b" " * 176 + header["bytes"].ljust(8).encode()
    fixed += b" " * 44 + header["records"].ljust(8).encode() + b"1       " + header["number"].ljust(4).encode()
    described = b"".join(label.ljust(16).encode() for label, _ in signals) + b" " * 200 * len(signals)
    described += b"".join(fields.get("samples", str(samples)).ljust(8).encode() for _, samples in signals)
    described += b" " * 32 * len(signals)
    values = (at % 2000 - 1000 for at in range(count * sum(samples for _, samples in signals)))
    return fixed + described + b"".join(value.to_bytes(width, "little", signed=True) for value in values)


@pytest.mark.parametrize("name", OTHERS)
def test_files_that_pyedflib_ships(name: str) -> None:
    """Written by EDFlib's generator and by recorders; all signals, in chunks that cut records."""
    pyedflib = package_of("pyedflib")
    path = str(Path(pyedflib.__file__).parent / "tests" / "data" / name)
    (described,) = describe(path)
    with pyedflib.EdfReader(path) as file:
        labels = file.getSignalLabels()
        names = [member.name for member in described.members if not member.problem]
        assert names == labels and len(described.members) == len(names) + 1
        for number, label in enumerate(labels):
            for chunk_bytes in (1111, 2**20):
                np.testing.assert_array_equal(
                    read(f"{path}::{label}", chunk_bytes), file.readSignal(number, digital=True)
                )


@pytest.mark.parametrize("bits", [16, 24])
@pytest.mark.parametrize("chunk_bytes", [999, 2**20])
def test_files_of_the_reference_encoder(bits: int, chunk_bytes: int) -> None:
    package_of("soundfile")
    first = [(37 * k * k + 11 * k) % 4001 - 2000 for k in range(1000)]
    expected = [[x, -x // 2] for x in first] if bits == 16 else [1000 * x for x in first]
    item = str(DATA / f"reference_{bits}.flac")
    assert open_source((item,)).shape == ((1000, 2) if bits == 16 else (1000,))
    np.testing.assert_array_equal(read(item, chunk_bytes), np.array(expected).reshape(-1))


@pytest.mark.parametrize("step", [5, 70, 2**18])
@pytest.mark.parametrize("width", [2, 3])
def test_records_longer_and_shorter_than_a_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int, step: int
) -> None:
    monkeypatch.setattr(edf, "STEP", step)
    path = tmp_path / "a.edf"
    path.write_bytes(plain_edf([("a", 3), ("b", 17), ("c", 40)], 11, width))
    every = (np.arange(11 * 60) % 2000 - 1000).reshape(11, 60)
    for name, columns in (("a", slice(3)), ("b", slice(3, 20)), ("c", slice(20, 60))):
        for chunk_bytes in (4, 60, 2**20):
            np.testing.assert_array_equal(read(f"{path}::{name}", chunk_bytes), every[:, columns].reshape(-1))


def test_one_signal_is_a_byte_run(tmp_path: Path) -> None:
    path = tmp_path / "a.edf"
    path.write_bytes(plain_edf([("a", 30)], 7))
    source = open_source((str(path),))
    assert isinstance(source, Files) and source.dtype == np.dtype("<i2")
    np.testing.assert_array_equal(read(str(path), 100), np.arange(210) - 1000)


def test_members(tmp_path: Path) -> None:
    path = tmp_path / "a.edf"
    path.write_bytes(plain_edf([("EEG", 3), ("EEG", 2), ("", 4), ("EDF Annotations", 5)], 2))
    assert "got EEG#1, EEG#2, signal 3; name one of them" in refused(UsageError, path)
    assert "expected a member 'Fz', got EEG#1" in refused(UsageError, f"{path}::Fz")
    assert "expected a signal, got annotations" in refused(UsageError, f"{path}::EDF Annotations")
    assert read(f"{path}::EEG#2", 2**20).tolist() == [-997, -996, -983, -982]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"records": "-1"}, "a recording that was not finished"),
        ({"records": "8"}, "840 bytes where 8 data records of 120 bytes"),
        ({"records": "99999999"}, "840 bytes where 99999999 data records"),
        ({"records": "x"}, "b'x       ' where a number was expected"),
        ({"records": "1_0"}, "b'1_0     ' where a number"),
        ({"bytes": "512"}, "a header of 512 bytes with 2 signals"),
        ({"number": "0", "bytes": "256"}, "a header of 256 bytes with 0 signals"),
        ({"number": "9999", "bytes": "2560000"}, "bytes of a header of 2560000"),
        ({"samples": "0"}, "0 samples of the signal 'a' in a data record"),
        ({"samples": "-3"}, "-3 samples of the signal 'a' in a data record"),
        ({"samples": "99999999"}, "840 bytes where 7 data records of 399999996 bytes"),
    ],
)
def test_headers_that_lie(tmp_path: Path, fields: dict[str, str], expected: str) -> None:
    path = tmp_path / "a.edf"
    path.write_bytes(plain_edf([("a", 30), ("b", 30)], 7, **fields))
    assert expected in refused(UsageError, f"{path}::a")


def test_label_with_control_characters(tmp_path: Path) -> None:
    """The error that lists it is one line, without what would drive a terminal."""
    written = CASES["edf"].written(tmp_path)
    path = Path(written.item.partition("::")[0])
    content = path.read_bytes()
    path.write_bytes(content.replace(b"EEG Fp1 ", b"E\n\x1b[31m ", 1))
    assert r"expected a member 'EEG Fp1', got Fz, E\n\x1b[31m, Temp" in refused(UsageError, written.item)


def test_damaged_frames(tmp_path: Path) -> None:
    """A bit of any frame: the stream's own checksums find it, wherever reading begins."""
    item = CASES["flac of 16 bits"].written(tmp_path).item
    content = Path(item).read_bytes()
    for at in (len(content) - 5, len(content) // 2, len(content) // 5):
        Path(item).write_bytes(content[:at] + bytes([content[at] ^ 16]) + content[at + 1 :])
        message = message_of(item)
        assert "expected a FLAC stream that can be decoded from sample " in message and "; is the file" in message


def test_stream_of_another_format(tmp_path: Path) -> None:
    """libsndfile looks at the content, too."""
    written = CASES["wav of 16 bits"].written(tmp_path)
    package_of("soundfile")
    path = tmp_path / "b.flac"
    path.write_bytes(Path(written.item).read_bytes())
    assert open_source((str(path),)).samples == written.array.size  # as WAV
    path.write_bytes(b"\1\2\3\4" * 25)
    assert "expected a FLAC file, got Error opening" in refused(UsageError, path)


@pytest.mark.parametrize("step", [7, 1000])
def test_frames_in_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    monkeypatch.setattr(flac, "STEP", step)
    written = CASES["flac of 24 bits"].written(tmp_path)
    np.testing.assert_array_equal(read(written.item, 10_000), written.array.reshape(-1))
