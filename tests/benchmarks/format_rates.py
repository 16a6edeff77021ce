"""Rates of formats on one GPU beside raw int16, and where the time of compressed ones goes.

python -m tests.benchmarks.format_rates OUT.json [--seconds 85] [--gib 2] [--times 4]

In one process, so that only the first run starts up. Each store is read several times over, as several inputs, in turn
with raw int16. Figures are written after every row, and what the seconds do not suffice for is left out.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from pipeline.__main__ import prepare
from pipeline.cluster.placement import Placement
from pipeline.engine.aggregate import run
from pipeline.engine.aggregate_plan import Job
from pipeline.gpu.devices import find_devices
from pipeline.report.panel import to_json
from pipeline.settings import Settings
from pipeline.storage.chunks import Chunk, plan
from pipeline.storage.sources import Source, open_source
from pipeline.timeline import Timeline
from tests.benchmarks import format_stores
from tests.benchmarks.common import environment
from tests.benchmarks.format_stores import LEVELS, sharded
from tests.benchmarks.formats import stored_bytes
from tests.benchmarks.jobs import MEMORY
from tests.benchmarks.markdown import table
from workflows import WORKFLOWS
from workflows.histogram_options import HistogramOptions

TILE_SAMPLES = 2**27  # written again and again
OPTIONS = HistogramOptions(bins=LEVELS, range=(0.0, float(LEVELS)))
CHUNK_BYTES = 2**31  # of samples, that lanes stream without a cluster; batches are of the first one
BATCHES = 5  # of which the first is not counted
TURNS = (("off", 3), ("auto", 1))  # runs of each row
ROW_SECONDS = 6

Write = Callable[[Path, Any, int], None]
# How samples are stored, the packages that this takes, the name of the file, its dtype, whether samples are noise.
STORES: Mapping[str, tuple[Write, tuple[str, ...], str, str | None, bool]] = {
    "raw, another file": (format_stores.raw, (), "b.bin", "int16", False),  # how much two files alike differ
    "Zarr, LZ4, 64 KiB": (sharded("lz4", 64), ("numcodecs",), "a.zarr", None, False),
    "HDF5, LZ4, 64 KiB": (format_stores.hdf5_chunks("lz4", 64), ("h5py", "numcodecs"), "a.h5", None, False),
    "Zarr, LZ4, 16 KiB": (sharded("lz4", 16), ("numcodecs",), "a.zarr", None, False),
    "Zarr, Zstandard, 64 KiB": (sharded("zstd", 64), ("numcodecs",), "a.zarr", None, True),
    "HDF5, deflate, 64 KiB": (format_stores.hdf5_chunks("deflate", 64), ("h5py",), "a.h5", None, True),
    "u12p": (format_stores.packed, (), "a.bin", "u12p", False),
    "HDF5, contiguous": (format_stores.hdf5, ("h5py",), "a.h5", None, False),
    "Zarr, uncompressed": (format_stores.zarr, (), "a.zarr", None, False),
    "Arrow, uncompressed": (format_stores.arrow, ("pyarrow",), "a.arrow", None, False),
    "Zarr, Zstandard, 16 KiB": (sharded("zstd", 16), ("numcodecs",), "a.zarr", None, True),
    "HDF5, Zstandard, 64 KiB": (format_stores.hdf5_chunks("zstd", 64), ("h5py", "numcodecs"), "a.h5", None, True),
}  # fmt: skip


def streamed(source: Source, device: str, verify: str, counts: Any) -> dict[str, Any]:
    """One run: seconds after its start, stages, share checked, and whether the counts are right."""
    report = to_json(
        run(WORKFLOWS["histogram"], OPTIONS, source, Settings(Placement(device, own_process=True), verify))
    )
    verdict = report["verification"]
    found = report["result"]["histogram"]["storage"]["values"][1:-1]
    return {
        "seconds": report["performance"]["seconds"], "start-up": report["performance"]["start_up_seconds"],
        "stages": {name: stage["busy_seconds"] for name, stage in report["performance"]["stages"].items()},
        "checked": verdict["checked"] / verdict["samples"], "transfers": report["environment"]["transfers"],
        "agrees": found == counts.tolist(),
    }  # fmt: skip


@contextmanager
def timed(taken: dict[str, float], name: str, module: Any, function: str) -> Iterator[None]:
    """Add up the seconds that a function of a module takes, until the device has finished."""
    import cupy

    real = getattr(module, function)

    def wrapped(*given: Any, **named: Any) -> Any:
        began = perf_counter()
        try:
            return real(*given, **named)
        finally:
            cupy.cuda.get_current_stream().synchronize()
            taken[name] = taken.get(name, 0.0) + perf_counter() - began

    setattr(module, function, wrapped)
    try:
        yield
    finally:
        setattr(module, function, real)


def breakdown(source: Source) -> dict[str, Any] | None:
    """Seconds of each step of a few batches of compressed chunks, one after another; None if there is no batch."""
    import cupy

    from pipeline.gpu import batches as of_batches
    from pipeline.gpu import decoding
    from pipeline.gpu.blocks import BLOCK_BYTES

    chunk = next(iter(plan(source, CHUNK_BYTES, "off", 0)))
    began = perf_counter()
    planned = [*of_batches.batches(chunk.pieces, source.dtype, BLOCK_BYTES)]
    planning = (perf_counter() - began) / len(planned)
    parts = [part for part in planned[:BATCHES] if isinstance(part, decoding.Batch)]
    if len(parts) < 2:
        return None
    job = Job(WORKFLOWS["histogram"], OPTIONS).prepared(source.dtype)
    slot, rows = cupy.empty(BLOCK_BYTES, cupy.uint8), []
    for part in parts:
        taken: dict[str, float] = {}
        began = perf_counter()
        arriving, decode = part.begin(0, slot)
        started = perf_counter()
        stored = arriving.result()
        arrived = perf_counter()
        made = decode(stored)
        made.get()
        decompressed = perf_counter()
        with timed(taken, "unshuffle", decoding, "unshuffle"):
            block = made.samples()
            cupy.cuda.get_current_stream().synchronize()
        decoded = perf_counter()
        job.compute(block, 0)
        cupy.cuda.get_current_stream().synchronize()
        ended = perf_counter()
        rows.append({
            "begin": started - began, "read and copy": arrived - started, "decompress": decompressed - arrived, **taken,
            "other decoding": decoded - decompressed - sum(taken.values()), "histogram": ended - decoded,
            "stored": stored.nbytes, "samples": block.nbytes, "chunks": len(part.present), "runs": len(part.runs),
        })  # fmt: skip
    counted = rows[1:]
    means = {name: sum(row[name] for row in counted) / len(counted) for name in counted[0]}
    return {"planning": planning} | means


def in_lanes(source: Source) -> float:
    """Bytes of samples per second that the lanes of a GPU stream, each some chunks, without a cluster around them."""
    import cupy

    from pipeline.gpu.blocks import AHEAD, BLOCK_BYTES, CHUNKS, device_blocks

    job = Job(WORKFLOWS["histogram"], OPTIONS).prepared(source.dtype)
    chunks = list(plan(source, CHUNK_BYTES, "off", 0))

    def compute(chunk: Chunk) -> None:
        for block in device_blocks(chunk, Timeline(), BLOCK_BYTES):
            job.compute(block, 0)

    seconds = []
    for _ in range(2):
        began = perf_counter()
        with ThreadPoolExecutor(CHUNKS + AHEAD) as pool:
            list(pool.map(compute, chunks))
        cupy.cuda.runtime.deviceSynchronize()
        seconds.append(perf_counter() - began)
    return sum(chunk.nbytes for chunk in chunks) / min(seconds)


def pinned_rate() -> float:
    """Bytes per second from pinned memory to the device."""
    import cupy

    nbytes, copies = 2**27, 24
    pinned, target = cupy.cuda.alloc_pinned_memory(nbytes), cupy.empty(nbytes, cupy.uint8)
    stream = cupy.cuda.Stream(non_blocking=True)
    for _ in range(2):
        began = perf_counter()
        for _ in range(copies):
            cupy.cuda.runtime.memcpyAsync(target.data.ptr, pinned.ptr, nbytes, 1, stream.ptr)
        stream.synchronize()
    return copies * nbytes / (perf_counter() - began)


def measure(seconds: float, gib: float, times: int, save: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """All figures; `save` gets them after every row."""
    until, device = perf_counter() + seconds, "gpu" if find_devices().usable else "cpu"
    figures: dict[str, Any] = {"environment": environment(), "rows": {}, "left out": {}}
    if device == "gpu":
        figures["pinned bytes per second"] = pinned_rate()
    samples = int(gib * 2**29)
    tile = min(samples, TILE_SAMPLES)
    made = {noisy: (format_stores.noise if noisy else format_stores.held)(tile) for noisy in (False, True)}
    counts = {noisy: samples // tile * np.bincount(one, minlength=LEVELS) for noisy, one in made.items()}
    with tempfile.TemporaryDirectory(dir=MEMORY) as scratch:
        raw = Path(scratch) / "raw.bin"
        format_stores.raw(raw, made[False], samples // tile)
        of_raw = open_source([str(raw)] * times, "int16")
        figures["first run"] = streamed(of_raw, device, "auto", times * counts[False])
        for name, (write, packages, file, dtype, noisy) in STORES.items():
            missing = [package for package in packages if find_spec(package) is None]
            if missing or until - perf_counter() < ROW_SECONDS:
                figures["left out"][name] = missing or "no time"
                continue
            path = Path(scratch) / file
            try:
                write(path, made[noisy], samples // tile)
                # Packed samples cross the bus as they are, so as many bytes as raw ones: they are compared by these.
                turns = times * 4 // 3 if dtype == "u12p" else times
                both = times * counts[False], turns * counts[noisy]
                figures["rows"][name] = row_of(path, dtype, turns, of_raw, device, both)
            except Exception as error:  # the others are still of interest
                figures["left out"][name] = repr(error)
            save(figures)
            print(f"{name}: {until - perf_counter():.0f} s left", flush=True)
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    return figures


def row_of(
    path: Path, dtype: str | None, times: int, of_raw: Source, device: str, counts: tuple[Any, Any]
) -> dict[str, Any]:
    """Runs of a store in turn with raw samples; `counts` of the latter and the former."""
    began = perf_counter()
    source = open_source([str(path)] * times, dtype)
    row: dict[str, Any] = {
        "raw bytes": of_raw.nbytes, "sample bytes": source.nbytes, "stored bytes": times * stored_bytes(path),
        "opening": perf_counter() - began,
    }  # fmt: skip
    for mode, turns in TURNS:
        row[mode], row[f"raw {mode}"] = [], []
        for _ in range(turns):
            row[f"raw {mode}"].append(streamed(of_raw, device, mode, counts[0]))
            row[mode].append(streamed(source, device, mode, counts[1]))
    if device == "gpu":
        row["in lanes"], row["breakdown"] = in_lanes(source), breakdown(source)
    return row


def described(figures: Mapping[str, Any]) -> str:
    """Tables of the rates, and of the milliseconds of a batch."""

    def best(runs: list[dict[str, Any]]) -> dict[str, Any]:
        return min(runs, key=lambda one: float(one["seconds"]))

    lines, steps = [], []
    modes = [mode for mode, _ in TURNS if all(mode in row for row in figures["rows"].values())]
    for name, row in figures["rows"].items():
        cells = [name, f"{row['stored bytes'] / row['sample bytes']:.2f}"]
        for mode in modes:
            ours, raw = best(row[mode]), best(row[f"raw {mode}"])
            rate, of_raw = row["sample bytes"] / ours["seconds"], row["raw bytes"] / raw["seconds"]
            cells += [f"{of_raw / 1e9:.1f}", f"{rate / 1e9:.1f}", f"{rate / of_raw:.2f}",
                      f"{row['stored bytes'] / ours['seconds'] / of_raw:.2f}"]  # fmt: skip
        agrees = all(one["agrees"] for mode in modes for one in row[mode])
        busy = best(row["off"])["stages"]
        cells += [f"{row['in lanes'] / 1e9:.1f}" if "in lanes" in row else "–"]
        cells += [f"{busy.get('read+copy', 0):.2f}", f"{busy.get('kernel', 0):.2f}"]
        cells += [f"{100 * best(row[modes[-1]])['checked']:.0f} %", "yes" if agrees else "NO", f"{row['opening']:.2f}"]
        lines.append(cells)
        if found := row.get("breakdown"):
            names = ("planning", "begin", "read and copy", "decompress", "unshuffle", "other decoding", "histogram")
            steps.append([name, f"{found['samples'] / 2**20:.0f}", f"{found['chunks']:.0f}", f"{found['runs']:.0f}",
                          *(f"{1000 * found.get(step, 0.0):.2f}" for step in names),
                          f"{found['stored'] / found['read and copy'] / 1e9:.1f}",
                          f"{found['samples'] / found['decompress'] / 1e9:.1f}"])  # fmt: skip
    rates = ("raw", "samples", "of raw", "bytes of raw")
    columns = ["GB/s", "stored", *(f"{mode}: {one}" for mode in modes for one in rates),
               "lanes alone: samples", "off: read busy, s", "kernel busy, s", "checked", "agrees",
               "opening, s"]  # fmt: skip
    of_steps = ["a batch, ms", "MiB", "chunks", "runs", "planning", "begin", "read", "decompress", "unshuffle",
                "other", "histogram", "read GB/s", "decompress GB/s"]  # fmt: skip
    return "\n\n".join([
        f"Pinned memory to the device: {figures.get('pinned bytes per second', 0) / 1e9:.1f} GB/s.",
        table(columns, lines), *([table(of_steps, steps)] if steps else []),
        f"Not measured: {'; '.join(name for name in STORES if name not in figures['rows']) or 'nothing'}.",
    ])  # fmt: skip


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path)
    for name, kind, default in (("--seconds", float, 85), ("--gib", float, 2), ("--times", int, 4)):
        parser.add_argument(name, type=kind, default=default)
    given = parser.parse_args()
    prepare()  # as the command does: how long threads wait for the GIL, and how often garbage is collected

    def save(figures: dict[str, Any]) -> None:
        given.out.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")

    print(described(measure(given.seconds, given.gib, given.times, save)))


if __name__ == "__main__":
    main()
