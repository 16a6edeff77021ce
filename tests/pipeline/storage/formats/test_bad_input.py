"""What cannot be read is refused in one line: damaged, lying, in other files, or without its package."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline
from pipeline.errors import PipelineError, UsageError
from pipeline.storage.blocks import read_blocks
from pipeline.storage.chunks import plan
from pipeline.storage.sources import open_source
from pipeline.timeline import Timeline
from tests.cases.files import refused
from tests.cases.format_files import CASES, package_of

ROOT = Path(__file__).parents[4]


def write(name: str, folder: Path) -> str:
    return CASES[name].written(folder).item


def read(item: str) -> None:
    for chunk in plan(open_source((item,)), 2**20, "off", 0):
        for _ in read_blocks(chunk, Timeline()):
            pass


def message_of(item: str) -> str:
    with pytest.raises(PipelineError) as caught:
        read(item)
    assert "\n" not in str(caught.value)
    return str(caught.value)


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


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda file, h5py: file.create_dataset("a", data=np.array(["x"], object), dtype=h5py.string_dtype()), "Python "
         "objects, which are never unpickled"),
        (lambda file, h5py: file.create_dataset("a", data=np.ones(3, bool)), "got bool; convert"),
        (lambda file, h5py: file.create_dataset("a", data=np.ones(3, complex)), "got complex128; convert"),
        (lambda file, h5py: file.create_dataset("a", data=np.zeros(3, "i4,f8")), "got [("),
        (lambda file, h5py: file.create_dataset("a", data=h5py.Empty("f4")), "an empty data set without a shape"),
        (lambda file, h5py: file.create_dataset("a", (0, 3), "f4"), "got an empty array of shape (0, 3)"),
        (lambda file, h5py: file.create_dataset("a", (9,), "i4", external=[("b.raw", 0, 36)]), "lies in other files"),
        (lambda file, h5py: file.create_virtual_dataset("a", h5py.VirtualLayout((9,), "i4")), "lies in other files"),
        (lambda file, h5py: file.__setitem__("a", h5py.ExternalLink("b.h5", "/x")), "a link to another file"),
        (lambda file, h5py: file.__setitem__("a", h5py.SoftLink("/a")), "expected a member 'a', got none"),
        (lambda file, h5py: file.create_group("a"), "expected a member 'a', got none"),
        (lambda file, h5py: file.create_dataset("a", (4, 2**62), "i8", chunks=(1, 999)), "expected at most 4194304 "),
        (lambda file, h5py: file.create_dataset("a", (2**28,), "f8", chunks=(2**28,)), "at most 1024 MiB decoded"),
    ],
)  # fmt: skip
def test_hdf5(tmp_path: Path, make: Callable[..., Any], expected: str) -> None:
    h5py = package_of("h5py")
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        make(file, h5py)
    (tmp_path / "b.raw").write_bytes(bytes(36))
    assert expected in refused(UsageError, f"{path}::a")


def test_hdf5_filter_that_nobody_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its number is not even asked for: HDF5 would load every library in its plug-in path."""
    h5py = package_of("h5py")
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((10,))
        plist.set_filter(40_000, h5py.h5z.FLAG_OPTIONAL, ())
        space = h5py.h5s.create_simple((30,))
        data = h5py.h5d.create(file.id, b"a", h5py.h5t.NATIVE_INT32, space, plist)
        data.write_direct_chunk((0,), bytes(40))
    code = """
import sys
from pipeline.errors import UsageError
from pipeline.storage.sources import open_source
try:
    open_source((sys.argv[1],))
except UsageError as error:
    print(error)
print([line.split()[-1] for line in open("/proc/self/maps") if "evil" in line])
"""
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if compiler:
        (tmp_path / "evil.cpp").write_text('extern "C" int H5PLget_plugin_type() { __builtin_trap(); }')
        library = [compiler, "-shared", "-fPIC", "-o", str(tmp_path / "libevil.so"), str(tmp_path / "evil.cpp")]
        subprocess.run(library, check=True)
    done = subprocess.run([sys.executable, "-c", code, str(path)], text=True, capture_output=True, check=True,
                          env=os.environ | {"HDF5_PLUGIN_PATH": str(tmp_path)}, cwd=ROOT)  # fmt: skip
    message, loaded = done.stdout.splitlines()
    assert "expected filters that h5py and hdf5plugin have, got [40000]; write it with another" in message
    assert loaded == "[]"


@pytest.mark.parametrize("filters", [{"compression": "gzip"}, {"compression": "gzip", "scaleoffset": 0}])
def test_hdf5_bomb(tmp_path: Path, filters: dict[str, Any]) -> None:
    """A chunk of 200 bytes that inflates to 256 MiB."""
    h5py = package_of("h5py")
    path = tmp_path / "a.h5"
    deflated = zlib.compressobj()
    bomb = b"".join([deflated.compress(bytes(2**20)) for _ in range(256)]) + deflated.flush()
    with h5py.File(path, "w") as file:
        file.create_dataset("a", (100,), "i4", chunks=(50,), **filters).id.write_direct_chunk((0,), bomb)
    assert "more than" in message_of(f"{path}::a")


@pytest.mark.parametrize("name", ["LZ4", "Bitshuffle", "Zstd", "Blosc"])
def test_hdf5_chunk_that_claims_more_than_it_should(tmp_path: Path, name: str) -> None:
    h5py, hdf5plugin = package_of("h5py"), package_of("hdf5plugin")
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        data = file.create_dataset("a", data=np.zeros(3000, "i4"), chunks=(1000,), **getattr(hdf5plugin, name)()).id
        _, chunk = data.read_direct_chunk((1000,))
        claims = {"Blosc": chunk[:4] + struct.pack("<I", 2**30) + chunk[8:],
                  "Zstd": chunk[:4] + b"\xa0" + struct.pack("<I", 2**31) + chunk[6:]}  # fmt: skip
        data.write_direct_chunk((1000,), claims.get(name, struct.pack(">Q", 2**40) + chunk[8:]))
    assert "a chunk that claims" in message_of(f"{path}::a")


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
        ({"dtype": "|b1"}, "got bool; convert"),
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
    assert "got 2 nulls; drop or fill them" in refused(UsageError, f"{tmp_path}/a.parquet::x")
    assert "got 2 nulls; drop or fill them" in message_of(f"{tmp_path}/b.parquet::x")
    assert "got one of bool; cast it" in refused(UsageError, f"{tmp_path}/a.parquet::b")
    assert "got one of list<element: int64>; cast it" in refused(UsageError, f"{tmp_path}/a.parquet::l")


def test_only_one_member_that_the_job_takes(tmp_path: Path) -> None:
    """And groups that lead to one another in 2^40 ways are each looked at once."""
    h5py = package_of("h5py")
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["flags"], file["spectrum"], file["samples"] = np.ones(3, bool), np.ones(3, complex), np.arange(5)
        group = file
        for _ in range(40):
            inner = group.create_group("left")
            group["right"], group = inner, inner
        group["back"] = file["/"]
    assert open_source((str(path),)).samples == 5


def test_complex_sigmf(tmp_path: Path) -> None:
    (tmp_path / "a.sigmf-meta").write_text('{"global": {"core:datatype": "ci16_le"}}')
    np.arange(8, dtype="<i2").tofile(tmp_path / "a.sigmf-data")
    message = refused(UsageError, tmp_path / "a.sigmf-meta")
    assert "expected real samples, got complex ones (ci16_le)" in message and "--dtype int16 --offset 0" in message
    assert open_source((str(tmp_path / "a.sigmf-data"),), "int16", offset=0).samples == 8


@pytest.mark.parametrize(("content", "name"), [(b"\x1f\x8b\x08\0" * 4, "gzip"), (b"fLaC" * 4, "FLAC")])
def test_other_content(tmp_path: Path, content: bytes, name: str) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(content)
    assert f"expected samples, got {name} data" in refused(UsageError, path)
    assert open_source((str(path),), "int32").samples == 4


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [("hdf5 contiguous", "h5py", "hdf5"), ("hdf5 lz4", "hdf5plugin", "hdf5"), ("zarr 3", "numcodecs", "zarr"),
     ("zarr 3, crc32c", "google_crc32c", "zarr"), ("parquet", "pyarrow", "parquet"), ("arrow", "pyarrow", "parquet"),
     ("tiff", "tifffile", "tiff")],
)  # fmt: skip
def test_without_its_package(tmp_path: Path, name: str, package: str, extra: str) -> None:
    """One line with the command that installs it; everything else works without."""
    item = write(name, tmp_path)
    np.arange(100, dtype="i4").tofile(tmp_path / "raw.bin")
    code = """
import sys
for package in ("h5py", "hdf5plugin", "numcodecs", "google_crc32c", "pyarrow", "tifffile", "zarr"):
    if sys.argv[3] in (package, ""):
        sys.modules[package] = None
from pipeline.errors import UsageError
from pipeline.storage.sources import open_source
assert open_source((sys.argv[1],)).samples == 100
try:
    open_source((sys.argv[2],))
except UsageError as error:
    print(error)
"""
    for missing in (package, ""):
        words = [sys.executable, "-c", code, str(tmp_path / "raw.bin"), item, missing]
        done = subprocess.run(words, text=True, capture_output=True, check=True, cwd=ROOT)
        assert len(done.stdout.splitlines()) == 1 and f"pip install 'baru[{extra}]'" in done.stdout, done.stdout


@pytest.mark.usefixtures("shared")
def test_nothing_is_written(tmp_path: Path) -> None:
    item = write("hdf5 deflate", tmp_path)
    for job in ("transpose", "stencil"):
        with pytest.raises(UsageError, match="expected an array that is stored in one piece"):
            pipeline.run(job, item, output=tmp_path / "out.npy")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.h5"]
