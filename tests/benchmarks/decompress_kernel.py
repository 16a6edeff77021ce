"""Rates of the kernels that decompress chunks, on one GPU, for as many as a batch has and for more.

python3 -m tests.benchmarks.decompress_kernel OUT.json
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernels.common.decompress import decompress
from kernels.study.roofline import read_stream
from tests.benchmarks.common import device_medians, save
from tests.benchmarks.format_stores import held, noise
from tests.benchmarks.markdown import table

TILE = 2**25  # bytes that differ, and that the device repeats
CHUNKS_KIB = (16, 64, 256, 1024)
MEBIBYTES = (1024, 384)  # of all chunks; a batch has some 384 where chunks are stored in a third of their bytes


def walk(samples: int) -> NDArray[np.int16]:
    """A random walk: neighbours differ by some 30 steps."""
    return np.cumsum(np.random.default_rng(2).normal(0, 30, samples)).astype(np.int16)


def few(samples: int) -> NDArray[np.int16]:
    """Numbers of a Zipf distribution: most are small."""
    return np.minimum(np.random.default_rng(3).zipf(1.5, samples), 30_000).astype(np.int16)


KINDS: Mapping[str, Callable[[int], NDArray[np.int16]]] = {
    "held": held, "noise": noise, "walk": walk, "walk, shuffled": walk, "Zipf": few,
    "zeros": lambda samples: np.zeros(samples, np.int16),
    "random": lambda samples: np.random.default_rng(4).integers(-(2**15), 2**15, samples, np.int16),
}  # fmt: skip


def _lz4(chunk: bytes) -> bytes:
    from numcodecs import lz4

    return bytes(lz4.compress(chunk))


def _zstd(chunk: bytes) -> bytes:
    from numcodecs import zstd

    return bytes(zstd.compress(chunk, 3))


WRITERS: Mapping[str, Callable[[bytes], bytes]] = {"Zstd": _zstd, "Sized": _lz4, "Zlib": zlib.compress}


@cache
def samples_of(kind: str, nbytes: int) -> NDArray[np.int16]:
    """As many bytes of one kind."""
    return KINDS[kind](nbytes // 2)


def chunks_of(kind: str, nbytes: int, chunk_bytes: int) -> list[bytes]:
    """Bytes of the samples, in chunks; shuffled ones as HDF5's filter shuffles them."""
    rows = samples_of(kind, nbytes).view(np.uint8).reshape(-1, chunk_bytes // 2, 2)
    if "shuffled" in kind:
        rows = rows.swapaxes(1, 2)
    return [row.tobytes() for row in rows]


def case(
    framing: str, kind: str, chunk_kib: int, mebibytes: int, repeats: int, lead: Callable[[], Any]
) -> dict[str, Any]:
    """Bytes per second of what is decompressed, which is compared with what was compressed."""
    import cupy

    chunk_bytes, nbytes = 2**10 * chunk_kib, 2**20 * mebibytes
    chunks = chunks_of(kind, min(TILE, nbytes), chunk_bytes)
    with ThreadPoolExecutor() as pool:
        stored = list(pool.map(WRITERS[framing], chunks))
    times = nbytes // (chunk_bytes * len(chunks))
    sizes = np.tile([len(one) for one in stored], times)
    starts, places = np.cumsum(sizes) - sizes, np.arange(len(sizes))
    on_device = cupy.tile(cupy.asarray(np.frombuffer(b"".join(stored), np.uint8)), times)
    out = cupy.zeros(nbytes, np.uint8)
    right: list[Any] = []
    works = {
        "decompress": lambda: right.append(decompress(on_device, starts, sizes, out, places, chunk_bytes, framing))
    }
    taken = device_medians(works, repeats, lead)["decompress"]
    same = (out.reshape(times, -1) == cupy.asarray(np.frombuffer(b"".join(chunks), np.uint8))).all()
    return {"framing": framing, "samples": kind, "chunk KiB": chunk_kib, "MiB": mebibytes, "chunks": len(sizes),
            "stored": len(on_device) / nbytes, "GB/s": nbytes / taken / 1e9,
            "verified": bool(same) and all(bool(one.all()) for one in right)}  # fmt: skip


def measure(
    repeats: int = 3, chunks_kib: tuple[int, ...] = CHUNKS_KIB, mebibytes: tuple[int, ...] = MEBIBYTES,
    kinds: tuple[str, ...] = tuple(KINDS),
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Every framing, kind, size of a chunk and number of them, after each."""
    import cupy

    ahead, rows = cupy.zeros(2**20 * max(mebibytes) // 4, cupy.uint32), []
    for framing in WRITERS:
        for kind in kinds:
            for chunk_kib in chunks_kib:
                for number in mebibytes:
                    rows.append(case(framing, kind, chunk_kib, number, repeats, lambda: read_stream(ahead)))
                found = [round(row["GB/s"], 1) for row in rows[-len(mebibytes) :]]
                print(framing, kind, chunk_kib, found, all(row["verified"] for row in rows), flush=True)
                yield {"repeats": repeats, "cases": rows}


def described(figures: Mapping[str, Any]) -> str:
    """A table: GB/s by codec and samples, and by size and number of chunks."""
    rows, columns = dict[tuple[str, str], dict[int, list[float]]](), dict[int, None]()
    stored = dict[tuple[str, str], float]()
    for row in figures["cases"]:
        name = row["framing"], row["samples"]
        columns[row["chunk KiB"]] = None
        rows.setdefault(name, {}).setdefault(row["chunk KiB"], []).append(row["GB/s"])
        stored.setdefault(name, row["stored"])
    names = {"Zstd": "Zstandard", "Sized": "LZ4", "Zlib": "deflate"}
    lines = [[f"{names[name[0]]}, {name[1]}", f"{stored[name]:.2f}",
              *(", ".join(f"{rate:.3g}" if rate < 100 else f"{rate:.0f}" for rate in of_name[kib]) for kib in columns)]
             for name, of_name in rows.items()]  # fmt: skip
    return table(["chunks of", "stored", *(f"{kib} KiB" for kib in columns)], lines)


if __name__ == "__main__":
    save(measure(), sys.argv[1])
