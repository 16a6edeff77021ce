"""A Zarr 3 store of one array without compression: all its chunks in one shard, so that one file holds the array."""

from __future__ import annotations

import json
import math
import os
import shutil
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common.private import close
from pipeline.errors import UsageError
from pipeline.storage.formats.common import library
from pipeline.storage.formats.zarr_metadata import NUMBERS, parse, read_json
from pipeline.storage.layout import Layout, counts_of, padded_bytes, untiled
from workflows.regions import Spec

METADATA = "zarr.json"
CHUNK_BYTES = 2**24  # of a chunk by default, at most, unless an element has more
MOST_CHUNKS = 2**20
MOST_CHUNK_BYTES = 2**30  # what readers have to hold at once


def zarr_layout(path: str, spec: Spec, chunks: tuple[int, ...] | None) -> Layout:
    """Chunks of a shape, or by default as many whole rows as a chunk may have.

    Raises
    ------
    UsageError
        If Zarr has no such dtype, the chunks do not fit the array, or a package is missing.
    """
    if spec.dtype.name not in ("bool", *NUMBERS):
        raise UsageError(f"{path}: expected an array of numbers, which Zarr can store, got {spec}; write it as .npy")
    chosen = _default(spec) if chunks is None else _checked(spec, chunks)
    counts = counts_of(spec.shape, chosen)
    number, nbytes = math.prod(counts), padded_bytes(spec, chosen)
    if number > MOST_CHUNKS:
        raise UsageError(f"{path}: expected at most {MOST_CHUNKS} chunks, got {number} of shape {chosen}; give larger "
                         "--chunks")  # fmt: skip
    footer = b""
    if number > 1:
        with library(path, "and writes Zarr shards", "zarr"):
            import google_crc32c

        size = math.prod(chosen) * spec.dtype.itemsize
        index = np.stack([np.arange(number) * size, np.full(number, size)], axis=1).astype("<u8").tobytes()
        footer = index + google_crc32c.value(index).to_bytes(4, "little")
    key = "/".join(["c", *"0" * len(spec.shape)]) if number else None
    publish = partial(_publish, key=key, metadata=_metadata(spec, chosen, counts))
    return Layout(b"", nbytes, footer, None if chosen[1:] == spec.shape[1:] or number < 2 else chosen, publish)


def _default(spec: Spec) -> tuple[int, ...]:
    """Whole rows, or parts of one if a row has too many bytes."""
    shape, itemsize = spec.shape, spec.dtype.itemsize
    for axis in range(len(shape)):
        below = math.prod(shape[axis + 1 :]) * itemsize
        if below <= CHUNK_BYTES:
            length = min(shape[axis], max(CHUNK_BYTES // max(below, 1), 1))
            return tuple(max(at, 1) for at in (*[1] * axis, length, *shape[axis + 1 :]))
    return (1,) * len(shape)


def _checked(spec: Spec, chunks: tuple[int, ...]) -> tuple[int, ...]:
    if len(chunks) != len(spec.shape) or min(chunks, default=1) < 1:
        raise UsageError(f"--chunks: expected {len(spec.shape)} lengths of 1 or more for an array of shape "
                         f"{spec.shape}, got {','.join(map(str, chunks))}")  # fmt: skip
    fitting = tuple(max(min(pair), 1) for pair in zip(chunks, spec.shape, strict=True))
    if (nbytes := math.prod(fitting) * spec.dtype.itemsize) > MOST_CHUNK_BYTES:
        raise UsageError(f"--chunks: expected chunks of at most {MOST_CHUNK_BYTES >> 20} MiB, got {nbytes >> 20} MiB")
    return fitting


def _metadata(spec: Spec, chunks: tuple[int, ...], counts: tuple[int, ...]) -> bytes:
    order = "big" if spec.dtype.byteorder == ">" else "little"
    stored: Any = {"name": "bytes", "configuration": {"endian": order}}
    outer = [count * chunk for count, chunk in zip(counts, chunks, strict=True)] if math.prod(counts) else list(chunks)
    if math.prod(counts) > 1:
        index = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]
        stored = {"name": "sharding_indexed", "configuration": {
            "chunk_shape": list(chunks), "codecs": [stored], "index_codecs": index, "index_location": "end",
        }}  # fmt: skip
    zero: Any = {"b": False, "c": [0.0, 0.0], "f": 0.0}.get(spec.dtype.kind, 0)
    described = {
        "zarr_format": 3, "node_type": "array", "shape": list(spec.shape), "data_type": spec.dtype.name,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": outer}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": zero, "codecs": [stored], "attributes": {},
    }  # fmt: skip
    return json.dumps(described, indent=2).encode()


def _publish(folder: int, part: str, name: str, key: str | None, metadata: bytes) -> None:
    """Build the store around the complete file, and rename it; if that fails the file has its temporary name again."""
    temporary = f"{part.removesuffix('.part')}.store"
    os.mkdir(temporary, dir_fd=folder)
    store = os.open(temporary, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        file = os.open(METADATA, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=store)
        with os.fdopen(file, "wb") as written:
            written.write(metadata)
            written.flush()
            os.fsync(file)
        if key is None:
            os.unlink(part, dir_fd=folder)
        else:
            parents = key.split("/")[:-1]
            for depth in range(len(parents)):
                os.mkdir("/".join(parents[: depth + 1]), dir_fd=store)
            os.rename(part, key, src_dir_fd=folder, dst_dir_fd=store)
            for depth in range(len(parents)):
                _flush("/".join(parents[: depth + 1]), store)
        os.fsync(store)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            if key is not None and os.path.exists(f"/proc/self/fd/{store}/{key}"):
                os.rename(key, part, src_dir_fd=store, dst_dir_fd=folder)
            shutil.rmtree(temporary, dir_fd=folder)
        raise
    finally:
        close(store)


def _flush(name: str, folder: int) -> None:
    """Flush a folder in another one to disk."""
    opened = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.fsync(opened)
    finally:
        close(opened)


def mapped_zarr(path: str, spec: Spec) -> NDArray[Any]:
    """The array of such a store that is not empty: mapped if it is in C order, else a copy."""
    chunks = parse(read_json(os.path.join(path, METADATA))).chunks
    layout = zarr_layout(path, spec, chunks)
    file = os.path.join(path, "c", *"0" * len(spec.shape))
    if layout.tiles is None:
        return np.memmap(file, spec.dtype, "r", 0, spec.shape)
    stored = np.memmap(file, spec.dtype, "r", 0, (*counts_of(spec.shape, layout.tiles), *layout.tiles))
    return untiled(stored, spec.shape, layout.tiles)
