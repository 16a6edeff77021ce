"""Answers of other libraries about one file of samples, printed as JSON.

python tests/benchmarks/question_peers.py PEER QUESTION FILE

Each maps the file, or reads it in the largest parts that are fast, on all cores that it can use.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

CHANNELS, BINS, RANGE = 16, 1024, (-4.0, 4.0)
CACHED = 2**18  # samples that fit the L2 cache
LARGE = 2**24


def mapped(path: str) -> Any:
    return np.memmap(path, np.float32, "r")


def numpy_median(path: str) -> Any:
    return float(np.median(mapped(path)))


def polars_median(path: str) -> Any:
    import polars

    return polars.Series("x", np.asarray(mapped(path))).median()


def duckdb_median(path: str) -> Any:
    import duckdb

    samples = np.asarray(mapped(path))  # found by its name
    row = duckdb.execute("SELECT median(column0) FROM samples").fetchone()
    assert len(samples) and row is not None
    return row[0]


def numpy_channels(path: str) -> Any:
    """In blocks of whole frames."""
    frames = mapped(path).reshape(-1, CHANNELS)
    total = np.zeros((CHANNELS, BINS), np.int64)
    for start in range(0, len(frames), CACHED):
        block = np.ascontiguousarray(frames[start : start + CACHED].T)
        for channel, samples in enumerate(block):
            total[channel] += np.histogram(samples, BINS, RANGE)[0]
    return total.sum(1).tolist()


def boost_channels(path: str) -> Any:
    import boost_histogram as bh

    histogram = bh.Histogram(bh.axis.Integer(0, CHANNELS), bh.axis.Regular(BINS, *RANGE), storage=bh.storage.Int64())
    samples = mapped(path)
    channels = np.tile(np.arange(CHANNELS, dtype=np.int32), LARGE // CHANNELS)
    for start in range(0, len(samples), LARGE):
        block = np.asarray(samples[start : start + LARGE])
        histogram.fill(channels[: len(block)], block, threads=os.cpu_count())
    return histogram.values().sum(1).tolist()


def numpy_selected(path: str) -> Any:
    samples, total = mapped(path), np.zeros(BINS, np.int64)
    for start in range(0, len(samples), CACHED):
        block = np.asarray(samples[start : start + CACHED])
        total += np.histogram(block[(block >= -1) & (block < 2)], BINS, RANGE)[0]
    return int(total.sum())


def numpy_moments(path: str) -> Any:
    """In float64, in two passes."""
    samples = mapped(path)
    blocks = range(0, len(samples), CACHED)
    mean = sum(float(samples[start : start + CACHED].sum(dtype=np.float64)) for start in blocks) / len(samples)
    powers = np.zeros(3)
    for start in blocks:
        away = samples[start : start + CACHED].astype(np.float64) - mean
        square = away * away
        powers += square.sum(), (square * away).sum(), (square * square).sum()
    second, third, fourth = powers / len(samples)
    return [third / second**1.5, fourth / second**2 - 3]


def numpy_rule(path: str) -> Any:
    return len(np.histogram_bin_edges(mapped(path), "fd")) - 1


def numpy_digest(path: str) -> Any:
    import blake3

    return blake3.blake3(max_threads=blake3.blake3.AUTO).update_mmap(path).hexdigest()


PEERS: dict[tuple[str, str], Callable[[str], Any]] = {
    ("NumPy", "median"): numpy_median, ("polars", "median"): polars_median, ("duckdb", "median"): duckdb_median,
    ("NumPy", "channels"): numpy_channels, ("boost_histogram", "channels"): boost_channels,
    ("NumPy", "selected"): numpy_selected, ("NumPy", "moments"): numpy_moments, ("NumPy", "rule"): numpy_rule,
    ("blake3", "digest"): numpy_digest,
}  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(PEERS[sys.argv[1], sys.argv[2]](sys.argv[3])))
