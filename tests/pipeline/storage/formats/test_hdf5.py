"""HDF5 files that are refused: what lies elsewhere, what is no array of numbers, filters and chunks that lie."""

from __future__ import annotations

import ctypes
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
from pipeline.errors import UsageError
from pipeline.storage.formats import hdf5_filters, hdf5_regions
from pipeline.storage.pieces import BlockPiece
from pipeline.storage.sources import open_source
from tests.cases.files import refused
from tests.cases.format_case import package_of
from tests.cases.format_errors import message_of
from tests.cases.odd_chunks import frame
from tests.cases.slices import read

ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda file, h5py: file.create_dataset("a", data=np.array(["x"], object), dtype=h5py.string_dtype()), "Python "
         "objects, which are never unpickled"),
        (lambda file, h5py: file.create_dataset("a", data=np.ones(3, complex)),
         "got complex ones (complex128); choose a part"),
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
from pipeline.storage.formats import hdf5_filters, hdf5_regions
from pipeline.storage.pieces import BlockPiece
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


def test_hdf5_bomb_before_its_checksum(tmp_path: Path) -> None:
    """Beside a chunk without filters, so that HDF5 would decode it."""
    path, bomb = tmp_path / "a.h5", zlib.compress(bytes(2**24))
    with package_of("h5py").File(path, "w") as file:
        data = file.create_dataset("a", (100,), "i4", chunks=(50,), compression="gzip", fletcher32=True).id
        data.write_direct_chunk((0,), bomb + bytes(4))
        data.write_direct_chunk((50,), bytes(200), 3)
    assert "got more than" in message_of(f"{path}::a")


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


@pytest.mark.parametrize("how", [{}, {"chunks": (10,)}, {"chunks": (10,), "compression": "gzip", "shuffle": True}])
def test_no_plugins_for_what_hdf5_has(tmp_path: Path, how: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """They would take memory and time."""
    monkeypatch.setattr(hdf5_filters, "_registered", lambda: pytest.fail("hdf5plugin was imported"))
    with package_of("h5py").File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("a", data=np.arange(100), **how)
    assert open_source((str(tmp_path / "a.h5"),)).shape == (100,)


def test_the_group_itself_in_a_path(tmp_path: Path) -> None:
    h5py = package_of("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["g/a"] = np.arange(3)
        file["g/link"] = h5py.SoftLink("./a")
    for member in ("./g/a", "g/./a", "g/link", "/g/./link"):
        assert open_source((f"{tmp_path}/a.h5::{member}",)).shape == (3,)


@pytest.mark.parametrize(("shape", "chunks"), [((50,), (3,)), ((17, 29), (2, 3)), ((5, 6, 40), (2, 2, 3))])
@pytest.mark.parametrize("text", ["", "[1:]", "[::3]", "[..., 5:]", "[..., ::7]"])
def test_few_chunks_at_once(
    tmp_path: Path, shape: tuple[int, ...], chunks: tuple[int, ...], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HDF5 takes memory for each chunk that a read crosses."""
    monkeypatch.setattr(hdf5_regions, "AT_ONCE", 4)
    array = np.arange(np.prod(shape), dtype="i4").reshape(shape)
    with package_of("h5py").File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("a", data=array, chunks=chunks, compression="lzf")
    np.testing.assert_array_equal(read(f"{tmp_path}/a.h5{text}").reshape(-1), eval(f"array{text}").reshape(-1))
    for piece in open_source((str(tmp_path / "a.h5"),)).pieces():
        assert isinstance(piece, BlockPiece)
        region = piece.block
        assert isinstance(region, hdf5_regions.Region)
        axis = int(np.argmax([len(one) for one in region.ranges]))
        parts = list(region._parts(axis))
        assert [at for part in parts for at in part[axis]] == list(region.ranges[axis])
        crossed = max(len({at // chunks[axis] for at in part[axis]}) for part in parts)
        assert crossed <= max(2, 1 + 4 * -(-shape[axis] // chunks[axis]) // region.crossed)


def _created(file: Any, h5py: Any, chunks: tuple[int, ...] | None, add: Callable[[Any], Any]) -> Any:
    """A data set of 20 × 30 int16 whose properties h5py's own functions do not have."""
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    if chunks:
        plist.set_chunk(chunks)
    add(plist)
    space = h5py.h5s.create_simple((20, 30))
    return h5py.Dataset(h5py.h5d.create(file.id, b"a", h5py.h5t.STD_I16LE, space, plist))


def _without_fill(h5py: Any, plist: Any) -> None:
    ctypes.CDLL(h5py.h5p.__file__).H5Pset_fill_value(ctypes.c_int64(plist.id), ctypes.c_int64(-1), None)


@pytest.mark.parametrize(("chunks", "filters"), [((7, 13), ()), ((7, 13), (1,)), ((7, 13), (32000,)), (None, ())])
def test_fill_value_that_is_not_defined(
    tmp_path: Path, chunks: tuple[int, ...] | None, filters: tuple[int, ...]
) -> None:
    """It is needed only where something was never written."""
    h5py, array = package_of("h5py"), np.arange(600, dtype="i2").reshape(20, 30)

    def add(plist: Any) -> None:
        plist.set_fill_time(h5py.h5d.FILL_TIME_IFSET)
        _without_fill(h5py, plist)
        for code in filters:
            plist.set_filter(code, h5py.h5z.FLAG_OPTIONAL, (6,) if code == 1 else ())

    for written in (20, 7) if chunks else (20, 0):
        with h5py.File(tmp_path / "a.h5", "w") as file:
            data = _created(file, h5py, chunks, add)
            if written:
                data[:written] = array[:written]
        if written == 20:
            np.testing.assert_array_equal(read(f"{tmp_path}/a.h5"), array.reshape(-1))
        else:
            assert "::/a: expected a fill value, since some chunks were never written" in refused(
                UsageError, tmp_path / "a.h5"
            )


@pytest.mark.parametrize("code", [1, 32000])
def test_fill_value_that_is_never_written(tmp_path: Path, code: int) -> None:
    """HDF5 leaves memory as it is there; netCDF says so of variables that are not to be filled."""
    h5py = package_of("h5py")

    def add(plist: Any) -> None:
        plist.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        plist.set_fill_value(np.array(-7, "i2"))
        plist.set_filter(code, h5py.h5z.FLAG_OPTIONAL, (6,) if code == 1 else ())

    with h5py.File(tmp_path / "a.h5", "w") as file:
        _created(file, h5py, (7, 13), add)[:7] = 5
    np.testing.assert_array_equal(read(f"{tmp_path}/a.h5"), np.repeat([5, -7], [7 * 30, 13 * 30]))


def test_shuffled_after_it_was_deflated(tmp_path: Path) -> None:
    """Bytes whose number nobody knows were sorted; by LZ4 HDF5 does it."""
    h5py, array = package_of("h5py"), np.arange(600, dtype="i2").reshape(20, 30)
    for code in (1, hdf5_filters.LZ4):
        package_of("hdf5plugin")

        def add(plist: Any, code: int = code) -> None:
            plist.set_filter(code, h5py.h5z.FLAG_OPTIONAL, (6,) if code == 1 else ())
            plist.set_shuffle()

        with h5py.File(tmp_path / "a.h5", "w") as file:
            _created(file, h5py, (7, 30), add)[...] = array
        if code == 1:
            assert "expected deflate as the last filter, got deflate, shuffle" in refused(UsageError, tmp_path / "a.h5")
        else:
            np.testing.assert_array_equal(read(f"{tmp_path}/a.h5"), array.reshape(-1))


def test_zstandard_that_does_not_say_its_size(tmp_path: Path) -> None:
    """HDF5's own filter cannot decode it, so it is asked only where there is another filter; then it is refused."""
    h5py, hdf5plugin, array = package_of("h5py"), package_of("hdf5plugin"), np.arange(20, dtype="u1")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name, how in (("alone", {}), ("scaled", {"scaleoffset": 8})):
            data = file.create_dataset(name, (20,), "u1", chunks=(10,), **how, **hdf5plugin.Zstd())
            for first in (0, 10):
                data.id.write_direct_chunk((first,), frame(array[first : first + 10].tobytes(), False))
    np.testing.assert_array_equal(read(f"{tmp_path}/a.h5::alone"), array)
    np.testing.assert_array_equal(read(f"{tmp_path}/a.h5::alone[1::3]"), array[1::3])
    assert "a chunk that does not say how many bytes it has" in message_of(f"{tmp_path}/a.h5::scaled")


@pytest.mark.parametrize("shape", [(3, 0, 2), (2, 3, 0), (0, 2**40)])
def test_empty_data_set_that_is_not_chunked(tmp_path: Path, shape: tuple[int, ...]) -> None:
    """Nothing is stored of it, so its bytes have no place in the file."""
    with package_of("h5py").File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("a", shape, "f8")
    assert open_source((f"{tmp_path}/a.h5::a",), samples=False).shape == shape
    assert pipeline.run("reduce", f"{tmp_path}/a.h5::a", op="count", device="cpu").values == {"count": 0}
