"""What formats permit and writers do, but rarely: read as their own libraries read it, or refused in one clear line."""

from __future__ import annotations

import codecs
import json
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pipeline.errors import UsageError
from pipeline.storage.blocks import read_blocks
from pipeline.storage.chunks import plan
from pipeline.storage.other_content import OtherContent, other_of
from pipeline.storage.protocol import Opening
from pipeline.storage.sources import open_source
from pipeline.timeline import Timeline
from tests.cases.files import refused
from tests.cases.format_case import package_of
from tests.cases.format_files import IMAGES
from tests.cases.slices import read

NUMBERS = np.random.default_rng(0).integers(-100, 100, (37, 41)).astype("i2")


def _zarr(folder: Path, edit: Callable[[dict[str, Any]], Any], **how: Any) -> str:
    """An array of Zarr 3 whose metadata are edited."""
    path = folder / "a.zarr"
    array = package_of("zarr").create_array(str(path), shape=NUMBERS.shape, dtype="i2", chunks=(10, 41), **how)
    array[...] = NUMBERS
    described = json.loads((path / "zarr.json").read_text())
    edit(described)
    (path / "zarr.json").write_text(json.dumps(described))
    return str(path)


@pytest.mark.parametrize("field", [{"name": "a"}, {"must_understand": True}, 3, None])
def test_zarr_extension_that_must_be_understood(tmp_path: Path, field: Any) -> None:
    """So says version 3 of all fields that it does not have, unless they say otherwise."""
    item = _zarr(tmp_path, lambda described: described.update(scale=field))
    assert "expected an array that can be read, got the field 'scale'" in refused(UsageError, item)


def test_zarr_extension_that_need_not_be_understood(tmp_path: Path) -> None:
    item = _zarr(tmp_path, lambda described: described.update(scale={"must_understand": False}))
    np.testing.assert_array_equal(read(item), NUMBERS.reshape(-1))


def test_zarr_without_what_it_must_have(tmp_path: Path) -> None:
    item = _zarr(tmp_path, lambda described: described.pop("fill_value"))
    assert "got no 'fill_value'; convert it" in refused(UsageError, item)


@pytest.mark.parametrize(("names", "readable"), [
    (("Crc32cCodec", "ZstdCodec"), False), (("GzipCodec", "ZstdCodec"), False), (("BloscCodec", "GzipCodec"), False),
    (("ZstdCodec", "Crc32cCodec"), True), (("Crc32cCodec", "Crc32cCodec"), True),
])  # fmt: skip
@pytest.mark.parametrize("shards", [None, (20, 41)])
def test_zarr_codecs_of_what_others_encoded(
    tmp_path: Path, names: tuple[str, ...], readable: bool, shards: tuple[int, int] | None
) -> None:
    """Nobody knows how many bytes the outer one makes, so they are refused, and not for damage."""
    made = [getattr(package_of("zarr.codecs"), name)() for name in names]
    item = _zarr(tmp_path, lambda described: None, compressors=made, shards=shards)
    if readable:
        np.testing.assert_array_equal(read(item), NUMBERS.reshape(-1))
    else:
        assert "got codecs that encode the output of other codecs" in refused(UsageError, item)


@pytest.mark.parametrize("how", [{"imagej": True}, {"imagej": True, "metadata": {"axes": "ZYX"}}, {}])
def test_tiff_with_one_page_before_all_images(tmp_path: Path, how: dict[str, Any]) -> None:
    """As ImageJ writes stacks of more than 4 GiB: the description of the only page says how many there are."""
    tifffile, path = package_of("tifffile"), str(tmp_path / "a.tif")
    tifffile.imwrite(path, IMAGES, photometric="minisblack", truncate=True, **how)
    with tifffile.TiffFile(path) as file:
        assert len(file.pages) == 1
    assert open_source((path,)).shape == IMAGES.shape == tifffile.imread(path).shape
    np.testing.assert_array_equal(read(path), IMAGES.reshape(-1))
    content = Path(path).read_bytes()
    more = content.replace(b"s=5", b"s=9").replace(b"[5, ", b"[9, ")
    for lying in (content[: -IMAGES[0].nbytes], more, more.replace(b"[9, 37, 41]", b"[9999999, 9]")):
        Path(path).write_bytes(lying)
        assert "expected a TIFF file, got " in refused(UsageError, path)


@pytest.mark.filterwarnings("ignore:.*zero-size array")
def test_tiff_without_pixels(tmp_path: Path) -> None:
    """As tifffile writes an empty array."""
    package_of("tifffile").imwrite(path := str(tmp_path / "a.tif"), np.zeros((0, 4), "u1"))
    assert "expected pages of at least one pixel, got one of " in refused(UsageError, path)


@pytest.mark.parametrize("compression", [None, "zlib"])
def test_tiff_pages_of_other_tiles(tmp_path: Path, compression: str | None) -> None:
    """As many of them, of the same number of bytes: they were taken for those of the first page."""
    tifffile, path, image = package_of("tifffile"), str(tmp_path / "a.tif"), np.zeros((64, 64), "u1")
    with tifffile.TiffWriter(path) as file:
        for tile in ((16, 64), (64, 16)):
            file.write(image, tile=tile, contiguous=False, compression=compression, photometric="minisblack")
    assert "expected strips or tiles of one shape in every page" in refused(UsageError, path)


@pytest.mark.parametrize(("tag", "value", "got"), [
    ("StripByteCounts", 0, " of 0 bytes"), ("Compression", 1, "got one of uncompressed ones"),
    ("SampleFormat", 5, "got 32 of COMPLEXINT"),
])  # fmt: skip
def test_tiff_tags_that_readers_take_in_several_ways(tmp_path: Path, tag: str, value: int, got: str) -> None:
    """libtiff guesses a size that is missing, and has no predictor where pages are not compressed."""
    tifffile, path = package_of("tifffile"), tmp_path / "a.tif"
    how = {"compression": "zlib", "predictor": 2} if tag == "Compression" else {}
    tifffile.imwrite(path, IMAGES[0].astype("i4"), photometric="minisblack", metadata=None, **how)
    with tifffile.TiffFile(path, mode="r+b") as file:
        file.pages[0].tags[tag].overwrite(value)
    assert got in refused(UsageError, path)


def _wav(path: Path, form: bytes, data: bytes, magic: bytes = b"RIFF") -> Path:
    long = struct.pack("<4sIQQQI", b"ds64", 28, 0, len(data), 0, 0) if magic != b"RIFF" else b""
    body = long + struct.pack("<4sI", b"fmt ", len(form)) + form + struct.pack("<4sI", b"data", len(data)) + data
    path.write_bytes(struct.pack("<4sI4s", magic, 4 + len(body), b"WAVE") + body)
    return path


PCM = struct.pack("<HHIIHH", 1, 1, 8000, 16000, 2, 16)
PLAIN, AMBISONIC = "000000001000800000aa00389b71", "00002107d3118644c8c1ca000000"


def _extensible(bits: int, valid: int, kind: int, tail: str) -> bytes:
    width = bits // 8
    return struct.pack("<HHIIHHHHIH", 0xFFFE, 1, 8000, 8000 * width, width, bits, 22, valid, 0, kind) + bytes.fromhex(
        tail
    )


@pytest.mark.parametrize("form", [PCM, _extensible(16, 16, 1, PLAIN), _extensible(16, 16, 1, AMBISONIC)])
@pytest.mark.parametrize("magic", [b"RIFF", b"RF64", b"BW64"])
@pytest.mark.parametrize("name", ["a.wav", "a.raw"])
def test_wav(tmp_path: Path, form: bytes, magic: bytes, name: str) -> None:
    np.testing.assert_array_equal(read(str(_wav(tmp_path / name, form, NUMBERS.tobytes(), magic))), NUMBERS.reshape(-1))


@pytest.mark.parametrize(("form", "got"), [
    (_extensible(24, 20, 1, PLAIN), "samples of 20 bits in 24"), (_extensible(32, 24, 1, PLAIN), "of 24 bits in 32"),
    (_extensible(16, 16, 1, 14 * "01"), "01000101010101010101010101010101; convert it to PCM"),
    (PCM[:2] + b"\0\0" + PCM[4:], "0 channels; convert it to PCM"), (b"\6" + PCM[1:], "samples of kind 6 with 16 bits"),
])  # fmt: skip
def test_wav_of_other_samples(tmp_path: Path, form: bytes, got: str) -> None:
    assert got in refused(UsageError, _wav(tmp_path / "a.wav", form, bytes(96)))


def test_flac_without_its_length(tmp_path: Path) -> None:
    """As a program writes it that does not know when the stream ends."""
    soundfile, path = package_of("soundfile"), tmp_path / "a.flac"
    soundfile.write(path, NUMBERS.reshape(-1), 8000, "PCM_16")
    content = bytearray(path.read_bytes())
    content[21:26] = bytes([content[21] & 0xF0, 0, 0, 0, 0])
    path.write_bytes(content)
    assert "got none; was the recording finished?" in refused(UsageError, path)


@pytest.mark.parametrize("bits", [12, 20, 32])
def test_flac_of_other_bits(tmp_path: Path, bits: int) -> None:
    """libsndfile knows none of these."""
    soundfile, path = package_of("soundfile"), tmp_path / "a.flac"
    soundfile.write(path, NUMBERS.reshape(-1), 8000, "PCM_16")
    content = bytearray(path.read_bytes())
    content[20:22] = bytes([content[20] & 0xFE | (bits - 1) >> 4, (bits - 1 & 15) << 4 | content[21] & 15])
    path.write_bytes(content)
    assert f"expected FLAC of 8, 16 or 24 bits, got {bits}; convert it" in refused(UsageError, path)


def test_hdf5_behind_bytes_of_its_user(tmp_path: Path) -> None:
    """Whatever the name: Julia's files begin with 512 bytes of text."""
    path = tmp_path / "a.jld2"
    with package_of("h5py").File(path, "w", userblock_size=512) as file:
        file["a"] = NUMBERS
    content = path.read_bytes()
    path.write_bytes(b"HDF5-based Julia Data Format".ljust(512, b"\0") + content[512:])
    np.testing.assert_array_equal(read(str(path)), NUMBERS.reshape(-1))


def _tar(path: Path) -> None:
    with tarfile.open(path, "w") as file:
        file.add(__file__, "a.sigmf-data")


LINES = "time [µs],value\n1,2\n3,-4\n"


@pytest.mark.parametrize(("what", "write"), [
    ("tar", _tar),
    ("text", lambda path: path.write_text(json.dumps({"collection": {"core:version": "1.2.0"}}))),
    *(("text", lambda path, code=code: path.write_text(LINES * 40, code)) for code in
                     ("utf-8", "latin-1", "utf-8-sig", "utf-16", "cp1252")),
    ("text", lambda path: path.write_bytes(codecs.BOM_UTF16_BE + (LINES * 40).encode("utf-16-be"))),
])  # fmt: skip
def test_content_that_nobody_means_as_samples(tmp_path: Path, what: str, write: Callable[[Path], Any]) -> None:
    """Archives of SigMF are tar files; text has letters beyond ASCII."""
    write(tmp_path / "a")
    content = (tmp_path / "a").read_bytes()
    (tmp_path / "a").write_bytes(content[: len(content) // 4 * 4])
    assert f"expected samples, got {what}; " in refused(OtherContent, tmp_path / "a")
    assert open_source((str(tmp_path / "a"),), "uint8").dtype == np.uint8


def _bytes(*samples: int, dtype: str = "<i4") -> NDArray[Any]:
    return np.array(samples * 30, dtype)


@pytest.mark.parametrize("samples", [_bytes(-246, -200, -208), _bytes(0x3031320A), _bytes(-257, 10, 48, dtype="<i2"),
                                     np.arange(256, dtype="u1"), _bytes(0)])  # fmt: skip
def test_samples_that_are_no_text(samples: NDArray[Any]) -> None:
    """But ASCII alone with lines and digits is."""
    text = samples.dtype == "<i4" and samples[0] == 0x3031320A
    assert (other_of(samples.tobytes(), Opening()) == "text") == text


def test_parquet_column_called_as_a_field_of_another(tmp_path: Path) -> None:
    """Which pyarrow reads besides."""
    pyarrow, path = package_of("pyarrow"), f"{tmp_path}/a.parquet"
    package_of("pyarrow.parquet").write_table(pyarrow.table({"a": [{"b": 1}, {"b": 2}], "a.b": [7, 8]}), path)
    np.testing.assert_array_equal(read(f"{path}::a.b"), [7, 8])


@pytest.mark.parametrize("part", ["real", "imag"])
@pytest.mark.parametrize("how", [{}, {"chunks": (7, 13), "code": 1}, {"chunks": (7, 13), "code": 32000}])
@pytest.mark.parametrize(("kind", "dtype"), [("F32LE", "<c8"), ("F64BE", ">c16")])
def test_complex_type_of_hdf5(tmp_path: Path, kind: str, dtype: str, how: dict[str, Any], part: Any) -> None:
    """Not the pair of h5py, but a type of its own, since HDF5 2."""
    h5py = package_of("h5py")
    if not hasattr(h5py.h5t, f"COMPLEX_IEEE_{kind}"):
        pytest.skip("no complex types")
    array, plist = (NUMBERS + 1j * NUMBERS[::-1]).astype(dtype), h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    if how:
        plist.set_chunk(how["chunks"])
        plist.set_filter(how["code"], h5py.h5z.FLAG_OPTIONAL, (6,))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        stored, space = getattr(h5py.h5t, f"COMPLEX_IEEE_{kind}"), h5py.h5s.create_simple(array.shape)
        h5py.Dataset(h5py.h5d.create(file.id, b"a", stored, space, plist))[...] = array
    source = open_source((str(tmp_path / "a.h5"),), part=part)
    blocks = [block.copy() for chunk in plan(source, 2000, "off", 0) for block in read_blocks(chunk, Timeline())]
    np.testing.assert_array_equal(np.concatenate(blocks), getattr(array, part).reshape(-1))


def test_hdf5_of_matlab_and_netcdf_has_more_than_arrays(tmp_path: Path) -> None:
    """MATLAB stores the shape of an empty array in its place, netCDF an array for each dimension."""
    with package_of("h5py").File(tmp_path / "a.h5", "w") as file:
        file["empty"] = np.array([0, 3], "u8")
        file["empty"].attrs["MATLAB_empty"] = np.uint8(1)
        file.create_dataset("x", (5,), ">f4").attrs["NAME"] = np.bytes_(
            "This is a netCDF dimension but not a netCDF variable         5"
        )
        file["data"] = NUMBERS
        file["data"].attrs["NAME"] = np.arange(3)
    assert open_source((str(tmp_path / "a.h5"),)).names == (f"{tmp_path}/a.h5::/data",)
    assert "got an empty one, of which MATLAB stores" in refused(UsageError, f"{tmp_path}/a.h5::empty")
