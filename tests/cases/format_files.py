"""Files of every format, written by the format's own library, each with the array that this library reads back."""

from __future__ import annotations

import ctypes
import zlib
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.cases.format_case import Case, Written
from tests.cases.recordings import edf, flac, sigmf, wav

CUBE = np.random.default_rng(0).integers(-3000, 3000, (37, 41, 23)).astype("<i2")
BIG = CUBE.astype(">i2")
FLOATS = np.random.default_rng(1).normal(size=(300, 7)).astype("f4")
IMAGES = np.random.default_rng(2).integers(0, 60000, (5, 37, 41)).astype("u2")
CHUNKS = (10, 11, 12)  # do not divide the shape of the cube


def _npz(compressed: bool, fortran: bool = False) -> Case:
    def write(folder: Path) -> Written:
        array = np.asfortranarray(FLOATS) if fortran else BIG
        path = folder / "a.npz"
        (np.savez_compressed if compressed else np.savez)(path, first=np.arange(3), second=array)
        read = np.load(path)["second"]
        return Written(f"{path}::second", read.T if fortran and not compressed else read)

    return Case(write)


def _hdf5(array: NDArray[Any], name: str = "group/data", userblock: int = 0, **how: Any) -> Case:
    def write(folder: Path) -> Written:
        import h5py

        path = folder / "a.h5"
        settings = {key: value() if callable(value) else value for key, value in how.items()}
        settings |= settings.pop("codec", {})
        with h5py.File(path, "w", userblock_size=userblock) as file:
            file["other"] = np.arange(5)
            file.create_dataset(name, data=array, **settings)
        if userblock:
            with path.open("r+b") as begin:
                begin.write(b"MATLAB 7.3 MAT-file")
        with h5py.File(path) as file:
            return Written(f"{path}::/{name}", file[name][...])

    return Case(write, ("h5py", "hdf5plugin"))


def _plugin(name: str, **how: Any) -> Callable[[], Any]:
    def make() -> Any:
        import hdf5plugin

        return dict(getattr(hdf5plugin, name)(**how))

    return make


def _partly(folder: Path) -> Written:
    """Chunks that were never written."""
    import h5py

    path = folder / "a.h5"
    with h5py.File(path, "w") as file:
        data = file.create_dataset("data", CUBE.shape, ">i2", chunks=CHUNKS, compression="gzip", fillvalue=-7)
        data[5:12, 3:30] = CUBE[5:12, 3:30]
        return Written(str(path), data[...])


def _left_out(folder: Path) -> Written:
    """Chunks without some filters, or without any, as their masks tell."""
    import h5py

    path = folder / "a.h5"
    with h5py.File(path, "w") as file:
        data = file.create_dataset("data", (90, 7), "f4", chunks=(10, 7), compression="gzip", shuffle=True)
        for number, part in enumerate(np.split(FLOATS[:90], 9)):
            mask = number % 4  # of shuffle 1, of deflate 2
            stored = part.tobytes() if mask & 1 else part.view("u1").reshape(-1, 4).T.tobytes()
            data.id.write_direct_chunk((10 * number, 0), stored if mask & 2 else zlib.compress(stored), mask)
        return Written(str(path), data[...])


def _edges_left_out(*codes: int) -> Case:
    """Chunks that the edge cuts are stored without filters, and their masks do not tell."""

    def write(folder: Path) -> Written:
        import h5py

        path, plist = folder / "a.h5", h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk(CHUNKS)
        assert ctypes.CDLL(h5py.h5p.__file__).H5Pset_chunk_opts(ctypes.c_int64(plist.id), 2) >= 0
        for code in codes:
            plist.set_filter(code, h5py.h5z.FLAG_OPTIONAL, {1: (6,), 32004: (0,)}.get(code, ()))
        with h5py.File(path, "w", libver="latest") as file:
            space = h5py.h5s.create_simple(CUBE.shape)
            data = h5py.Dataset(h5py.h5d.create(file.id, b"data", h5py.h5t.STD_I16LE, space, plist))
            data[...] = CUBE
            return Written(str(path), data[...])

    return Case(write, ("h5py", "hdf5plugin"))


def _never(folder: Path) -> Written:
    import h5py

    path = folder / "a.h5"
    with h5py.File(path, "w") as file:
        return Written(str(path), file.create_dataset("data", (50,), "f8", fillvalue=2.5)[...])


def _zarr(array: NDArray[Any], **how: Any) -> Case:
    def write(folder: Path) -> Written:
        import zarr

        path = folder / "a.zarr"
        settings = {key: value() if callable(value) else value for key, value in how.items()}
        settings = {"chunks": CHUNKS, **settings}
        made = zarr.create_array(str(path), shape=array.shape, dtype=array.dtype, **settings)
        begin = len(array) // 3
        made[begin:, 1:] = array[begin:, 1:]  # the first chunks stay empty, others partly
        return Written(str(path), np.asarray(zarr.open_array(str(path), mode="r")[...], made.dtype))

    return Case(write, ("zarr",))


def _codec(name: str, **how: Any) -> Callable[[], Any]:
    def make() -> Any:
        import zarr.codecs

        return [getattr(zarr.codecs, name)(**how)]

    return make


def _numcodec(module: str, name: str, **how: Any) -> Callable[[], Any]:
    def make() -> Any:
        return [getattr(import_module(module), name)(**how)]

    return make


def _parquet(**how: Any) -> Case:
    def write(folder: Path) -> Written:
        import pyarrow
        import pyarrow.parquet

        path = folder / "a.parquet"
        table = pyarrow.table({"text": ["a"] * 300, "x": FLOATS[:, 0], "y": np.arange(300, dtype="u2")})
        pyarrow.parquet.write_table(table, path, row_group_size=77, **how)
        return Written(f"{path}::x", pyarrow.parquet.read_table(path)["x"].to_numpy())

    return Case(write, ("pyarrow",))


def _arrow(compression: str) -> Case:
    def write(folder: Path) -> Written:
        import pyarrow
        import pyarrow.feather

        path = folder / "a.feather"
        table = pyarrow.table({"text": ["a"] * 300, "x": FLOATS[:, 0], "y": np.arange(300, dtype="u2")})
        pyarrow.feather.write_feather(table, str(path), compression=compression, chunksize=77)
        return Written(f"{path}::y", pyarrow.feather.read_table(str(path))["y"].to_numpy())

    return Case(write, ("pyarrow",))


def _tiff(array: NDArray[Any], **how: Any) -> Case:
    def write(folder: Path) -> Written:
        import tifffile

        path = folder / "a.tif"
        tifffile.imwrite(path, array, **{"photometric": "minisblack", **how})
        read = tifffile.imread(path)
        return Written(str(path), read.astype(read.dtype.newbyteorder(how.get("byteorder", "<"))))

    return Case(write, ("tifffile",))


CASES = {
    "npz stored": _npz(False),
    "npz stored, Fortran": _npz(False, fortran=True),
    "npz deflated": _npz(True),
    "npz deflated, Fortran": _npz(True, fortran=True),
    "hdf5 contiguous": _hdf5(BIG),
    "hdf5 contiguous, float": _hdf5(FLOATS),
    "hdf5 in MATLAB's wrapping": _hdf5(BIG, "a", 512),
    "hdf5 in MATLAB's wrapping, deflate": _hdf5(BIG, "a", 512, chunks=CHUNKS, compression="gzip"),
    "hdf5 rows of chunks": _hdf5(CUBE, chunks=(1, 11, 23)),
    "hdf5 chunks": _hdf5(BIG, chunks=CHUNKS),
    "hdf5 one dimension": _hdf5(FLOATS.reshape(-1), chunks=(100,), compression="gzip"),
    "hdf5 deflate": _hdf5(BIG, chunks=CHUNKS, compression="gzip"),
    "hdf5 shuffle, deflate, fletcher32": _hdf5(
        BIG, chunks=CHUNKS, compression="gzip", shuffle=True, fletcher32=True
    ),
    "hdf5 fletcher32": _hdf5(CUBE, chunks=CHUNKS, fletcher32=True),
    "hdf5 lzf": _hdf5(CUBE, chunks=CHUNKS, compression="lzf", shuffle=True),
    "hdf5 scaleoffset, deflate": _hdf5(CUBE, chunks=CHUNKS, scaleoffset=0, compression="gzip"),
    "hdf5 lz4": _hdf5(BIG, chunks=CHUNKS, codec=_plugin("LZ4")),
    "hdf5 zstd": _hdf5(BIG, chunks=CHUNKS, codec=_plugin("Zstd")),
    "hdf5 bitshuffle": _hdf5(BIG, chunks=CHUNKS, codec=_plugin("Bitshuffle")),
    "hdf5 bitshuffle, none": _hdf5(BIG, chunks=CHUNKS, codec=_plugin("Bitshuffle", cname="none")),
    "hdf5 bitshuffle, zstd": _hdf5(BIG, chunks=CHUNKS, codec=_plugin("Bitshuffle", cname="zstd")),
    "hdf5 blosc": _hdf5(BIG, chunks=CHUNKS, codec=_plugin("Blosc")),
    "hdf5 missing chunks": Case(_partly, ("h5py",)),
    "hdf5 filters left out": Case(_left_out, ("h5py",)),
    "hdf5 edges without deflate": _edges_left_out(2, 1, 3),
    "hdf5 edges without lz4": _edges_left_out(32004),
    "hdf5 edges without bitshuffle": _edges_left_out(32008),
    "hdf5 nothing written": Case(_never, ("h5py",)),
    "zarr 2": _zarr(BIG, zarr_format=2),
    "zarr 2, Fortran": _zarr(BIG, zarr_format=2, order="F"),
    "zarr 2, zlib": _zarr(CUBE, zarr_format=2, compressors=_numcodec("numcodecs", "Zlib")),
    "zarr 2, lz4": _zarr(CUBE, zarr_format=2, compressors=_numcodec("numcodecs", "LZ4")),
    "zarr 2, blosc": _zarr(CUBE, zarr_format=2, compressors=_numcodec("numcodecs", "Blosc")),
    "zarr 2, shuffle": _zarr(
        CUBE, zarr_format=2, filters=_numcodec("numcodecs", "Shuffle", elementsize=2),
        compressors=_numcodec("numcodecs", "GZip"),
    ),
    "zarr 2, as it is": _zarr(BIG, zarr_format=2, compressors=None, chunks=(1, 11, 23)),
    "zarr 2, rows beyond the edge": _zarr(CUBE, zarr_format=2, compressors=None, chunks=(1, 11, 24)),
    "zarr 3": _zarr(CUBE),
    "zarr 3, as it is": _zarr(FLOATS[:, :, None], compressors=None, chunks=(100, 7, 1), fill_value=float("nan")),
    "zarr 3, gzip": _zarr(CUBE, compressors=_codec("GzipCodec")),
    "zarr 3, blosc": _zarr(CUBE, compressors=_codec("BloscCodec")),
    "zarr 3, crc32c": _zarr(CUBE, compressors=_codec("Crc32cCodec")),
    "zarr 3, transposed": _zarr(CUBE, filters=_codec("TransposeCodec", order=(2, 0, 1))),
    "zarr 3, sharded": _zarr(CUBE, shards=(20, 22, 24), fill_value=-9),
    "zarr 3, sharded, as it is": _zarr(CUBE, shards=(20, 22, 24), compressors=None),
    "parquet": _parquet(),
    "parquet, zstd": _parquet(compression="zstd", use_dictionary=False),
    "parquet 1": _parquet(version="1.0", compression="none"),
    "arrow": _arrow("uncompressed"),
    "arrow, lz4": _arrow("lz4"),
    "arrow, zstd": _arrow("zstd"),
    **{f"wav of {8 * width} bits": wav(width, channels) for width, channels in ((1, 1), (2, 2), (3, 2), (4, 1))},
    "tiff": _tiff(IMAGES),
    "tiff, big endian": _tiff(IMAGES, byteorder=">"),
    "tiff, BigTIFF": _tiff(IMAGES, bigtiff=True),
    "tiff, deflate": _tiff(IMAGES, compression="zlib"),
    "tiff, strips": _tiff(IMAGES, rowsperstrip=8, compression="zlib", predictor=True),
    "tiff, tiles": _tiff(IMAGES, tile=(16, 16)),
    "tiff, tiles, deflate": _tiff(IMAGES, tile=(16, 16), compression="zlib", predictor=True, byteorder=">"),
    "tiff, color": _tiff(np.random.default_rng(4).integers(0, 256, (3, 20, 30, 3)).astype("u1"), photometric="rgb"),
    "tiff, float": _tiff(FLOATS),
    "edf": edf(".edf", 2**15),
    "edf, long records": edf(".edf", 2**15, 9000),
    "bdf": edf(".bdf", 2**23),
    "flac of 8 bits": flac(8, 1),
    "flac of 16 bits": flac(16, 2),
    "flac of 24 bits": flac(24, 3),
    "sigmf": sigmf("ri16_be", ">i2"),
    "sigmf, float": sigmf("rf32_le", "<f4"),
}  # fmt: skip
