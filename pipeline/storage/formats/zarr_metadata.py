"""What the metadata of a Zarr array say, in versions 2 and 3."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pipeline.storage.formats.codecs import GZIP, ZLIB, Decoder, Inflate, Step, Unshuffle, blosc, crc32c, lz4, zstd
from pipeline.storage.formats.places import Index
from pipeline.storage.protocol import component_of

MOST_JSON = 2**24  # bytes of metadata
MOST_DIMENSIONS = 32
SIMPLE: dict[str, tuple[Step, str]] = {
    "gzip": (Inflate(GZIP), ""), "zlib": (Inflate(ZLIB), ""), "zstd": (zstd, "numcodecs"),
    "lz4": (lz4, "numcodecs"), "blosc": (blosc, "numcodecs"), "crc32c": (crc32c, "google_crc32c"),
}  # fmt: skip


@dataclass(frozen=True)
class Shard:
    """How the chunks of a file are listed: whether at its end, and with a checksum."""

    at_end: bool
    checked: bool


@dataclass(frozen=True)
class Array:
    """An array.

    Attributes
    ----------
    shape, dtype
    chunks
        Shape of what is decoded at once.
    outer
        Shape of what is in one file: of a chunk, or of a shard.
    decode
        Stored bytes -> samples of a chunk; None if they are the samples.
    fill
        The value of missing chunks, as bytes of one sample.
    prefix, separator
        Of the names of files.
    compression
        Codecs, in words.
    packages
        What they need.
    shard
        None if there is one chunk in a file.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunks: tuple[int, ...]
    outer: tuple[int, ...]
    decode: Decoder | None
    fill: bytes
    prefix: str
    separator: str
    compression: str
    packages: tuple[str, ...]
    shard: Shard | None = None

    def of_dtype(self, dtype: np.dtype[Any]) -> Array:
        """The same bytes as samples of a dtype."""
        return replace(self, dtype=dtype, decode=self.decode and replace(self.decode, dtype=dtype))

    def key(self, index: Index) -> str:
        """File of a chunk or shard, below the array's folder."""
        numbers = self.separator.join(map(str, index))
        return self.prefix + (f"{self.separator}{numbers}" if self.prefix and index else numbers or
                              ("" if self.prefix else "0"))  # fmt: skip


def read_json(path: str) -> dict[str, Any]:
    """An object of JSON in a file; ValueError if there is something else."""
    with open(path, "rb") as file:
        return json_of(file.read(MOST_JSON + 1))


def json_of(text: bytes) -> dict[str, Any]:
    """An object of JSON; ValueError if there is something else."""
    try:
        value = json.loads(text) if len(text) <= MOST_JSON else None
    except RecursionError:
        value = None
    if not isinstance(value, dict):
        raise ValueError("metadata that are not a JSON object")
    return value


def parse(metadata: dict[str, Any]) -> Array:
    """The array that metadata describe; KeyError, TypeError or ValueError if it cannot be read."""
    if metadata.get("zarr_format") not in (2, 3):
        raise ValueError(f"version {str(metadata.get('zarr_format'))[:20]}")
    return _version_2(metadata) if metadata["zarr_format"] == 2 else _version_3(metadata)


def _version_2(metadata: dict[str, Any]) -> Array:
    if not isinstance(metadata["dtype"], str) or metadata["dtype"][1:2] not in tuple("biufcmM"):
        raise ValueError(f"dtype {str(metadata['dtype'])[:40]!r}")
    dtype = np.dtype(metadata["dtype"])
    shape, chunks = _lengths(metadata["shape"]), _lengths(metadata["chunks"], 1)
    if len(shape) != len(chunks):
        raise ValueError("chunks of another number of dimensions")
    codecs: list[tuple[Step, str]] = []
    words: list[str] = []
    for filter_ in metadata.get("filters") or ():
        if filter_["id"] != "shuffle":
            raise ValueError(f"the filter {str(filter_['id'])[:40]!r}")
        codecs.append((Unshuffle(_integer(filter_.get("elementsize", 4), 1)), ""))
        words.append("shuffle")
    if (compressor := metadata.get("compressor")) is not None:
        codecs.append(_codec(compressor["id"]))
        words.append(compressor["id"])
    order = tuple(range(len(shape)))
    if metadata["order"] not in ("C", "F"):
        raise ValueError(f"order {str(metadata['order'])[:20]!r}")
    order = order if metadata["order"] == "C" else order[::-1]
    decode = _decoder(codecs, dtype, order)
    separator = metadata.get("dimension_separator", ".")
    return Array(shape, dtype, chunks, chunks, decode, _fill(metadata["fill_value"], dtype), "", _separator(separator),
                 ", ".join(words), _packages(codecs))  # fmt: skip


def _version_3(metadata: dict[str, Any]) -> Array:
    grid, key = metadata["chunk_grid"], metadata["chunk_key_encoding"]
    if metadata["node_type"] != "array" or grid["name"] != "regular" or key["name"] not in ("default", "v2"):
        raise ValueError("another node, chunk grid or chunk key encoding")
    if metadata.get("storage_transformers"):
        raise ValueError("storage transformers")
    for field in sorted(metadata.keys() - KEYS):  # an extension, which may change what the rest means
        if not isinstance(metadata[field], dict) or metadata[field].get("must_understand") is not False:
            raise ValueError(f"the field {field[:40]!r}")
    name = metadata["data_type"]
    if not isinstance(name, str) or name not in ("bool", *NUMBERS):
        raise ValueError(f"data type {str(name.get('name') if isinstance(name, dict) else name)[:40]!r}")
    shape, outer = _lengths(metadata["shape"]), _lengths(grid["configuration"]["chunk_shape"], 1)
    codecs, shard, chunks = metadata["codecs"], None, outer
    if codecs and codecs[0]["name"] == "sharding_indexed":
        given = codecs[0]["configuration"]
        index = [codec["name"] for codec in given["index_codecs"]]
        if len(codecs) > 1 or index not in (["bytes"], ["bytes", "crc32c"]):
            raise ValueError("codecs around shards, or of their index")
        shard = Shard(given.get("index_location", "end") == "end", "crc32c" in index)
        chunks, codecs = _lengths(given["chunk_shape"], 1), given["codecs"]
    if not len(shape) == len(outer) == len(chunks) or any(a % b for a, b in zip(outer, chunks, strict=True)):
        raise ValueError("chunks that do not fit their shards or the array")
    dtype, order = np.dtype(name), tuple(range(len(shape)))
    steps: list[tuple[Step, str]] = []
    words = ["sharded"] if shard else []
    ordered = False
    for codec in codecs:
        settings = codec.get("configuration") or {}
        if codec["name"] == "transpose" and not ordered:
            order = tuple(order[axis] for axis in _lengths(settings["order"]))
            if sorted(order) != list(range(len(shape))):
                raise ValueError("an order that is not a permutation")
        elif codec["name"] == "bytes" and not ordered:
            dtype = dtype.newbyteorder(">" if settings.get("endian") == "big" else "<")
            ordered = True
        elif ordered:
            steps.append(_codec(codec["name"]))
            words.append(codec["name"])
        else:
            raise ValueError(f"the codec {str(codec['name'])[:40]!r}")
    if not ordered:
        raise ValueError("no codec that orders bytes")
    if any(step is not crc32c for step, _ in steps[1:]):
        raise ValueError(f"codecs that encode the output of other codecs ({', '.join(words)})")
    decode = _decoder(steps, dtype, order)
    settings = key.get("configuration") or {}
    default = key["name"] == "default"
    separator = _separator(settings.get("separator", "/" if default else "."))
    return Array(shape, dtype, chunks, outer, decode, _fill(metadata["fill_value"], dtype), "c" if default else "",
                 separator, ", ".join(words), _packages(steps), shard)  # fmt: skip


KEYS = {"zarr_format", "node_type", "shape", "data_type", "chunk_grid", "chunk_key_encoding", "fill_value", "codecs",
        "attributes", "storage_transformers", "dimension_names"}  # fmt: skip
NUMBERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64",
            "complex64", "complex128")  # fmt: skip


def _decoder(codecs: Sequence[tuple[Step, str]], dtype: np.dtype[Any], order: tuple[int, ...]) -> Decoder | None:
    straight = order == tuple(range(len(order)))
    if not codecs and straight:
        return None
    return Decoder(tuple(step for step, _ in reversed(codecs)), dtype, None if straight else order)


def _codec(name: Any) -> tuple[Step, str]:
    if not isinstance(name, str) or name not in SIMPLE:
        raise ValueError(f"the codec {str(name)[:40]!r}")
    return SIMPLE[name]


def _packages(codecs: Sequence[tuple[Step, str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(package for _, package in codecs if package))


def _integer(value: Any, least: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**63:
        raise ValueError(f"the length {str(value)[:40]}")
    return value


def _lengths(values: Any, least: int = 0) -> tuple[int, ...]:
    if not isinstance(values, list) or len(values) > MOST_DIMENSIONS:
        raise ValueError(f"the lengths {str(values)[:40]}")
    lengths = tuple(_integer(value, least) for value in values)
    if math.prod(lengths) >= 2**63:
        raise ValueError(f"the lengths {str(values)[:40]}")
    return lengths


def _separator(value: Any) -> str:
    if value not in (".", "/"):
        raise ValueError(f"the separator {str(value)[:20]!r}")
    return str(value)


def _fill(value: Any, dtype: np.dtype[Any]) -> bytes:
    """One sample of the fill value; 0 if there is none, as zarr itself has it."""
    if isinstance(value, str) and value.startswith("0x"):
        data = int(value, 16).to_bytes(dtype.itemsize, "big")
        return np.frombuffer(data, dtype.newbyteorder(">")).astype(dtype).tobytes()
    if isinstance(value, list) and len(value) == 2 and (component := component_of(dtype)) is not None:
        return b"".join(_fill(number, component) for number in value)
    if isinstance(value, list):
        raise ValueError("a fill value of several parts")
    number = float(value) if isinstance(value, str) else 0 if value is None else value
    if dtype.kind in "iu" and number != int(number):
        raise ValueError(f"the fill value {str(value)[:40]}")
    return np.array(number, dtype).tobytes()
