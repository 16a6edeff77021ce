"""A case of reads of scattered runs of a file."""

from __future__ import annotations

import tempfile

import numpy as np


def check_scattered() -> int:
    """Runs of a file are read to their places and not beyond; returns how many were requested."""
    from pipeline.storage.read_runs import read_runs

    data = np.random.default_rng(0).integers(0, 256, 50_000, dtype=np.uint8)
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        lengths = np.arange(1, 300)
        runs = np.stack([np.arange(299) * 168, lengths.cumsum() - lengths, lengths], axis=1)
        memory = np.zeros(lengths.sum(), np.uint8)
        left = read_runs(file.fileno(), memory, runs)
    assert left.tolist() == np.flatnonzero(runs[:, 0] + lengths > len(data)).tolist()
    for first, place, length in np.delete(runs, left, axis=0).tolist():
        np.testing.assert_array_equal(memory[place : place + length], data[first : first + length])
    return len(runs)
