"""Stores of int16 samples in the formats that are compared: parts of a file of samples, repeated."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

SHARD_BYTES = 2**24  # of decoded samples, and of a chunk of the uncompressed store
LEVELS = 4096  # values are less

Samples = NDArray[np.int16]


def held(samples: int) -> Samples:
    """Values, each held for up to 13 samples: LZ4 makes a third of them."""
    random = np.random.default_rng(0)
    values = random.integers(0, LEVELS, min(samples, 2**24) // 7 + 1, dtype=np.int16)
    return np.resize(np.repeat(values, random.integers(1, 14, len(values))), samples)


def noise(samples: int) -> Samples:
    """Gaussian noise of 3 steps: Zstandard makes a third of them."""
    part = LEVELS / 2 + np.random.default_rng(1).normal(0, 3, min(samples, 2**24))
    return np.resize(part.astype(np.int16), samples)


def raw(path: Path, tile: Samples, times: int) -> None:
    """The samples as they are."""
    with path.open("wb") as file:
        for _ in range(times):
            file.write(tile.data)


def packed(path: Path, tile: Samples, times: int) -> None:
    """As `--dtype u12p` has them: two samples in three bytes, the first one in the lowest bits."""
    with path.open("wb") as file:
        for _ in range(times):
            for part in np.split(tile, max(len(tile) // 2**22, 1)):
                pairs = part.astype("<u4").reshape(-1, 2)
                words = pairs[:, 0] | pairs[:, 1] << np.uint32(12)
                file.write(np.ascontiguousarray(words.view(np.uint8).reshape(-1, 4)[:, :3]).data)


def hdf5(path: Path, tile: Samples, times: int) -> None:
    """A contiguous data set."""
    import h5py

    with h5py.File(path, "w") as file:
        data = file.create_dataset("data", (times * len(tile),), tile.dtype)
        for number in range(times):
            data[number * len(tile) : (number + 1) * len(tile)] = tile


def arrow(path: Path, tile: Samples, times: int) -> None:
    """An uncompressed column, in record batches."""
    import pyarrow

    batch = pyarrow.record_batch({"x": tile})
    with pyarrow.OSFile(str(path), "wb") as file, pyarrow.ipc.new_file(file, batch.schema) as writer:
        for _ in range(times):
            writer.write(batch)


def zarr(path: Path, tile: Samples, times: int) -> None:
    """Uncompressed chunks, a file for each."""
    _described(path, len(tile) * times, SHARD_BYTES // 2, [_little()])
    _chunks(path, [[part.data] for part in _cut(tile, SHARD_BYTES)], times)


def sharded(codec: str, chunk_kib: int) -> Callable[[Path, Samples, int], None]:
    """Writes compressed chunks, many in a file."""

    def write(path: Path, tile: Samples, times: int) -> None:
        from numcodecs import lz4

        encode = {"lz4": lz4.compress, "zstd": _zstd}[codec]
        settings = {"lz4": {}, "zstd": {"level": 1, "checksum": False}}[codec]
        inner = [_little(), {"name": codec, "configuration": settings}]
        how = {"chunk_shape": [chunk_kib * 512], "codecs": inner, "index_codecs": [_little()], "index_location": "end"}
        sharding = {"name": "sharding_indexed", "configuration": how}
        _described(path, len(tile) * times, SHARD_BYTES // 2, [sharding])
        with ThreadPoolExecutor() as pool:
            parts = list(pool.map(encode, _cut(tile, chunk_kib * 1024)))
        of_shard = SHARD_BYTES // (chunk_kib * 1024)
        shards = [_shard(parts[start : start + of_shard]) for start in range(0, len(parts), of_shard)]
        _chunks(path, shards, times)

    return write


def hdf5_chunks(codec: str, chunk_kib: int) -> Callable[[Path, Samples, int], None]:
    """Writes a data set in compressed chunks, which are stored as they are: no plug-in takes part."""

    def write(path: Path, tile: Samples, times: int) -> None:
        import h5py

        encode, code, options = {
            "lz4": (_hdf5_lz4, 32004, ()), "zstd": (_zstd, 32015, ()), "deflate": (zlib.compress, 1, (6,))
        }[codec]  # fmt: skip
        with ThreadPoolExecutor() as pool:
            parts = list(pool.map(encode, _cut(tile, chunk_kib * 1024)))
        chunk = chunk_kib * 512
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((chunk,))
        plist.set_filter(code, h5py.h5z.FLAG_OPTIONAL, options)
        with h5py.File(path, "w", libver="latest") as file:
            space = h5py.h5s.create_simple((times * len(tile),))
            data = h5py.h5d.create(file.id, b"data", h5py.h5t.NATIVE_INT16, space, plist)
            for number in range(times * len(parts)):
                data.write_direct_chunk((number * chunk,), parts[number % len(parts)])

    return write


def _zstd(part: Samples) -> bytes:
    from numcodecs import zstd

    return bytes(zstd.compress(part, 1))


def _hdf5_lz4(part: Samples) -> bytes:
    """As HDF5's filter frames it: one block."""
    from numcodecs import lz4

    block = lz4.compress(part)[4:]
    head = (part.nbytes.to_bytes(8, "big"), part.nbytes.to_bytes(4, "big"), len(block).to_bytes(4, "big"))
    return b"".join((*head, bytes(block)))


def _little() -> dict[str, Any]:
    return {"name": "bytes", "configuration": {"endian": "little"}}


def _cut(tile: Samples, nbytes: int) -> Iterator[Samples]:
    return (tile[start : start + nbytes // 2] for start in range(0, len(tile), nbytes // 2))


def _shard(parts: list[bytes]) -> list[Any]:
    sizes = np.array([len(part) for part in parts])
    index = np.stack([np.cumsum(sizes) - sizes, sizes], 1).astype("<u8")
    return [*parts, index.tobytes()]


def _described(path: Path, samples: int, chunk: int, codecs: list[Any]) -> None:
    (path / "c").mkdir(parents=True)
    grid = {"name": "regular", "configuration": {"chunk_shape": [chunk]}}
    keys = {"name": "default", "configuration": {"separator": "/"}}
    described = {"zarr_format": 3, "node_type": "array", "shape": [samples], "data_type": "int16", "chunk_grid": grid,
                 "chunk_key_encoding": keys, "fill_value": 0, "codecs": codecs, "attributes": {}}  # fmt: skip
    (path / "zarr.json").write_text(json.dumps(described))


def _chunks(path: Path, bodies: list[list[Any]], times: int) -> None:
    for number in range(times * len(bodies)):
        with (path / "c" / str(number)).open("wb") as file:
            file.writelines(bodies[number % len(bodies)])
