"""Counts of int16 samples below 4096 in files of other formats, by the formats' own libraries; printed as JSON.

python tests/benchmarks/format_peers.py PEER FILE

Each peer reads what it needs at a time, in the largest parts that are fast.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

LEVELS = 4096
CACHED = 2**18  # samples that fit the L2 cache


def h5py_numpy(path: str) -> Any:
    """A contiguous data set in blocks that fit the cache."""
    import h5py

    total = np.zeros(LEVELS, np.int64)
    with h5py.File(path) as file:
        data = file["data"]
        block = np.empty(CACHED, data.dtype)
        for start in range(0, len(data), CACHED):
            part = block[: len(data) - start]
            data.read_direct(part, np.s_[start : start + len(part)])
            total += np.bincount(part, minlength=LEVELS)
    return total


def zarr_dask(path: str) -> Any:
    """An array with a task for each of its files, on all cores."""
    import dask.array as da
    import zarr

    array = zarr.open_array(path, mode="r")
    samples = da.from_zarr(array, chunks=array.shards or array.chunks)
    return da.bincount(samples, minlength=LEVELS).compute(scheduler="threads")


def pyarrow_numpy(path: str) -> Any:
    """The column where it lies in the mapped file, in blocks that fit the cache."""
    import pyarrow

    total = np.zeros(LEVELS, np.int64)
    with pyarrow.memory_map(path) as mapped:
        reader = pyarrow.ipc.open_file(mapped)
        for number in range(reader.num_record_batches):
            samples = reader.get_batch(number).column(0).to_numpy()
            for start in range(0, len(samples), CACHED):
                total += np.bincount(samples[start : start + CACHED], minlength=LEVELS)
    return total


PEERS: dict[str, Callable[[str], Any]] = {
    "h5py + NumPy": h5py_numpy, "zarr + dask.array": zarr_dask, "pyarrow + NumPy": pyarrow_numpy,
}  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(np.asarray(PEERS[sys.argv[1]](sys.argv[2])).tolist()))
