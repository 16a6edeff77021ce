"""The fastest way to do a job in other libraries, each as a separate program; prints its result as JSON.

python tests/benchmarks/peers.py JOB PEER FILE ...

A peer gets a file in blocks where that is faster or takes less memory, and as many threads as there are cores.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

BINS = 1024
THREADS = len(os.sched_getaffinity(0))
CACHED = 2**18  # samples that fit the L2 cache
LARGE = 2**26  # samples that keep all threads of a peer busy

Numbers = Any


def blocks(path: str, dtype: str, size: int) -> Iterator[Any]:
    """A file in blocks of so many samples."""
    samples = np.memmap(path, dtype, "r")
    for start in range(0, len(samples), size):
        yield samples[start : start + size]


def histogram_numpy(path: str) -> Numbers:
    """bincount, in blocks that fit the cache: several times as fast as all at once."""
    return sum(np.bincount(block, minlength=BINS) for block in blocks(path, "int32", CACHED)).tolist()


def histogram_boost(path: str) -> Numbers:
    """boost-histogram with threads, on the axis that is fastest for integers."""
    import boost_histogram

    axis = boost_histogram.axis.Integer(0, BINS, underflow=False, overflow=False)
    histogram = boost_histogram.Histogram(axis, storage=boost_histogram.storage.Int64())
    for block in blocks(path, "int32", LARGE):
        histogram.fill(block, threads=THREADS)
    return histogram.values().astype(int).tolist()


def histogram_polars(path: str) -> Numbers:
    """value_counts."""
    import polars

    counts: Counter[int] = Counter()
    for block in blocks(path, "int32", LARGE):
        counts.update(dict(polars.Series("x", block).value_counts().iter_rows()))
    return [counts[value] for value in range(BINS)]


def histogram_duckdb(path: str) -> Numbers:
    """GROUP BY."""
    import duckdb

    counts: Counter[int] = Counter()
    for block in blocks(path, "int32", LARGE):
        duckdb.register("samples", {"x": block})
        counts.update(dict(duckdb.sql("SELECT x, count(*) FROM samples GROUP BY x").fetchall()))
    return [counts[value] for value in range(BINS)]


def reduce_numpy(path: str) -> Numbers:
    """Sums in float64, block by block."""
    total = squares = 0.0
    count, least, most = 0, np.inf, -np.inf
    for block in blocks(path, "float32", CACHED):
        wide = block.astype(np.float64)
        total, squares, count = total + wide.sum(), squares + wide @ wide, count + len(block)
        least, most = min(least, block.min()), max(most, block.max())
    mean = total / count
    return [total, mean, squares / count - mean * mean, float(least), float(most)]


def reduce_polars(path: str) -> Numbers:
    """One select over the whole file."""
    import polars

    x = polars.col("x")
    whole = polars.DataFrame({"x": np.memmap(path, "float32", "r")}).lazy()
    wide = x.cast(polars.Float64)
    sums = whole.select(wide.sum().alias("a"), wide.mean().alias("b"), wide.var(ddof=0).alias("c"),
                         x.min().alias("d"), x.max().alias("e"))  # fmt: skip
    return list(sums.collect(engine="streaming").row(0))


def reduce_duckdb(path: str) -> Numbers:
    """One SELECT over the whole file."""
    import duckdb

    duckdb.register("samples", {"x": np.memmap(path, "float32", "r")})
    query = "SELECT sum(x::DOUBLE), avg(x::DOUBLE), var_pop(x::DOUBLE), min(x), max(x) FROM samples"
    return list(duckdb.sql(query).fetchall()[0])


def matmul_numpy(a: str, b: str, out: str) -> Numbers:
    """BLAS on mapped files; the product to a file."""
    left, right = np.load(a, mmap_mode="r"), np.load(b)
    product = np.lib.format.open_memmap(out, "w+", left.dtype, (len(left), right.shape[1]))
    np.matmul(left, right, out=product)
    return product[:: max(1, len(product) // 8), 0].tolist()


PEERS: dict[str, dict[str, Callable[..., Numbers]]] = {
    "histogram": {"numpy": histogram_numpy, "boost-histogram": histogram_boost, "polars": histogram_polars,
                  "duckdb": histogram_duckdb},
    "reduce": {"numpy": reduce_numpy, "polars": reduce_polars, "duckdb": reduce_duckdb},
    "matmul": {"numpy": matmul_numpy},
}  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(PEERS[sys.argv[1]][sys.argv[2]](*sys.argv[3:])))
