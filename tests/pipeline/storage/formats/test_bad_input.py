"""What cannot be read is refused in one line: damaged, lying, in other files, or without its package."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline
from pipeline.errors import PipelineError, UsageError
from pipeline.storage.formats.codecs import ZLIB, Inflate
from pipeline.storage.other_content import OtherContent
from pipeline.storage.sources import open_source
from tests.cases.files import refused
from tests.cases.format_case import package_of
from tests.cases.format_errors import message_of, read, write
from tests.cases.format_files import CASES

ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize("name", [name for name in CASES if not name.startswith(("zarr", "sigmf"))])
@pytest.mark.parametrize("share", [0.9, 0.5, 0.02])
def test_truncated(tmp_path: Path, name: str, share: float) -> None:
    item = write(name, tmp_path)
    path = item.partition("::")[0]
    os.truncate(path, int(os.path.getsize(path) * share))
    assert message_of(item).startswith(path)


@pytest.mark.parametrize("name", ["hdf5 shuffle, deflate, fletcher32", "hdf5 fletcher32", "hdf5 deflate",
                                  "npz deflated", "tiff, deflate"])  # fmt: skip
def test_damaged_chunk(tmp_path: Path, name: str) -> None:
    """A bit in the middle of the encoded samples."""
    item = write(name, tmp_path)
    path = Path(item.partition("::")[0])
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 16
    path.write_bytes(content)
    assert "expected a block that can be decoded, got " in message_of(item)


@pytest.mark.parametrize("name", ["zarr 3, crc32c", "zarr 3, gzip", "zarr 3, sharded", "zarr 3", "zarr 2, as it is"])
def test_damaged_or_truncated_file_of_a_store(tmp_path: Path, name: str) -> None:
    item = write(name, tmp_path)
    chunk = max((path for path in Path(item).rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    content = chunk.read_bytes()
    chunk.write_bytes(content[:-3])
    assert message_of(item).count("; is ") == 1
    if name == "zarr 3, crc32c":
        chunk.write_bytes(bytes([content[0] ^ 1]) + content[1:])
        assert "a wrong checksum" in message_of(item)


def test_several_members(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, **{f"m{number}": np.arange(3) for number in range(9)})
    assert f"{path}: expected one array, got m0, m1, m2, m3, m4 and 4 more; name one" in refused(UsageError, path)
    assert "expected a member 'x', got m0" in refused(UsageError, f"{path}::x")
    assert "expected a file of several arrays before ::x, got raw" in refused(UsageError, f"{__file__}::x")


def test_bomb_is_found_before_its_bytes_are_made() -> None:
    bomb = zlib.compress(bytes(2**26))
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="more than 1000 bytes where 1000 were expected"):
            Inflate(ZLIB)(bomb, 1000)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
@pytest.mark.parametrize("nbytes", [0, 16, 19, 21, 24])
def test_chunk_that_decodes_to_another_length(tmp_path: Path, codec: str, nbytes: int) -> None:
    """Also to fewer bytes, into a buffer that keeps what was there before."""
    encode = package_of(f"numcodecs.{codec}").compress
    (tmp_path / ".zarray").write_text(json.dumps(ZARR_2 | {"compressor": {"id": codec}}))
    (tmp_path / "0").write_bytes(encode(np.ones(5, "<i4")))
    (tmp_path / "1").write_bytes(encode(np.ones(6, "<i4").tobytes()[:nbytes]))
    assert "bytes where 20 were expected" in message_of(str(tmp_path))


def test_zstandard_frame_without_its_size(tmp_path: Path) -> None:
    package_of("numcodecs")
    (tmp_path / ".zarray").write_text(json.dumps(ZARR_2 | {"shape": [5], "compressor": {"id": "zstd"}}))
    for samples in (5, 4, 6):
        content = np.arange(samples, dtype="<i4").tobytes()
        frame = b"\x28\xb5\x2f\xfd\0\0" + (len(content) << 3 | 1).to_bytes(3, "little") + content
        (tmp_path / "0").write_bytes(frame)
        if samples == 5:
            read(str(tmp_path))
        else:
            assert "expected a block that can be decoded" in message_of(str(tmp_path))


def test_damaged_index_of_a_shard(tmp_path: Path) -> None:
    item = write("zarr 3, sharded, as it is", tmp_path)
    shard = max((path for path in Path(item).rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    content = bytearray(shard.read_bytes())
    content[-4 - 16] ^= 8  # the place of its last chunk
    shard.write_bytes(content)
    assert "expected the index of a shard, got a wrong checksum" in message_of(item)


ZARR_2 = {"zarr_format": 2, "shape": [10], "chunks": [5], "dtype": "<i4", "compressor": None, "filters": None,
          "fill_value": 0, "order": "C"}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"zarr_format": 4}, "got version 4"),
        ({"compressor": {"id": "evil"}}, "got the codec 'evil'"),
        ({"compressor": {"id": "pickle"}}, "got the codec 'pickle'"),
        ({"filters": [{"id": "json2"}]}, "got the filter 'json2'"),
        ({"dtype": "|O"}, "got dtype '|O'"),
        ({"dtype": [["a", "<i4"]]}, "got dtype"),
        ({"dtype": "<M8[ns]"}, "got datetime64[ns]; convert"),
        ({"shape": [2**62], "chunks": [1]}, "expected at most 4194304 chunks"),
        ({"shape": [-1]}, "got the length -1"),
        ({"chunks": [0]}, "got the length 0"),
        ({"shape": [2**29], "chunks": [2**29]}, "at most 1024 MiB decoded"),
        ({"fill_value": "x"}, "could not convert"),
    ],
)
def test_zarr(tmp_path: Path, changes: dict[str, Any], expected: str) -> None:
    (tmp_path / ".zarray").write_text(json.dumps(ZARR_2 | changes))
    assert expected in refused(UsageError, tmp_path)


def test_zarr_bomb_and_file_that_appears(tmp_path: Path) -> None:
    (tmp_path / ".zarray").write_text(json.dumps(ZARR_2 | {"compressor": {"id": "zlib"}}))
    source = open_source((str(tmp_path),))
    (tmp_path / "0").write_bytes(zlib.compress(bytes(2**24)))
    assert "more than 20 bytes where 20 were expected" in message_of(str(tmp_path))
    with pytest.raises(PipelineError, match="/0: was written while the array was read; run again"):
        source.check_unchanged()


def test_nulls(tmp_path: Path) -> None:
    package_of("pyarrow")
    import pyarrow
    import pyarrow.feather
    import pyarrow.parquet

    table = pyarrow.table({"x": pyarrow.array([1, None, 3, None]), "b": [True] * 4, "l": [[1]] * 4})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    pyarrow.parquet.write_table(table, tmp_path / "b.parquet", write_statistics=False)
    for codec in ("uncompressed", "lz4"):
        pyarrow.feather.write_feather(table, str(tmp_path / f"{codec}.feather"), compression=codec)
        assert "2 nulls; drop or fill them" in refused(UsageError, f"{tmp_path}/{codec}.feather::x")
    for name in "ab":
        assert "got 2 nulls; drop or fill them" in message_of(f"{tmp_path}/{name}.parquet::x")
    assert "got one of list<element: int64>; cast it" in refused(UsageError, f"{tmp_path}/a.parquet::l")


def test_complex_sigmf(tmp_path: Path) -> None:
    (tmp_path / "a.sigmf-meta").write_text('{"global": {"core:datatype": "ci16_le"}}')
    np.arange(8, dtype="<i2").tofile(tmp_path / "a.sigmf-data")
    assert "expected real samples, got complex ones (pairs of int16)" in refused(UsageError, tmp_path / "a.sigmf-meta")
    assert open_source((str(tmp_path / "a.sigmf-data"),), "int16", offset=0).samples == 8


@pytest.mark.parametrize(
    ("about", "captures"),
    [({"core:dataset": "a.bin"}, []), ({"core:trailing_bytes": 4}, []), ({}, [{"core:header_bytes": 4}])],
)
def test_sigmf_with_other_bytes(tmp_path: Path, about: dict[str, Any], captures: list[dict[str, Any]]) -> None:
    metadata = {"global": {"core:datatype": "ri16_le", **about}, "captures": [{"core:sample_start": 0}, *captures]}
    (tmp_path / "a.sigmf-meta").write_text(json.dumps(metadata))
    np.arange(8, dtype="<i2").tofile(tmp_path / "a.sigmf-data")
    (key,) = about or captures[0]
    assert f"of samples alone, got {key}; write a rec" in refused(UsageError, tmp_path / "a.sigmf-meta")


def test_one_name_twice(tmp_path: Path) -> None:
    pyarrow, parquet = package_of("pyarrow"), package_of("pyarrow.parquet")
    parquet.write_table(pyarrow.table([[1, 2], [3, 4]], names=["x", "x"]), tmp_path / "a.parquet")
    assert "expected one member 'x', got 2; rename them" in refused(UsageError, f"{tmp_path}/a.parquet::x")


@pytest.mark.parametrize(("make", "what"), [(Path.touch, "an empty file"), (Path.mkdir, "a directory or device")])
def test_zarr_chunk_that_is_none(tmp_path: Path, make: Callable[[Path], None], what: str) -> None:
    """The fill value is that of chunks without a file."""
    item = Path(write("zarr 3", tmp_path))
    chunk = next(path for path in sorted((item / "c").rglob("*")) if path.is_file())
    chunk.unlink()
    make(chunk)
    assert f"expected a chunk, got {what}; is the store complete?" in refused(UsageError, item)


@pytest.mark.parametrize("rest", [b"", b"LIST\x04\0\0\0INFO", bytes(range(1, 9)), b"\0" * 4])
def test_wav_without_length(tmp_path: Path, rest: bytes) -> None:
    """As a recorder leaves it that did not get to its end; no samples and another chunk are none of these."""
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, 48000, 96000, 2, 16)
    (tmp_path / "a.wav").write_bytes(b"RIFF\0\0\0\0WAVE" + form + b"data\0\0\0\0" + rest)
    if rest in (b"", b"LIST\x04\0\0\0INFO"):
        assert open_source((str(tmp_path / "a.wav"),), samples=False).shape == (0,)
    else:
        assert f"got no length, and {len(rest)} bytes; was the" in refused(UsageError, tmp_path / "a.wav")


def test_wav_without_whole_frames(tmp_path: Path) -> None:
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 3, 48000, 288000, 6, 16)
    (tmp_path / "a.wav").write_bytes(b"RIFF\0\0\0\0WAVE" + form + struct.pack("<4sI", b"data", 10) + bytes(10))
    assert "got 10 bytes of samples in frames of 6; is the file complete?" in refused(UsageError, tmp_path / "a.wav")


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [("a.nc", b"CDF\1", "NetCDF-3"), ("a.mat", b"MATLAB 5.0 MAT-file", "MATLAB 5"), ("a.wav", b"FORM", "AIFF")],
)
def test_content_that_the_name_does_not_tell(tmp_path: Path, name: str, content: bytes, what: str) -> None:
    """Formats that share a suffix with one that is read are called by their names, not damaged."""
    (tmp_path / name).write_bytes(content.ljust(200, b"\0"))
    assert f"{name}: expected samples, got {what}; unpack or convert it" in refused(OtherContent, tmp_path / name)


def test_names_of_what_is_refused(tmp_path: Path) -> None:
    """An array without a name is called as its file; where there is none, none can be named."""
    planes = np.zeros((3, 8, 8), "u1")
    package_of("tifffile").imwrite(tmp_path / "a.tif", planes, photometric="rgb", planarconfig="separate")
    assert "a.tif: expected samples of a pixel side by side" in refused(UsageError, tmp_path / "a.tif")
    np.savez(tmp_path / "a.npz")
    assert refused(UsageError, tmp_path / "a.npz").endswith("a.npz: expected one array, got none")


@pytest.mark.parametrize(
    ("content", "name"),
    [(b"\x1f\x8b\x08\0" * 4, "gzip"), (b"%PDF" * 4, "PDF"), (b"riff\x2e\x91\xcf\x11".ljust(16, b"\0"), "Wave64")],
)
def test_other_content(tmp_path: Path, content: bytes, name: str) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(content)
    assert f"expected samples, got {name}; unpack or convert it; " in refused(OtherContent, path)
    assert open_source((str(path),), "int32").samples == 4


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [("hdf5 contiguous", "h5py", "hdf5"), ("hdf5 bitshuffle", "hdf5plugin", "hdf5"), ("zarr 3", "numcodecs", "zarr"),
     ("zarr 3, crc32c", "google_crc32c", "zarr"), ("parquet", "pyarrow", "parquet"),
     ("arrow, lz4", "pyarrow", "parquet"), ("tiff", "tifffile", "tiff"), ("flac of 16 bits", "soundfile", "flac")],
)  # fmt: skip
def test_without_its_package(tmp_path: Path, name: str, package: str, extra: str) -> None:
    """One line with the command that installs it; everything else works without."""
    item = write(name, tmp_path)
    others = [CASES[other].written(folder).item for other in ("npz stored", "zarr 3, as it is", "wav of 16 bits", "edf")
              if (folder := tmp_path / other.replace(" ", "-")).mkdir() is None]  # fmt: skip
    np.arange(100, dtype="i4").tofile(tmp_path / "raw.bin")
    code = """
import sys
for package in ("h5py", "hdf5plugin", "numcodecs", "google_crc32c", "pyarrow", "tifffile", "zarr", "soundfile"):
    if sys.argv[3] in (package, ""):
        sys.modules[package] = None
from pipeline.errors import UsageError
from pipeline.storage.sources import open_source
assert open_source((sys.argv[1],)).samples == 100
assert all(open_source((other,)).samples for other in sys.argv[4:])
try:
    open_source((sys.argv[2],))
except UsageError as error:
    print(error)
"""
    for missing in (package, ""):
        words = [sys.executable, "-c", code, str(tmp_path / "raw.bin"), item, missing, *others]
        done = subprocess.run(words, text=True, capture_output=True, check=True, cwd=ROOT)
        assert len(done.stdout.splitlines()) == 1 and f"pip install 'baru[{extra}]'" in done.stdout, done.stdout


@pytest.mark.usefixtures("shared")
def test_nothing_is_written(tmp_path: Path) -> None:
    item = write("npz deflated", tmp_path)
    for job in ("transpose", "stencil"):
        with pytest.raises(UsageError, match="expected an array that is stored in one piece"):
            pipeline.run(job, item, output=tmp_path / "out.npy")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npz"]
